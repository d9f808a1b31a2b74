//! Suballocates small buffers that kernels can also read as textures. Each separate allocation needs a margin, because a
//! texture ends with a whole row; buffers in one allocation share the margin.

use std::sync::Mutex;

use wgpu::BufferUsages;

use crate::error::Result;

use super::device::Device;
use super::fault::lock;
use super::memory;
use super::statistics::Counters;
use super::trusted::aliased::Aliased;

/// Bytes of an allocation that several buffers share.
const ROOM: u64 = 1 << 18;

/// Larger buffers, in bytes, get an allocation of their own.
const SMALL: u64 = 1 << 16;

/// Suballocator. Holds the last buffer of the current allocation; the next buffer is placed behind it.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Option<Aliased>>);

impl Shelf {
    /// Creates a buffer with a label, a size in bytes and a usage.
    pub(super) fn buffer(
        &self,
        counters: &Counters,
        device: &Device,
        (label, bytes, usage): (&str, u64, BufferUsages),
    ) -> Result<Aliased> {
        let wanted = (label, bytes, usage);
        if bytes > SMALL {
            return memory::aliased(counters, device, wanted, (None, bytes));
        }
        let mut last = lock(&self.0);
        let made = memory::aliased(counters, device, wanted, (last.as_ref(), ROOM))?;
        Ok(last.insert(made).clone())
    }
}
