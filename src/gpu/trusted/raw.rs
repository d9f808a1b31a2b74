//! Host-visible Vulkan memory with buffers and images in it. Lavapipe has one memory type, which is host memory, and
//! lays images out row by row if they are linear.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use ash::vk;
use wgpu::hal::api::Vulkan;
use wgpu::hal::{self, MemoryFlags, vulkan};
use wgpu::{Texture, TextureUsages, TextureUses};

use crate::error::{Error, Result};
use crate::gpu::error_scope::lock;
use crate::gpu::memory;
use crate::kernel::layout::Texel;

/// Counter of the bytes of a device's buffers and images in such memory; wgpu does not count them.
pub(in crate::gpu) type Allocated = Arc<AtomicU64>;

/// Device memory that lives as long as a buffer or image in it.
pub(super) struct DeviceMemory {
    device: ash::Device,
    raw: vk::DeviceMemory,
    /// Bytes of the allocation, margin included.
    total_bytes: u64,
    /// Bytes before the margin.
    usable_bytes: u64,
    /// Bytes suballocated so far. The system backs no pages beyond them.
    suballocated: AtomicU64,
    /// Host address of the first byte; locked while the host accesses the memory.
    host: Mutex<*mut u8>,
    allocated: Allocated,
}

// SAFETY: Vulkan's handles may be used by any thread, and the pointer is to memory that all threads can access.
unsafe impl Send for DeviceMemory {}
// SAFETY: all mutable state is behind a lock or atomic.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates memory of `bytes` for a resource that needs `needed`, followed by a margin that textures may extend
    /// into.
    fn new(
        device: &ash::Device,
        needed: vk::MemoryRequirements,
        bytes: u64,
        margin: u64,
        allocated: &Allocated,
    ) -> Result<DeviceMemory> {
        let mut memory = DeviceMemory {
            device: device.clone(),
            raw: vk::DeviceMemory::null(),
            total_bytes: needed.size.max(bytes) + margin,
            usable_bytes: 0,
            suballocated: AtomicU64::new(0),
            host: Mutex::new(std::ptr::null_mut()),
            allocated: allocated.clone(),
        };
        let descriptor = vk::MemoryAllocateInfo::default()
            .allocation_size(memory.total_bytes)
            .memory_type_index(needed.memory_type_bits.trailing_zeros());
        // SAFETY: the device is alive, since the caller borrows wgpu's. The memory stays mapped until it is freed, and
        // is coherent.
        unsafe {
            memory.raw = device
                .allocate_memory(&descriptor, None)
                .map_err(allocation_error)?;
            memory.usable_bytes = bytes;
            let flags = vk::MemoryMapFlags::empty();
            let start = device.map_memory(memory.raw, 0, vk::WHOLE_SIZE, flags);
            let start = start.map_err(allocation_error)?.cast::<u8>();
            advise_huge_pages(start, bytes as usize);
            *lock(&memory.host) = start;
        }
        Ok(memory)
    }

    /// Suballocates bytes and returns their offset; `None` if too few bytes are free.
    fn suballocate(&self, bytes: u64, alignment: u64) -> Option<u64> {
        let end = |used: u64| used.next_multiple_of(alignment.max(1)) + bytes;
        let extend = |used: u64| Some(end(used)).filter(|end| *end <= self.usable_bytes);
        let used = self
            .suballocated
            .fetch_update(Relaxed, Relaxed, extend)
            .ok()?;
        self.allocated.fetch_add(end(used) - used, Relaxed);
        Some(end(used) - bytes)
    }

    /// Locks the host address for an access to a range.
    fn host(&self, range: &Range<u64>) -> Result<MutexGuard<'_, *mut u8>> {
        let is_inside = range.start <= range.end && range.end <= self.usable_bytes;
        let outside = || Error::internal("bytes beyond the end of a buffer");
        is_inside.then(|| lock(&self.host)).ok_or_else(outside)
    }

    /// Zeroes a range of bytes. No kernel may access it at the same time.
    fn clear(&self, range: Range<u64>) -> Result<()> {
        let host = self.host(&range)?;
        let (start, bytes) = (range.start as usize, (range.end - range.start) as usize);
        // SAFETY: as in `write`.
        unsafe { host.add(start).write_bytes(0, bytes) };
        Ok(())
    }

    /// Applies `function` to a range of bytes that were written before. No kernel may write the range at the same time.
    pub(super) fn read<T>(
        &self,
        range: Range<u64>,
        function: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let host = self.host(&range)?;
        let length = (range.end - range.start) as usize;
        // SAFETY: the bytes exist as long as the memory is held; those of buffers were zeroed. The lock excludes other
        // host threads, and the owner of the run's memory has waited for the device.
        let bytes = unsafe { std::slice::from_raw_parts(host.add(range.start as usize), length) };
        Ok(function(bytes))
    }

    /// Writes bytes at an offset. No kernel may access them at the same time.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let host = self.host(&(offset..offset + bytes.len() as u64))?;
        let (target, source) = (host.wrapping_add(offset as usize), bytes.as_ptr());
        // SAFETY: as in `read`; `bytes` cannot overlap the memory, since there is no other reference to it.
        unsafe { target.copy_from_nonoverlapping(source, bytes.len()) };
        Ok(())
    }
}

/// Asks the system for huge pages, which need fewer TLB entries: each run reads all weights once. The system may ignore
/// the request.
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let offset = start.align_offset(HUGE);
    if let Some(rest) = bytes.checked_sub(offset).filter(|rest| *rest >= HUGE) {
        // SAFETY: the pages lie within the memory, and only how they are backed is changed.
        unsafe { libc::madvise(start.add(offset).cast(), rest, libc::MADV_HUGEPAGE) };
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.usable_bytes)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: wgpu drops the owner after the device has finished with it and while the device is alive. A handle
        // that was not allocated is null, which Vulkan ignores; freeing the memory unmaps it.
        unsafe { self.device.free_memory(self.raw, None) };
        self.allocated
            .fetch_sub(self.suballocated.load(Relaxed), Relaxed);
    }
}

/// A Vulkan buffer bound to memory.
pub(super) struct RawBuffer {
    device: ash::Device,
    pub(super) raw: vk::Buffer,
    bytes: u64,
    /// `None` until the buffer is bound.
    memory: Option<Arc<DeviceMemory>>,
}

impl RawBuffer {
    /// A buffer that is not bound to memory yet.
    fn new(device: &wgpu::Device, bytes: u64) -> Result<RawBuffer> {
        let device = raw_device(device)?;
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let descriptor = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        // SAFETY: the device is alive, since the caller borrows wgpu's.
        let raw = unsafe { device.create_buffer(&descriptor, None) };
        Ok(RawBuffer {
            raw: raw.map_err(allocation_error)?,
            device,
            bytes,
            memory: None,
        })
    }

    /// A zeroed buffer in new memory of at least `capacity` bytes and a margin, and that memory.
    pub(super) fn in_new_memory(
        device: &wgpu::Device,
        bytes: u64,
        capacity: u64,
        margin: u64,
        allocated: &Allocated,
    ) -> Result<(RawBuffer, Arc<DeviceMemory>)> {
        let buffer = RawBuffer::new(device, bytes)?;
        let (needed, capacity) = (buffer.requirements(), capacity.max(bytes));
        let memory = DeviceMemory::new(&buffer.device, needed, capacity, margin, allocated)?;
        let memory = Arc::new(memory);
        let start = memory.suballocate(bytes, 1).ok_or_else(layout_error)?;
        Ok((buffer.bind(memory.clone(), start)?, memory))
    }

    /// A zeroed buffer in the free bytes of existing memory, and its offset, which is a multiple of `alignment`; `None`
    /// if too few bytes are free.
    pub(super) fn in_memory(
        device: &wgpu::Device,
        bytes: u64,
        alignment: u64,
        memory: Arc<DeviceMemory>,
    ) -> Result<Option<(RawBuffer, u64)>> {
        let Some(start) = memory.suballocate(bytes, alignment) else {
            return Ok(None);
        };
        let buffer = RawBuffer::new(device, bytes)?;
        Ok(Some((buffer.bind(memory, start)?, start)))
    }

    fn requirements(&self) -> vk::MemoryRequirements {
        // SAFETY: the buffer exists.
        unsafe { self.device.get_buffer_memory_requirements(self.raw) }
    }

    /// Binds the buffer to memory at an offset, and zeroes it.
    fn bind(mut self, memory: Arc<DeviceMemory>, offset: u64) -> Result<RawBuffer> {
        let needed = self.requirements();
        let is_inside = offset + needed.size <= memory.total_bytes;
        if !(is_inside && offset.is_multiple_of(needed.alignment.max(1))) {
            return Err(layout_error());
        }
        memory.clear(offset..offset + self.bytes)?;
        // SAFETY: the memory has room for the buffer, which keeps the memory alive.
        let bound = unsafe { self.device.bind_buffer_memory(self.raw, memory.raw, offset) };
        bound.map_err(allocation_error)?;
        self.memory = Some(memory);
        Ok(self)
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        // SAFETY: wgpu drops the owner after the device has finished with it and while the device is alive.
        unsafe { self.device.destroy_buffer(self.raw, None) }
    }
}

/// A linear Vulkan image bound to memory.
pub(super) struct Image {
    device: ash::Device,
    raw: vk::Image,
    /// Width, height and number of layers.
    extent: [u32; 3],
    texel: Texel,
    /// `None` until the image is bound.
    memory: Option<Arc<DeviceMemory>>,
}

impl Image {
    /// An image of a width, a height and a number of layers that is not bound to memory yet.
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
        // SAFETY: the device is alive, since the caller borrows wgpu's.
        let raw = unsafe { device.create_image(&descriptor, None) };
        Ok(Image {
            raw: raw.map_err(allocation_error)?,
            device,
            extent,
            texel,
            memory: None,
        })
    }

    /// An image of one layer that aliases existing memory from an offset on, without padding between its rows.
    pub(super) fn aliasing(
        device: &wgpu::Device,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        [width, height]: [u32; 2],
        texel: Texel,
    ) -> Result<Image> {
        let image = Image::new(device, [width, height, 1], texel)?;
        let needed = image.requirements();
        let is_inside = offset + needed.size <= memory.total_bytes;
        let is_aligned = offset.is_multiple_of(needed.alignment.max(1));
        if !(is_inside && is_aligned && image.pitches()?[0] == image.row_bytes()) {
            return Err(layout_error());
        }
        image.bind(memory.clone(), offset)
    }

    /// An image in new memory of its size, and that memory.
    pub(super) fn dedicated(
        device: &wgpu::Device,
        extent: [u32; 3],
        texel: Texel,
        allocated: &Allocated,
    ) -> Result<(Image, Arc<DeviceMemory>)> {
        let image = Image::new(device, extent, texel)?;
        let needed = image.requirements();
        let memory = DeviceMemory::new(&image.device, needed, needed.size, 0, allocated)?;
        let start = memory
            .suballocate(needed.size, 1)
            .ok_or_else(layout_error)?;
        let memory = Arc::new(memory);
        Ok((image.bind(memory.clone(), start)?, memory))
    }

    fn requirements(&self) -> vk::MemoryRequirements {
        // SAFETY: the image exists.
        unsafe { self.device.get_image_memory_requirements(self.raw) }
    }

    /// Bytes of a row of texels.
    pub(super) fn row_bytes(&self) -> u64 {
        u64::from(self.extent[0]) * self.texel.bytes()
    }

    /// Bytes from one row to the next, and from one layer to the next.
    pub(super) fn pitches(&self) -> Result<[u64; 2]> {
        let plane = vk::ImageSubresource::default().aspect_mask(vk::ImageAspectFlags::COLOR);
        // SAFETY: the image exists, and its tiling is linear.
        let layout = unsafe { self.device.get_image_subresource_layout(self.raw, plane) };
        let pitches = [layout.row_pitch, layout.array_pitch];
        (layout.offset == 0)
            .then_some(pitches)
            .ok_or_else(layout_error)
    }

    /// Binds the image to memory at an offset.
    fn bind(mut self, memory: Arc<DeviceMemory>, offset: u64) -> Result<Image> {
        // SAFETY: the memory has room for the image, which keeps the memory alive.
        let bound = unsafe { self.device.bind_image_memory(self.raw, memory.raw, offset) };
        bound.map_err(allocation_error)?;
        self.memory = Some(memory);
        Ok(self)
    }

    /// A wgpu texture for kernels to read, which owns the image.
    pub(super) fn texture(self, device: &wgpu::Device, label: &str) -> Result<Texture> {
        let usage = TextureUsages::STORAGE_BINDING;
        let descriptor = memory::texture_descriptor(label, self.extent, self.texel, usage);
        let hal_descriptor = hal::TextureDescriptor {
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
        let drop_image = Box::new(move || drop(self));
        let memory = vulkan::TextureMemory::External;
        // SAFETY: the image is of this device and matches the descriptors. wgpu's texture owns it until it is dropped,
        // so it lives long enough. Its texels are undefined until they are written. The rasteriser ignores image
        // layouts, so no transition to the declared state is needed.
        unsafe {
            let hal_device = device.as_hal::<Vulkan>().ok_or_else(backend_error)?;
            let texture =
                hal_device.texture_from_raw(raw, &hal_descriptor, Some(drop_image), memory);
            drop(hal_device);
            let state = TextureUses::STORAGE_READ_ONLY;
            Ok(device.create_texture_from_hal::<Vulkan>(texture, &descriptor, state))
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: wgpu drops the owner after the device has finished with it and while the device is alive.
        unsafe { self.device.destroy_image(self.raw, None) }
    }
}

/// The Vulkan device of a wgpu device.
fn raw_device(device: &wgpu::Device) -> Result<ash::Device> {
    // SAFETY: the device's function table is copied; objects made with it are released while the device is alive.
    let device = unsafe { device.as_hal::<Vulkan>() };
    device
        .map(|device| device.raw_device().clone())
        .ok_or_else(backend_error)
}

fn allocation_error(error: vk::Result) -> Error {
    let message = format!("the driver failed to allocate memory shared with textures: {error}");
    Error::device(message)
        .help("use smaller inputs, close other programs that use the device, or run on the host")
}

fn backend_error() -> Error {
    Error::internal("memory is shared with textures on Vulkan only")
}

pub(super) fn layout_error() -> Error {
    Error::internal("the driver's texture layout does not match the buffer layout")
}
