//! Weights: uploaded once, possibly shared between programs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use wgpu::{Buffer, BufferUsages, Texture};

use crate::error::{Error, Result, Trail};
use crate::kernel::layout::{Layout, Panels, TEXEL};
use crate::kernel::plan::{Plan, Slot, SlotId, SlotKind, Storage};
use crate::tensor::Tensor;

use super::convert;
use super::device::Device;
use super::fault::{guarded, lock};
use super::memory::{Memory, texture, write_layer};
use super::sizing::{Place, Rules, locate, weight_place};
use super::statistics::{Counters, add};

/// Weights by state-dict name.
pub type Weights = BTreeMap<String, Tensor>;

const USAGE: BufferUsages = BufferUsages::STORAGE
    .union(BufferUsages::COPY_DST)
    .union(BufferUsages::COPY_SRC);

/// Bytes that one write hands to the device.
const CHUNK: usize = 16 << 20;

/// Bytes in flight: what uploading takes in addition to the weights themselves.
const IN_FLIGHT: u64 = 4 * CHUNK as u64;

/// What makes two weights the same: name, storage and layout.
type Key = (String, Storage, Layout);

/// Weights on a device, to be used by several programs: those of one name, storage and layout are uploaded
/// once.
#[derive(Clone, Default)]
pub struct SharedWeights {
    memory: Arc<Mutex<HashMap<Key, Memory>>>,
}

impl fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWeights({})", lock(&self.memory).len())
    }
}

/// Uploads the weights of a plan. `progress` is told the bytes done so far and all of them.
pub(super) fn upload(
    device: &Device,
    plan: &Plan,
    weights: &Weights,
    rules: &Rules,
    shared: &SharedWeights,
    counters: &Counters,
    progress: &dyn Fn(u64, u64),
) -> Result<HashMap<SlotId, Memory>> {
    let wanted = wanted(plan, weights, rules)?;
    let total = wanted.iter().map(|weight| weight.place.bytes).sum();
    let mut writer = Writer {
        device,
        counters,
        in_flight: 0,
    };
    let mut done = 0;
    let mut memory = HashMap::new();
    for weight in &wanted {
        let slot = weight.slot;
        let key = (weight.name.to_owned(), slot.storage, slot.layout.clone());
        let known = lock(&shared.memory).get(&key).cloned();
        let found = match known {
            Some(found) => found,
            None => {
                let new = guarded(device.wgpu(), || writer.upload(weight))
                    .at(|| format!("weight {}", weight.name))?;
                lock(&shared.memory).insert(key, new.clone());
                new
            }
        };
        memory.insert(weight.id, found);
        done += weight.place.bytes;
        progress(done, total);
    }
    writer.flush()?;
    Ok(memory)
}

struct Wanted<'a> {
    id: SlotId,
    name: &'a str,
    slot: &'a Slot,
    tensor: &'a Tensor,
    place: Place,
}

impl Wanted<'_> {
    /// The elements that the slot holds.
    fn part(&self) -> Range<usize> {
        match self.slot.layout {
            Layout::Piece { start, count } => start..start + count,
            _ => 0..self.tensor.numel(),
        }
    }
}

fn wanted<'a>(plan: &'a Plan, weights: &'a Weights, rules: &Rules) -> Result<Vec<Wanted<'a>>> {
    let mut wanted = Vec::new();
    let mut errors = Vec::new();
    for (index, slot) in plan.slots.iter().enumerate() {
        let SlotKind::Weight(name) = &slot.kind else {
            continue;
        };
        let tensor = weights
            .get(name)
            .ok_or_else(|| Error::input(format!("the weight {name} is missing")))?;
        let id = SlotId(index);
        match weight_place(slot, rules) {
            Ok(place) => wanted.push(Wanted {
                id,
                name,
                slot,
                tensor,
                place,
            }),
            Err(error) => errors.push(locate(error, plan, id)),
        }
    }
    match Error::all(errors) {
        Some(error) => Err(error),
        None => Ok(wanted),
    }
}

/// Writes to buffers and textures through the queue and bounds what is in flight.
struct Writer<'a> {
    device: &'a Device,
    counters: &'a Counters,
    in_flight: u64,
}

impl Writer<'_> {
    fn upload(&mut self, weight: &Wanted) -> Result<Memory> {
        let texture = match &weight.slot.layout {
            Layout::Panels(panels) => weight.place.extent.map(|extent| (panels, extent)),
            _ => None,
        };
        let memory = if let Some((panels, extent)) = texture {
            Memory::Texture(self.pack(weight, panels, extent)?)
        } else if self.device.maps_directly() {
            Memory::Buffer(self.fill(weight)?)
        } else {
            Memory::Buffer(self.send(weight)?)
        };
        add(&self.counters.uploaded, weight.place.bytes);
        Ok(memory)
    }

    /// Writes a weight to a texture, put together as its layout says.
    fn pack(&mut self, weight: &Wanted, panels: &Panels, extent: [u32; 3]) -> Result<Texture> {
        let mut elements: Vec<f32> = Vec::with_capacity(weight.tensor.numel());
        convert::send(weight.tensor, weight.slot.storage, |_, bytes| {
            let numbers = bytes.chunks_exact(size_of::<f32>());
            elements.extend(numbers.map(bytemuck::pod_read_unaligned::<f32>));
            Ok(())
        })?;
        let texture = texture(self.counters, self.device.wgpu(), weight.name, extent);
        let [width, height, layers] = extent;
        for layer in 0..layers {
            let numbers = layer_of(panels, &elements, layer as usize);
            let bytes = bytemuck::cast_slice(&numbers);
            write_layer(self.device.queue(), &texture, layer, [width, height], bytes);
            self.count(bytes.len() as u64)?;
        }
        Ok(texture)
    }

    /// Writes a weight right into its buffer.
    fn fill(&self, weight: &Wanted) -> Result<Buffer> {
        let (device, bytes) = (self.device.wgpu(), weight.place.bound);
        let usage = USAGE | BufferUsages::MAP_WRITE;
        let buffer = self
            .counters
            .mapped_buffer(device, weight.name, bytes, usage);
        let view = buffer.get_mapped_range_mut(..);
        let mut view = view.map_err(|error| Error::device(error.to_string()))?;
        convert::send_part(
            weight.tensor,
            weight.part(),
            weight.slot.storage,
            |start, bytes| {
                let start = start as usize;
                view.slice(start..start + bytes.len())
                    .copy_from_slice(bytes);
                Ok(())
            },
        )?;
        drop(view);
        buffer.unmap();
        Ok(buffer)
    }

    /// Sends a weight to its buffer in pieces.
    fn send(&mut self, weight: &Wanted) -> Result<Buffer> {
        let (device, bytes) = (self.device.wgpu(), weight.place.bound);
        let buffer = self.counters.buffer(device, weight.name, bytes, USAGE);
        convert::send_part(
            weight.tensor,
            weight.part(),
            weight.slot.storage,
            |start, bytes| {
                for (index, piece) in bytes.chunks(CHUNK).enumerate() {
                    self.write(&buffer, start + (index * CHUNK) as u64, piece)?;
                }
                Ok(())
            },
        )?;
        Ok(buffer)
    }

    fn write(&mut self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let length = bytes.len().next_multiple_of(4);
        let Some(size) = wgpu::BufferSize::new(length as u64) else {
            return Ok(());
        };
        let queue = self.device.queue();
        // Without a view there is an error in the scope around this.
        if let Some(mut view) = queue.write_buffer_with(buffer, offset, size) {
            view.slice(..bytes.len()).copy_from_slice(bytes);
            view.slice(bytes.len()..).fill(0);
        }
        self.count(length as u64)
    }

    /// Waits for what is in flight if that is much.
    fn count(&mut self, bytes: u64) -> Result<()> {
        self.in_flight += bytes;
        if self.in_flight >= IN_FLIGHT {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.in_flight = 0;
        let submission = self.device.queue().submit([]);
        self.device.poll(Some(&submission))
    }
}

/// The numbers of a layer of a weight's texture; zeros where there is no element.
fn layer_of(panels: &Panels, elements: &[f32], layer: usize) -> Vec<f32> {
    let [width, height, _] = panels.extent();
    let mut numbers = Vec::with_capacity(width * height * TEXEL);
    for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
        let places = (0..TEXEL).map(|part| panels.element([x, y, layer], part));
        let element = |place: Option<usize>| place.and_then(|place| elements.get(place).copied());
        numbers.extend(places.map(|place| element(place).unwrap_or_default()));
    }
    numbers
}
