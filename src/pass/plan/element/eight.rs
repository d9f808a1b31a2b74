//! Eight neighbours at once, as four words of 64 bits. A software rasteriser goes through the lanes of a subgroup one after
//! the other wherever memory is accessed, so that what a lane accesses should be as long as it can be.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::capabilities::{Capabilities, Storage};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Node, Pool, Type};
use crate::kernel::index::Index;
use crate::pass::plan::element::position::Position;
use crate::pass::plan::element::quad::{self, QUAD, consecutive, is_multiple, is_whole};
use crate::pass::plan::element::{self, Scope};

/// Elements that are read at once.
pub const EIGHT: usize = 8;

/// How many neighbours a device reads at once of elements that come in such numbers.
pub fn width(capabilities: &Capabilities, size: &Dim) -> usize {
    if capabilities.software && capabilities.int64 && is_multiple(size, EIGHT) {
        EIGHT
    } else if is_whole(size) {
        QUAD
    } else {
        1
    }
}

/// The numbers of neighbours, of which there are so many in each vector, in the vector of a number.
pub fn numbers(vector: &Index, width: usize) -> Vec<Index> {
    let first = vector.scale(&Dim::from(width));
    let numbers = (0..width).map(|part| first.add_size(&Dim::from(part)));
    numbers.collect()
}

/// Their places.
pub fn neighbours(vector: &Index, width: usize) -> Vec<Position> {
    let places = numbers(vector, width).into_iter();
    places.map(Position::at).collect()
}

/// An element of a vector that was read, as the type in which it is stored; the name is for people.
pub fn part(pool: &mut Pool, vector: Expr, part: usize, (stored, name): (Type, &str)) -> Expr {
    if pool.ty(vector) != Type::U64x4 {
        pool.set_label(vector, &format!("{name}_quad"));
        return quad::part(pool, vector, part, stored);
    }
    pool.set_label(vector, &format!("{name}_words"));
    let (numbers, half) = match part % 2 {
        0 => ("low_numbers(x)", "low"),
        _ => ("high_numbers(x)", "high"),
    };
    let numbers = pool.call(numbers, Type::F32x4, &[vector]);
    pool.set_label(numbers, &format!("{name}_{half}"));
    quad::part(pool, numbers, part / 2, stored)
}

/// Neighbours in a buffer, written by as few vectors as it takes; none if they are not the elements of vectors.
pub fn write(
    scope: &mut Scope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Option<Vec<Statement>>> {
    if parts.len() == EIGHT
        && let Some(store) = write_words(scope, value, parts)?
    {
        return Ok(Some(vec![store]));
    }
    if !parts.len().is_multiple_of(QUAD) {
        return Ok(None);
    }
    let quads = parts.chunks(QUAD);
    quads.map(|four| quad::write(scope, value, four)).collect()
}

/// The same, one by one if they are not.
pub fn write_all(
    scope: &mut Scope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Vec<Statement>> {
    if let Some(stores) = write(scope, value, parts)? {
        return Ok(stores);
    }
    let each = parts.iter();
    each.map(|(number, place)| element::write(scope, value, *number, place))
        .collect()
}

fn write_words(
    scope: &mut Scope,
    value: ValueId,
    parts: &[(Expr, Position)],
) -> Result<Option<Statement>> {
    let places = parts.iter().map(|(_, at)| scope.place(value, at));
    let (true, Some(start)) = (scope.is_in_words(value)?, consecutive(places, EIGHT)) else {
        return Ok(None);
    };
    let settled = parts.iter().map(|part| settled(&mut scope.pool, part.0));
    let Some(numbers) = settled.collect::<Option<Vec<Expr>>>() else {
        return Ok(None);
    };
    let every_other = |first: usize| numbers.iter().skip(first).step_by(2).copied();
    let (low, high): (Vec<Expr>, Vec<Expr>) = (every_other(0).collect(), every_other(1).collect());
    let pool = &mut scope.pool;
    let halves = [low, high].map(|half| quad::joined(pool, &half, Type::F32x4));
    let words = pool.call("words_of(x, y)", Type::U64x4, &halves);
    Ok(Some(Statement::Store {
        buffer: scope.binding(value, false, Type::U64x4)?,
        index: start.emit(&mut scope.pool),
        value: words,
    }))
}

/// An expression as it may be stored in words; none if it had better not. LLVM computes lane by lane what is stored so if it
/// is a selection of a constant, or arithmetic of such a selection and a constant: so a bound is computed on both sides.
pub fn settled(pool: &mut Pool, expr: Expr) -> Option<Expr> {
    let Node::Call { template, operands } = pool.node(expr) else {
        return Some(expr);
    };
    let (template, operands) = (template.clone(), operands.clone());
    let is_constant = |pool: &Pool, expr: &Expr| pool.as_literal(*expr).is_some();
    let has_constant = operands.iter().any(|expr| is_constant(pool, expr));
    let is_settled = |expr: &Expr| is_constant(pool, expr) || settled(pool, *expr) == Some(*expr);
    match template.as_ref() {
        "select(x, y, x < y)" => {
            Some(pool.call("select(x, max(x, y), x < y)", Type::F32, &operands))
        }
        "select(x, y, x > y)" => {
            Some(pool.call("select(x, min(x, y), x > y)", Type::F32, &operands))
        }
        template if template.starts_with("select(") => (!has_constant).then_some(expr),
        template if template.contains('(') => None,
        _ => (!has_constant || operands.iter().all(is_settled)).then_some(expr),
    }
}

impl Scope<'_> {
    /// True if a buffer can be accessed as words of two numbers.
    pub fn is_in_words(&self, value: ValueId) -> Result<bool> {
        let is_single = self.storage(value)? == Storage::F32;
        let is_in_rows = self.layout(value).is_in_rows();
        Ok(is_single && is_in_rows && is_multiple(&self.room(value), EIGHT))
    }

    /// True if a buffer had better be read as words of two numbers: if it cannot be read as texels.
    fn reads_words_of(&self, value: ValueId) -> Result<bool> {
        Ok(self.is_in_words(value)? && !self.has_texels(value))
    }

    /// The vector of a buffer in which an element lies where so many neighbours are read together, and which of its parts
    /// that is, where both are known.
    pub fn part_of_vector(
        &self,
        value: ValueId,
        place: &Index,
        neighbours: usize,
    ) -> Result<Option<(Type, Index, usize)>> {
        let whole = Dim::from(EIGHT);
        let part = place.rem(&whole).as_const();
        let part = part.and_then(|part| usize::try_from(part).ok());
        match part {
            Some(part) if neighbours == EIGHT && self.reads_words_of(value)? => {
                Ok(Some((Type::U64x4, place.div(&whole), part)))
            }
            _ if neighbours >= QUAD => self.part_of_quad(value, place),
            _ => Ok(None),
        }
    }
}
