//! Which values kernels may read as textures: weights, and those that lie at a place that the planned graph has made.

use crate::ir::{Definition, Graph, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::pass::plan::element::piece::pieces;
use crate::pass::plan::fuse::Fusion;

/// True for each value whose own slot a kernel may read as texels. Weights that no binding holds are bound in pieces, and
/// what a body of a region takes and returns may be anything in the surroundings.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
    is_body: bool,
) -> Vec<bool> {
    let is_of_its_own = |value: ValueId| match graph.value(value).definition {
        Definition::Weight(_) => {
            let storage = fusion.storages[value.index()];
            pieces(graph.value(value), storage, capabilities).is_none()
        }
        Definition::Input(_) => !is_body,
        Definition::Node(..) => !is_body || !graph.outputs.contains(&value),
    };
    let has_texels = |value: ValueId| {
        capabilities.texels
            && fusion.storages[value.index()].texel().is_some()
            && is_of_its_own(whole(fusion, value))
    };
    let values = (0..graph.values.len()).map(ValueId::from);
    values.map(has_texels).collect()
}

/// What a value is a part of, and that perhaps of another; itself if it is none.
fn whole(fusion: &Fusion, value: ValueId) -> ValueId {
    match fusion.parts.get(&value) {
        Some((of, _)) => whole(fusion, *of),
        None => value,
    }
}
