//! Memory of slots: buffers, and textures for some weights.

use std::ops::Range;

use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, Extent3d, Texture, TextureDescriptor, TextureDimension,
    TextureFormat, TextureUsages, TextureView, TextureViewDescriptor, TextureViewDimension,
};

use crate::error::{Error, Result};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::{Layout, Texel};

use super::device::GpuDevice;
use super::sizing::texture_bytes;
use super::statistics::{Counters, add};
use super::trusted::aliased::{AliasedBuffer, MappedTexture};

/// Format of a texture of these texels.
pub(super) fn texture_format(texel: Texel) -> TextureFormat {
    match texel {
        Texel::F16 => TextureFormat::Rg32Uint,
        Texel::F16x2 => TextureFormat::Rgba32Uint,
        Texel::F32 => TextureFormat::Rgba32Float,
    }
}

/// Memory of a slot.
#[derive(Clone, Debug)]
pub(super) enum SlotMemory {
    /// A buffer that the host accesses only while it is mapped.
    Buffer(Buffer),
    /// A buffer that kernels can also read as a texture and that the host accesses without mapping.
    Aliased(AliasedBuffer),
    /// A texture of a weight.
    Texture(Texture),
}

impl SlotMemory {
    /// The buffer of a slot; fails for a texture.
    pub(super) fn buffer(&self) -> Result<&Buffer> {
        match self {
            SlotMemory::Buffer(buffer) | SlotMemory::Aliased(AliasedBuffer { buffer, .. }) => {
                Ok(buffer)
            }
            SlotMemory::Texture(_) => Err(Error::internal("the slot is a texture, not a buffer")),
        }
    }

    /// Applies `function` to a range of bytes. The range must be mapped, or no pending submission may write it.
    pub(super) fn read<T>(
        &self,
        range: Range<u64>,
        function: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        if let SlotMemory::Aliased(aliased) = self {
            return aliased.read(range, function)?;
        }
        let view = self.buffer()?.get_mapped_range(range);
        let view = view.map_err(|error| Error::device(error.to_string()))?;
        function(&view)
    }

    /// Writes bytes at an offset. The range must be mapped, or no pending submission may use it. Rounds the length up
    /// to a multiple of four, so up to three more bytes may be overwritten.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if let SlotMemory::Aliased(aliased) = self {
            return aliased.write(offset, bytes);
        }
        let end = offset + (bytes.len() as u64).next_multiple_of(4);
        let view = self.buffer()?.get_mapped_range_mut(offset..end);
        let mut view = view.map_err(|error| Error::device(error.to_string()))?;
        view.slice(..bytes.len()).copy_from_slice(bytes);
        Ok(())
    }
}

/// Creates a buffer that kernels can also read as a texture, and counts it. Suballocates the buffer from the allocation
/// of
/// `previous` if enough bytes of that are free, else from a new allocation of `capacity` bytes.
pub(super) fn aliased_buffer(
    counters: &Counters,
    device: &GpuDevice,
    label: &str,
    bytes: u64,
    usage: BufferUsages,
    previous: Option<&AliasedBuffer>,
    capacity: u64,
) -> Result<AliasedBuffer> {
    add(&counters.buffers, 1);
    add(&counters.buffer_bytes, bytes);
    let descriptor = BufferDescriptor {
        label: Some(label),
        size: bytes,
        usage,
        mapped_at_creation: false,
    };
    let suballocated = previous.map(|previous| previous.suballocate(device.wgpu(), &descriptor));
    match suballocated.transpose()?.flatten() {
        Some(buffer) => Ok(buffer),
        None => AliasedBuffer::new(device.wgpu(), &descriptor, capacity, device.aliased_bytes()),
    }
}

/// Creates a texture of a width, a height and a number of layers in texels, and counts it.
pub(super) fn texture(
    counters: &Counters,
    device: &GpuDevice,
    label: &str,
    extent: [u32; 3],
    texel: Texel,
) -> Texture {
    count_texture(counters, extent, texel);
    let usage = TextureUsages::STORAGE_BINDING | TextureUsages::COPY_DST;
    let descriptor = texture_descriptor(label, extent, texel, usage);
    device.wgpu().create_texture(&descriptor)
}

/// Like [`texture`], but the host writes it directly; for devices where buffers alias textures.
pub(super) fn mapped_texture(
    counters: &Counters,
    device: &GpuDevice,
    label: &str,
    extent: [u32; 3],
    texel: Texel,
) -> Result<MappedTexture> {
    count_texture(counters, extent, texel);
    MappedTexture::new(device.wgpu(), label, extent, texel, device.aliased_bytes())
}

/// Counts a texture that is created.
fn count_texture(counters: &Counters, extent: [u32; 3], texel: Texel) {
    add(&counters.buffers, 1);
    add(&counters.buffer_bytes, texture_bytes(extent, texel));
}

/// wgpu's descriptor of a two-dimensional texture array.
pub(super) fn texture_descriptor(
    label: &str,
    extent: [u32; 3],
    texel: Texel,
    usage: TextureUsages,
) -> TextureDescriptor<'_> {
    TextureDescriptor {
        label: Some(label),
        size: extent3d(extent),
        mip_level_count: 1,
        sample_count: 1,
        dimension: TextureDimension::D2,
        format: texture_format(texel),
        usage,
        view_formats: &[],
    }
}

/// View of all layers of a texture.
pub(super) fn array_view(texture: &Texture) -> TextureView {
    texture.create_view(&TextureViewDescriptor {
        dimension: Some(TextureViewDimension::D2Array),
        ..Default::default()
    })
}

/// Width, height and layers as wgpu's extent.
pub(super) fn extent3d([width, height, layers]: [u32; 3]) -> Extent3d {
    Extent3d {
        width,
        height,
        depth_or_array_layers: layers,
    }
}

/// Converts the contents of a slot's buffer to row-major order, without padding.
pub(super) fn to_row_major(
    layout: &Layout,
    storage: StorageType,
    shape: &[usize],
    bytes: &[u8],
) -> Vec<u8> {
    let (numel, size) = (shape.iter().product::<usize>(), storage.size() as usize);
    let mut elements = vec![0; numel * size];
    for (index, element) in bytes.chunks_exact(size).enumerate() {
        let start = layout
            .element_at(shape, index)
            .map(|row_major| row_major * size);
        let target = start.and_then(|start| elements.get_mut(start..start + size));
        if let Some(target) = target {
            target.copy_from_slice(element);
        }
    }
    elements
}
