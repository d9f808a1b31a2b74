//! Small buffers that kernels can read as textures too, in memory that they share: each has a margin otherwise, since a
//! texture ends with a whole row.

use std::sync::Mutex;

use wgpu::BufferUsages;

use crate::error::Result;

use super::device::Device;
use super::fault::lock;
use super::memory;
use super::statistics::Counters;
use super::trusted::aliased::Aliased;

/// Bytes of memory that buffers share.
const ROOM: u64 = 1 << 18;

/// Larger buffers have memory of their own.
const SMALL: u64 = 1 << 16;

/// Where small buffers are put one beside the other: the last one.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Option<Aliased>>);

impl Shelf {
    /// A buffer of a label, a size and a usage.
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
