//! Validates a plan before it runs on a device, and reports every violation at once.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::kernel::capabilities::{Capabilities, SizesSpace, StorageType};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Access, Flow, Plan, Slot, SlotId, SlotKind, Step, StepBlock, all_flows};
use crate::shape::TensorType;

use super::sizing::{at_flow, at_step};
use super::weights::{self, WeightSource};

/// Checks a plan against a device and the weights that it names. `uniform_limit` is the device's maximum size of a
/// uniform buffer binding in bytes.
pub(super) fn validate(
    plan: &Plan,
    capabilities: &Capabilities,
    uniform_limit: u64,
    weights: &dyn WeightSource,
) -> Result<()> {
    let mut errors = Vec::new();
    errors.extend(unknown_slots(plan));
    // The remaining checks index slots and kernels.
    if let Some(error) = Error::all(std::mem::take(&mut errors)) {
        return Err(error);
    }
    for slot in &plan.slots {
        errors.extend(check_slot(slot, capabilities, weights));
    }
    for flow in all_flows(&plan.flows) {
        errors.extend(check_flow(plan, flow).map(|error| at_flow(error, flow)));
    }
    for (index, step) in plan.steps.iter().enumerate() {
        let found = check_step(plan, index, step, capabilities, uniform_limit);
        errors.extend(found.map(|error| at_step(error, step)));
    }
    Error::all(errors).map_or(Ok(()), Err)
}

/// The error of a plan that names a kernel, slot or step that it does not have.
fn unknown_slots(plan: &Plan) -> Option<Error> {
    let known = |slot: &SlotId| slot.0 < plan.slots.len();
    let steps = plan.steps.iter();
    let is_valid = steps
        .clone()
        .all(|step| step.kernel < plan.kernels.len() && step.bindings.iter().all(known))
        && host_access_slots(plan).all(|slot| known(&slot))
        && flows_are_ordered(&plan.flows, 0..plan.steps.len())
        && plan.inputs.iter().flatten().all(known)
        && plan.word_slots().all(|slot| known(&slot))
        && plan.outputs.iter().all(known);
    (!is_valid)
        .then(|| Error::internal("the plan names a kernel, slot or step that it does not have"))
}

/// Slots that the host reads or writes during a run, for control flow.
fn host_access_slots(plan: &Plan) -> impl Iterator<Item = SlotId> {
    let flows = all_flows(&plan.flows).into_iter();
    flows.flat_map(|flow| {
        let scalars = flow.readbacks().into_iter().map(|(slot, _)| slot);
        scalars.chain(flow.host_call_slots())
    })
}

/// True if flows and their blocks are in order, without overlap, within a range of steps.
fn flows_are_ordered(flows: &[Flow], steps: Range<usize>) -> bool {
    let inside = |range: &Range<usize>, previous_end: usize| {
        previous_end <= range.start && range.end <= steps.end
    };
    let mut previous_end = steps.start;
    flows.iter().all(|flow| {
        flow.blocks().into_iter().all(|block: &StepBlock| {
            let is_ordered =
                inside(&block.steps, previous_end) && block.steps.start <= block.steps.end;
            previous_end = block.steps.end;
            is_ordered && flows_are_ordered(&block.flows, block.steps.clone())
        })
    })
}

/// Checks that control flow reads scalars, and only while they are live.
fn check_flow(plan: &Plan, flow: &Flow) -> Option<Error> {
    let wrong = flow
        .readbacks()
        .into_iter()
        .find(|(slot, step)| !plan.slots[slot.0].shape.is_empty() || !is_live(plan, *slot, *step));
    wrong.map(|(slot, step)| {
        let name = &plan.slots[slot.0].name;
        Error::internal(format!("{name} is not a live scalar at step {step}"))
    })
}

/// The error of a slot whose storage type, layout or weight is invalid.
fn check_slot(
    slot: &Slot,
    capabilities: &Capabilities,
    source: &dyn WeightSource,
) -> Option<Error> {
    let is_texture = matches!(slot.layout, Layout::Panels(_));
    let is_unsupported = match slot.storage {
        StorageType::F16 => !capabilities.float16 && !is_texture,
        StorageType::I64 => !capabilities.int64,
        StorageType::F64 => !capabilities.float64,
        StorageType::U32 | StorageType::I32 | StorageType::F16x2 | StorageType::F32 => false,
    };
    if is_unsupported {
        let (name, storage) = (&slot.name, slot.storage);
        return Some(Error::plan(format!(
            "{name} is planned as {storage}, which the device does not support"
        )));
    }
    if !layout_is_valid(slot) {
        let name = &slot.name;
        return Some(Error::internal(format!(
            "the slot {name} does not support its layout"
        )));
    }
    let SlotKind::Weight(name) = &slot.kind else {
        return None;
    };
    match source.ty(name) {
        None => Some(weights::missing_weight(name)),
        Some(weight) if !has_type(slot, &weight) => Some(Error::input(format!(
            "the weight {name} is {weight}, the plan expects {}[{}]",
            slot.dtype,
            format_sizes(&slot.shape)
        ))),
        Some(_) => None,
    }
}

/// True if a slot of this kind may have its layout. Temporaries may be padded, in vec4, in sorted runs, or scratch in
/// single precision; inputs may be padded; weights may be in panels, in vec4 and in chunks.
fn layout_is_valid(slot: &Slot) -> bool {
    let is_weight = matches!(slot.kind, SlotKind::Weight(_));
    let is_external = matches!(
        slot.kind,
        SlotKind::Input(_) | SlotKind::Output | SlotKind::Words
    );
    let is_temporary = matches!(slot.kind, SlotKind::Temporary { .. });
    let is_single = slot.storage == StorageType::F32;
    let is_texel = slot.storage.texel().is_some();
    match slot.layout {
        Layout::Linear => true,
        Layout::Padded { .. } => {
            let is_input = matches!(slot.kind, SlotKind::Input(_));
            !slot.shape.is_empty() && (is_temporary || is_input) && is_texel
        }
        Layout::Vec4 { axis } => axis < slot.shape.len() && !is_external && is_texel,
        Layout::Scratch { .. } => is_temporary && is_single,
        Layout::Panels(_) => is_weight && is_texel,
        Layout::SortedRuns(_) => is_temporary,
        Layout::Chunk { .. } => is_weight,
    }
}

/// True if a weight has the element type and shape that its slot expects.
fn has_type(slot: &Slot, weight: &TensorType) -> bool {
    slot.dtype == weight.dtype && slot.shape == weight.shape
}

/// Sizes separated by commas.
fn format_sizes(shape: &[crate::dim::Dim]) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    sizes.join(", ")
}

/// The first error of a step: in the number of its bindings or sizes, a limit of the device, an access, or a lifetime.
fn check_step(
    plan: &Plan,
    index: usize,
    step: &Step,
    capabilities: &Capabilities,
    uniform_limit: u64,
) -> Option<Error> {
    let kernel = &plan.kernels[step.kernel];
    let label = &kernel.label;
    if step.bindings.len() != kernel.bindings.len() || step.sizes.len() != kernel.sizes {
        return Some(Error::internal(format!(
            "kernel {label} takes {} buffers and {} sizes, the step has {} and {}",
            kernel.bindings.len(),
            kernel.sizes,
            step.bindings.len(),
            step.sizes.len()
        )));
    }
    let textures = kernel.bindings.iter();
    let textures = textures.filter(|access| access.is_texture()).count();
    let limit = capabilities.max_storage_buffers;
    if kernel.bindings.len() - textures > limit as usize {
        return Some(Error::plan(format!(
            "kernel {label} binds {} buffers, the device has {limit}",
            kernel.bindings.len() - textures
        )));
    }
    let limit = capabilities.textures.bindings;
    if textures > limit as usize {
        return Some(Error::plan(format!(
            "kernel {label} binds {textures} textures, the device has {limit}"
        )));
    }
    let mut pairs = step.bindings.iter().zip(&kernel.bindings);
    let mismatched =
        pairs.find(|(slot, access)| !access_is_valid(&plan.slots[slot.0], **access, capabilities));
    if let Some((slot, _)) = mismatched {
        let name = &plan.slots[slot.0].name;
        return Some(Error::internal(format!(
            "step {index} ({label}) binds {name} with the wrong access: buffer or texture"
        )));
    }
    let is_uniform = kernel.sizes_space == SizesSpace::Uniform;
    if is_uniform && kernel.sizes as u64 * 4 > uniform_limit {
        return Some(Error::plan(format!(
            "kernel {label} takes {} sizes, which exceed the uniform buffer limit of {uniform_limit} bytes",
            kernel.sizes
        )));
    }
    let dead = step
        .bindings
        .iter()
        .find(|slot| !is_live(plan, **slot, index))?;
    Some(Error::internal(format!(
        "step {index} ({label}) uses {} outside of its lifetime",
        plan.slots[dead.0].name
    )))
}

/// True if a kernel may access a slot this way: panels are textures, and other slots may alias textures.
fn access_is_valid(slot: &Slot, access: Access, capabilities: &Capabilities) -> bool {
    let is_panels = matches!(slot.layout, Layout::Panels(_));
    match access {
        Access::Read | Access::ReadWrite | Access::CheckFlags | Access::StartedWorkgroups => {
            !is_panels
        }
        Access::TextureArray(texel) => is_panels && slot.texel() == Some(texel),
        Access::AliasedTexture(texel) => {
            capabilities.buffer_aliasing && !is_panels && slot.texel() == Some(texel)
        }
    }
}

/// True if a slot is live at a step.
fn is_live(plan: &Plan, slot: SlotId, step: usize) -> bool {
    match &plan.slots[slot.0].kind {
        SlotKind::Temporary { first, last } => (*first..=*last).contains(&step),
        SlotKind::Subview { parent, .. } => *parent < slot && is_live(plan, *parent, step),
        _ => true,
    }
}
