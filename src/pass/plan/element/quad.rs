//! Four neighbours at once: their elements come out of vectors that are read once, and go back as one.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Node, Pool, Type};
use crate::kernel::index::Index;
use crate::kernel::layout::Layout;
use crate::pass::plan::element::position::Position;
use crate::pass::plan::element::{Scope, fours, scalar};

/// Elements that are read at once.
pub const QUAD: usize = 4;

/// One factor of a product: an element of a value.
pub type Factor = (ValueId, Position);

/// The coordinates of four neighbours along an axis, along which `quad` counts quads.
pub fn neighbours(quad: &[Index], axis: usize) -> [Vec<Index>; QUAD] {
    let first = quad[axis].scale(&Dim::from(QUAD));
    [0, 1, 2, 3].map(|part: i64| {
        let mut coordinates = quad.to_vec();
        coordinates[axis] = first.add_size(&Dim::from(part));
        coordinates
    })
}

/// What is made for each of four neighbours. Elements of buffers in which these are neighbours too are read at once.
pub fn each<T>(
    scope: &mut Scope,
    neighbours: [Vec<Index>; QUAD],
    mut make: impl FnMut(&mut Scope, usize, Vec<Index>) -> Result<T>,
) -> Result<Vec<T>> {
    scope.in_quads(|scope| {
        let neighbours = neighbours.into_iter().enumerate();
        neighbours.map(|(part, at)| make(scope, part, at)).collect()
    })
}

/// Four factors as a vector; 0 where a guard is false.
pub fn quad(scope: &mut Scope, factors: &[(Factor, Option<Expr>)]) -> Result<Expr> {
    let parts = scope.in_quads(|scope| {
        let mut parts = Vec::new();
        for ((value, position), guard) in factors {
            let part = scope.element(*value, position, *guard)?;
            parts.push(match guard {
                Some(guard) => {
                    let zero = scope.pool.literal(Type::F32, 0.0);
                    scope.pool.select(*guard, part, zero)
                }
                None => part,
            });
        }
        Ok(parts)
    })?;
    Ok(joined(&mut scope.pool, &parts, Type::F32x4))
}

/// A vector of four numbers: the one that they are the parts of, if they are.
pub fn joined(pool: &mut Pool, parts: &[Expr], ty: Type) -> Expr {
    match (<[Expr; QUAD]>::try_from(parts), ty) {
        (Ok(parts), Type::F32x4) => fours::vector(pool, parts),
        _ => whole(pool, parts).unwrap_or_else(|| pool.call("vec4(x, y, z, w)", ty, parts)),
    }
}

/// The vector that numbers are the parts of.
pub(super) fn whole(pool: &Pool, parts: &[Expr]) -> Option<Expr> {
    let mut wholes = (0..)
        .zip(parts)
        .map(|(part, expr)| of_part(pool, *expr, part));
    let first = wholes.next()??;
    wholes.all(|other| other == Some(first)).then_some(first)
}

/// One of the four numbers of a vector.
pub fn part(pool: &mut Pool, quad: Expr, part: usize, ty: Type) -> Expr {
    pool.call(format!("x[{part}]"), ty, &[quad])
}

/// The vector of which an expression is the given part.
fn of_part(pool: &Pool, expr: Expr, part: usize) -> Option<Expr> {
    match pool.node(expr) {
        Node::Call { template, operands } if *template == format!("x[{part}]") => {
            operands.first().copied()
        }
        _ => None,
    }
}

/// Four neighbours in a buffer, written at once; none if they are not the elements of one vector.
pub fn write(
    scope: &mut Scope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Option<Statement>> {
    if let Layout::Quads { axis } = scope.layout(value) {
        return scope.store_quad(value, *axis, parts).map(Some);
    }
    let dtype = scope.graph.ty(value).dtype;
    let places = parts.iter().map(|(_, at)| scope.place(value, at));
    let (Some(element), Some(start)) = (scope.quad_type(value)?, consecutive(places, QUAD)) else {
        return Ok(None);
    };
    let storage = scope.storage(value)?;
    let pool = &mut scope.pool;
    let numbers = parts.iter().map(|(number, _)| *number);
    let vector = if storage.is_half() {
        let numbers: Vec<Expr> = numbers.collect();
        let vector = joined(pool, &numbers, Type::F32x4);
        scalar::to_halves(pool, vector, dtype, storage)
    } else {
        let numbers = numbers.map(|number| scalar::to_storage(pool, number, dtype, storage));
        let numbers: Vec<Expr> = numbers.collect();
        joined(pool, &numbers, element)
    };
    Ok(Some(Statement::Store {
        buffer: scope.binding(value, false, element)?,
        index: start.emit(&mut scope.pool),
        value: vector,
    }))
}

/// The number of the vector of so many elements that places are, if they are one.
pub fn consecutive(mut places: impl Iterator<Item = Index>, elements: usize) -> Option<Index> {
    let start = places.next()?;
    let whole = Dim::from(elements);
    let follow = (1..)
        .zip(places)
        .all(|(offset, place): (i64, Index)| place == start.add_size(&Dim::from(offset)));
    (follow && start.rem(&whole).is(0)).then(|| start.div(&whole))
}

/// True if a size is known to be a multiple of a quad.
pub fn is_whole(size: &Dim) -> bool {
    is_multiple(size, QUAD)
}

/// True if a size is known to be a multiple of a number.
pub fn is_multiple(size: &Dim, of: usize) -> bool {
    let of = Dim::from(of);
    &size.floor_div(&of) * &of == *size
}

impl Scope<'_> {
    /// What a buffer is an array of when it is read in quads; none if it cannot be.
    pub(super) fn quad_type(&self, value: ValueId) -> Result<Option<Type>> {
        Ok(Type::quad(self.storage(value)?).filter(|_| is_whole(&self.room(value))))
    }

    /// The vector of a buffer in which an element lies, and which of its parts that is, where both are known.
    pub fn part_of_quad(
        &self,
        value: ValueId,
        place: &Index,
    ) -> Result<Option<(Type, Index, usize)>> {
        let whole = Dim::from(QUAD);
        let part = place.rem(&whole).as_const();
        let part = part.and_then(|part| usize::try_from(part).ok());
        Ok(match (self.quad_type(value)?, part) {
            (Some(ty), Some(part)) => Some((ty, place.div(&whole), part)),
            _ => None,
        })
    }
}
