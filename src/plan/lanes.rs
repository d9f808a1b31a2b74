//! Template values for subgroups that a software rasteriser runs as the lanes of a vector: eight, or sixteen if
//! configured.

use std::iter::successors;

/// Invocations of a workgroup that holds several subgroups.
const INVOCATIONS: usize = 64;

/// Template value for workgroups of one subgroup each.
pub fn workgroup_size(lanes: usize) -> (&'static str, String) {
    let size = format!("@compute @workgroup_size({lanes})\n");
    ("size", size)
}

/// Template value that defines subgroup and lane indices, for workgroups of `subgroups` subgroups.
pub fn subgroup_indices(lanes: usize, subgroups: usize) -> (&'static str, String) {
    let workgroup = "workgroup.y * workgroups.x + workgroup.x";
    let (index, lane) = match subgroups {
        1 => (workgroup.to_string(), String::from("local")),
        _ => (
            format!("({workgroup}) * {subgroups}u + local / {lanes}u"),
            format!("local % {lanes}u"),
        ),
    };
    let definitions = format!("    let index = {index};\n    let lane = {lane};\n");
    ("place", definitions)
}

/// Template value that defines an invocation index, for workgroups of one subgroup each.
pub fn invocation_index(lanes: usize) -> (&'static str, String) {
    let workgroup = "workgroup.y * workgroups.x + workgroup.x";
    let index = format!("    let index = ({workgroup}) * {lanes}u + local;\n");
    ("index", index)
}

/// Number of subgroups of a workgroup, given `count` subgroups in total. If there are few, each gets its own workgroup,
/// so that another core can run it.
pub fn subgroups_per_workgroup(lanes: usize, count: usize) -> usize {
    let most = INVOCATIONS / lanes;
    if count < 2 * most { 1 } else { most }
}

/// Distances of the lanes that exchange partial results, one exchange after the other, until all lanes have the total.
pub fn shuffle_distances(lanes: usize) -> impl Iterator<Item = usize> {
    let next = |distance: &usize| (*distance > 1).then_some(distance / 2);
    successors(Some(lanes / 2), next)
}
