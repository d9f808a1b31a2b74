//! Buffers of one use, which only grow.

use wgpu::{Buffer, BufferUsages};

use crate::error::Result;

use super::program::Inner;
use super::statistics::add;
use super::trusted::aliased::Aliased;

/// Buffers of one use.
#[derive(Default)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    /// Kernels read them as textures too.
    is_aliased: bool,
}

enum Block {
    Plain(Buffer),
    Aliased(Aliased),
}

impl Block {
    fn buffer(&self) -> &Buffer {
        match self {
            Block::Plain(buffer) => buffer,
            Block::Aliased(aliased) => &aliased.buffer,
        }
    }
}

impl Pool {
    /// Buffers that kernels read as textures too, or as buffers only.
    pub(super) fn aliased(is_aliased: bool) -> Pool {
        Pool {
            is_aliased,
            ..Pool::default()
        }
    }

    /// A buffer.
    pub(super) fn buffer(&self, index: usize) -> Option<&Buffer> {
        self.blocks.get(index).map(Block::buffer)
    }

    /// A buffer that kernels read as textures too.
    pub(super) fn aliased_buffer(&self, index: usize) -> Option<&Aliased> {
        match self.blocks.get(index)? {
            Block::Aliased(aliased) => Some(aliased),
            Block::Plain(_) => None,
        }
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
            let old = self.buffer(index).map_or(0, Buffer::size);
            if old >= *bytes {
                continue;
            }
            let spare = (old + old / 2).min(limit) / 4 * 4;
            let block = self.create(program, label, spare.max(*bytes), usage)?;
            match self.blocks.get_mut(index) {
                Some(smaller) => *smaller = block,
                None => self.blocks.push(block),
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
    ) -> Result<Block> {
        let (device, counters) = (&program.device, &program.counters);
        if !self.is_aliased {
            let buffer = counters.buffer(device.wgpu(), label, bytes, usage);
            return Ok(Block::Plain(buffer));
        }
        add(&counters.buffers, 1);
        add(&counters.buffer_bytes, bytes);
        Aliased::new(device.wgpu(), label, bytes, usage, device.aliased()).map(Block::Aliased)
    }
}
