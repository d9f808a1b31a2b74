//! Weights that are too large for one binding. They are divided into chunks, each a separate buffer. A kernel selects
//! the chunk that contains the element.

use super::KernelScope;
use crate::error::Result;
use crate::ir::{Definition, ValueId, ValueInfo};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::layout::Layout;
use crate::kernel::plan::Access;
use crate::plan::element::vec4::VEC4_LEN;

/// The length of a chunk is a multiple of this, so that no vector load crosses the end of a chunk.
const CHUNK_ALIGNMENT: usize = VEC4_LEN * VEC4_LEN;

/// Returns how many elements the largest binding holds.
fn max_elements(storage: StorageType, capabilities: &Capabilities) -> usize {
    let bytes = capabilities
        .max_binding_size
        .min(capabilities.max_buffer_size);
    usize::try_from(bytes / storage.size()).unwrap_or(usize::MAX)
}

/// Returns the chunks of a weight in row-major order. `None` if one binding holds it.
pub fn chunks(
    info: &ValueInfo,
    storage: StorageType,
    capabilities: &Capabilities,
) -> Option<Vec<Layout>> {
    let numel = info.ty.numel().as_const();
    let numel = numel.and_then(|numel| usize::try_from(numel).ok());
    let (Definition::Weight(_), Some(numel)) = (&info.definition, numel) else {
        return None;
    };
    let max_elements = max_elements(storage, capabilities);
    let length = max_elements - max_elements % CHUNK_ALIGNMENT;
    if numel <= max_elements || length == 0 {
        return None;
    }
    let chunk = |start| Layout::Chunk {
        start,
        count: length.min(numel - start),
    };
    Some((0..numel).step_by(length).map(chunk).collect())
}

impl KernelScope<'_> {
    /// Returns the chunks of a value. `None` for anything but a weight in row-major order, and if one binding holds it.
    pub fn chunks(&self, value: ValueId) -> Result<Option<Vec<Layout>>> {
        if *self.layout(value) != Layout::Linear {
            return Ok(None);
        }
        let storage = self.storage(value)?;
        let info = self.graph.value(value);
        Ok(chunks(info, storage, self.capabilities))
    }

    /// Loads from a weight the vector or element of type `element` with this index, out of the chunk that contains it.
    pub(super) fn load_chunk_element(
        &mut self,
        value: ValueId,
        element: WgslType,
        index: Expr,
        storage: StorageType,
        chunks: &[Layout],
    ) -> Expr {
        let width = match (storage, element) {
            (StorageType::F16x2, WgslType::U32) => 2,
            _ => element.width(),
        };
        let mut selected = None;
        for layout in chunks {
            let Layout::Chunk { start, count } = layout else {
                continue;
            };
            let (first, count) = ((start / width) as u32, (count / width) as u32);
            let buffer = self.bind(value, false, layout, element, Access::Read);
            let pool = &mut self.pool;
            let (first, count, zero) = (pool.index(first), pool.index(count), pool.index(0));
            // For indices in front of the chunk the difference wraps around and is large.
            let offset = pool.call("x - y", WgslType::U32, &[index, first]);
            let inside = pool.call("x < y", WgslType::Bool, &[offset, count]);
            let offset = pool.select(inside, offset, zero);
            let loaded = pool.load(buffer, element, offset);
            selected = Some(match selected {
                Some(other) => pool.select(inside, loaded, other),
                None => loaded,
            });
        }
        selected.unwrap_or(index)
    }
}
