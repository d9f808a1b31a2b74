//! Buffers whose vectors are also texels, of textures that lie in the same memory.
//!
//! Mesa's rasteriser reads a texel with a few instructions for all lanes, and an element of a buffer lane by lane, with two
//! tests each; but it writes texels dearly. So values between kernels are written as buffers and read as textures. wgpu
//! keeps the two apart: the memory is allocated by functions of Vulkan, and handed over.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ash::vk;
use wgpu::hal::api::Vulkan;
use wgpu::hal::{self, MemoryFlags, vulkan};
use wgpu::{
    AdapterInfo, Backend, Buffer, BufferDescriptor, BufferUsages, Texture, TextureDescriptor,
    TextureUsages, TextureUses,
};

use crate::error::{Error, Result};
use crate::gpu::fault::{guarded, lock};
use crate::gpu::memory;
use crate::kernel::layout::{TEXEL_ROW, Texel, uneven};

/// Bytes of a row of texels.
const ROW: u64 = TEXEL_ROW as u64 * 16;

/// Bytes that a texture may reach beyond the end of what it shows: see [`uneven`]; and the driver allots rows in fours.
const MARGIN: u64 = 5 * ROW;

/// Offsets at which textures begin are multiples of this.
pub(in crate::gpu) const ALIGNMENT: u64 = 256;

/// Bytes of such memory on a device, which wgpu does not count.
pub(in crate::gpu) type Allocated = Arc<AtomicU64>;

/// A buffer, and the memory that it shares with textures and with the host. Clones are the same buffer.
#[derive(Clone, Debug)]
pub(in crate::gpu) struct Aliased {
    /// The buffer.
    pub(in crate::gpu) buffer: Buffer,
    /// Held by what wgpu makes of it alone, which it drops while the device is alive.
    memory: Weak<Memory>,
}

/// True if buffers of an adapter's devices should be readable as textures: if it is Mesa's rasteriser, which has done with a
/// dispatch before it begins the next one.
pub(in crate::gpu) fn is_expected(info: &AdapterInfo) -> bool {
    info.backend == Backend::Vulkan && info.driver == "llvmpipe"
}

/// True if they are: if textures lie in memory row by row.
pub(in crate::gpu) fn is_supported(device: &wgpu::Device) -> bool {
    let usage = BufferUsages::STORAGE;
    let trial = || {
        let buffer = Aliased::new(device, "trial", 2 * ROW, usage, &Allocated::default())?;
        buffer.texture(device, ALIGNMENT, ROW)
    };
    guarded(device, trial).is_ok()
}

impl Aliased {
    /// Creates a buffer of zeros.
    pub(in crate::gpu) fn new(
        device: &wgpu::Device,
        label: &str,
        bytes: u64,
        usage: BufferUsages,
        allocated: &Allocated,
    ) -> Result<Aliased> {
        let memory = Arc::new(Memory::new(&raw_device(device)?, bytes, allocated)?);
        let held = memory.clone();
        let released = Box::new(move || drop(held));
        let descriptor = BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage,
            mapped_at_creation: false,
        };
        // SAFETY: the buffer is of this device, has the size and at least the usage of the descriptor, and is all zeros. It
        // outlives what wgpu makes of it, which keeps the memory until it is dropped.
        let buffer = unsafe {
            let raw = vulkan::Buffer::from_raw_externally_owned(memory.buffer, released);
            device.create_buffer_from_hal::<Vulkan>(raw, &descriptor)
        };
        Ok(Aliased {
            buffer,
            memory: Arc::downgrade(&memory),
        })
    }

    /// The memory, which is there as long as the buffer is.
    fn memory(&self) -> Result<Arc<Memory>> {
        let memory = self.memory.upgrade();
        memory.ok_or_else(|| Error::internal("a buffer has lost its memory"))
    }

    /// What is made of a range of bytes, which no kernel may write meanwhile.
    pub(in crate::gpu) fn read<T>(
        &self,
        range: Range<u64>,
        make: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let memory = self.memory()?;
        let host = memory.host(&range)?;
        let length = (range.end - range.start) as usize;
        // SAFETY: the bytes are there, were written as zeros at first, and stay as long as the memory is held. The lock keeps
        // other threads of the host away, and whoever holds the run's memory has waited for the device.
        let bytes = unsafe { std::slice::from_raw_parts(host.add(range.start as usize), length) };
        Ok(make(bytes))
    }

    /// Writes bytes at an offset, which no kernel may access meanwhile.
    pub(in crate::gpu) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let memory = self.memory()?;
        let host = memory.host(&(offset..offset + bytes.len() as u64))?;
        // SAFETY: as for reading; `bytes` lie elsewhere, since nobody else has a reference to this memory.
        unsafe {
            host.add(offset as usize)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        Ok(())
    }

    /// A texture of rows of [`TEXEL_ROW`] texels that shows the buffer's bytes from an offset on.
    ///
    /// # Errors
    /// The driver lays the texture out in another way.
    pub(in crate::gpu) fn texture(
        &self,
        device: &wgpu::Device,
        offset: u64,
        bytes: u64,
    ) -> Result<Texture> {
        let rows = usize::try_from(bytes.div_ceil(ROW)).unwrap_or(usize::MAX);
        let rows = u32::try_from(uneven(rows)).map_err(|_| other_layout())?;
        let image = Image::new(&self.memory()?, rows, offset)?;
        let descriptor = TextureDescriptor {
            label: Some("texels"),
            size: memory::size([TEXEL_ROW as u32, rows, 1]),
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: memory::format(Texel::F32),
            usage: TextureUsages::STORAGE_BINDING,
            view_formats: &[],
        };
        let of_hal = hal::TextureDescriptor {
            label: descriptor.label,
            size: descriptor.size,
            mip_level_count: descriptor.mip_level_count,
            sample_count: descriptor.sample_count,
            dimension: descriptor.dimension,
            format: descriptor.format,
            usage: TextureUses::STORAGE_READ_ONLY,
            memory_flags: MemoryFlags::empty(),
            view_formats: Vec::new(),
        };
        let raw = image.raw;
        let released = Box::new(move || drop(image));
        let memory = vulkan::TextureMemory::External;
        // SAFETY: the image is of this device and as the descriptors say. It outlives what wgpu makes of it, which keeps it
        // until it is dropped. Its texels are bytes of the buffer, which were written as zeros. The rasteriser knows no
        // layouts of images, so that there is no transition to the one that is said to be its state.
        unsafe {
            let device_of_hal = device.as_hal::<Vulkan>().ok_or_else(other_backend)?;
            let texture = device_of_hal.texture_from_raw(raw, &of_hal, Some(released), memory);
            drop(device_of_hal);
            let state = TextureUses::STORAGE_READ_ONLY;
            Ok(device.create_texture_from_hal::<Vulkan>(texture, &descriptor, state))
        }
    }
}

/// Memory with a buffer over all of it but the margin.
struct Memory {
    device: ash::Device,
    buffer: vk::Buffer,
    raw: vk::DeviceMemory,
    /// Bytes of the buffer, and with the margin.
    bytes: u64,
    whole: u64,
    /// Where the host sees the first byte; locked while it accesses any.
    host: Mutex<*mut u8>,
    allocated: Allocated,
}

// SAFETY: Vulkan's handles may be used by any thread, and the pointer is to memory that all of them see.
unsafe impl Send for Memory {}
// SAFETY: what changes lies behind a lock.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(device: &ash::Device, bytes: u64, allocated: &Allocated) -> Result<Memory> {
        let mut memory = Memory {
            device: device.clone(),
            buffer: vk::Buffer::null(),
            raw: vk::DeviceMemory::null(),
            bytes: 0,
            whole: 0,
            host: Mutex::new(std::ptr::null_mut()),
            allocated: allocated.clone(),
        };
        memory.fill(bytes).map_err(refused)?;
        Ok(memory)
    }

    /// Creates the buffer and what it lies in.
    fn fill(&mut self, bytes: u64) -> std::result::Result<(), vk::Result> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let descriptor = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        let device = &self.device;
        // SAFETY: the device is alive, since wgpu's is borrowed by the caller; handles are used as Vulkan asks. Memory of the
        // rasteriser is the host's: of the one type that it has, mapped until it is freed, and coherent.
        unsafe {
            self.buffer = device.create_buffer(&descriptor, None)?;
            let needed = device.get_buffer_memory_requirements(self.buffer);
            self.whole = needed.size.max(bytes) + MARGIN;
            let allocation = vk::MemoryAllocateInfo::default()
                .allocation_size(self.whole)
                .memory_type_index(needed.memory_type_bits.trailing_zeros());
            self.raw = device.allocate_memory(&allocation, None)?;
            self.bytes = bytes;
            self.allocated.fetch_add(bytes, Relaxed);
            let flags = vk::MemoryMapFlags::empty();
            let start = device.map_memory(self.raw, 0, vk::WHOLE_SIZE, flags)?;
            start.cast::<u8>().write_bytes(0, bytes as usize);
            *lock(&self.host) = start.cast();
            device.bind_buffer_memory(self.buffer, self.raw, 0)
        }
    }

    /// Where the host sees the first byte, for who accesses a range.
    fn host(&self, range: &Range<u64>) -> Result<MutexGuard<'_, *mut u8>> {
        let is_inside = range.start <= range.end && range.end <= self.bytes;
        let outside = || Error::internal("bytes beyond the end of a buffer");
        is_inside.then(|| lock(&self.host)).ok_or_else(outside)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: wgpu drops what holds this once the device has done with it, and while the device is alive. What was not
        // created is null, which Vulkan ignores; memory is unmapped as it is freed.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.raw, None);
        }
        self.allocated.fetch_sub(self.bytes, Relaxed);
    }
}

/// An image in the memory of a buffer.
struct Image {
    memory: Arc<Memory>,
    raw: vk::Image,
}

impl Image {
    fn new(memory: &Arc<Memory>, rows: u32, offset: u64) -> Result<Image> {
        let descriptor = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R32G32B32A32_SFLOAT)
            .extent(vk::Extent3D {
                width: TEXEL_ROW as u32,
                height: rows,
                depth: 1,
            })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::LINEAR)
            .usage(vk::ImageUsageFlags::STORAGE);
        let device = &memory.device;
        let plane = vk::ImageSubresource::default().aspect_mask(vk::ImageAspectFlags::COLOR);
        // SAFETY: the device is alive, since wgpu's is borrowed by the caller; the image is bound to memory only if that holds
        // all of it, where the driver may have it.
        unsafe {
            let raw = device.create_image(&descriptor, None).map_err(refused)?;
            let image = Image {
                memory: memory.clone(),
                raw,
            };
            let needed = device.get_image_memory_requirements(raw);
            let layout = device.get_image_subresource_layout(raw, plane);
            let is_inside = offset + needed.size <= memory.whole;
            let is_aligned = offset.is_multiple_of(needed.alignment.max(1));
            let is_by_rows = layout.offset == 0 && layout.row_pitch == ROW;
            if !(is_inside && is_aligned && is_by_rows) {
                return Err(other_layout());
            }
            let bound = device.bind_image_memory(raw, memory.raw, offset);
            bound.map(|()| image).map_err(refused)
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: wgpu drops what holds this once the device has done with it, and while the device is alive.
        unsafe { self.memory.device.destroy_image(self.raw, None) }
    }
}

fn raw_device(device: &wgpu::Device) -> Result<ash::Device> {
    // SAFETY: the functions of the device are copied; what is made with them is released while the device is alive.
    let device = unsafe { device.as_hal::<Vulkan>() };
    device
        .map(|device| device.raw_device().clone())
        .ok_or_else(other_backend)
}

fn refused(error: vk::Result) -> Error {
    Error::device(format!("the driver gives no memory to share: {error}"))
        .help("use smaller inputs, close other programs that use the device, or run on the host")
}

fn other_backend() -> Error {
    Error::internal("memory is shared with textures on Vulkan only")
}

fn other_layout() -> Error {
    Error::internal("the driver lays textures out in another way than buffers")
}
