//! Eight neighbouring elements at once, as a vector of four 64-bit words of two numbers. A software rasteriser executes
//! memory accesses lane by lane, so that each access should be as wide as possible.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN, is_multiple, is_multiple_of_4, vector_index};
use crate::plan::element::{self, KernelScope};

/// Number of elements of the widest load.
pub const VEC8_LEN: usize = 8;

/// Returns how many neighbouring elements a device loads at once from rows of `size` elements.
pub fn vector_width(capabilities: &Capabilities, size: &Dim) -> usize {
    if capabilities.software && capabilities.int64 && is_multiple(size, VEC8_LEN) {
        VEC8_LEN
    } else if is_multiple_of_4(size) {
        VEC4_LEN
    } else {
        1
    }
}

/// Returns the indices of the elements of a vector.
pub fn element_indices(vector: &Index, width: usize) -> Vec<Index> {
    let first = vector.scale(&Dim::from(width));
    let numbers = (0..width).map(|component| first.add_size(&Dim::from(component)));
    numbers.collect()
}

/// Returns the positions of the elements of a vector.
pub fn element_positions(vector: &Index, width: usize) -> Vec<Position> {
    let indices = element_indices(vector, width).into_iter();
    indices.map(Position::from_index).collect()
}

/// Returns a component of a loaded vector, in the type in which it is stored. `name` is the start of the labels.
pub fn stored_component(
    pool: &mut ExprPool,
    vector: Expr,
    part: usize,
    stored: WgslType,
    name: &str,
) -> Expr {
    if pool.ty(vector) != WgslType::U64x4 {
        pool.set_label(vector, &format!("{name}_quad"));
        return vec4::component(pool, vector, part, stored);
    }
    pool.set_label(vector, &format!("{name}_words"));
    let (numbers, half) = match part % 2 {
        0 => ("low_numbers(x)", "low"),
        _ => ("high_numbers(x)", "high"),
    };
    let numbers = pool.call(numbers, WgslType::F32x4, &[vector]);
    pool.set_label(numbers, &format!("{name}_{half}"));
    vec4::component(pool, numbers, part / 2, stored)
}

/// Writes neighbouring elements with as few vector stores as possible. `None` if they do not form whole vectors.
pub fn store_vectors(
    scope: &mut KernelScope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Option<Vec<Statement>>> {
    if parts.len() == VEC8_LEN
        && let Some(store) = store_u64(scope, value, parts)?
    {
        return Ok(Some(vec![store]));
    }
    if !parts.len().is_multiple_of(VEC4_LEN) {
        return Ok(None);
    }
    let vec4s = parts.chunks(VEC4_LEN);
    vec4s
        .map(|elements| vec4::store_vec4(scope, value, elements))
        .collect()
}

/// Writes neighbouring elements, one by one if they do not form whole vectors.
pub fn store_all(
    scope: &mut KernelScope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Vec<Statement>> {
    if let Some(stores) = store_vectors(scope, value, parts)? {
        return Ok(stores);
    }
    let elements = parts.iter();
    elements
        .map(|(number, position)| element::write(scope, value, *number, position))
        .collect()
}

/// Writes eight neighbouring elements as 64-bit words. `None` if they do not form a whole vector, or such a store is
/// not possible or worthwhile.
fn store_u64(
    scope: &mut KernelScope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Option<Statement>> {
    let indices = parts
        .iter()
        .map(|(_, position)| scope.element_index(value, position));
    let (true, Some(start)) = (
        scope.can_access_u64(value)?,
        vector_index(indices, VEC8_LEN),
    ) else {
        return Ok(None);
    };
    let numbers: Vec<Expr> = parts.iter().map(|(number, _)| *number).collect();
    let Some(words) = scope.words_of_eight(&numbers) else {
        return Ok(None);
    };
    Ok(Some(Statement::Store {
        buffer: scope.bind_rows(value, false, WgslType::U64x4)?,
        index: start.emit(&mut scope.pool),
        value: words,
    }))
}

impl KernelScope<'_> {
    /// Returns whether a buffer can be accessed as 64-bit words of two numbers.
    pub fn can_access_u64(&self, value: ValueId) -> Result<bool> {
        let is_f32 = self.storage(value)? == StorageType::F32;
        let is_in_rows = self.layout(value).is_row_major();
        Ok(is_f32 && is_in_rows && is_multiple(&self.allocated_elements(value), VEC8_LEN))
    }

    /// Returns whether a buffer is read as 64-bit words of two numbers: if that is possible, and it cannot be read as a
    /// texture.
    fn prefers_u64(&self, value: ValueId) -> Result<bool> {
        Ok(self.can_access_u64(value)? && !self.is_texture_aliased(value))
    }

    /// Returns the vector that contains an element when `neighbours` elements are requested together: its type, its
    /// index, and the component. `None` if the component is unknown.
    pub fn vector_component(
        &self,
        value: ValueId,
        index: &Index,
        neighbours: usize,
    ) -> Result<Option<(WgslType, Index, usize)>> {
        let vec8_len = Dim::from(VEC8_LEN);
        let component = index.rem(&vec8_len).as_const();
        let component = component.and_then(|component| usize::try_from(component).ok());
        match component {
            Some(component) if neighbours == VEC8_LEN && self.prefers_u64(value)? => {
                Ok(Some((WgslType::U64x4, index.div(&vec8_len), component)))
            }
            _ if neighbours >= VEC4_LEN => self.vec4_component(value, index),
            _ => Ok(None),
        }
    }
}
