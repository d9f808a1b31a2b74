//! Run contexts: memory that one run uses at a time, and the bind groups that are cached for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding,
    BufferSize, BufferUsages, SubmissionIndex, TextureView, TextureViewDescriptor,
};

use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::layout::Texel;
use crate::kernel::plan::{Access, Flow, Plan, SlotId, Step, all_flows};

use super::arena::{ArenaItem, BufferLocation, assign_locations};
use super::error_scope::in_error_scope;
use super::memory::{SlotMemory, array_view};
use super::pool::BufferPool;
use super::program::ProgramInner;
use super::sizing::{Sizing, SlotPlacement, SlotRegion, evaluate};
use super::statistics::add;

/// Bytes of the largest scalar.
const MAX_SCALAR_BYTES: u64 = 8;

/// Memory that one run uses at a time. Its buffers only grow.
#[derive(Default)]
pub(super) struct RunContext {
    /// One buffer for each input slot.
    inputs: BufferPool,
    /// The arena.
    temporaries: BufferPool,
    /// One buffer for each output slot.
    outputs: BufferPool,
    /// Staging memory that the host writes; not used if the host writes input slots directly.
    upload: BufferPool,
    /// Staging memory that the host reads.
    download: BufferPool,
    /// The buffer for numbers that control flow depends on, and for operands of host functions.
    readback: BufferPool,
    /// Bindings for recent sizes, most recently used first.
    cached: VecDeque<Arc<RunBinding>>,
    /// The last submission that uses this memory.
    pub(super) submission: Option<SubmissionIndex>,
}

/// Everything that a run with certain sizes needs besides its inputs.
pub(super) struct RunBinding {
    /// Values of the symbolic sizes.
    pub(super) sizes: Bindings,
    /// The plan evaluated for these sizes.
    pub(super) sizing: Sizing,
    /// Memory of each slot.
    pub(super) memory: Vec<SlotMemory>,
    /// The bind group of each step; `None` if it dispatches nothing.
    pub(super) bind_groups: Vec<Option<BindGroup>>,
    /// Memory into which the host writes each input; `None` for inputs that the plan does not use.
    pub(super) uploads: Vec<Option<HostAccess>>,
    /// Memory from which the host reads each output slot and the slot of the check flags.
    pub(super) downloads: Vec<(SlotId, HostAccess)>,
    /// Buffer for numbers that control flow depends on, and for operands of host functions; `None` if the plan has no
    /// control flow.
    pub(super) readback: Option<Buffer>,
}

/// Memory through which the host accesses a slot.
#[derive(Clone)]
pub(super) struct HostAccess {
    pub(super) memory: SlotMemory,
    /// Bytes from the start of the memory.
    pub(super) offset: u64,
    /// True if this is a staging copy, false if it is the slot's own memory.
    pub(super) staged: bool,
}

impl RunContext {
    /// Creates a context for a device, without any memory.
    pub(super) fn new(capabilities: &Capabilities) -> RunContext {
        let pool = || BufferPool::new(capabilities.buffer_aliasing);
        RunContext {
            inputs: pool(),
            temporaries: pool(),
            outputs: pool(),
            ..RunContext::default()
        }
    }

    /// Returns the bindings for given sizes; creates them if they are not cached.
    pub(super) fn bindings_for(
        &mut self,
        program: &ProgramInner,
        sizes: &Bindings,
    ) -> Result<Arc<RunBinding>> {
        let cached_index = self.cached.iter().position(|cached| cached.sizes == *sizes);
        let binding = match cached_index.and_then(|index| self.cached.remove(index)) {
            Some(binding) => binding,
            None => {
                check_guards(&program.plan, sizes)?;
                let sizing = evaluate(&program.plan, sizes, &program.rules)?;
                in_error_scope(program.device.wgpu(), || {
                    self.create(program, sizes.clone(), sizing)
                })?
            }
        };
        self.cached.push_front(binding.clone());
        self.cached.truncate(program.options.cached_sizes.max(1));
        Ok(binding)
    }

    /// Creates the bindings for given sizes: grows the buffers where needed, then creates the bind groups.
    fn create(
        &mut self,
        program: &ProgramInner,
        sizes: Bindings,
        sizing: Sizing,
    ) -> Result<Arc<RunBinding>> {
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let has_aliasing = program.rules.capabilities.buffer_aliasing;
        // True if the host accesses inputs and outputs in the slots' own memory.
        let is_direct = has_aliasing || program.device.maps_directly();
        let [write, read] = if is_direct && !has_aliasing {
            [
                storage | BufferUsages::MAP_WRITE,
                storage | BufferUsages::MAP_READ,
            ]
        } else {
            [storage; 2]
        };
        let temporaries = &sizing.temporaries;
        let mut is_replaced = self.inputs.grow(program, "inputs", &sizing.inputs, write)?;
        is_replaced |= self
            .outputs
            .grow(program, "outputs", &sizing.outputs, read)?;
        is_replaced |= self
            .temporaries
            .grow(program, "arena", temporaries, storage)?;
        if is_replaced {
            // Cached bindings would keep the smaller buffers alive.
            self.cached.clear();
        }
        let memory = self.slot_memory(program, &sizing)?;
        let uploads = self.uploads(program, &sizing, &memory, is_direct)?;
        let downloads = self.downloads(program, &sizing, &memory, is_direct)?;
        let readback = self.readback(program, &sizing)?;
        let groups = BindGroupBuilder {
            program,
            sizing: &sizing,
            memory: &memory,
            aliasing_views: aliasing_views(program, &sizing, &memory)?,
            size_buffer: size_buffer(program, &sizing.size_data),
        }
        .bind_groups();
        Ok(Arc::new(RunBinding {
            sizes,
            sizing,
            memory,
            bind_groups: groups,
            uploads,
            downloads,
            readback,
        }))
    }

    /// The buffer for numbers that control flow depends on; `None` if the plan has no control flow.
    fn readback(&mut self, program: &ProgramInner, sizing: &Sizing) -> Result<Option<Buffer>> {
        if program.plan.flows.is_empty() {
            return Ok(None);
        }
        let flows = all_flows(&program.plan.flows).into_iter();
        let call_slots = flows.flat_map(Flow::host_call_slots);
        let largest = call_slots
            .map(|slot| sizing.placements[slot.0].binding_bytes)
            .fold(MAX_SCALAR_BYTES, u64::max);
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        self.readback.grow(program, "readback", &[largest], usage)?;
        self.readback
            .get(0)
            .map(SlotMemory::buffer)
            .transpose()
            .map(Option::<&Buffer>::cloned)
    }

    /// Memory of each slot.
    fn slot_memory(&self, program: &ProgramInner, sizing: &Sizing) -> Result<Vec<SlotMemory>> {
        let find = |(index, placement): (usize, &SlotPlacement)| {
            let region = sizing.placements[program.plan.root_slot(SlotId(index)).0].region;
            let pool = match region {
                SlotRegion::Weights => {
                    let weight = program.weights.get(&SlotId(index));
                    return weight.map(|memory| SlotMemory::clone(memory));
                }
                SlotRegion::Inputs => &self.inputs,
                SlotRegion::Temporaries => &self.temporaries,
                SlotRegion::InParent => return None,
                SlotRegion::Outputs => &self.outputs,
            };
            pool.get(placement.location.buffer).cloned()
        };
        let memory = sizing.placements.iter().enumerate().map(find);
        memory
            .map(|memory| memory.ok_or_else(|| Error::internal("a slot has no memory")))
            .collect()
    }

    /// Memory into which the host writes each input. `memory` is that of each slot.
    fn uploads(
        &mut self,
        program: &ProgramInner,
        sizing: &Sizing,
        memory: &[SlotMemory],
        is_direct: bool,
    ) -> Result<Vec<Option<HostAccess>>> {
        let slots: Vec<SlotId> = program.plan.inputs.iter().flatten().copied().collect();
        let staged: Vec<bool> = slots.iter().map(|_| !is_direct).collect();
        let usage = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
        let pool = &mut self.upload;
        let accesses = host_accesses(program, sizing, memory, &slots, &staged, pool, usage)?;
        let mut remaining = accesses.into_iter();
        let inputs = program.plan.inputs.iter();
        Ok(inputs
            .map(|slot| slot.and_then(|_| remaining.next()))
            .collect())
    }

    /// Memory from which the host reads the output slots and the slot of the check flags.
    fn downloads(
        &mut self,
        program: &ProgramInner,
        sizing: &Sizing,
        memory: &[SlotMemory],
        is_direct: bool,
    ) -> Result<Vec<(SlotId, HostAccess)>> {
        let mut slots = program.plan.outputs.clone();
        slots.extend(program.plan.runtime_checks.iter().map(|checks| checks.slot));
        slots.sort_unstable();
        slots.dedup();
        // An output may also be an input or a weight; the host cannot read the memory of these.
        let staged: Vec<bool> = slots
            .iter()
            .map(|slot| !is_direct || sizing.placements[slot.0].region != SlotRegion::Outputs)
            .collect();
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let pool = &mut self.download;
        let accesses = host_accesses(program, sizing, memory, &slots, &staged, pool, usage)?;
        Ok(slots.into_iter().zip(accesses).collect())
    }
}

/// Fails if sizes violate a guard of the plan.
fn check_guards(plan: &Plan, sizes: &Bindings) -> Result<()> {
    for guard in &plan.guards {
        if !guard.holds(sizes)? {
            let message =
                format!("the sizes {sizes:?} violate {guard}, which the traced model requires");
            return Err(Error::input(message).at_place(&guard.place));
        }
    }
    Ok(())
}

/// Memory through which the host accesses each of `slots`: a staging buffer from `pool` with `usage` if its element of
/// `staged` is true, else the slot's own memory. `memory` is that of all slots of the plan.
fn host_accesses(
    program: &ProgramInner,
    sizing: &Sizing,
    memory: &[SlotMemory],
    slots: &[SlotId],
    staged: &[bool],
    pool: &mut BufferPool,
    usage: BufferUsages,
) -> Result<Vec<HostAccess>> {
    let items: Vec<ArenaItem> = slots
        .iter()
        .zip(staged)
        .filter(|(_, staged)| **staged)
        .map(|(slot, _)| ArenaItem {
            bytes: sizing.placements[slot.0].binding_bytes,
            live: 0..=0,
        })
        .collect();
    let limit = program.rules.capabilities.max_buffer_size;
    let alignment = program.rules.capabilities.offset_alignment;
    let layout = assign_locations(&items, alignment, limit);
    // Cached bindings for other sizes keep using the smaller buffers that are replaced here.
    pool.grow(program, "staging", &layout.buffers, usage)?;
    let mut staging_locations = layout.locations.into_iter();
    let host_access = |(slot, staged): (&SlotId, &bool)| {
        let location = if *staged {
            staging_locations.next()
        } else {
            None
        };
        let staging =
            |location: BufferLocation| pool.get(location.buffer).map(|memory| (memory, location));
        match location.and_then(staging) {
            Some((memory, location)) => HostAccess {
                memory: memory.clone(),
                offset: location.offset,
                staged: true,
            },
            None => HostAccess {
                memory: memory[slot.0].clone(),
                offset: sizing.placements[slot.0].location.offset,
                staged: false,
            },
        }
    };
    Ok(slots.iter().zip(staged).map(host_access).collect())
}

/// Texture views through which steps read slots that are buffers.
fn aliasing_views(
    program: &ProgramInner,
    sizing: &Sizing,
    memory: &[SlotMemory],
) -> Result<HashMap<SlotId, TextureView>> {
    let mut views = HashMap::new();
    for step in &program.plan.steps {
        let accesses = &program.plan.kernels[step.kernel].bindings;
        for (slot, access) in step.bindings.iter().zip(accesses) {
            if let Access::AliasedTexture(texel) = access
                && !views.contains_key(slot)
            {
                let (memory, placement) = (&memory[slot.0], &sizing.placements[slot.0]);
                views.insert(*slot, aliasing_view(program, memory, placement, *texel)?);
            }
        }
    }
    Ok(views)
}

/// A texture view of a slot's buffer.
fn aliasing_view(
    program: &ProgramInner,
    memory: &SlotMemory,
    placement: &SlotPlacement,
    texel: Texel,
) -> Result<TextureView> {
    let SlotMemory::Aliased(buffer) = memory else {
        return Err(Error::internal(
            "the slot's buffer cannot be read as a texture",
        ));
    };
    let (offset, bytes) = (placement.location.offset, placement.binding_bytes);
    let texture = buffer.texture(program.device.wgpu(), offset, bytes, texel)?;
    Ok(texture.create_view(&TextureViewDescriptor::default()))
}

/// Builds the bind groups of a run.
struct BindGroupBuilder<'a> {
    program: &'a ProgramInner,
    sizing: &'a Sizing,
    memory: &'a [SlotMemory],
    /// Texture views of slots that are buffers.
    aliasing_views: HashMap<SlotId, TextureView>,
    /// Sizes of all steps; `None` if no kernel takes sizes.
    size_buffer: Option<Buffer>,
}

impl BindGroupBuilder<'_> {
    /// The bind group of each step; `None` if the step dispatches nothing.
    fn bind_groups(&self) -> Vec<Option<BindGroup>> {
        let steps = self.program.plan.steps.iter().enumerate();
        let is_dispatched = |index: usize| !self.sizing.workgroups[index].contains(&0);
        steps
            .map(|(index, step)| is_dispatched(index).then(|| self.bind_group(index, step)))
            .collect()
    }

    /// Creates the bind group of the step at an index: its slots in order, then its sizes if it has any.
    fn bind_group(&self, index: usize, step: &Step) -> BindGroup {
        let program = self.program;
        let kernel = &program.plan.kernels[step.kernel];
        let bindings = || step.bindings.iter().zip(&kernel.bindings);
        let views: Vec<Option<TextureView>> = bindings()
            .map(|(slot, access)| self.view(*slot, *access))
            .collect();
        let slots = step.bindings.iter().zip(&views).filter_map(|(slot, view)| {
            let placement = &self.sizing.placements[slot.0];
            match view {
                Some(view) => Some(BindingResource::TextureView(view)),
                None => {
                    let buffer = self.memory[slot.0].buffer().ok()?;
                    Some(buffer_binding(
                        buffer,
                        placement.location.offset,
                        placement.binding_bytes,
                    ))
                }
            }
        });
        let bytes = (step.sizes.len() as u64 * 4).next_multiple_of(16);
        let size_buffer = self.size_buffer.as_ref();
        let sizes = size_buffer
            .filter(|_| !step.sizes.is_empty())
            .map(|buffer| buffer_binding(buffer, self.sizing.size_offsets[index], bytes));
        let entries: Vec<BindGroupEntry> = (0..)
            .zip(slots.chain(sizes))
            .map(|(binding, resource)| BindGroupEntry { binding, resource })
            .collect();
        add(&program.counters.bind_groups, 1);
        let device = &program.device;
        let group = device.wgpu().create_bind_group(&BindGroupDescriptor {
            label: Some(&kernel.label),
            layout: &program.pipelines[step.kernel].layout,
            entries: &entries,
        });
        device.record(|recorder| recorder.create_bind_group(&group, kernel, &entries));
        group
    }

    /// The texture view through which a kernel accesses a slot; `None` if it accesses a buffer.
    fn view(&self, slot: SlotId, access: Access) -> Option<TextureView> {
        match &self.memory[slot.0] {
            SlotMemory::Texture(texture) => Some(array_view(texture)),
            _ => match access {
                Access::AliasedTexture(_) => self.aliasing_views.get(&slot).cloned(),
                _ => None,
            },
        }
    }
}

/// Creates a buffer with the sizes of all steps; `None` if there are no sizes.
fn size_buffer(program: &ProgramInner, bytes: &[u8]) -> Option<Buffer> {
    if bytes.is_empty() {
        return None;
    }
    let usage = BufferUsages::UNIFORM | BufferUsages::STORAGE | BufferUsages::COPY_DST;
    let size = bytes.len() as u64;
    let buffer = program
        .counters
        .buffer(program.device.wgpu(), "sizes", size, usage);
    program.device.queue().write_buffer(&buffer, 0, bytes);
    program
        .device
        .record(|recorder| recorder.write_buffer(&buffer, 0, bytes));
    Some(buffer)
}

fn buffer_binding(buffer: &Buffer, offset: u64, size: u64) -> BindingResource<'_> {
    BindingResource::Buffer(BufferBinding {
        buffer,
        offset,
        size: BufferSize::new(size),
    })
}
