//! Checks that a device can store the types of all values and run workgroups of the kernels' sizes.

use crate::error::{Error, Result, SourcePlace};
use crate::ir::{Graph, ValueId};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::plan::Plan;

/// Checks that the device can store the type of every value.
pub(super) fn check_types(graph: &Graph, capabilities: &Capabilities) -> Result<()> {
    let mut errors = Vec::new();
    for (id, info) in (0..).map(ValueId).zip(&graph.values) {
        let stored = StorageType::of(info.ty.dtype, capabilities);
        let error = stored.err().map(|error| error.at(&info.name));
        errors.extend(error.map(|error| error.at_place(&source_place_of(graph, id))));
    }
    Error::all(errors).map_or(Ok(()), Err)
}

/// Checks that the device can run workgroups as large as those of the kernels. WebGPU guarantees 256 invocations.
pub(super) fn check_workgroups(plan: &Plan, capabilities: &Capabilities) -> Result<()> {
    let limit = u64::from(capabilities.max_invocations);
    let mut errors = Vec::new();
    for step in &plan.steps {
        let kernel = &plan.kernels[step.kernel];
        let invocations = kernel.workgroup_invocations().unwrap_or(0);
        if limit < invocations {
            let message = format!(
                "kernel {} needs workgroups of {invocations} invocations; the device allows {limit}",
                kernel.label
            );
            let error = Error::plan(message).help("use another device, or run on the host: cpu");
            errors.push(error.at(step.nodes.join(" + ")).at_place(&step.place));
        }
    }
    Error::all(errors).map_or(Ok(()), Err)
}

/// Source place of the node that defines a value, or of the first node that uses an input or weight.
fn source_place_of(graph: &Graph, id: ValueId) -> SourcePlace {
    let node = graph
        .nodes
        .iter()
        .find(|node| node.results.contains(&id) || node.operands().contains(&id));
    node.map(|node| node.place.clone()).unwrap_or_default()
}
