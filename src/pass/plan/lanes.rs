//! Shaders for subgroups that a software rasteriser runs as the lanes of a vector: eight, or sixteen if it is told so.

use std::iter::successors;

/// Invocations of a workgroup that holds several subgroups.
const INVOCATIONS: usize = 64;

/// The hole of a shader whose workgroups are a subgroup each.
pub fn size(lanes: usize) -> (&'static str, String) {
    let size = format!("@compute @workgroup_size({lanes})\n");
    ("size", size)
}

/// The hole of a shader whose subgroups have an index each, and what its workgroups have of these.
pub fn place(lanes: usize) -> ((&'static str, String), usize) {
    let subgroups = INVOCATIONS / lanes;
    let place = format!(
        "    let index = (workgroup.y * workgroups.x + workgroup.x) * {subgroups}u + local / {lanes}u;\n    \
         let lane = local % {lanes}u;\n"
    );
    (("place", place), subgroups)
}

/// How far apart invocations are that exchange what they have found, one exchange after the other, until all know all of it.
pub fn distances(lanes: usize) -> impl Iterator<Item = usize> {
    let next = |distance: &usize| (*distance > 1).then_some(distance / 2);
    successors(Some(lanes / 2), next)
}
