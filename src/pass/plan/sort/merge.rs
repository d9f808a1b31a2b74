//! Merging sorted runs two by two: an invocation looks for the place of its element in the other run by halving it.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;
use crate::pass::plan::element::{Scope, scalar};
use crate::pass::plan::kernel::{Lowered, repeat_to};
use crate::pass::plan::sort::{Own, Sorting};

const TEMPLATE: &str = include_str!("../../../../shaders/merge.wgsl");

/// The run that an element's run is merged with.
struct Other {
    /// It lies in front of the element's own run.
    is_in_front: Expr,
    /// Where the element's own run starts.
    own_start: Expr,
    start: Expr,
    length: Expr,
}

impl Other {
    fn of(scope: &mut Scope, own: &Own, [run, size]: [&Dim; 2]) -> Other {
        let pool = &mut scope.pool;
        let (run, size, along) = (pool.size(run), pool.size(size), own.along.emit(pool));
        let (one, two) = (pool.number(1), pool.number(2));
        let number = pool.call("x / y", Type::U32, &[along, run]);
        let parity = pool.call("x % y", Type::U32, &[number, two]);
        let is_in_front = pool.call("x == y", Type::Bool, &[parity, one]);
        let own_start = pool.call("x * y", Type::U32, &[number, run]);
        let before = pool.call("x - y", Type::U32, &[own_start, run]);
        let behind = pool.call("x + y", Type::U32, &[own_start, run]);
        let start = pool.select(is_in_front, before, behind);
        // There may be less of the last run, or nothing.
        let begin = pool.call("min(x, y)", Type::U32, &[start, size]);
        let rest = pool.call("x - y", Type::U32, &[size, begin]);
        pool.set_label(own_start, "own_start");
        pool.set_label(start, "start");
        pool.set_label(is_in_front, "is_in_front");
        Other {
            is_in_front,
            own_start,
            start,
            length: pool.call("min(x, y)", Type::U32, &[rest, run]),
        }
    }
}

/// An element of what is sorted in runs of so many.
fn element(scope: &mut Scope, value: ValueId, run: usize, at: &Index) -> Result<Expr> {
    let (buffer, storage) = scope.in_runs(value, run)?;
    let at = at.emit(&mut scope.pool);
    let loaded = scope.pool.load(buffer, Type::from(storage), at);
    let dtype = scope.graph.ty(value).dtype;
    Ok(scalar::from_storage(&mut scope.pool, loaded, dtype))
}

impl Sorting {
    /// Merges runs of so many elements two by two, to whole rows or to runs of twice as many. The length of a run is a size
    /// of the kernel, and so is how often it can be halved, so that one text serves for all lengths.
    pub(super) fn merged<'a>(
        &self,
        mut scope: Scope<'a>,
        (from, to): (usize, Option<usize>),
        [run, halvings]: [&Dim; 2],
    ) -> Result<Lowered<'a>> {
        let own = self.own(&mut scope);
        let [values, indices] = self.results;
        let key = element(&mut scope, values, from, &own.index)?;
        let number = element(&mut scope, indices, from, &own.index)?;
        scope.pool.set_label(key, "key");
        let other = Other::of(&mut scope, &own, [run, &self.size]);
        let [low, high] = ["low", "high"].map(|name| scope.pool.variable(name, Type::U32));
        let zero = scope.pool.number(0);
        let mut statements = vec![
            own.surplus.clone(),
            Statement::Let(key),
            Statement::Declare(low, zero),
            Statement::Declare(high, other.length),
        ];
        let end = (&Dim::from(u32::BITS as usize), scope.pool.size(halvings));
        statements.extend(repeat_to(&mut scope, "halving", end, |scope, _| {
            self.halve(scope, (&own, key), (&other, from), [low, high])
        })?);
        statements.push(Statement::Freeze(low));
        let pool = &mut scope.pool;
        let along = own.along.emit(pool);
        let within = pool.call("x - y", Type::U32, &[along, other.own_start]);
        let start = pool.call("min(x, y)", Type::U32, &[other.own_start, other.start]);
        let place = pool.call("x + y", Type::U32, &[start, within]);
        let place = pool.call("x + y", Type::U32, &[place, low]);
        let target = (&Index::expr(place, &self.size), to);
        let statements = self.write(&mut scope, statements, (&own, target), [key, number])?;
        let mut lowered = Lowered::new(scope, TEMPLATE, statements, &self.count);
        lowered.title = Some("merge_runs");
        Ok(lowered)
    }

    /// Looks at the middle of what may come before the element or not.
    fn halve(
        &self,
        scope: &mut Scope,
        (own, key): (&Own, Expr),
        (other, run): (&Other, usize),
        [low, high]: [Expr; 2],
    ) -> Result<Vec<Statement>> {
        let pool = &mut scope.pool;
        let (one, two) = (pool.number(1), pool.number(2));
        let is_open = pool.call("x < y", Type::Bool, &[low, high]);
        let both = pool.call("x + y", Type::U32, &[low, high]);
        let middle = pool.call("x / y", Type::U32, &[both, two]);
        let along = pool.call("x + y", Type::U32, &[other.start, middle]);
        let own_along = own.along.emit(pool);
        let along = Index::expr(pool.select(is_open, along, own_along), &self.size);
        let place = self.rows.at(&own.row, &along);
        let place = place.place(&scope.graph.ty(self.x).shape);
        let met = element(scope, self.results[0], run, &place)?;
        let before = self.is_before(scope, met, key);
        let after = self.is_before(scope, key, met);
        let pool = &mut scope.pool;
        // Of equals, those of the run in front come first.
        let not_after = pool.call("!x", Type::Bool, &[after]);
        let comes_first = pool.select(other.is_in_front, not_after, before);
        let up = pool.call("x && y", Type::Bool, &[is_open, comes_first]);
        let down = pool.call("x && !y", Type::Bool, &[is_open, comes_first]);
        let next = pool.call("x + y", Type::U32, &[middle, one]);
        let (next, last) = (pool.select(up, next, low), pool.select(down, middle, high));
        let named = [
            (middle, "middle"),
            (met, "met"),
            (comes_first, "comes_first"),
            (next, "next"),
            (last, "last"),
        ];
        let mut statements = Vec::new();
        for (expr, name) in named {
            pool.set_label(expr, name);
            statements.push(Statement::Let(expr));
        }
        statements.push(Statement::Assign(low, next));
        statements.push(Statement::Assign(high, last));
        Ok(statements)
    }
}
