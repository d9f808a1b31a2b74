//! Suballocates small buffers that kernels can also read as textures. Each separate allocation needs a margin, because
//! a texture ends with a whole row; buffers in one allocation share the margin.

use std::sync::Mutex;

use wgpu::BufferUsages;

use crate::error::Result;

use super::device::GpuDevice;
use super::error_scope::lock;
use super::memory;
use super::statistics::Counters;
use super::trusted::aliased::AliasedBuffer;

/// Bytes of an allocation that several buffers share.
const BLOCK_BYTES: u64 = 1 << 18;

/// Larger buffers, in bytes, get an allocation of their own.
const MAX_SUBALLOCATED_BYTES: u64 = 1 << 16;

/// Suballocator. Holds the last buffer that it created; the next buffer follows it in the same allocation if it fits.
#[derive(Default)]
pub(super) struct Suballocator(Mutex<Option<AliasedBuffer>>);

impl Suballocator {
    /// Creates a buffer with a label, a size in bytes and a usage.
    pub(super) fn buffer(
        &self,
        counters: &Counters,
        device: &GpuDevice,
        label: &str,
        bytes: u64,
        usage: BufferUsages,
    ) -> Result<AliasedBuffer> {
        if bytes > MAX_SUBALLOCATED_BYTES {
            return memory::aliased_buffer(counters, device, label, bytes, usage, None, bytes);
        }
        let mut last = lock(&self.0);
        let buffer = memory::aliased_buffer(
            counters,
            device,
            label,
            bytes,
            usage,
            last.as_ref(),
            BLOCK_BYTES,
        )?;
        Ok(last.insert(buffer).clone())
    }
}
