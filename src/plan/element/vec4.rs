//! Four neighbours at once: elements are taken out of vec4s that are loaded once, and stored as vec4s.

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

/// An element of a value, as a factor of a product.
pub type ElementRef = (ValueId, Position);

/// Returns the coordinates of four neighbours along an axis, along which `quad` counts vec4s.
pub fn neighbours(quad: &[Index], axis: usize) -> [Vec<Index>; VEC4_LEN] {
    let first = quad[axis].scale(&Dim::from(VEC4_LEN));
    [0, 1, 2, 3].map(|part: i64| {
        let mut coordinates = quad.to_vec();
        coordinates[axis] = first.add_size(&Dim::from(part));
        coordinates
    })
}

/// Calls `make` for each of four neighbours. Elements of buffers in which these are neighbours too are loaded as vec4s.
pub fn for_each_neighbour<T>(
    scope: &mut KernelScope,
    neighbours: [Vec<Index>; VEC4_LEN],
    mut make: impl FnMut(&mut KernelScope, usize, Vec<Index>) -> Result<T>,
) -> Result<Vec<T>> {
    scope.with_vec4(|scope| {
        let neighbours = neighbours.into_iter().enumerate();
        neighbours.map(|(part, at)| make(scope, part, at)).collect()
    })
}

/// Loads four elements as a vector; 0 where a guard is false.
pub fn load_vec4(scope: &mut KernelScope, factors: &[(ElementRef, Option<Expr>)]) -> Result<Expr> {
    let parts = scope.with_vec4(|scope| {
        let mut parts = Vec::new();
        for ((value, position), guard) in factors {
            let part = scope.element(*value, position, *guard)?;
            parts.push(match guard {
                Some(guard) => {
                    let zero = scope.pool.literal(WgslType::F32, 0.0);
                    scope.pool.select(*guard, part, zero)
                }
                None => part,
            });
        }
        Ok(parts)
    })?;
    Ok(build_vec4(&mut scope.pool, &parts, WgslType::F32x4))
}

/// Builds a vector of four numbers. If they are the components of one vector, returns that.
pub fn build_vec4(pool: &mut ExprPool, parts: &[Expr], ty: WgslType) -> Expr {
    match (<[Expr; VEC4_LEN]>::try_from(parts), ty) {
        (Ok(parts), WgslType::F32x4) => slp::vector(pool, parts),
        _ => source_vector(pool, parts).unwrap_or_else(|| pool.call("vec4(x, y, z, w)", ty, parts)),
    }
}

/// Returns the vector whose components these expressions are, in order.
pub(super) fn source_vector(pool: &ExprPool, parts: &[Expr]) -> Option<Expr> {
    let mut vectors = (0..)
        .zip(parts)
        .map(|(part, expr)| component_source(pool, *expr, part));
    let first = vectors.next()??;
    vectors.all(|other| other == Some(first)).then_some(first)
}

/// Returns a component of a vec4.
pub fn component(pool: &mut ExprPool, quad: Expr, part: usize, ty: WgslType) -> Expr {
    pool.call(format!("x[{part}]"), ty, &[quad])
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
    let places = parts.iter().map(|(_, at)| scope.element_index(value, at));
    let (Some(element), Some(start)) = (scope.vec4_type(value)?, vector_index(places, VEC4_LEN))
    else {
        return Ok(None);
    };
    let storage = scope.storage(value)?;
    let pool = &mut scope.pool;
    let numbers = parts.iter().map(|(number, _)| *number);
    let vector = if storage.is_half() {
        let numbers: Vec<Expr> = numbers.collect();
        let vector = build_vec4(pool, &numbers, WgslType::F32x4);
        scalar::to_halves(pool, vector, dtype, storage)
    } else {
        let numbers = numbers.map(|number| scalar::to_storage(pool, number, dtype, storage));
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
pub fn vector_index(mut places: impl Iterator<Item = Index>, elements: usize) -> Option<Index> {
    let start = places.next()?;
    let whole = Dim::from(elements);
    let are_consecutive = (1..)
        .zip(places)
        .all(|(offset, place): (i64, Index)| place == start.add_size(&Dim::from(offset)));
    (are_consecutive && start.rem(&whole).is(0)).then(|| start.div(&whole))
}

/// Returns whether a size is known to be a multiple of 4.
pub fn is_multiple_of_4(size: &Dim) -> bool {
    is_multiple(size, VEC4_LEN)
}

/// Returns whether a size is known to be a multiple of a number.
pub fn is_multiple(size: &Dim, of: usize) -> bool {
    let of = Dim::from(of);
    &size.floor_div(&of) * &of == *size
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
        place: &Index,
    ) -> Result<Option<(WgslType, Index, usize)>> {
        let whole = Dim::from(VEC4_LEN);
        let part = place.rem(&whole).as_const();
        let part = part.and_then(|part| usize::try_from(part).ok());
        Ok(match (self.vec4_type(value)?, part) {
            (Some(ty), Some(part)) => Some((ty, place.div(&whole), part)),
            _ => None,
        })
    }
}
