//! Merges all sorted runs of a row at once: an invocation finds the position of its element in each other run by binary
//! search.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::{KernelScope, scalar};
use crate::plan::kernel::{LoweredKernel, repeat, repeat_to};
use crate::plan::sort::{SortElement, SortParameters};

pub(super) const TEMPLATE: &str = include_str!("../../../shaders/merge.wgsl");

/// A run in which the invocation searches the position of its element.
struct OtherRun {
    /// True if the run precedes the element's run.
    is_in_front: Expr,
    /// Coordinate of the first element along the sorted axis.
    start: Expr,
    length: Expr,
}

impl OtherRun {
    fn new(pool: &mut ExprPool, start: Expr, is_in_front: Expr, sizes: [Expr; 2]) -> OtherRun {
        let [_, length] = run_at(pool, start, sizes);
        pool.set_label(start, "start");
        pool.set_label(is_in_front, "is_in_front");
        OtherRun {
            is_in_front,
            start,
            length,
        }
    }
}

/// Start and length of a run, clamped to the end of the row. `run` is the length of a full run, `size` that of the row.
pub(super) fn run_at(pool: &mut ExprPool, start: Expr, [run, size]: [Expr; 2]) -> [Expr; 2] {
    let start = pool.call("min(x, y)", WgslType::U32, &[start, size]);
    let rest = pool.call("x - y", WgslType::U32, &[size, start]);
    [start, pool.call("min(x, y)", WgslType::U32, &[rest, run])]
}

/// Variables of a binary search: bounds of the number of elements of a run that precede the key.
struct SearchRange {
    low: Expr,
    high: Expr,
}

impl SearchRange {
    fn new(scope: &mut KernelScope) -> SearchRange {
        let [low, high] = ["low", "high"].map(|name| scope.pool.variable(name, WgslType::U32));
        SearchRange { low, high }
    }
}

/// Loads the element at a linear index from runs of `run` elements.
pub(super) fn element(
    scope: &mut KernelScope,
    value: ValueId,
    run: usize,
    index: &Index,
) -> Result<Expr> {
    let (buffer, storage) = scope.bind_sorted_runs(value, run)?;
    let index = index.emit(&mut scope.pool);
    let loaded = scope.pool.load(buffer, WgslType::from(storage), index);
    let dtype = scope.graph.ty(value).dtype;
    Ok(scalar::from_storage(&mut scope.pool, loaded, dtype))
}

/// Number of binary search steps for a run.
pub(super) fn search_steps(run: usize) -> Dim {
    Dim::from(run.ilog2() as usize + 1)
}

impl SortParameters {
    /// Merges runs of `run` elements to whole rows of any length.
    pub(super) fn lower_merge_all<'a>(
        &self,
        mut scope: KernelScope<'a>,
        run: usize,
    ) -> Result<LoweredKernel<'a>> {
        let current = self.invocation_element(&mut scope);
        let [key, number] = self.load_own(&mut scope, run, &current)?;
        let length = Dim::from(run);
        let first = current
            .along
            .div(&length)
            .scale(&length)
            .emit(&mut scope.pool);
        let along = current.along.emit(&mut scope.pool);
        let rank_in_run = scope.pool.call("x - y", WgslType::U32, &[along, first]);
        let rank = scope.pool.variable("rank", WgslType::U32);
        let range = SearchRange::new(&mut scope);
        let mut statements = vec![
            current.surplus.clone(),
            Statement::Let(key),
            Statement::Let(first),
            Statement::Declare(rank, rank_in_run),
        ];
        let runs = self.size.ceil_div(&length);
        statements.extend(repeat(&mut scope, "run", &runs, |scope, run_index| {
            let pool = &mut scope.pool;
            let sizes = [pool.size(&length), pool.size(&self.size)];
            let start = run_index.scale(&length).emit(pool);
            let is_in_front = pool.call("x < y", WgslType::Bool, &[start, first]);
            let mut other = OtherRun::new(pool, start, is_in_front, sizes);
            let is_own = pool.call("x == y", WgslType::Bool, &[start, first]);
            let zero = pool.index(0);
            other.length = pool.select(is_own, zero, other.length);
            let mut body = self.binary_search(scope, &current, key, &other, run, &range)?;
            let next = scope.pool.call("x + y", WgslType::U32, &[rank, range.low]);
            body.push(Statement::Assign(rank, next));
            Ok(body)
        })?);
        statements.push(Statement::Freeze(rank));
        let target = self.rows.at(&current.row, &Index::expr(rank, &self.size));
        statements.extend(self.store(&mut scope, &target, None, [key, number])?);
        let mut lowered = LoweredKernel::new(scope, TEMPLATE, statements, &self.count);
        lowered.title = Some("merge_all_runs");
        Ok(lowered)
    }

    /// Loads the invocation's element and its index from runs.
    fn load_own(
        &self,
        scope: &mut KernelScope,
        run: usize,
        current: &SortElement,
    ) -> Result<[Expr; 2]> {
        let [values, indices] = self.results;
        let key = element(scope, values, run, &current.index)?;
        scope.pool.set_label(key, "key");
        Ok([key, element(scope, indices, run, &current.index)?])
    }

    /// Finds the position of an element in another run. It ends up in the lower bound of the range.
    fn binary_search(
        &self,
        scope: &mut KernelScope,
        current: &SortElement,
        key: Expr,
        other: &OtherRun,
        run: usize,
        range: &SearchRange,
    ) -> Result<Vec<Statement>> {
        let zero = scope.pool.index(0);
        let mut statements = vec![
            Statement::Declare(range.low, zero),
            Statement::Declare(range.high, other.length),
        ];
        let (max_steps, steps) = (
            Dim::from(u32::BITS as usize),
            scope.pool.size(&search_steps(run)),
        );
        statements.extend(repeat_to(
            scope,
            "halving",
            &max_steps,
            steps,
            |scope, _| self.search_step(scope, current, key, other, run, range),
        )?);
        Ok(statements)
    }

    /// Emits a step of the binary search.
    fn search_step(
        &self,
        scope: &mut KernelScope,
        current: &SortElement,
        key: Expr,
        other: &OtherRun,
        run: usize,
        SearchRange { low, high }: &SearchRange,
    ) -> Result<Vec<Statement>> {
        let (low, high) = (*low, *high);
        let pool = &mut scope.pool;
        let (one, two) = (pool.index(1), pool.index(2));
        let is_open = pool.call("x < y", WgslType::Bool, &[low, high]);
        let sum = pool.call("x + y", WgslType::U32, &[low, high]);
        let middle = pool.call("x / y", WgslType::U32, &[sum, two]);
        let along = pool.call("x + y", WgslType::U32, &[other.start, middle]);
        let current_along = current.along.emit(pool);
        let along = Index::expr(pool.select(is_open, along, current_along), &self.size);
        let index = self.rows.at(&current.row, &along);
        let index = index.linear_index(&scope.graph.ty(self.x).shape);
        let other_key = element(scope, self.results[0], run, &index)?;
        let before = self.is_before(scope, other_key, key);
        let after = self.is_before(scope, key, other_key);
        let pool = &mut scope.pool;
        // Equal elements of the preceding run come first.
        let not_after = pool.call("!x", WgslType::Bool, &[after]);
        let comes_first = pool.select(other.is_in_front, not_after, before);
        let raises_low = pool.call("x & y", WgslType::Bool, &[is_open, comes_first]);
        let lowers_high = pool.call("x & !y", WgslType::Bool, &[is_open, comes_first]);
        let after_middle = pool.call("x + y", WgslType::U32, &[middle, one]);
        let new_low = pool.select(raises_low, after_middle, low);
        let new_high = pool.select(lowers_high, middle, high);
        let named = [
            (middle, "middle"),
            (other_key, "met"),
            (comes_first, "comes_first"),
            (new_low, "next"),
            (new_high, "last"),
        ];
        let mut statements = Vec::new();
        for (expr, name) in named {
            pool.set_label(expr, name);
            statements.push(Statement::Let(expr));
        }
        statements.push(Statement::Assign(low, new_low));
        statements.push(Statement::Assign(high, new_high));
        Ok(statements)
    }
}
