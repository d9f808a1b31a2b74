//! Four neighbours of a buffer in single precision, read at once.

use super::element::Scope;
use super::position::Position;
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::{Definition, Op, Primitive, ValueId};
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;

/// Elements that are read at once.
pub const QUAD: usize = 4;

/// One factor of a product: an element of a value.
pub type Factor = (ValueId, Position);

/// Columns whose four steps lie next to each other: read by column, put together by step.
pub fn turned(
    scope: &mut Scope,
    table: &[Vec<(Factor, Option<Expr>)>],
) -> Result<Option<Vec<Expr>>> {
    let mut columns = Vec::new();
    for i in 0..QUAD {
        let column: Vec<&(Factor, Option<Expr>)> = table.iter().map(|line| &line[i]).collect();
        match neighbours(scope, &column)? {
            Some(quad) => columns.push(quad),
            None => return Ok(None),
        }
    }
    let pool = &mut scope.pool;
    columns
        .iter()
        .for_each(|quad| pool.set_label(*quad, "column"));
    let step = |k: usize| {
        let parts: Vec<Expr> = columns
            .iter()
            .map(|quad| pool.call(format!("x[{k}]"), Type::F32, &[*quad]))
            .collect();
        pool.call("vec4(x, y, z, w)", Type::F32x4, &parts)
    };
    Ok(Some((0..QUAD).map(step).collect()))
}

/// Four factors: read at once where they lie next to each other.
pub fn quad(scope: &mut Scope, factors: &[(Factor, Option<Expr>)]) -> Result<Expr> {
    if let Some(quad) = neighbours(scope, &factors.iter().collect::<Vec<_>>())? {
        return Ok(quad);
    }
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
    Ok(scope.pool.call("vec4(x, y, z, w)", Type::F32x4, &parts))
}

/// Four factors as one load, if they are that: neighbours in a buffer, the first at a multiple of four.
fn neighbours(scope: &mut Scope, factors: &[&(Factor, Option<Expr>)]) -> Result<Option<Expr>> {
    let mut places = Vec::new();
    let mut found = None;
    for factor in factors {
        let ((value, position), None) = factor else {
            return Ok(None);
        };
        let Some((base, position)) = scope.origin(*value, position)? else {
            return Ok(None);
        };
        if *found.get_or_insert(base) != base {
            return Ok(None);
        }
        places.push(position.place(&scope.graph.ty(base).shape));
    }
    match (found, consecutive(places.into_iter())) {
        (Some(base), Some(start)) => scope.load_quad(base, &start).map(Some),
        _ => Ok(None),
    }
}

/// The number of the quad that four places are, if they are one.
pub fn consecutive(mut places: impl Iterator<Item = Index>) -> Option<Index> {
    let start = places.next()?;
    let whole = Dim::from(QUAD);
    let follow = (1..)
        .zip(places)
        .all(|(offset, place): (i64, Index)| place == start.add_size(&Dim::from(offset)));
    (follow && start.rem(&whole).is(0)).then(|| start.div(&whole))
}

impl Scope<'_> {
    /// The buffer behind views of it, and where an element lies in that; none if the value is computed.
    fn origin(&mut self, value: ValueId, at: &Position) -> Result<Option<(ValueId, Position)>> {
        let (mut value, mut at) = (value, at.clone());
        loop {
            let Definition::Node(node, _) = self.graph.value(value).definition else {
                return Ok(Some((value, at)));
            };
            if self.stored[value.index()] {
                return Ok(Some((value, at)));
            }
            match &self.graph.nodes[node].op {
                Op::Primitive(
                    view @ (Primitive::Reshape(_)
                    | Primitive::Permute(_)
                    | Primitive::Expand(_)
                    | Primitive::Slice(_)),
                ) => (value, at) = self.view(view, &self.graph.nodes[node], value, &at, None)?,
                _ => return Ok(None),
            }
        }
    }

    /// Four elements of a buffer of single precision.
    fn load_quad(&mut self, value: ValueId, index: &Index) -> Result<Expr> {
        let buffer = self.binding(value, false, Type::F32x4)?;
        let index = index.emit(&mut self.pool);
        Ok(self.pool.load(buffer, Type::F32x4, index))
    }
}
