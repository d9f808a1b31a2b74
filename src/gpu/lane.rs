//! Memory that one run uses at a time, and the cached bind groups for it.

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

use super::arena::{Item, Spot, arrange};
use super::fault::guarded;
use super::memory::{Memory, view};
use super::pool::Pool;
use super::program::Inner;
use super::sizing::{Place, Region, Sizing, size};
use super::statistics::add;

/// Bytes of the largest scalar.
const SCALAR: u64 = 8;

/// Memory that one run uses at a time. Its buffers only grow.
#[derive(Default)]
pub(super) struct Lane {
    inputs: Pool,
    temporaries: Pool,
    outputs: Pool,
    upload: Pool,
    download: Pool,
    readback: Pool,
    /// Bindings for recent sizes, most recently used first.
    kept: VecDeque<Arc<Binding>>,
    /// The last submission that uses this memory.
    pub(super) submission: Option<SubmissionIndex>,
}

/// Everything that a run with certain sizes needs besides its inputs.
pub(super) struct Binding {
    pub(super) sizes: Bindings,
    pub(super) sizing: Sizing,
    /// Memory of each slot.
    pub(super) memory: Vec<Memory>,
    /// The bind group of each step; `None` if it dispatches nothing.
    pub(super) groups: Vec<Option<BindGroup>>,
    /// Memory into which the host writes each input.
    pub(super) uploads: Vec<Option<HostSide>>,
    /// Memory from which the host reads each output slot and the slot of the faults.
    pub(super) downloads: Vec<(SlotId, HostSide)>,
    /// Buffer for numbers that control flow depends on; none if the plan has no control flow.
    pub(super) readback: Option<Buffer>,
}

/// Memory through which the host accesses a slot.
#[derive(Clone)]
pub(super) struct HostSide {
    pub(super) memory: Memory,
    pub(super) offset: u64,
    /// True if this is a staging copy, false if it is the slot's own memory.
    pub(super) staged: bool,
}

impl Lane {
    /// Creates a context for a device, without any memory.
    pub(super) fn on(capabilities: &Capabilities) -> Lane {
        let pool = || Pool::of(capabilities.texels);
        Lane {
            inputs: pool(),
            temporaries: pool(),
            outputs: pool(),
            ..Lane::default()
        }
    }

    /// Returns the bindings for given sizes; creates them if they are not cached.
    pub(super) fn bind(&mut self, program: &Inner, sizes: &Bindings) -> Result<Arc<Binding>> {
        let known = self.kept.iter().position(|kept| kept.sizes == *sizes);
        let binding = match known.and_then(|index| self.kept.remove(index)) {
            Some(binding) => binding,
            None => {
                check_guards(&program.plan, sizes)?;
                let sizing = size(&program.plan, sizes, &program.rules)?;
                guarded(program.device.wgpu(), || {
                    self.create(program, sizes.clone(), sizing)
                })?
            }
        };
        self.kept.push_front(binding.clone());
        self.kept.truncate(program.options.cached_sizes.max(1));
        Ok(binding)
    }

    fn create(&mut self, program: &Inner, sizes: Bindings, sizing: Sizing) -> Result<Arc<Binding>> {
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let has_texels = program.rules.capabilities.texels;
        let direct = has_texels || program.device.maps_directly();
        let [write, read] = if direct && !has_texels {
            [
                storage | BufferUsages::MAP_WRITE,
                storage | BufferUsages::MAP_READ,
            ]
        } else {
            [storage; 2]
        };
        let temporaries = &sizing.temporaries;
        let mut grown = self.inputs.fit(program, "inputs", &sizing.inputs, write)?;
        grown |= self
            .outputs
            .fit(program, "outputs", &sizing.outputs, read)?;
        grown |= self
            .temporaries
            .fit(program, "arena", temporaries, storage)?;
        if grown {
            // Cached bindings would keep the smaller buffers alive.
            self.kept.clear();
        }
        let memory = self.slot_memory(program, &sizing)?;
        let uploads = self.uploads(program, &sizing, &memory, direct)?;
        let downloads = self.downloads(program, &sizing, &memory, direct)?;
        let readback = self.readback(program, &sizing)?;
        let groups = Bound {
            program,
            sizing: &sizing,
            memory: &memory,
            texels: texels(program, &sizing, &memory)?,
            numbers: size_buffer(program, &sizing.numbers),
        }
        .groups();
        Ok(Arc::new(Binding {
            sizes,
            sizing,
            memory,
            groups,
            uploads,
            downloads,
            readback,
        }))
    }

    fn readback(&mut self, program: &Inner, sizing: &Sizing) -> Result<Option<Buffer>> {
        if program.plan.flows.is_empty() {
            return Ok(None);
        }
        let flows = all_flows(&program.plan.flows).into_iter();
        let exchanged = flows.flat_map(Flow::exchanged);
        let largest = exchanged
            .map(|slot| sizing.places[slot.0].bound)
            .fold(SCALAR, u64::max);
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        self.readback.fit(program, "readback", &[largest], usage)?;
        self.readback
            .memory(0)
            .map(Memory::buffer)
            .transpose()
            .map(Option::<&Buffer>::cloned)
    }

    fn slot_memory(&self, program: &Inner, sizing: &Sizing) -> Result<Vec<Memory>> {
        let find = |(index, place): (usize, &Place)| {
            let region = sizing.places[program.plan.whole(SlotId(index)).0].region;
            let pool = match region {
                Region::Weights => {
                    let weight = program.weights.get(&SlotId(index));
                    return weight.map(|memory| Memory::clone(memory));
                }
                Region::Inputs => &self.inputs,
                Region::Temporaries => &self.temporaries,
                Region::Parts => return None,
                Region::Outputs => &self.outputs,
            };
            pool.memory(place.spot.buffer).cloned()
        };
        let memory = sizing.places.iter().enumerate().map(find);
        memory
            .map(|memory| memory.ok_or_else(|| Error::internal("a slot has no memory")))
            .collect()
    }

    fn uploads(
        &mut self,
        program: &Inner,
        sizing: &Sizing,
        memory: &[Memory],
        direct: bool,
    ) -> Result<Vec<Option<HostSide>>> {
        let slots: Vec<SlotId> = program.plan.inputs.iter().flatten().copied().collect();
        let staged: Vec<bool> = slots.iter().map(|_| !direct).collect();
        let usage = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
        let pool = &mut self.upload;
        let sides = host_sides(program, sizing, memory, &slots, &staged, pool, usage)?;
        let mut sides = sides.into_iter();
        let inputs = program.plan.inputs.iter();
        Ok(inputs.map(|slot| slot.and_then(|_| sides.next())).collect())
    }

    fn downloads(
        &mut self,
        program: &Inner,
        sizing: &Sizing,
        memory: &[Memory],
        direct: bool,
    ) -> Result<Vec<(SlotId, HostSide)>> {
        let mut slots = program.plan.outputs.clone();
        slots.extend(program.plan.faults.iter().map(|faults| faults.slot));
        slots.sort_unstable();
        slots.dedup();
        // An output may also be an input or a weight; the host cannot read the memory of these.
        let staged: Vec<bool> = slots
            .iter()
            .map(|slot| !direct || sizing.places[slot.0].region != Region::Outputs)
            .collect();
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let pool = &mut self.download;
        let sides = host_sides(program, sizing, memory, &slots, &staged, pool, usage)?;
        Ok(slots.into_iter().zip(sides).collect())
    }
}

fn check_guards(plan: &Plan, sizes: &Bindings) -> Result<()> {
    for guard in &plan.guards {
        if !guard.holds(sizes)? {
            let message =
                format!("the model was made for sizes with {guard}, which {sizes:?} breaks");
            return Err(Error::input(message).at_place(&guard.place));
        }
    }
    Ok(())
}

/// Memory through which the host accesses slots: a staging buffer, or the slots' own memory.
fn host_sides(
    program: &Inner,
    sizing: &Sizing,
    memory: &[Memory],
    slots: &[SlotId],
    staged: &[bool],
    pool: &mut Pool,
    usage: BufferUsages,
) -> Result<Vec<HostSide>> {
    let items: Vec<Item> = slots
        .iter()
        .zip(staged)
        .filter(|(_, staged)| **staged)
        .map(|(slot, _)| Item {
            bytes: sizing.places[slot.0].bound,
            live: 0..=0,
        })
        .collect();
    let limit = program.rules.capabilities.max_buffer_size;
    let alignment = program.rules.capabilities.offset_alignment;
    let layout = arrange(&items, alignment, limit);
    // Cached bindings for other sizes keep the smaller buffers that they use.
    pool.fit(program, "staging", &layout.buffers, usage)?;
    let mut spots = layout.spots.into_iter();
    let side = |(slot, staged): (&SlotId, &bool)| {
        let spot = if *staged { spots.next() } else { None };
        let staging = |spot: Spot| pool.memory(spot.buffer).map(|memory| (memory, spot));
        match spot.and_then(staging) {
            Some((memory, spot)) => HostSide {
                memory: memory.clone(),
                offset: spot.offset,
                staged: true,
            },
            None => HostSide {
                memory: memory[slot.0].clone(),
                offset: sizing.places[slot.0].spot.offset,
                staged: false,
            },
        }
    };
    Ok(slots.iter().zip(staged).map(side).collect())
}

/// Texture views through which steps read slots that are buffers.
fn texels(
    program: &Inner,
    sizing: &Sizing,
    memory: &[Memory],
) -> Result<HashMap<SlotId, TextureView>> {
    let mut texels = HashMap::new();
    for step in &program.plan.steps {
        let accesses = &program.plan.kernels[step.kernel].bindings;
        for (slot, access) in step.bindings.iter().zip(accesses) {
            if let Access::Texels(texel) = access
                && !texels.contains_key(slot)
            {
                let (memory, place) = (&memory[slot.0], &sizing.places[slot.0]);
                texels.insert(*slot, texture(program, memory, (place, *texel))?);
            }
        }
    }
    Ok(texels)
}

/// A texture view of a slot's buffer.
fn texture(
    program: &Inner,
    memory: &Memory,
    (place, texel): (&Place, Texel),
) -> Result<TextureView> {
    let Memory::Aliased(buffer) = memory else {
        return Err(Error::internal("a buffer is read as a texture"));
    };
    let part = (place.spot.offset, place.bound);
    let texture = buffer.texture(program.device.wgpu(), part, texel)?;
    Ok(texture.create_view(&TextureViewDescriptor::default()))
}

/// Builds the bind groups of a run.
struct Bound<'a> {
    program: &'a Inner,
    sizing: &'a Sizing,
    memory: &'a [Memory],
    texels: HashMap<SlotId, TextureView>,
    numbers: Option<Buffer>,
}

impl Bound<'_> {
    /// The bind group of each step; `None` if the step dispatches nothing.
    fn groups(&self) -> Vec<Option<BindGroup>> {
        let steps = self.program.plan.steps.iter().enumerate();
        let runs = |index: usize| !self.sizing.workgroups[index].contains(&0);
        steps
            .map(|(index, step)| runs(index).then(|| self.group(index, step)))
            .collect()
    }

    fn group(&self, index: usize, step: &Step) -> BindGroup {
        let program = self.program;
        let kernel = &program.plan.kernels[step.kernel];
        let bindings = || step.bindings.iter().zip(&kernel.bindings);
        let views: Vec<Option<TextureView>> = bindings()
            .map(|(slot, access)| self.view(*slot, *access))
            .collect();
        let storage = step.bindings.iter().zip(&views).filter_map(|(slot, view)| {
            let place = &self.sizing.places[slot.0];
            match view {
                Some(view) => Some(BindingResource::TextureView(view)),
                None => {
                    let buffer = self.memory[slot.0].buffer().ok()?;
                    Some(part(buffer, place.spot.offset, place.bound))
                }
            }
        });
        let bytes = (step.sizes.len() as u64 * 4).next_multiple_of(16);
        let numbers = self.numbers.as_ref();
        let sizes = numbers
            .filter(|_| !step.sizes.is_empty())
            .map(|buffer| part(buffer, self.sizing.number_offsets[index], bytes));
        let entries: Vec<BindGroupEntry> = (0..)
            .zip(storage.chain(sizes))
            .map(|(binding, resource)| BindGroupEntry { binding, resource })
            .collect();
        add(&program.counters.bind_groups, 1);
        program
            .device
            .wgpu()
            .create_bind_group(&BindGroupDescriptor {
                label: Some(&kernel.label),
                layout: &program.pipelines[step.kernel].layout,
                entries: &entries,
            })
    }

    /// The texture view through which a kernel accesses a slot; none for a buffer.
    fn view(&self, slot: SlotId, access: Access) -> Option<TextureView> {
        match &self.memory[slot.0] {
            Memory::Texture(texture) => Some(view(texture)),
            _ => match access {
                Access::Texels(_) => self.texels.get(&slot).cloned(),
                _ => None,
            },
        }
    }
}

fn size_buffer(program: &Inner, bytes: &[u8]) -> Option<Buffer> {
    if bytes.is_empty() {
        return None;
    }
    let usage = BufferUsages::UNIFORM | BufferUsages::STORAGE | BufferUsages::COPY_DST;
    let size = bytes.len() as u64;
    let buffer = program
        .counters
        .buffer(program.device.wgpu(), "sizes", size, usage);
    program.device.queue().write_buffer(&buffer, 0, bytes);
    Some(buffer)
}

fn part(buffer: &Buffer, offset: u64, size: u64) -> BindingResource<'_> {
    BindingResource::Buffer(BufferBinding {
        buffer,
        offset,
        size: BufferSize::new(size),
    })
}
