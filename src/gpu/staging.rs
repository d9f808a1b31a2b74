//! Staging buffers for textures of weights: the host writes them, and the device copies them to the textures. They are
//! reused while weights are uploaded.

use std::collections::VecDeque;
use std::sync::Mutex;

use wgpu::{
    Buffer, BufferUsages, BufferViewMut, CommandBuffer, MapMode, Origin3d, SubmissionIndex,
    TexelCopyBufferInfo, TexelCopyBufferLayout, TexelCopyTextureInfo, Texture,
};

use crate::error::{Error, Result};
use crate::kernel::layout::Texel;

use super::device::GpuDevice;
use super::error_scope::lock;
use super::memory::{extent3d, texture};
use super::statistics::Counters;

/// Bytes of a staging buffer that is reused. A layer that is larger gets a buffer of its own.
const STAGING_BYTES: u64 = 1 << 20;

/// The staging buffers: two for each thread, so that it can write one while the device reads the other.
pub(super) struct Staging<'a> {
    device: &'a GpuDevice,
    counters: &'a Counters,
    /// Number of existing buffers from which on `acquire` reuses the oldest one, unless all are being written.
    max_buffers: usize,
    state: Mutex<StagingState>,
}

#[derive(Default)]
struct StagingState {
    /// Number of buffers of [`STAGING_BYTES`] that exist.
    created: usize,
    /// Buffers that the device reads, oldest first. They are mapped when the device is done.
    in_use: VecDeque<(Buffer, SubmissionIndex)>,
}

impl<'a> Staging<'a> {
    pub(super) fn new(device: &'a GpuDevice, counters: &'a Counters) -> Staging<'a> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Staging {
            device,
            counters,
            max_buffers: 2 * threads,
            state: Mutex::default(),
        }
    }

    /// A mapped buffer of at least this many bytes.
    fn acquire(&self, bytes: u64) -> Result<Buffer> {
        let oldest = {
            let mut state = lock(&self.state);
            let reuses_oldest = state.created >= self.max_buffers && bytes <= STAGING_BYTES;
            let oldest = reuses_oldest.then(|| state.in_use.pop_front()).flatten();
            state.created += usize::from(oldest.is_none() && bytes <= STAGING_BYTES);
            oldest
        };
        let Some((buffer, submission)) = oldest else {
            let usage = BufferUsages::COPY_SRC | BufferUsages::MAP_WRITE;
            let (device, bytes) = (self.device.wgpu(), bytes.max(STAGING_BYTES));
            return Ok(self.counters.mapped_buffer(device, "staging", bytes, usage));
        };
        self.device.poll(Some(&submission))?;
        Ok(buffer)
    }

    /// Submits a copy out of a buffer. Waits for the copy if the buffer is larger than [`STAGING_BYTES`], because such
    /// a buffer is not reused.
    fn submit_copy(&self, copy: CommandBuffer, buffer: Buffer) -> Result<()> {
        let submission = self.device.queue().submit([copy]);
        if buffer.size() > STAGING_BYTES {
            return self.device.poll(Some(&submission));
        }
        // If mapping fails, a later write to the buffer reports the error.
        buffer.map_async(MapMode::Write, .., |_| {});
        lock(&self.state).in_use.push_back((buffer, submission));
        Ok(())
    }
}

/// A texture that is filled row by row.
pub(super) struct TextureWriter<'a> {
    staging: &'a Staging<'a>,
    texture: Texture,
    extent: [u32; 3],
    /// Bytes of a row of texels.
    row_bytes: usize,
    /// Bytes from one row to the next in a staging buffer.
    pitch: u32,
    /// The next layer to copy.
    next_layer: u32,
    /// The buffer that is being written, if it is not full.
    open: Option<OpenBuffer>,
}

/// A buffer that is being written.
struct OpenBuffer {
    buffer: Buffer,
    view: BufferViewMut,
    /// Layers of the texture that the buffer holds.
    layers: u32,
    /// Bytes of the rows written so far, padding included.
    filled: usize,
}

impl<'a> TextureWriter<'a> {
    /// Creates a texture of a width, a height and a number of layers.
    pub(super) fn new(
        staging: &'a Staging,
        label: &str,
        extent: [u32; 3],
        texel: Texel,
    ) -> TextureWriter<'a> {
        let row = extent[0] * texel.bytes() as u32;
        let device = staging.device;
        TextureWriter {
            texture: texture(staging.counters, device, label, extent, texel),
            staging,
            extent,
            row_bytes: row as usize,
            pitch: row.next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT),
            next_layer: 0,
            open: None,
        }
    }

    /// Writes whole rows.
    pub(super) fn write(&mut self, rows: &[u8]) -> Result<()> {
        for row in rows.chunks(self.row_bytes.max(1)) {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.open_buffer()?,
            };
            let range = open.filled..open.filled + row.len();
            open.view.slice(range).copy_from_slice(row);
            open.filled += self.pitch as usize;
            if open.filled < open.view.len() {
                self.open = Some(open);
            } else {
                self.copy_to_texture(open)?;
            }
        }
        Ok(())
    }

    /// Returns the texture. Fails if rows are missing.
    pub(super) fn finish(self) -> Result<Texture> {
        let is_full = self.open.is_none() && self.next_layer == self.extent[2];
        let incomplete = || Error::internal("a texture received too few rows");
        is_full.then_some(self.texture).ok_or_else(incomplete)
    }

    /// Opens a staging buffer for the next layers.
    fn open_buffer(&self) -> Result<OpenBuffer> {
        let [_, height, all_layers] = self.extent;
        let layer = u64::from(self.pitch) * u64::from(height);
        let layers_per_buffer = u32::try_from(STAGING_BYTES / layer.max(1)).unwrap_or(u32::MAX);
        let layers = layers_per_buffer
            .max(1)
            .min(all_layers.saturating_sub(self.next_layer));
        let bytes = layer * u64::from(layers);
        let buffer = self.staging.acquire(bytes)?;
        let view = buffer.get_mapped_range_mut(..bytes);
        let view = view.map_err(|error| Error::device(error.to_string()))?;
        Ok(OpenBuffer {
            buffer,
            view,
            layers,
            filled: 0,
        })
    }

    /// Submits the copy of a full buffer to the next layers.
    fn copy_to_texture(&mut self, open: OpenBuffer) -> Result<()> {
        let OpenBuffer {
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
                z: self.next_layer,
                ..Origin3d::ZERO
            },
            ..self.texture.as_image_copy()
        };
        let device = self.staging.device.wgpu();
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_texture(source, target, extent3d([width, height, layers]));
        self.next_layer += layers;
        self.staging.submit_copy(encoder.finish(), buffer)
    }
}
