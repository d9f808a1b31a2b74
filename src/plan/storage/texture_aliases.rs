//! Buffer–texture aliasing: values that kernels may read as textures. These are weights and values in slots of the
//! planned graph.

use crate::ir::{Definition, Graph, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::plan::element::chunk::chunks;
use crate::plan::fuse::Fusion;

/// Whether a kernel may read each value's slot as a texture. Weights larger than a binding are bound in chunks, and
/// inputs and outputs of a region's body may be stored in any slot of the enclosing graph.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
    is_body: bool,
) -> Vec<bool> {
    let is_output = graph.output_flags();
    let has_own_slot = |value: ValueId| match graph.value(value).definition {
        Definition::Weight(_) => {
            let storage = fusion.storages[value.index()];
            chunks(graph.value(value), storage, capabilities).is_none()
        }
        Definition::Input(_) => !is_body,
        Definition::Node(..) => !is_body || !is_output[value.index()],
    };
    let is_aliased = |value: ValueId| {
        capabilities.buffer_aliasing
            && fusion.storages[value.index()].texel().is_some()
            && has_own_slot(outermost(fusion, value))
    };
    let values = (0..graph.values.len()).map(ValueId::from);
    values.map(is_aliased).collect()
}

/// The outermost value that a value is stored within; the value itself if there is none.
fn outermost(fusion: &Fusion, value: ValueId) -> ValueId {
    match fusion.concat_parts.get(&value) {
        Some((concat, _)) => outermost(fusion, *concat),
        None => value,
    }
}
