//! Loads of elements from memory, in any layout.

use super::{KernelScope, role, scalar, vec8};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::capabilities::StorageType;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::Layout;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::VEC4_LEN;

impl KernelScope<'_> {
    /// Loads the element of a value that is materialised.
    pub(super) fn load_element(
        &mut self,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let ty = &self.graph.value(value).ty;
        if let Layout::Vec4 { axis } = self.layout(value) {
            let coordinates = position.coordinates(&ty.shape);
            return self.load_vec4_element(value, *axis, &coordinates, guard);
        }
        let index = self.element_index(value, position);
        if let Layout::Panels(panels) = self.layout(value) {
            return self.load_panel_element(value, panels, &index, guard);
        }
        let storage = self.storage(value)?;
        let name = role(&self.graph.value(value).name);
        let loaded = match self.vector_component(value, &index, self.vector_width)? {
            Some((element, index, component)) => {
                let vector = self.load_as(value, element, &index, guard)?;
                let number = match storage.is_half() {
                    true => WgslType::F32,
                    false => WgslType::from(storage),
                };
                vec8::stored_component(&mut self.pool, vector, component, number, name)
            }
            None => {
                let loaded = self.load_scalar(value, storage, &index, guard)?;
                self.pool.set_label(loaded, &format!("{name}_value"));
                loaded
            }
        };
        Ok(scalar::from_storage(&mut self.pool, loaded, ty.dtype))
    }

    /// Loads the element at an index of a value's buffer, from the texture if the buffer can be read as one. Mesa's
    /// rasteriser executes buffer loads lane by lane, but not texture loads.
    fn load_scalar(
        &mut self,
        value: ValueId,
        storage: StorageType,
        index: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let vec4_type = self.vec4_type(value)?.filter(|ty| *ty == WgslType::F32x4);
        if let Some(ty) = vec4_type
            && self.is_texture_aliased(value)
            && !self.reads_u64
        {
            // Emit the index as one number first: in a sum with a negative size, the terms cannot be divided one by
            // one.
            let index_expr = index.emit(&mut self.pool);
            let index = Index::expr(index_expr, &self.allocated_elements(value));
            let vec4_len = Dim::from(VEC4_LEN);
            let texel = self.load_as(value, ty, &index.div(&vec4_len), guard)?;
            let component = index.rem(&vec4_len).emit(&mut self.pool);
            return Ok(self.pool.call("x[y]", WgslType::F32, &[texel, component]));
        }
        if storage != StorageType::F16x2 {
            return self.load_as(value, WgslType::from(storage), index, guard);
        }
        let two = Dim::from(2);
        let pair = self.load_as(value, WgslType::U32, &index.div(&two), guard)?;
        let component = index.rem(&two).emit(&mut self.pool);
        Ok(self
            .pool
            .call("one_of_pair(x, y)", WgslType::F32, &[pair, component]))
    }

    /// Returns the index where a guard holds, else 0.
    pub fn guarded_index(&mut self, index: &Index, guard: Option<Expr>) -> Expr {
        let index = index.emit(&mut self.pool);
        let Some(guard) = guard else {
            return index;
        };
        let zero = self.pool.index(0);
        self.pool.select(guard, index, zero)
    }

    /// Loads from an index of a value's buffer, as an array of `element`.
    fn load_as(
        &mut self,
        value: ValueId,
        element: WgslType,
        linear_index: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let index = self.guarded_index(linear_index, guard);
        if let Some(chunks) = self.chunks(value)? {
            let storage = self.storage(value)?;
            return Ok(self.load_chunk_element(value, element, index, storage, &chunks));
        }
        let buffer = self.bind_rows(value, false, element)?;
        Ok(self.pool.load(buffer, element, index))
    }
}
