//! The memory of slots: buffers, and textures for some weights.

use wgpu::{
    Buffer, BufferUsages, Extent3d, Origin3d, TexelCopyBufferInfo, TexelCopyBufferLayout,
    TexelCopyTextureInfo, Texture, TextureDescriptor, TextureDimension, TextureFormat,
    TextureUsages, TextureView, TextureViewDescriptor, TextureViewDimension,
};

use crate::error::{Error, Result};
use crate::kernel::layout::{Layout, TEXEL_BYTES};

use super::sizing::texture_bytes;
use super::statistics::{Counters, add};

/// The format of all textures: four numbers in single precision.
pub(super) const FORMAT: TextureFormat = TextureFormat::Rgba32Float;

/// What a slot lies in.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    Buffer(Buffer),
    Texture(Texture),
}

impl Memory {
    /// The buffer of a slot that is known to lie in one.
    pub(super) fn buffer(&self) -> Result<&Buffer> {
        match self {
            Memory::Buffer(buffer) => Ok(buffer),
            Memory::Texture(_) => Err(Error::internal("a slot lies in a texture")),
        }
    }
}

/// Creates a texture of a width, a height and a number of layers, and counts it.
pub(super) fn texture(
    counters: &Counters,
    device: &wgpu::Device,
    label: &str,
    extent: [u32; 3],
) -> Texture {
    add(&counters.buffers, 1);
    add(&counters.buffer_bytes, texture_bytes(&extent));
    device.create_texture(&TextureDescriptor {
        label: Some(label),
        size: size(extent),
        mip_level_count: 1,
        sample_count: 1,
        dimension: TextureDimension::D2,
        format: FORMAT,
        usage: TextureUsages::STORAGE_BINDING | TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

/// All layers of a texture.
pub(super) fn view(texture: &Texture) -> TextureView {
    texture.create_view(&TextureViewDescriptor {
        dimension: Some(TextureViewDimension::D2Array),
        ..Default::default()
    })
}

/// Width, height and layers as wgpu takes them.
fn size([width, height, layers]: [u32; 3]) -> Extent3d {
    Extent3d {
        width,
        height,
        depth_or_array_layers: layers,
    }
}

/// Bytes of layers that are copied to a texture together, unless one layer has more.
const CHUNK: u64 = 2 << 20;

/// Takes a copy to a texture that is recorded, and its bytes.
pub(super) type Submit<'a> = dyn FnMut(wgpu::CommandBuffer, u64) -> Result<()> + 'a;

/// A texture that is filled row by row, through buffers that the host writes.
pub(super) struct Filler<'a> {
    counters: &'a Counters,
    device: &'a wgpu::Device,
    pub(super) texture: Texture,
    extent: [u32; 3],
    /// Bytes of a row.
    row: usize,
    /// Bytes from row to row in a buffer.
    pitch: u32,
    /// The first layer that is not copied.
    layer: u32,
    open: Option<Open>,
}

/// A buffer that is being written.
struct Open {
    buffer: Buffer,
    view: wgpu::BufferViewMut,
    layers: u32,
    filled: usize,
}

impl<'a> Filler<'a> {
    pub(super) fn new(
        counters: &'a Counters,
        device: &'a wgpu::Device,
        label: &str,
        extent: [u32; 3],
    ) -> Filler<'a> {
        let row = extent[0] * TEXEL_BYTES as u32;
        Filler {
            counters,
            device,
            texture: texture(counters, device, label, extent),
            extent,
            row: row as usize,
            pitch: row.next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT),
            layer: 0,
            open: None,
        }
    }

    /// Writes whole rows, and hands on the copies that are complete: the last row completes the last one.
    pub(super) fn write(&mut self, rows: &[u8], submit: &mut Submit) -> Result<()> {
        for row in rows.chunks(self.row.max(1)) {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.begin()?,
            };
            open.view
                .slice(open.filled..open.filled + row.len())
                .copy_from_slice(row);
            open.filled += self.pitch as usize;
            if open.filled < open.view.len() {
                self.open = Some(open);
            } else {
                self.copy(open, submit)?;
            }
        }
        Ok(())
    }

    /// A buffer for the next layers.
    fn begin(&self) -> Result<Open> {
        let [_, height, all] = self.extent;
        let bytes = u64::from(self.pitch) * u64::from(height);
        let most = u32::try_from(CHUNK / bytes.max(1)).unwrap_or(u32::MAX);
        let layers = most.max(1).min(all.saturating_sub(self.layer));
        let size = bytes * u64::from(layers);
        let usage = BufferUsages::COPY_SRC | BufferUsages::MAP_WRITE;
        let buffer = self
            .counters
            .mapped_buffer(self.device, "staging", size, usage);
        let view = buffer.get_mapped_range_mut(..);
        let view = view.map_err(|error| Error::device(error.to_string()))?;
        Ok(Open {
            buffer,
            view,
            layers,
            filled: 0,
        })
    }

    fn copy(&mut self, open: Open, submit: &mut Submit) -> Result<()> {
        let Open {
            buffer,
            view,
            layers,
            ..
        } = open;
        drop(view);
        buffer.unmap();
        let [width, height, _] = self.extent;
        let source = TexelCopyBufferInfo {
            buffer: &buffer,
            layout: TexelCopyBufferLayout {
                offset: 0,
                bytes_per_row: Some(self.pitch),
                rows_per_image: Some(height),
            },
        };
        let target = TexelCopyTextureInfo {
            origin: Origin3d {
                z: self.layer,
                ..Origin3d::ZERO
            },
            ..self.texture.as_image_copy()
        };
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_texture(source, target, size([width, height, layers]));
        self.layer += layers;
        submit(encoder.finish(), buffer.size())
    }
}

/// The bytes of a value in row-major order from those of its buffer.
pub(super) fn unpack(layout: &Layout, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let numel: usize = shape.iter().product();
    let mut elements = vec![0; numel * size_of::<f32>()];
    for (place, number) in bytes.chunks_exact(size_of::<f32>()).enumerate() {
        let start = layout
            .element(shape, place)
            .map(|place| place * size_of::<f32>());
        let target = start.and_then(|start| elements.get_mut(start..start + size_of::<f32>()));
        if let Some(target) = target {
            target.copy_from_slice(number);
        }
    }
    elements
}
