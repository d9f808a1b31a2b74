//! What a device must hold for a graph to be planned.

use crate::error::{Error, Place, Result};
use crate::ir::{Definition, Graph, ValueId};
use crate::kernel::plan::{Capabilities, Storage};

/// Every value must have a type that the device can store, and every weight must fit a binding.
pub(super) fn check_types(graph: &Graph, capabilities: &Capabilities) -> Result<()> {
    let mut errors = Vec::new();
    for (id, info) in (0..).map(ValueId).zip(&graph.values) {
        let error = match Storage::of(info.ty.dtype, capabilities) {
            Err(error) => Some(error.at(&info.name)),
            Ok(storage) => check_weight(info, storage, capabilities),
        };
        errors.extend(error.map(|error| error.at_place(&place_of(graph, id))));
    }
    Error::all(errors).map_or(Ok(()), Err)
}

/// Where a value is made, or used first if no node makes it.
fn place_of(graph: &Graph, id: ValueId) -> Place {
    let node = graph
        .nodes
        .iter()
        .find(|node| node.results.contains(&id) || node.operands().contains(&id));
    node.map(|node| node.place.clone()).unwrap_or_default()
}

fn check_weight(
    info: &crate::ir::ValueInfo,
    storage: Storage,
    capabilities: &Capabilities,
) -> Option<Error> {
    let Definition::Weight(name) = &info.definition else {
        return None;
    };
    let numel = u64::try_from(info.ty.numel().as_const()?).ok()?;
    let bytes = numel.saturating_mul(storage.size());
    let limit = capabilities
        .max_binding_size
        .min(capabilities.max_buffer_size);
    (bytes > limit).then(|| {
        Error::plan(format!(
            "the weight {name} takes {bytes} bytes as {}, the device binds at most {limit}",
            info.ty
        ))
        .help(
            "run on a device with larger bindings or on the host, or split the weight in the model",
        )
    })
}
