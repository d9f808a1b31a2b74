//! Evaluates a plan for given sizes: shapes, memory placement, sizes for kernels and workgroup counts.

use std::ops::RangeInclusive;

use crate::dim::{Bindings, Dim};
use crate::error::{Error, ErrorContext, Result, SourcePlace};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::layout::{Layout, Panels, Texel};
use crate::kernel::plan::{Flow, Plan, Slot, SlotId, SlotKind, Step};
use crate::shape::sizes;

use super::arena::{ArenaItem, BufferLocation, assign_locations, one_buffer_each, peak_live_bytes};
use super::device::GpuDevice;
use super::program::Keep;

/// Binding sizes are multiples of this many bytes, so that a kernel may access the last elements with a whole vector.
const BINDING_GRANULARITY: u64 = 32;

/// Constraints on memory placement.
#[derive(Clone, Debug)]
pub(super) struct PlacementRules {
    /// Limits of the device.
    pub(super) capabilities: Capabilities,
    /// Alignment in bytes of each step's sizes in their buffer.
    pub(super) size_alignment: u64,
    /// Determines whether temporaries with disjoint lifetimes share memory.
    pub(super) keep: Keep,
}

impl PlacementRules {
    /// Rules for a device.
    pub(super) fn for_device(device: &GpuDevice, keep: Keep) -> PlacementRules {
        let limits = device.limits();
        let storage = u64::from(limits.min_storage_buffer_offset_alignment);
        let uniform = u64::from(limits.min_uniform_buffer_offset_alignment);
        PlacementRules {
            capabilities: device.capabilities().clone(),
            size_alignment: storage.max(uniform).max(16),
            keep,
        }
    }

    /// Rules for any device with these capabilities.
    fn for_capabilities(capabilities: &Capabilities) -> PlacementRules {
        PlacementRules {
            capabilities: capabilities.clone(),
            size_alignment: 256,
            keep: Keep::Outputs,
        }
    }
}

/// The set of buffers that a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRegion {
    /// One buffer or texture for each weight, made with the program.
    Weights,
    /// One buffer for each input.
    Inputs,
    /// The arena.
    Temporaries,
    /// Within another slot, which is in the arena or in the outputs.
    InParent,
    /// One buffer for each output.
    Outputs,
}

/// Location and size of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotPlacement {
    pub(super) region: SlotRegion,
    /// Location among the buffers of the region.
    pub(super) location: BufferLocation,
    /// Bytes of the elements.
    pub(super) bytes: u64,
    /// Bytes of a binding to the slot.
    pub(super) binding_bytes: u64,
    /// Width, height, layers and texel type of a weight's texture; `None` for a buffer.
    pub(super) texture: Option<([u32; 3], Texel)>,
}

/// A plan evaluated for given sizes of its symbols.
#[derive(Debug, Default)]
pub(super) struct Sizing {
    /// Shape of each slot.
    pub(super) shapes: Vec<Vec<usize>>,
    /// Placement of each slot.
    pub(super) placements: Vec<SlotPlacement>,
    /// Bytes of each input buffer.
    pub(super) inputs: Vec<u64>,
    /// Bytes of each buffer of the arena.
    pub(super) temporaries: Vec<u64>,
    /// Largest sum of bytes of temporaries that are live at the same step.
    pub(super) peak_live_bytes: u64,
    /// Bytes of each output buffer.
    pub(super) outputs: Vec<u64>,
    /// Sizes for the kernels of all steps, as bytes of one buffer.
    pub(super) size_data: Vec<u8>,
    /// Offset of each step's sizes in that buffer.
    pub(super) size_offsets: Vec<u64>,
    /// Workgroup counts of each step; a zero means that nothing is dispatched.
    pub(super) workgroups: Vec<[u32; 3]>,
}

/// Bytes of device memory that a plan needs for given sizes of its symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// Weights.
    pub weights: u64,
    /// Inputs.
    pub inputs: u64,
    /// Values between kernels; those with disjoint lifetimes share memory.
    pub temporaries: u64,
    /// Largest sum of bytes of temporaries that are live at the same step: a lower bound for any memory sharing.
    pub temporaries_live: u64,
    /// Bytes of temporaries if they shared no memory.
    pub temporaries_unshared: u64,
    /// Outputs.
    pub outputs: u64,
}

impl Footprint {
    /// Computes the footprint of a plan without a device. Fails if a slot or a workgroup count exceeds the limits.
    pub fn of(plan: &Plan, capabilities: &Capabilities, bindings: &Bindings) -> Result<Footprint> {
        Ok(evaluate(
            plan,
            bindings,
            &PlacementRules::for_capabilities(capabilities),
        )?
        .footprint())
    }

    /// Sum of weights, inputs, temporaries and outputs.
    pub fn total(&self) -> u64 {
        self.weights + self.inputs + self.temporaries + self.outputs
    }
}

impl Sizing {
    pub(super) fn footprint(&self) -> Footprint {
        let region_bytes = |region| {
            let placements = self
                .placements
                .iter()
                .filter(move |placement| placement.region == region);
            placements.map(|placement| placement.binding_bytes).sum()
        };
        Footprint {
            weights: region_bytes(SlotRegion::Weights),
            inputs: region_bytes(SlotRegion::Inputs),
            temporaries: self.temporaries.iter().sum(),
            temporaries_live: self.peak_live_bytes,
            temporaries_unshared: region_bytes(SlotRegion::Temporaries),
            outputs: region_bytes(SlotRegion::Outputs),
        }
    }
}

/// Location of a slot on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotAllocation {
    /// Sizes of the value.
    pub shape: Vec<usize>,
    /// Bytes of its elements.
    pub bytes: u64,
    /// Index among the buffers of the slot's kind; 0 for weights, which have one buffer each.
    pub buffer: usize,
    /// Bytes from the start of the buffer.
    pub offset: u64,
}

/// Locations of all slots of a plan on a device, for given sizes of its symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryMap {
    /// In the order of the plan's slots.
    pub slots: Vec<SlotAllocation>,
    /// Total sizes.
    pub footprint: Footprint,
}

impl MemoryMap {
    /// Computes the map for `device`; without one, for any device with these capabilities. Fails if a slot or a
    /// workgroup count exceeds the limits.
    pub fn of(
        plan: &Plan,
        capabilities: &Capabilities,
        device: Option<&GpuDevice>,
        bindings: &Bindings,
    ) -> Result<MemoryMap> {
        let for_any_device = || PlacementRules::for_capabilities(capabilities);
        let rules = device.map_or_else(for_any_device, |device| {
            PlacementRules::for_device(device, Keep::Outputs)
        });
        let sizing = evaluate(plan, bindings, &rules)?;
        let slots = sizing.shapes.iter().zip(&sizing.placements);
        let slots = slots.map(|(shape, placement)| SlotAllocation {
            shape: shape.clone(),
            bytes: placement.bytes,
            buffer: placement.location.buffer,
            offset: placement.location.offset,
        });
        Ok(MemoryMap {
            slots: slots.collect(),
            footprint: sizing.footprint(),
        })
    }
}

/// Evaluates a plan for given sizes. The error lists every slot that is too large for the device.
pub(super) fn evaluate(plan: &Plan, bindings: &Bindings, rules: &PlacementRules) -> Result<Sizing> {
    let mut sizing = Sizing::default();
    let mut errors = Vec::new();
    for (index, slot) in plan.slots.iter().enumerate() {
        match place_slot(slot, bindings, rules) {
            Ok((shape, placement)) => {
                sizing.shapes.push(shape);
                sizing.placements.push(placement);
            }
            Err(error) => errors.push(at_first_use(error, plan, SlotId(index))),
        }
    }
    if let Some(error) = Error::all(errors) {
        return Err(error);
    }
    assign_memory(plan, rules, &mut sizing);
    assign_subviews(plan, bindings, &mut sizing)?;
    for step in &plan.steps {
        let workgroups = step
            .workgroups
            .eval(bindings, rules.capabilities.max_workgroups)
            .map_err(|error| at_step(error, step))?;
        sizing.workgroups.push(workgroups);
        push_sizes(&mut sizing, step, bindings, rules).map_err(|error| at_step(error, step))?;
    }
    Ok(sizing)
}

/// Shape and placement of a slot; its location is assigned later.
fn place_slot(
    slot: &Slot,
    bindings: &Bindings,
    rules: &PlacementRules,
) -> Result<(Vec<usize>, SlotPlacement)> {
    let shape = sizes(&slot.shape, bindings).at(|| slot.name.clone())?;
    if let Layout::Panels(panels) = &slot.layout {
        return place_texture(slot, shape, panels, rules);
    }
    let limit = rules.capabilities.max_binding_size;
    let elements = slot
        .layout
        .allocated_elements(&shape)
        .map(|count| count as u64);
    let bytes = elements.and_then(|count| count.checked_mul(slot.storage.size()));
    let bytes = bytes.unwrap_or(u64::MAX);
    let binding_bytes = bytes
        .max(1)
        .checked_next_multiple_of(BINDING_GRANULARITY)
        .unwrap_or(u64::MAX)
        .min(limit - limit % 4);
    if bytes > binding_bytes {
        return Err(Error::plan(format!(
            "{} takes {bytes} bytes as {}{shape:?}; the device binds at most {limit} bytes",
            slot.name, slot.storage,
        ))
        .help("use smaller inputs, a device with larger buffers, or run on the host"));
    }
    let placement = SlotPlacement {
        region: slot_region(&slot.kind),
        location: BufferLocation::default(),
        bytes,
        binding_bytes,
        texture: None,
    };
    Ok((shape, placement))
}

/// Shape and placement of a weight in a texture.
fn place_texture(
    slot: &Slot,
    shape: Vec<usize>,
    panels: &Panels,
    rules: &PlacementRules,
) -> Result<(Vec<usize>, SlotPlacement)> {
    let missing = || Error::internal("no texel type fits the storage type of a texture slot");
    let texel = slot.texel().ok_or_else(missing)?;
    let extent = panels.extent(texel);
    if !rules.capabilities.textures.fits(extent) {
        return Err(Error::plan(format!(
            "{} needs a texture of {extent:?} texels, which exceeds the device's limits",
            slot.name,
        )));
    }
    let extent = extent.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let bytes = texture_bytes(extent, texel);
    let placement = SlotPlacement {
        region: slot_region(&slot.kind),
        location: BufferLocation::default(),
        bytes,
        binding_bytes: bytes,
        texture: Some((extent, texel)),
    };
    Ok((shape, placement))
}

/// Bytes of a texture of a width, a height and a number of layers.
pub(super) fn texture_bytes(extent: [u32; 3], texel: Texel) -> u64 {
    extent.map(u64::from).iter().product::<u64>() * texel.bytes()
}

/// Placement of a weight, whose shape has no symbols.
pub(super) fn weight_placement(slot: &Slot, rules: &PlacementRules) -> Result<SlotPlacement> {
    place_slot(slot, &Bindings::new(), rules).map(|(_, place)| place)
}

/// Region of a slot of a kind.
fn slot_region(kind: &SlotKind) -> SlotRegion {
    match kind {
        SlotKind::Input(_) => SlotRegion::Inputs,
        SlotKind::Weight(_) => SlotRegion::Weights,
        SlotKind::Temporary { .. } => SlotRegion::Temporaries,
        SlotKind::Subview { .. } => SlotRegion::InParent,
        SlotKind::Output | SlotKind::Words => SlotRegion::Outputs,
    }
}

/// Assigns locations to inputs, temporaries and outputs. Temporaries share the buffers of the arena; each other slot
/// has a buffer to itself.
fn assign_memory(plan: &Plan, rules: &PlacementRules, sizing: &mut Sizing) {
    let placements = &sizing.placements;
    let slots_of = |region| -> Vec<usize> {
        (0..placements.len())
            .filter(|slot| placements[*slot].region == region)
            .collect()
    };
    let separate_buffers = |slots: &[usize]| {
        let bytes: Vec<u64> = slots
            .iter()
            .map(|slot| placements[*slot].binding_bytes)
            .collect();
        one_buffer_each(&bytes)
    };
    let item = |slot: &usize| ArenaItem {
        bytes: placements[*slot].binding_bytes,
        live: lifetime(&plan.slots[*slot].kind, rules.keep),
    };
    let regions = [
        SlotRegion::Inputs,
        SlotRegion::Temporaries,
        SlotRegion::Outputs,
    ];
    let [inputs, temporaries, outputs] = regions.map(slots_of);
    let items: Vec<ArenaItem> = temporaries.iter().map(item).collect();
    let arena = assign_locations(
        &items,
        rules.capabilities.offset_alignment,
        rules.capabilities.max_buffer_size,
    );
    let layouts = [separate_buffers(&inputs), arena, separate_buffers(&outputs)];
    for (slots, layout) in [inputs, temporaries, outputs].iter().zip(&layouts) {
        for (slot, location) in slots.iter().zip(&layout.locations) {
            sizing.placements[*slot].location = *location;
        }
    }
    [sizing.inputs, sizing.temporaries, sizing.outputs] = layouts.map(|layout| layout.buffers);
    sizing.peak_live_bytes = peak_live_bytes(&items);
}

/// Assigns locations to subviews. A slot comes before its subviews, so that its location is known.
fn assign_subviews(plan: &Plan, bindings: &Bindings, sizing: &mut Sizing) -> Result<()> {
    for (index, slot) in plan.slots.iter().enumerate() {
        if let SlotKind::Subview { parent, offset } = &slot.kind {
            let elements = u64::try_from(offset.eval(bindings)?).unwrap_or(u64::MAX);
            let BufferLocation { buffer, offset } = sizing.placements[parent.0].location;
            let offset = elements
                .checked_mul(slot.storage.size())
                .and_then(|bytes| offset.checked_add(bytes))
                .ok_or_else(|| {
                    Error::plan(format!("the offset of {} overflows 64 bits", slot.name))
                })?;
            sizing.placements[index].location = BufferLocation { buffer, offset };
        }
    }
    Ok(())
}

/// First and last step between which no other slot may use a slot's memory.
fn lifetime(kind: &SlotKind, keep: Keep) -> RangeInclusive<usize> {
    match kind {
        SlotKind::Temporary { first, last } if keep == Keep::Outputs => *first..=*last.max(first),
        _ => 0..=usize::MAX,
    }
}

/// Appends the values of a step's sizes to the size data, and records their offset.
fn push_sizes(
    sizing: &mut Sizing,
    step: &Step,
    bindings: &Bindings,
    rules: &PlacementRules,
) -> Result<()> {
    let pad = |bytes: &mut Vec<u8>, alignment: u64| {
        let length = (bytes.len() as u64).next_multiple_of(alignment);
        bytes.resize(length as usize, 0);
        length
    };
    let offset = pad(&mut sizing.size_data, rules.size_alignment);
    sizing.size_offsets.push(offset);
    for dim in &step.sizes {
        let number = size_value(dim, bindings)?;
        sizing.size_data.extend(number.to_le_bytes());
    }
    pad(&mut sizing.size_data, 16);
    Ok(())
}

/// A size as the kernel reads it; a negative size is the bit pattern of an `i32`.
fn size_value(dim: &Dim, bindings: &Bindings) -> Result<u32> {
    let value = dim.eval(bindings)?;
    u32::try_from(value)
        .or_else(|_| i32::try_from(value).map(i32::cast_unsigned))
        .map_err(|_| Error::plan(format!("the size {dim} is {value}, too large for 32 bits")))
}

/// Adds the first step that uses a slot to an error's trail.
pub(super) fn at_first_use(error: Error, plan: &Plan, slot: SlotId) -> Error {
    match plan.steps.iter().find(|step| step.bindings.contains(&slot)) {
        Some(step) => at_step(error, step),
        None => error,
    }
}

/// Adds a step to an error's trail.
pub(super) fn at_step(error: Error, step: &Step) -> Error {
    at_nodes(error, &step.nodes, &step.place)
}

/// Adds control flow to an error's trail.
pub(super) fn at_flow(error: Error, flow: &Flow) -> Error {
    at_nodes(error, &flow.nodes, &flow.place)
}

/// Adds graph nodes and a source position to an error's trail.
fn at_nodes(error: Error, nodes: &[String], place: &SourcePlace) -> Error {
    let error = if nodes.is_empty() {
        error
    } else {
        error.at(nodes.join(" + "))
    };
    error.at_place(place)
}
