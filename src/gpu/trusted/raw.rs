//! Memory of Vulkan's that the host sees, and buffers and images in it. Mesa's rasteriser has one type of memory, which is the
//! host's, and lays images out row by row where it is asked to.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use ash::vk;
use wgpu::hal::api::Vulkan;
use wgpu::hal::{self, MemoryFlags, vulkan};
use wgpu::{Texture, TextureUsages, TextureUses};

use crate::error::{Error, Result};
use crate::gpu::fault::lock;
use crate::gpu::memory;
use crate::kernel::layout::Texel;

/// Bytes of such memory that buffers and images have on a device, which wgpu does not count.
pub(in crate::gpu) type Allocated = Arc<AtomicU64>;

/// Memory, as long as something lies in it.
pub(super) struct Memory {
    device: ash::Device,
    raw: vk::DeviceMemory,
    /// All of its bytes, those in front of a margin, and those that were given away so far: the system has no pages for others.
    whole: u64,
    bytes: u64,
    given: AtomicU64,
    /// Where the host sees the first byte; locked while it accesses any.
    host: Mutex<*mut u8>,
    allocated: Allocated,
}

// SAFETY: Vulkan's handles may be used by any thread, and the pointer is to memory that all of them see.
unsafe impl Send for Memory {}
// SAFETY: what changes lies behind a lock.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory for something, with a margin behind it.
    fn new(
        device: &ash::Device,
        needed: vk::MemoryRequirements,
        (bytes, margin): (u64, u64),
        allocated: &Allocated,
    ) -> Result<Memory> {
        let mut memory = Memory {
            device: device.clone(),
            raw: vk::DeviceMemory::null(),
            whole: needed.size.max(bytes) + margin,
            bytes: 0,
            given: AtomicU64::new(0),
            host: Mutex::new(std::ptr::null_mut()),
            allocated: allocated.clone(),
        };
        let descriptor = vk::MemoryAllocateInfo::default()
            .allocation_size(memory.whole)
            .memory_type_index(needed.memory_type_bits.trailing_zeros());
        // SAFETY: the device is alive, since wgpu's is borrowed by the caller. The memory stays mapped until it is freed, and is
        // coherent.
        unsafe {
            memory.raw = device.allocate_memory(&descriptor, None).map_err(refused)?;
            memory.bytes = bytes;
            let flags = vk::MemoryMapFlags::empty();
            let start = device.map_memory(memory.raw, 0, vk::WHOLE_SIZE, flags);
            let start = start.map_err(refused)?.cast::<u8>();
            in_huge_pages(start, bytes as usize);
            *lock(&memory.host) = start;
        }
        Ok(memory)
    }

    /// So many bytes for nothing else, by where they begin; none if there are no more.
    fn give(&self, bytes: u64, alignment: u64) -> Option<u64> {
        let end = |given: u64| given.next_multiple_of(alignment.max(1)) + bytes;
        let give = |given: u64| Some(end(given)).filter(|end| *end <= self.bytes);
        let given = self.given.fetch_update(Relaxed, Relaxed, give).ok()?;
        self.allocated.fetch_add(end(given) - given, Relaxed);
        Some(end(given) - bytes)
    }

    /// Where the host sees the first byte, for who accesses a range.
    fn host(&self, range: &Range<u64>) -> Result<MutexGuard<'_, *mut u8>> {
        let is_inside = range.start <= range.end && range.end <= self.bytes;
        let outside = || Error::internal("bytes beyond the end of a buffer");
        is_inside.then(|| lock(&self.host)).ok_or_else(outside)
    }

    /// Makes zeros of a range of bytes, which no kernel may access meanwhile.
    fn clear(&self, range: Range<u64>) -> Result<()> {
        let host = self.host(&range)?;
        let (start, bytes) = (range.start as usize, (range.end - range.start) as usize);
        // SAFETY: as for writing.
        unsafe { host.add(start).write_bytes(0, bytes) };
        Ok(())
    }

    /// What is made of a range of bytes, which were written before, and which no kernel may write meanwhile.
    pub(super) fn read<T>(&self, range: Range<u64>, make: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let host = self.host(&range)?;
        let length = (range.end - range.start) as usize;
        // SAFETY: the bytes are there and stay as long as the memory is held; those of buffers began as zeros. The lock keeps
        // other threads of the host away, and whoever holds the run's memory has waited for the device.
        let bytes = unsafe { std::slice::from_raw_parts(host.add(range.start as usize), length) };
        Ok(make(bytes))
    }

    /// Writes bytes at an offset, which no kernel may access meanwhile.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let host = self.host(&(offset..offset + bytes.len() as u64))?;
        let (target, source) = (host.wrapping_add(offset as usize), bytes.as_ptr());
        // SAFETY: as for reading; `bytes` lie elsewhere, since nobody else has a reference to this memory.
        unsafe { target.copy_from_nonoverlapping(source, bytes.len()) };
        Ok(())
    }
}

/// Asks the system for huge pages, of which a processor remembers the places of more memory: weights are read once a run.
/// It may not have any.
fn in_huge_pages(start: *mut u8, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let first = start.align_offset(HUGE);
    if let Some(rest) = bytes.checked_sub(first).filter(|rest| *rest >= HUGE) {
        // SAFETY: the pages lie within the memory, and only how they are backed is changed.
        unsafe { libc::madvise(start.add(first).cast(), rest, libc::MADV_HUGEPAGE) };
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
        // allocated is null, which Vulkan ignores; memory is unmapped as it is freed.
        unsafe { self.device.free_memory(self.raw, None) };
        self.allocated.fetch_sub(self.given.load(Relaxed), Relaxed);
    }
}

/// A buffer in some memory.
pub(super) struct RawBuffer {
    device: ash::Device,
    pub(super) raw: vk::Buffer,
    bytes: u64,
    /// None only while the buffer is made.
    memory: Option<Arc<Memory>>,
}

impl RawBuffer {
    /// A buffer without memory as yet.
    fn new(device: &wgpu::Device, bytes: u64) -> Result<RawBuffer> {
        let device = raw_device(device)?;
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let descriptor = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        // SAFETY: the device is alive, since wgpu's is borrowed by the caller.
        let raw = unsafe { device.create_buffer(&descriptor, None) };
        Ok(RawBuffer {
            raw: raw.map_err(refused)?,
            device,
            bytes,
            memory: None,
        })
    }

    /// A buffer of zeros in memory with room for so many bytes, and a margin behind these.
    pub(super) fn first(
        device: &wgpu::Device,
        bytes: u64,
        (room, margin): (u64, u64),
        allocated: &Allocated,
    ) -> Result<(RawBuffer, Arc<Memory>)> {
        let buffer = RawBuffer::new(device, bytes)?;
        let (needed, room) = (buffer.needed(), room.max(bytes));
        let memory = Memory::new(&buffer.device, needed, (room, margin), allocated)?;
        let memory = Arc::new(memory);
        let start = memory.give(bytes, 1).ok_or_else(other_layout)?;
        Ok((buffer.bind(memory.clone(), start)?, memory))
    }

    /// A buffer of zeros in the rest of some memory, and the offset at which it begins, a multiple of a number; none if there
    /// is too little.
    pub(super) fn within(
        device: &wgpu::Device,
        bytes: u64,
        alignment: u64,
        memory: Arc<Memory>,
    ) -> Result<Option<(RawBuffer, u64)>> {
        let Some(start) = memory.give(bytes, alignment) else {
            return Ok(None);
        };
        let buffer = RawBuffer::new(device, bytes)?;
        Ok(Some((buffer.bind(memory, start)?, start)))
    }

    fn needed(&self) -> vk::MemoryRequirements {
        // SAFETY: the buffer is there.
        unsafe { self.device.get_buffer_memory_requirements(self.raw) }
    }

    fn bind(mut self, memory: Arc<Memory>, offset: u64) -> Result<RawBuffer> {
        let needed = self.needed();
        let is_inside = offset + needed.size <= memory.whole;
        if !(is_inside && offset.is_multiple_of(needed.alignment.max(1))) {
            return Err(other_layout());
        }
        memory.clear(offset..offset + self.bytes)?;
        // SAFETY: the memory holds the buffer, which keeps it.
        let bound = unsafe { self.device.bind_buffer_memory(self.raw, memory.raw, offset) };
        bound.map_err(refused)?;
        self.memory = Some(memory);
        Ok(self)
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        // SAFETY: wgpu drops what holds this once the device has done with it, and while the device is alive.
        unsafe { self.device.destroy_buffer(self.raw, None) }
    }
}

/// An image of rows of texels in some memory.
pub(super) struct Image {
    device: ash::Device,
    raw: vk::Image,
    extent: [u32; 3],
    texel: Texel,
    /// None only while the image is made.
    memory: Option<Arc<Memory>>,
}

impl Image {
    /// An image of a width, a height and a number of layers, as yet without memory.
    fn new(device: &wgpu::Device, extent: [u32; 3], texel: Texel) -> Result<Image> {
        let device = raw_device(device)?;
        let [width, height, layers] = extent;
        let descriptor = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(match texel {
                Texel::F16 => vk::Format::R32G32_UINT,
                Texel::F16x2 => vk::Format::R32G32B32A32_UINT,
                Texel::F32 => vk::Format::R32G32B32A32_SFLOAT,
            })
            .extent(vk::Extent3D {
                width,
                height,
                depth: 1,
            })
            .mip_levels(1)
            .array_layers(layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::LINEAR)
            .usage(vk::ImageUsageFlags::STORAGE);
        // SAFETY: the device is alive, since wgpu's is borrowed by the caller.
        let raw = unsafe { device.create_image(&descriptor, None) };
        Ok(Image {
            raw: raw.map_err(refused)?,
            device,
            extent,
            texel,
            memory: None,
        })
    }

    /// An image of one layer over a part of some memory, from an offset on, with nothing between its rows.
    pub(super) fn over(
        device: &wgpu::Device,
        (memory, offset): (&Arc<Memory>, u64),
        ([width, height], texel): ([u32; 2], Texel),
    ) -> Result<Image> {
        let image = Image::new(device, [width, height, 1], texel)?;
        let needed = image.needed();
        let is_inside = offset + needed.size <= memory.whole;
        let is_aligned = offset.is_multiple_of(needed.alignment.max(1));
        if !(is_inside && is_aligned && image.pitches()?[0] == image.row()) {
            return Err(other_layout());
        }
        image.bind(memory.clone(), offset)
    }

    /// An image in memory of its own.
    pub(super) fn alone(
        device: &wgpu::Device,
        (extent, texel): ([u32; 3], Texel),
        allocated: &Allocated,
    ) -> Result<(Image, Arc<Memory>)> {
        let image = Image::new(device, extent, texel)?;
        let needed = image.needed();
        let memory = Memory::new(&image.device, needed, (needed.size, 0), allocated)?;
        let start = memory.give(needed.size, 1).ok_or_else(other_layout)?;
        let memory = Arc::new(memory);
        Ok((image.bind(memory.clone(), start)?, memory))
    }

    fn needed(&self) -> vk::MemoryRequirements {
        // SAFETY: the image is there.
        unsafe { self.device.get_image_memory_requirements(self.raw) }
    }

    /// Bytes of a row of texels.
    pub(super) fn row(&self) -> u64 {
        u64::from(self.extent[0]) * self.texel.bytes()
    }

    /// Bytes from row to row, and from layer to layer.
    pub(super) fn pitches(&self) -> Result<[u64; 2]> {
        let plane = vk::ImageSubresource::default().aspect_mask(vk::ImageAspectFlags::COLOR);
        // SAFETY: the image is there, and its tiling is linear.
        let layout = unsafe { self.device.get_image_subresource_layout(self.raw, plane) };
        let pitches = [layout.row_pitch, layout.array_pitch];
        (layout.offset == 0)
            .then_some(pitches)
            .ok_or_else(other_layout)
    }

    fn bind(mut self, memory: Arc<Memory>, offset: u64) -> Result<Image> {
        // SAFETY: the memory holds the image, which keeps it.
        let bound = unsafe { self.device.bind_image_memory(self.raw, memory.raw, offset) };
        bound.map_err(refused)?;
        self.memory = Some(memory);
        Ok(self)
    }

    /// The texture for kernels to read, which keeps the image.
    pub(super) fn texture(self, device: &wgpu::Device, label: &str) -> Result<Texture> {
        let usage = TextureUsages::STORAGE_BINDING;
        let descriptor = memory::described(label, (self.extent, self.texel), usage);
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
        let raw = self.raw;
        let released = Box::new(move || drop(self));
        let memory = vulkan::TextureMemory::External;
        // SAFETY: the image is of this device and as the descriptors say. It outlives what wgpu makes of it, which keeps it
        // until it is dropped. Its texels are any numbers until they are written. The rasteriser knows no layouts of images, so that there is
        // no transition to the one that is said to be its state.
        unsafe {
            let device_of_hal = device.as_hal::<Vulkan>().ok_or_else(other_backend)?;
            let texture = device_of_hal.texture_from_raw(raw, &of_hal, Some(released), memory);
            drop(device_of_hal);
            let state = TextureUses::STORAGE_READ_ONLY;
            Ok(device.create_texture_from_hal::<Vulkan>(texture, &descriptor, state))
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: wgpu drops what holds this once the device has done with it, and while the device is alive.
        unsafe { self.device.destroy_image(self.raw, None) }
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

pub(super) fn other_layout() -> Error {
    Error::internal("the driver lays textures out in another way than buffers")
}
