//! Buffers and textures that alias one memory, and textures that the host writes directly.
//!
//! Lavapipe reads a texel with a few instructions for all lanes, but a buffer element lane by lane, with two bounds
//! checks each; writing texels is slow. So values between kernels are written as buffers and read as textures. wgpu
//! does not allow such aliasing, so Vulkan functions allocate the memory and the buffers and textures are passed to
//! wgpu.

use std::ops::Range;
use std::sync::{Arc, Weak};

use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan;
use wgpu::{AdapterInfo, Buffer, BufferDescriptor, BufferUsages, Texture};

use super::raw::{DeviceMemory, Image, RawBuffer, layout_error};
use crate::error::{Error, Result};
use crate::gpu::adapter::is_lavapipe;
use crate::gpu::error_scope::in_error_scope;
use crate::kernel::layout::{TEXELS_PER_ROW, Texel, non_power_of_two};

pub(in crate::gpu) use super::raw::Allocated;

/// Bytes of a row of texels.
const fn row_bytes(texel: Texel) -> u64 {
    TEXELS_PER_ROW as u64 * texel.bytes()
}

/// Bytes of a row of the largest texels.
const ROW_BYTES: u64 = row_bytes(Texel::F32);

/// Maximum bytes by which a texture extends beyond the end of its data: [`non_power_of_two`] may add rows, and the
/// driver allocates rows in groups of four.
const MARGIN_BYTES: u64 = 5 * ROW_BYTES;

/// Alignment in bytes of the start of a texture.
pub(in crate::gpu) const ALIGNMENT: u64 = 64;

/// A buffer whose memory textures and the host share. Clones are the same buffer.
#[derive(Clone, Debug)]
pub(in crate::gpu) struct AliasedBuffer {
    /// The buffer.
    pub(in crate::gpu) buffer: Buffer,
    /// The memory. wgpu's objects own it, so that wgpu frees it while the device is alive.
    memory: Weak<DeviceMemory>,
    /// Offset of the buffer in the memory, in bytes.
    start: u64,
}

/// True if buffers of an adapter's devices should alias textures: on lavapipe, which finishes each dispatch before
/// starting the next.
pub(in crate::gpu) fn is_expected(info: &AdapterInfo) -> bool {
    is_lavapipe(info)
}

/// True if aliasing works on a device, that is, if the driver lays textures out row by row.
pub(in crate::gpu) fn is_supported(device: &wgpu::Device) -> bool {
    let try_aliasing = || {
        let allocated = Allocated::default();
        let descriptor = BufferDescriptor {
            label: Some("trial"),
            size: 2 * ROW_BYTES,
            usage: BufferUsages::STORAGE,
            mapped_at_creation: false,
        };
        let buffer = AliasedBuffer::new(device, &descriptor, 4 * ROW_BYTES, &allocated)?;
        buffer.texture(device, ALIGNMENT, ROW_BYTES, Texel::F32)?;
        let next = buffer
            .suballocate(device, &descriptor)?
            .ok_or_else(memory_lost)?;
        next.texture(device, ALIGNMENT, ROW_BYTES, Texel::F16)?;
        MappedTexture::new(device, "trial", [128, 3, 2], Texel::F32, &allocated)
    };
    in_error_scope(device, try_aliasing).is_ok()
}

impl AliasedBuffer {
    /// Creates a zeroed buffer in new memory of `capacity` bytes; [`AliasedBuffer::suballocate`] uses the rest.
    pub(in crate::gpu) fn new(
        device: &wgpu::Device,
        descriptor: &BufferDescriptor,
        capacity: u64,
        allocated: &Allocated,
    ) -> Result<AliasedBuffer> {
        let (buffer, memory) =
            RawBuffer::in_new_memory(device, descriptor.size, capacity, MARGIN_BYTES, allocated)?;
        Ok(AliasedBuffer {
            buffer: into_wgpu(device, buffer, descriptor),
            memory: Arc::downgrade(&memory),
            start: 0,
        })
    }

    /// Creates a zeroed buffer in the same memory; `None` if too few bytes of that are free.
    pub(in crate::gpu) fn suballocate(
        &self,
        device: &wgpu::Device,
        descriptor: &BufferDescriptor,
    ) -> Result<Option<AliasedBuffer>> {
        let suballocated =
            RawBuffer::in_memory(device, descriptor.size, ALIGNMENT, self.memory()?)?;
        Ok(suballocated.map(|(buffer, start)| AliasedBuffer {
            buffer: into_wgpu(device, buffer, descriptor),
            memory: self.memory.clone(),
            start,
        }))
    }

    /// The memory, which exists as long as the buffer.
    fn memory(&self) -> Result<Arc<DeviceMemory>> {
        self.memory.upgrade().ok_or_else(memory_lost)
    }

    /// Applies `function` to a range of bytes. No kernel may write the range at the same time.
    pub(in crate::gpu) fn read<T>(
        &self,
        range: Range<u64>,
        function: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let range = self.memory_range(range)?;
        self.memory()?.read(range, function)
    }

    /// Writes bytes at an offset. No kernel may access them at the same time.
    pub(in crate::gpu) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let range = self.memory_range(offset..offset + bytes.len() as u64)?;
        self.memory()?.write(range.start, bytes)
    }

    /// Converts a range of the buffer to a range of the memory.
    fn memory_range(&self, range: Range<u64>) -> Result<Range<u64>> {
        let place = self.start + range.start..self.start + range.end;
        let outside = || Error::internal("bytes beyond the end of a buffer");
        let is_inside = range.end <= self.buffer.size();
        is_inside.then_some(place).ok_or_else(outside)
    }

    /// A texture over the buffer's bytes from an offset on, with rows of [`TEXELS_PER_ROW`] texels.
    ///
    /// # Errors
    /// Fails if the driver lays the texture out differently.
    pub(in crate::gpu) fn texture(
        &self,
        device: &wgpu::Device,
        offset: u64,
        bytes: u64,
        texel: Texel,
    ) -> Result<Texture> {
        let rows = usize::try_from(bytes.div_ceil(row_bytes(texel))).unwrap_or(usize::MAX);
        let rows = u32::try_from(non_power_of_two(rows)).map_err(|_| layout_error())?;
        let extent = [TEXELS_PER_ROW as u32, rows];
        let start = self.start + offset;
        Image::aliasing(device, &self.memory()?, start, extent, texel)?.texture(device, "texels")
    }
}

/// Passes a buffer to wgpu.
fn into_wgpu(device: &wgpu::Device, buffer: RawBuffer, descriptor: &BufferDescriptor) -> Buffer {
    let raw = buffer.raw;
    let drop_buffer = Box::new(move || drop(buffer));
    // SAFETY: the buffer is of this device, has the size and at least the usage of the descriptor, and is all zeros.
    // wgpu's buffer owns it until it is dropped, so it lives long enough.
    unsafe {
        let raw = vulkan::Buffer::from_raw_externally_owned(raw, drop_buffer);
        device.create_buffer_from_hal::<Vulkan>(raw, descriptor)
    }
}

/// A texture whose memory the host writes directly.
pub(in crate::gpu) struct MappedTexture {
    /// The texture.
    pub(in crate::gpu) texture: Texture,
    /// The memory, which wgpu's texture owns.
    memory: Weak<DeviceMemory>,
    /// Bytes of a row of texels.
    pub(in crate::gpu) row_bytes: u64,
    /// Bytes from one row to the next, and from one layer to the next.
    pitches: [u64; 2],
    /// Rows of a layer.
    height: u64,
}

impl MappedTexture {
    /// Creates a texture of a width, a height and a number of layers, with undefined contents.
    pub(in crate::gpu) fn new(
        device: &wgpu::Device,
        label: &str,
        extent: [u32; 3],
        texel: Texel,
        allocated: &Allocated,
    ) -> Result<MappedTexture> {
        let (image, memory) = Image::dedicated(device, extent, texel, allocated)?;
        Ok(MappedTexture {
            row_bytes: image.row_bytes(),
            pitches: image.pitches()?,
            height: u64::from(extent[1]),
            texture: image.texture(device, label)?,
            memory: Arc::downgrade(&memory),
        })
    }

    /// Writes a row, numbered across all layers. No kernel may read it at the same time.
    pub(in crate::gpu) fn write(&self, row: u64, texels: &[u8]) -> Result<()> {
        let [row_pitch, layer_pitch] = self.pitches;
        let (layer, y) = (row / self.height.max(1), row % self.height.max(1));
        let memory = self.memory.upgrade().ok_or_else(memory_lost)?;
        memory.write(layer * layer_pitch + y * row_pitch, texels)
    }
}

/// The error of a buffer or texture whose memory was freed.
fn memory_lost() -> Error {
    Error::device("the device was lost: a buffer or texture has no memory any more")
        .help("open the device again and compile the model for it")
}
