//! A list of buffers with one usage that only grow.

use wgpu::{Buffer, BufferUsages};

use crate::error::Result;

use super::memory::{self, Memory};
use super::program::Inner;

/// Buffers with one usage.
#[derive(Default)]
pub(super) struct Pool {
    buffers: Vec<Memory>,
    /// True if kernels can also read the buffers as textures.
    is_aliased: bool,
}

impl Pool {
    /// Creates an empty pool. If `is_aliased`, kernels can also read its buffers as textures.
    pub(super) fn of(is_aliased: bool) -> Pool {
        Pool {
            is_aliased,
            ..Pool::default()
        }
    }

    /// The memory of one buffer.
    pub(super) fn memory(&self, index: usize) -> Option<&Memory> {
        self.buffers.get(index)
    }

    /// Makes every buffer at least as large as needed. Returns true if an existing buffer was replaced. A buffer grows by at
    /// least half its size, so that slowly rising sizes seldom replace it.
    ///
    /// # Errors
    /// Fails if the driver refuses memory that is shared with textures. Errors of other buffers go to the surrounding error
    /// scope.
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
