//! Buffers of one use, which only grow.

use wgpu::{Buffer, BufferUsages};

use crate::error::Result;

use super::memory::{self, Memory};
use super::program::Inner;

/// Buffers of one use.
#[derive(Default)]
pub(super) struct Pool {
    buffers: Vec<Memory>,
    /// Kernels can read them as textures too.
    is_aliased: bool,
}

impl Pool {
    /// Of buffers that kernels can read as textures too, or not.
    pub(super) fn of(is_aliased: bool) -> Pool {
        Pool {
            is_aliased,
            ..Pool::default()
        }
    }

    /// A buffer.
    pub(super) fn memory(&self, index: usize) -> Option<&Memory> {
        self.buffers.get(index)
    }

    /// Makes every buffer as large as needed; true if one was replaced. A buffer that grows does so by half at least, so
    /// that sizes that rise from run to run seldom replace it.
    ///
    /// # Errors
    /// The driver gives no memory that is shared with textures; other buffers fail in the error scope around this.
    pub(super) fn fit(
        &mut self,
        program: &Inner,
        label: &str,
        needed: &[u64],
        usage: BufferUsages,
    ) -> Result<bool> {
        let limit = program.rules.capabilities.max_buffer_size;
        let mut replaced = false;
        for (index, bytes) in needed.iter().enumerate() {
            let old = self.memory(index).and_then(|old| old.buffer().ok());
            let old = old.map_or(0, Buffer::size);
            if old >= *bytes {
                continue;
            }
            let spare = (old + old / 2).min(limit) / 4 * 4;
            let buffer = self.create(program, label, spare.max(*bytes), usage)?;
            match self.buffers.get_mut(index) {
                Some(smaller) => *smaller = buffer,
                None => self.buffers.push(buffer),
            }
            replaced |= old > 0;
        }
        Ok(replaced)
    }

    fn create(
        &self,
        program: &Inner,
        label: &str,
        bytes: u64,
        usage: BufferUsages,
    ) -> Result<Memory> {
        let (device, counters) = (&program.device, &program.counters);
        if !self.is_aliased {
            let buffer = counters.buffer(device.wgpu(), label, bytes, usage);
            return Ok(Memory::Buffer(buffer));
        }
        let made = memory::aliased(counters, device, (label, bytes, usage), (None, bytes));
        made.map(Memory::Aliased)
    }
}
