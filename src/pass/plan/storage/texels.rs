//! Which values kernels may read as textures: those that lie in the arena, at a place of their own.

use std::collections::HashSet;

use crate::ir::{Definition, Graph, Op, ValueId};
use crate::kernel::capabilities::{Capabilities, Storage};
use crate::pass::plan::fuse::Fusion;

/// True for each value whose own slot a kernel may read as texels. Outputs are where the host reads them, `exchanged` values
/// where functions of the application do; parts begin anywhere, and values of regions may lie where others do.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
    exchanged: &HashSet<ValueId>,
) -> Vec<bool> {
    let is_between = |value: ValueId| {
        let Definition::Node(node, _) = graph.value(value).definition else {
            return false;
        };
        let is_elsewhere = graph.outputs.contains(&value) || exchanged.contains(&value);
        let is_of_region = matches!(graph.nodes[node].op, Op::Region(_));
        !is_elsewhere && !is_of_region && !fusion.parts.contains_key(&value)
    };
    let values = (0..graph.values.len()).map(ValueId::from);
    let is_single = |value: ValueId| fusion.storages[value.index()] == Storage::F32;
    values
        .map(|value| capabilities.texels && is_single(value) && is_between(value))
        .collect()
}
