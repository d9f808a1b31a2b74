//! Shaders for subgroups that a software rasteriser runs as the lanes of a vector: eight, or sixteen if it is told so.

use std::iter::successors;

/// Invocations of a workgroup that holds several subgroups.
const INVOCATIONS: usize = 64;

/// The hole of a shader whose workgroups are a subgroup each.
pub fn size(lanes: usize) -> (&'static str, String) {
    let size = format!("@compute @workgroup_size({lanes})\n");
    ("size", size)
}

/// The hole of a shader whose subgroups have an index each, of which its workgroups have so many.
pub fn place(lanes: usize, subgroups: usize) -> (&'static str, String) {
    let workgroup = "workgroup.y * workgroups.x + workgroup.x";
    let (index, lane) = match subgroups {
        1 => (workgroup.to_string(), String::from("local")),
        _ => (
            format!("({workgroup}) * {subgroups}u + local / {lanes}u"),
            format!("local % {lanes}u"),
        ),
    };
    let place = format!("    let index = {index};\n    let lane = {lane};\n");
    ("place", place)
}

/// The hole of a shader whose invocations have an index each, where its workgroups are a subgroup each.
pub fn index(lanes: usize) -> (&'static str, String) {
    let workgroup = "workgroup.y * workgroups.x + workgroup.x";
    let index = format!("    let index = ({workgroup}) * {lanes}u + local;\n");
    ("index", index)
}

/// Subgroups of a workgroup where so many are to be kept busy: where these are few each is a workgroup of its own, which another
/// core can take.
pub fn subgroups(lanes: usize, count: usize) -> usize {
    let whole = INVOCATIONS / lanes;
    if count < 2 * whole { 1 } else { whole }
}

/// How far apart invocations are that exchange what they have found, one exchange after the other, until all know all of it.
pub fn distances(lanes: usize) -> impl Iterator<Item = usize> {
    let next = |distance: &usize| (*distance > 1).then_some(distance / 2);
    successors(Some(lanes / 2), next)
}
