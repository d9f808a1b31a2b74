//! A list of buffers with one usage that only grow.

use wgpu::{Buffer, BufferUsages};

use crate::error::Result;

use super::memory::{self, SlotMemory};
use super::program::ProgramInner;

/// Buffers with one usage.
#[derive(Default)]
pub(super) struct BufferPool {
    buffers: Vec<SlotMemory>,
    /// True if kernels can also read the buffers as textures.
    is_aliased: bool,
}

impl BufferPool {
    /// Creates an empty pool. If `is_aliased`, kernels can also read its buffers as textures.
    pub(super) fn new(is_aliased: bool) -> BufferPool {
        BufferPool {
            is_aliased,
            ..BufferPool::default()
        }
    }

    /// The memory of one buffer.
    pub(super) fn get(&self, index: usize) -> Option<&SlotMemory> {
        self.buffers.get(index)
    }

    /// Makes the buffer at each index at least as large as the bytes in `needed`. Returns true if an existing buffer
    /// was replaced. A buffer grows by at least half its size, so that slowly rising sizes seldom replace it.
    ///
    /// # Errors
    /// Fails if the driver refuses memory that is shared with textures. Errors of other buffers go to the surrounding
    /// error scope.
    pub(super) fn grow(
        &mut self,
        program: &ProgramInner,
        label: &str,
        needed: &[u64],
        usage: BufferUsages,
    ) -> Result<bool> {
        let limit = program.rules.capabilities.max_buffer_size;
        let mut replaced = false;
        for (index, bytes) in needed.iter().enumerate() {
            let old = self.get(index).and_then(|memory| memory.buffer().ok());
            let old_bytes = old.map_or(0, Buffer::size);
            if old_bytes >= *bytes {
                continue;
            }
            let grown_bytes = (old_bytes + old_bytes / 2).min(limit) / 4 * 4;
            let buffer = self.create(program, label, grown_bytes.max(*bytes), usage)?;
            match self.buffers.get_mut(index) {
                Some(smaller) => *smaller = buffer,
                None => self.buffers.push(buffer),
            }
            replaced |= old_bytes > 0;
        }
        Ok(replaced)
    }

    /// Creates a buffer of the pool.
    fn create(
        &self,
        program: &ProgramInner,
        label: &str,
        bytes: u64,
        usage: BufferUsages,
    ) -> Result<SlotMemory> {
        let (device, counters) = (&program.device, &program.counters);
        if !self.is_aliased {
            let buffer = counters.buffer(device.wgpu(), label, bytes, usage);
            return Ok(SlotMemory::Buffer(buffer));
        }
        let buffer = memory::aliased_buffer(counters, device, label, bytes, usage, None, bytes);
        buffer.map(SlotMemory::Aliased)
    }
}
