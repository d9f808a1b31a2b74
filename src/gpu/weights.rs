//! Weights of a program: each is uploaded once, and programs can share it.
//!
//! The device form of a weight is its elements in the storage type and the layout of its slot. Packing converts a
//! weight to its device form.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use wgpu::{Buffer, BufferUsages};

use crate::digest::Digest;
use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::interrupt::ActiveLimits;
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::{Layout, Texel};
use crate::kernel::plan::{Plan, Slot, SlotId, SlotKind};
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::device::GpuDevice;
use super::error_scope::{in_error_scope, lock};
use super::memory::{self, SlotMemory};
use super::pack::{Sink, pack};
use super::parallel;
use super::program::ProgramOptions;
use super::sizing::{PlacementRules, SlotPlacement, at_first_use, weight_placement};
use super::staging::{Staging, TextureWriter};
use super::statistics::{Counters, add};
use super::suballocator::Suballocator;

/// Weights by state-dict name.
pub type TensorMap = BTreeMap<String, Tensor>;

/// Source of a program's weights. Several threads call it at the same time.
pub trait WeightSource: Sync {
    /// The type of a weight; `None` if the weight does not exist.
    fn ty(&self, name: &str) -> Option<TensorType>;

    /// The elements of a weight.
    ///
    /// # Errors
    /// Fails if the weight does not exist or cannot be computed.
    fn tensor(&self, name: &str) -> Result<Tensor>;

    /// The tensor that the weight is a permutation of, if that tensor is available: axis `i` of the weight is axis
    /// `axes[i]`.
    fn as_permutation(&self, _name: &str) -> Option<(Tensor, Vec<usize>)> {
        None
    }

    /// True if the weight is computed from others, so that storing the result for later pays.
    fn is_derived(&self, _name: &str) -> bool {
        false
    }

    /// Digest that identifies the weight's type and elements. Avoids computing the elements where possible.
    ///
    /// # Errors
    /// Fails if the weight does not exist.
    fn digest(&self, name: &str) -> Result<Digest>;

    /// Weights of the model that the weight is computed from, in memory. As long as the result lives, no other method reads
    /// them from a file again.
    ///
    /// # Errors
    /// Fails if a file of weights cannot be read.
    fn loaded(&self, name: &str) -> Result<Vec<Tensor>>;
}

impl WeightSource for TensorMap {
    fn ty(&self, name: &str) -> Option<TensorType> {
        self.get(name).map(Tensor::tensor_type)
    }

    fn tensor(&self, name: &str) -> Result<Tensor> {
        self.get(name).ok_or_else(|| missing_weight(name))?.load()
    }

    fn digest(&self, name: &str) -> Result<Digest> {
        Digest::of_tensor(self.get(name).ok_or_else(|| missing_weight(name))?)
    }

    fn loaded(&self, name: &str) -> Result<Vec<Tensor>> {
        self.get(name).into_iter().map(Tensor::load).collect()
    }
}

/// Cache of weights in their device form: elements in the storage type and the layout that kernels read.
pub trait PackedWeights: Send + Sync {
    /// The tensor stored under a key; its bytes are a weight in its device form. See [`CacheableWeight::key`].
    fn find(&self, key: Digest) -> Option<Tensor>;
}

/// A weight of a program that is worth caching in its device form.
pub struct CacheableWeight<'a> {
    /// The weight's name.
    pub name: &'a str,
    /// Identifies the weight by its type, its elements and its device form.
    pub key: Digest,
    /// Element type on the device.
    pub dtype: DType,
    /// For a texture: layers, rows and elements in a row. Else the number of elements.
    pub shape: Vec<usize>,
    slot: &'a Slot,
    source: &'a dyn WeightSource,
}

impl fmt::Debug for CacheableWeight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl CacheableWeight<'_> {
    /// The bytes of the device form.
    ///
    /// # Errors
    /// Fails if the weight cannot be computed.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        pack(self.name, self.slot, self.source, &mut |chunk| {
            bytes.extend(chunk);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// The weights of a plan whose device form is more than a copy of the model's data.
pub(super) fn packable_weights<'a>(
    plan: &'a Plan,
    source: &'a dyn WeightSource,
    rules: &PlacementRules,
) -> Result<Vec<CacheableWeight<'a>>> {
    let planned = planned_weights(plan, rules)?.into_iter();
    let packable = planned.filter(|weight| weight.is_worth_keeping(source));
    packable
        .map(|weight| {
            let dtype = weight.slot.storage.dtype();
            let elements = weight.placement.bytes as usize / dtype.size();
            let shape = match weight.placement.texture {
                Some(([_, height, layers], _)) => {
                    let [height, layers] = [height, layers].map(|size| size as usize);
                    vec![layers, height, elements / (layers * height).max(1)]
                }
                None => vec![elements],
            };
            Ok(CacheableWeight {
                name: weight.name,
                key: weight.key(source)?.digest(),
                dtype,
                shape,
                slot: weight.slot,
                source,
            })
        })
        .collect()
}

/// The error of a missing weight.
pub(super) fn missing_weight(name: &str) -> Error {
    Error::input(format!("the weight {name} is missing"))
}

/// Usage of weight buffers.
const WEIGHT_USAGE: BufferUsages = BufferUsages::STORAGE
    .union(BufferUsages::COPY_DST)
    .union(BufferUsages::COPY_SRC);

/// Maximum bytes of one write to the device's queue.
const CHUNK_BYTES: usize = 16 << 20;

/// Maximum bytes of writes in the queue, which take memory in addition to the weights themselves.
const MAX_BYTES_IN_FLIGHT: u64 = 4 * CHUNK_BYTES as u64;

/// Identity of a weight on the device: type, elements and device form.
#[derive(Clone, PartialEq, Eq, Hash)]
struct WeightKey {
    /// Digest of the weight's type and elements.
    digest: Digest,
    storage: StorageType,
    layout: Layout,
    texel: Option<Texel>,
}

impl WeightKey {
    /// Digest of the key; equal keys have equal digests in all processes.
    fn digest(&self) -> Digest {
        let WeightKey {
            digest,
            storage,
            layout,
            texel,
        } = self;
        Digest::of(format!("{digest} as {storage:?}, {layout:?}, {texel:?}").as_bytes())
    }
}

/// Memory of a weight, while a program uses it. Locked while the weight is uploaded: other threads that need the weight
/// wait instead of uploading it again.
type WeightEntry = Arc<Mutex<Weak<SlotMemory>>>;

/// Weights on a device that several programs use. Weights with equal elements and device forms are uploaded once,
/// whatever their names, and stay as long as one of the programs lives.
#[derive(Clone, Default)]
pub struct SharedWeights {
    entries: Arc<Mutex<HashMap<WeightKey, WeightEntry>>>,
}

impl SharedWeights {
    /// The entry of a key; creates it if needed.
    fn entry(&self, key: WeightKey) -> WeightEntry {
        let mut entries = lock(&self.entries);
        // Removes entries that no program uses any more.
        entries.retain(|_, entry| Arc::strong_count(entry) > 1 || lock(entry).strong_count() > 0);
        entries.entry(key).or_default().clone()
    }
}

impl fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWeights({})", lock(&self.entries).len())
    }
}

/// Uploads the weights of a plan. Calls `progress` with the bytes uploaded so far and in total.
pub(super) fn upload(
    device: &GpuDevice,
    plan: &Plan,
    source: &dyn WeightSource,
    rules: &PlacementRules,
    options: &ProgramOptions,
    counters: &Counters,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<HashMap<SlotId, Arc<SlotMemory>>> {
    let planned = planned_weights(plan, rules)?;
    let total = planned.iter().map(|weight| weight.placement.bytes).sum();
    let uploader = Uploader {
        device,
        source,
        options,
        counters,
        staging: Staging::new(device, counters),
        suballocator: Suballocator::default(),
        in_flight: AtomicU64::new(0),
    };
    let done = AtomicU64::new(0);
    let limits = ActiveLimits::current();
    let uploaded = parallel::map(parallel::default_threads(), &planned, |weight| {
        let load_and_upload = || {
            let loaded = source.loaded(weight.name)?;
            let memory = uploader.get_or_upload(weight);
            loaded.iter().for_each(Tensor::unload);
            memory
        };
        let memory = limits.check();
        let memory = memory.and_then(|()| limits.clone().enter(load_and_upload));
        let bytes = weight.placement.bytes;
        progress(done.fetch_add(bytes, Relaxed) + bytes, total);
        memory.at(|| format!("weight {}", weight.name))
    });
    let failed = || Error::device("the driver failed while weights were uploaded");
    let uploaded = uploaded.ok_or_else(failed)?;
    // One error stands for those of all weights.
    limits.check().at(|| "uploading weights".into())?;
    uploader.flush()?;
    let (mut memory, mut errors) = (HashMap::new(), Vec::new());
    for (weight, result) in planned.iter().zip(uploaded) {
        match result {
            Ok(slot_memory) => drop(memory.insert(weight.id, slot_memory)),
            Err(error) => errors.push(error),
        }
    }
    Error::all(errors).map_or(Ok(memory), Err)
}

/// A weight of a plan, its slot and its placement on the device.
struct PlannedWeight<'a> {
    id: SlotId,
    name: &'a str,
    slot: &'a Slot,
    placement: SlotPlacement,
}

impl PlannedWeight<'_> {
    fn key(&self, source: &dyn WeightSource) -> Result<WeightKey> {
        Ok(WeightKey {
            digest: source.digest(self.name)?,
            storage: self.slot.storage,
            layout: self.slot.layout.clone(),
            texel: self.slot.texel(),
        })
    }

    /// True if the device form takes work to compute, so that a cache should keep it.
    fn is_worth_keeping(&self, source: &dyn WeightSource) -> bool {
        self.placement.texture.is_some() || source.is_derived(self.name)
    }
}

/// The weights of a plan. The error lists every weight that is too large for the device.
fn planned_weights<'a>(plan: &'a Plan, rules: &PlacementRules) -> Result<Vec<PlannedWeight<'a>>> {
    let mut weights = Vec::new();
    let mut errors = Vec::new();
    for (index, slot) in plan.slots.iter().enumerate() {
        let SlotKind::Weight(name) = &slot.kind else {
            continue;
        };
        let id = SlotId(index);
        match weight_placement(slot, rules) {
            Ok(placement) => weights.push(PlannedWeight {
                id,
                name,
                slot,
                placement,
            }),
            Err(error) => errors.push(at_first_use(error, plan, id)),
        }
    }
    match Error::all(errors) {
        Some(error) => Err(error),
        None => Ok(weights),
    }
}

/// Writes to buffers and textures and limits the bytes in flight.
struct Uploader<'a> {
    device: &'a GpuDevice,
    source: &'a dyn WeightSource,
    options: &'a ProgramOptions,
    counters: &'a Counters,
    staging: Staging<'a>,
    suballocator: Suballocator,
    /// Bytes written to the queue since the last wait for the device.
    in_flight: AtomicU64,
}

/// Function that passes a weight in its device form to a sink.
type WriteWeight<'a> = dyn Fn(&mut Sink) -> Result<()> + 'a;

impl Uploader<'_> {
    /// The memory of a weight; uploads the weight unless it is shared with another program.
    fn get_or_upload(&self, weight: &PlannedWeight) -> Result<Arc<SlotMemory>> {
        let key = weight.key(self.source)?;
        let digest = key.digest();
        let entry = self.options.shared.entry(key);
        let mut entry = lock(&entry);
        if let Some(shared) = entry.upgrade() {
            return Ok(shared);
        }
        let memory =
            in_error_scope(self.device.wgpu(), || self.create(weight, digest)).map(Arc::new)?;
        *entry = Arc::downgrade(&memory);
        Ok(memory)
    }

    /// Uploads a weight: from the cache under `key` if it is there, else packs it.
    fn create(&self, weight: &PlannedWeight, key: Digest) -> Result<SlotMemory> {
        let packed = self.find_packed(weight, key);
        let write_bytes = |sink: &mut Sink| match &packed {
            Some(cached) => sink(cached.bytes()),
            None => pack(weight.name, weight.slot, self.source, sink),
        };
        let memory = match (weight.placement.texture, self.device.maps_directly()) {
            (Some((extent, texel)), _) => {
                self.write_texture(weight, extent, texel, &write_bytes)?
            }
            (None, _) if self.device.capabilities().buffer_aliasing => {
                self.write_aliased(weight, &write_bytes)?
            }
            (None, true) => SlotMemory::Buffer(self.write_mapped(weight, &write_bytes)?),
            (None, false) => SlotMemory::Buffer(self.write_queued(weight, &write_bytes)?),
        };
        add(&self.counters.uploaded, weight.placement.bytes);
        packed.iter().for_each(Tensor::unload);
        Ok(memory)
    }

    /// The bytes of a weight from the cache of packed weights.
    fn find_packed(&self, weight: &PlannedWeight, key: Digest) -> Option<Tensor> {
        let packed = self.options.packed.as_ref();
        let packed = packed.filter(|_| weight.is_worth_keeping(self.source))?;
        let cached = packed.find(key)?;
        (cached.byte_count() as u64 == weight.placement.bytes).then_some(cached)
    }

    /// Writes a weight in its panel layout to a texture.
    fn write_texture(
        &self,
        weight: &PlannedWeight,
        extent: [u32; 3],
        texel: Texel,
        write_bytes: &WriteWeight,
    ) -> Result<SlotMemory> {
        if self.device.capabilities().buffer_aliasing {
            return self.write_mapped_texture(weight, extent, texel, write_bytes);
        }
        let mut writer = TextureWriter::new(&self.staging, weight.name, extent, texel);
        write_bytes(&mut |rows| writer.write(rows))?;
        Ok(SlotMemory::Texture(writer.finish()?))
    }

    /// Writes a weight directly into a texture in host memory.
    fn write_mapped_texture(
        &self,
        weight: &PlannedWeight,
        extent: [u32; 3],
        texel: Texel,
        write_bytes: &WriteWeight,
    ) -> Result<SlotMemory> {
        let device = self.device;
        let target = memory::mapped_texture(self.counters, device, weight.name, extent, texel)?;
        let mut rows = 0;
        write_bytes(&mut |bytes| {
            for row in bytes.chunks(target.row_bytes.max(1) as usize) {
                target.write(rows, row)?;
                rows += 1;
            }
            Ok(())
        })?;
        let incomplete = || Error::internal("a texture received too few rows");
        let is_full = rows == u64::from(extent[1]) * u64::from(extent[2]);
        is_full
            .then_some(SlotMemory::Texture(target.texture))
            .ok_or_else(incomplete)
    }

    /// Writes a weight directly into a buffer that kernels can also read as a texture.
    fn write_aliased(
        &self,
        weight: &PlannedWeight,
        write_bytes: &WriteWeight,
    ) -> Result<SlotMemory> {
        let bytes = weight.placement.binding_bytes;
        let buffer = self.suballocator.buffer(
            self.counters,
            self.device,
            weight.name,
            bytes,
            WEIGHT_USAGE,
        )?;
        let mut start = 0;
        write_bytes(&mut |bytes| {
            buffer.write(start, bytes)?;
            start += bytes.len() as u64;
            Ok(())
        })?;
        Ok(SlotMemory::Aliased(buffer))
    }

    /// Writes a weight directly into a mapped buffer.
    fn write_mapped(&self, weight: &PlannedWeight, write_bytes: &WriteWeight) -> Result<Buffer> {
        let (device, bytes) = (self.device.wgpu(), weight.placement.binding_bytes);
        let usage = WEIGHT_USAGE | BufferUsages::MAP_WRITE;
        let buffer = self
            .counters
            .mapped_buffer(device, weight.name, bytes, usage);
        let view = buffer.get_mapped_range_mut(..);
        let mut view = view.map_err(|error| Error::device(error.to_string()))?;
        let mut start = 0;
        write_bytes(&mut |bytes| {
            view.slice(start..start + bytes.len())
                .copy_from_slice(bytes);
            start += bytes.len();
            Ok(())
        })?;
        drop(view);
        buffer.unmap();
        Ok(buffer)
    }

    /// Sends a weight to its buffer in chunks.
    fn write_queued(&self, weight: &PlannedWeight, write_bytes: &WriteWeight) -> Result<Buffer> {
        let (device, bytes) = (self.device.wgpu(), weight.placement.binding_bytes);
        let buffer = self
            .counters
            .buffer(device, weight.name, bytes, WEIGHT_USAGE);
        let mut start = 0;
        write_bytes(&mut |bytes| {
            for chunk in bytes.chunks(CHUNK_BYTES) {
                self.queue_write(&buffer, start, chunk)?;
                start += chunk.len() as u64;
            }
            Ok(())
        })?;
        Ok(buffer)
    }

    /// Writes bytes to a buffer by way of the queue, padded with zeros to a multiple of four bytes.
    fn queue_write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let length = bytes.len().next_multiple_of(4);
        let Some(size) = wgpu::BufferSize::new(length as u64) else {
            return Ok(());
        };
        let queue = self.device.queue();
        // If wgpu returns no view, the surrounding error scope receives the error.
        if let Some(mut view) = queue.write_buffer_with(buffer, offset, size) {
            view.slice(..bytes.len()).copy_from_slice(bytes);
            view.slice(bytes.len()..).fill(0);
        }
        self.device
            .record(|recorder| recorder.write_buffer(buffer, offset, bytes));
        self.limit_in_flight(length as u64)
    }

    /// Counts bytes written to the queue, and waits for the device if the bytes in flight reach the limit.
    fn limit_in_flight(&self, bytes: u64) -> Result<()> {
        if self.in_flight.fetch_add(bytes, Relaxed) + bytes < MAX_BYTES_IN_FLIGHT {
            return Ok(());
        }
        self.in_flight.store(0, Relaxed);
        self.flush()
    }

    /// Submits the writes in the queue and waits until the device has done them.
    fn flush(&self) -> Result<()> {
        let submission = self.device.queue().submit([]);
        self.device.poll(Some(&submission))
    }
}
