//! Four neighbouring elements at once: loads of vec4s whose components are the elements, and stores of vec4s.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::Layout;
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, scalar, slp};

/// Components of a vec4.
pub const VEC4_LEN: usize = 4;

/// A value and the position of an element in it.
pub type ElementRef = (ValueId, Position);

/// Returns the coordinates of the four elements of a vec4 along an axis. Along this axis, `vec4_coordinates` counts
/// vec4s.
pub fn neighbours(vec4_coordinates: &[Index], axis: usize) -> [Vec<Index>; VEC4_LEN] {
    let first = vec4_coordinates[axis].scale(&Dim::from(VEC4_LEN));
    [0, 1, 2, 3].map(|component: i64| {
        let mut coordinates = vec4_coordinates.to_vec();
        coordinates[axis] = first.add_size(&Dim::from(component));
        coordinates
    })
}

/// Calls `make` for each of four neighbours, with its index and its coordinates. Elements of buffers in which these are
/// neighbours too are loaded as vec4s.
pub fn for_each_neighbour<T>(
    scope: &mut KernelScope,
    neighbours: [Vec<Index>; VEC4_LEN],
    mut make: impl FnMut(&mut KernelScope, usize, Vec<Index>) -> Result<T>,
) -> Result<Vec<T>> {
    scope.with_vec4(|scope| {
        let neighbours = neighbours.into_iter().enumerate();
        neighbours
            .map(|(neighbour, coordinates)| make(scope, neighbour, coordinates))
            .collect()
    })
}

/// Loads four elements as a vector; 0 where a guard is false.
pub fn load_vec4(scope: &mut KernelScope, elements: &[(ElementRef, Option<Expr>)]) -> Result<Expr> {
    let components = scope.with_vec4(|scope| {
        let mut components = Vec::new();
        for ((value, position), guard) in elements {
            let component = scope.element(*value, position, *guard)?;
            components.push(match guard {
                Some(guard) => {
                    let zero = scope.pool.literal(WgslType::F32, 0.0);
                    scope.pool.select(*guard, component, zero)
                }
                None => component,
            });
        }
        Ok(components)
    })?;
    Ok(build_vec4(&mut scope.pool, &components, WgslType::F32x4))
}

/// Builds a vector of four numbers. If they are the components of one vector, returns that.
pub fn build_vec4(pool: &mut ExprPool, components: &[Expr], ty: WgslType) -> Expr {
    match (<[Expr; VEC4_LEN]>::try_from(components), ty) {
        (Ok(components), WgslType::F32x4) => slp::vector(pool, components),
        _ => source_vector(pool, components)
            .unwrap_or_else(|| pool.call("vec4(x, y, z, w)", ty, components)),
    }
}

/// Returns the vector whose components these expressions are, in order.
pub(super) fn source_vector(pool: &ExprPool, components: &[Expr]) -> Option<Expr> {
    let mut vectors = (0..)
        .zip(components)
        .map(|(component, expr)| component_source(pool, *expr, component));
    let first = vectors.next()??;
    vectors.all(|other| other == Some(first)).then_some(first)
}

/// Returns a component of a vec4.
pub fn component(pool: &mut ExprPool, vector: Expr, part: usize, ty: WgslType) -> Expr {
    pool.call(format!("x[{part}]"), ty, &[vector])
}

/// Returns the vector of which an expression is the given component.
fn component_source(pool: &ExprPool, expr: Expr, part: usize) -> Option<Expr> {
    match pool.node(expr) {
        ExprNode::Call { template, operands } if *template == format!("x[{part}]") => {
            operands.first().copied()
        }
        _ => None,
    }
}

/// Writes four neighbours in a buffer with one store. `None` if they do not form one vector.
pub fn store_vec4(
    scope: &mut KernelScope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Option<Statement>> {
    if let Layout::Vec4 { axis } = scope.layout(value) {
        return scope.store_vec4(value, *axis, parts).map(Some);
    }
    let dtype = scope.graph.ty(value).dtype;
    let indices = parts
        .iter()
        .map(|(_, position)| scope.element_index(value, position));
    let (Some(element), Some(start)) = (scope.vec4_type(value)?, vector_index(indices, VEC4_LEN))
    else {
        return Ok(None);
    };
    let storage = scope.storage(value)?;
    let numbers: Vec<Expr> = parts.iter().map(|(number, _)| *number).collect();
    if scope.stores_words(storage)
        && let Some(words) = scope.words_of_four(&numbers)
    {
        return Ok(Some(Statement::Store {
            buffer: scope.bind_rows(value, false, WgslType::U64x2)?,
            index: start.emit(&mut scope.pool),
            value: words,
        }));
    }
    let pool = &mut scope.pool;
    let vector = if storage.is_half() {
        let vector = build_vec4(pool, &numbers, WgslType::F32x4);
        scalar::to_halves(pool, vector, dtype, storage)
    } else {
        let numbers = numbers.iter();
        let numbers = numbers.map(|number| scalar::to_storage(pool, *number, dtype, storage));
        let numbers: Vec<Expr> = numbers.collect();
        build_vec4(pool, &numbers, element)
    };
    Ok(Some(Statement::Store {
        buffer: scope.bind_rows(value, false, element)?,
        index: start.emit(&mut scope.pool),
        value: vector,
    }))
}

/// Returns the index of the vector of `elements` elements that these indices form, if they form one.
pub fn vector_index(mut indices: impl Iterator<Item = Index>, elements: usize) -> Option<Index> {
    let start = indices.next()?;
    let vector_len = Dim::from(elements);
    let are_consecutive = (1..)
        .zip(indices)
        .all(|(offset, index): (i64, Index)| index == start.add_size(&Dim::from(offset)));
    (are_consecutive && start.rem(&vector_len).is(0)).then(|| start.div(&vector_len))
}

/// Returns whether a size is known to be a multiple of 4.
pub fn is_multiple_of_4(size: &Dim) -> bool {
    is_multiple(size, VEC4_LEN)
}

/// Returns whether a size is known to be a multiple of a number.
pub fn is_multiple(size: &Dim, divisor: usize) -> bool {
    let divisor = Dim::from(divisor);
    &size.floor_div(&divisor) * &divisor == *size
}

impl KernelScope<'_> {
    /// Returns the element type of a buffer when it is read as vec4s. `None` if it cannot be.
    pub(super) fn vec4_type(&self, value: ValueId) -> Result<Option<WgslType>> {
        Ok(WgslType::vec4(self.storage(value)?)
            .filter(|_| is_multiple_of_4(&self.allocated_elements(value))))
    }

    /// Returns the vec4 of a buffer that contains an element: its type, its index, and the component. `None` if the
    /// component is unknown.
    pub fn vec4_component(
        &self,
        value: ValueId,
        index: &Index,
    ) -> Result<Option<(WgslType, Index, usize)>> {
        let vec4_len = Dim::from(VEC4_LEN);
        let component = index.rem(&vec4_len).as_const();
        let component = component.and_then(|component| usize::try_from(component).ok());
        Ok(match (self.vec4_type(value)?, component) {
            (Some(ty), Some(component)) => Some((ty, index.div(&vec4_len), component)),
            _ => None,
        })
    }
}
