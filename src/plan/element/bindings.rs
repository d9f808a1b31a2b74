//! Bindings of a kernel: each value is bound once in each layout and element type that the kernel reads or writes.

use super::{KernelBinding, KernelScope, role, storage_in_layout};
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::kernel::capabilities::StorageType;
use crate::kernel::emit::BindingDecl;
use crate::kernel::expr::WgslType;
use crate::kernel::layout::{Layout, Panels, Texel};
use crate::kernel::names::unique;
use crate::kernel::plan::Access;

impl KernelScope<'_> {
    /// Binds a value's buffer.
    pub fn bind_buffer(&mut self, value: ValueId) -> Result<usize> {
        let element = WgslType::from(self.storage(value)?);
        self.bind_rows(value, false, element)
    }

    /// Binds a buffer that receives a copy of a value.
    pub fn bind_copy(&mut self, value: ValueId, storage: StorageType) -> Result<usize> {
        self.bind_rows(value, true, WgslType::from(storage))
    }

    /// Binds the buffer of a value in row-major or padded layout as an array of `element`. With `is_copy`, the buffer
    /// receives a copy of the value.
    pub fn bind_rows(&mut self, value: ValueId, is_copy: bool, element: WgslType) -> Result<usize> {
        let access = if is_copy || self.is_written(value) {
            Access::ReadWrite
        } else {
            Access::Read
        };
        let layout = match self.layout(value) {
            padded @ Layout::Padded { .. } if !is_copy => padded,
            _ => &Layout::Linear,
        };
        Ok(self.bind(value, is_copy, layout, element, access))
    }

    /// Binds a value in a vec4 layout, which is stored in the arena. Also returns the vector type.
    pub fn bind_vec4(&mut self, value: ValueId, layout: &Layout) -> Result<(usize, WgslType)> {
        let missing = || Error::internal("the storage type has no vec4 type");
        let vec4_type =
            WgslType::vec4(storage_in_layout(layout, self.storage(value)?)).ok_or_else(missing)?;
        Ok((
            self.bind(value, false, layout, vec4_type, Access::ReadWrite),
            vec4_type,
        ))
    }

    /// Binds a value in a vec4 layout as 64-bit words of two numbers. `None` if the device has none, or numbers are
    /// stored in half precision.
    pub fn bind_u64(
        &mut self,
        value: ValueId,
        layout: &Layout,
    ) -> Result<Option<(usize, WgslType)>> {
        let is_stored = self.stores_words(storage_in_layout(layout, self.storage(value)?));
        let word_type = WgslType::U64x2;
        let mut bind = || self.bind(value, false, layout, word_type, Access::ReadWrite);
        Ok(is_stored.then(|| (bind(), word_type)))
    }

    /// Binds a value that is sorted in runs of `length`. Also returns its storage type.
    pub fn bind_sorted_runs(
        &mut self,
        value: ValueId,
        length: usize,
    ) -> Result<(usize, StorageType)> {
        let layout = Layout::SortedRuns(length);
        let storage = storage_in_layout(&layout, self.storage(value)?);
        let binding = self.bind(value, false, &layout, storage.into(), Access::ReadWrite);
        Ok((binding, storage))
    }

    /// Binds the texture of a weight in panels. Also returns the texel format.
    pub fn bind_panels(&mut self, value: ValueId, panels: &Panels) -> Result<(usize, Texel)> {
        let layout = Layout::Panels(panels.clone());
        let missing = || Error::internal("no texel type fits the storage type of the panels");
        let storage = storage_in_layout(&layout, self.storage(value)?);
        let texel = panels.texel(storage).ok_or_else(missing)?;
        let (ty, access) = (WgslType::of_texel(texel), Access::TextureArray(texel));
        Ok((self.bind(value, false, &layout, ty, access), texel))
    }

    /// Returns the index of a binding, which is added if there is none of this layout and type yet.
    pub(super) fn bind(
        &mut self,
        value: ValueId,
        is_copy: bool,
        layout: &Layout,
        element: WgslType,
        access: Access,
    ) -> usize {
        let is_alias = |binding: &KernelBinding| {
            let key = (binding.value, binding.is_copy, &binding.layout);
            key == (value, is_copy, layout) && binding.buffer.access != Access::CheckFlags
        };
        let is_equal =
            |binding: &KernelBinding| is_alias(binding) && binding.buffer.element == element;
        if let Some(index) = self.buffers.iter().position(is_equal) {
            return index;
        }
        let name = &self.graph.value(value).name;
        let preferred_name = match layout {
            Layout::Scratch { name, .. } => *name,
            _ if is_copy => "copy",
            _ => role(name),
        };
        let buffer = BindingDecl {
            name: unique(&mut self.names, preferred_name),
            element,
            access,
            vectors: None,
            alias_of: self.buffers.iter().position(is_alias),
        };
        self.buffers.push(KernelBinding {
            value,
            is_copy,
            layout: layout.clone(),
            buffer,
        });
        self.buffers.len() - 1
    }
}
