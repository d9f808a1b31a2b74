//! Merges sorted runs in pairs: an invocation writes consecutive elements of the merged run. A binary search finds how
//! many of the preceding elements come from either run (Odeh, Green, Mwassi, Shmueli and Birk, "Merge Path: Parallel
//! Merging Made Simple", 2012).

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::KernelScope;
use crate::plan::kernel::{LoweredKernel, bounds_guard, repeat, repeat_to};
use crate::plan::sort::merge::{TEMPLATE, element, run_at};
use crate::plan::sort::{INITIAL_RUN, SortParameters, SortSegment};

/// One of the two runs.
struct MergeRun {
    /// Coordinate of the first element along the sorted axis.
    start: Expr,
    length: Expr,
    /// Variable for the coordinate of the next element along the sorted axis.
    at: Expr,
    /// Variable for the key of the next element.
    key: Expr,
}

impl MergeRun {
    fn new(
        scope: &mut KernelScope,
        name: &str,
        start: Expr,
        sizes: [Expr; 2],
        key: WgslType,
    ) -> MergeRun {
        let pool = &mut scope.pool;
        let [start, length] = run_at(pool, start, sizes);
        pool.set_label(start, &format!("{name}_start"));
        pool.set_label(length, &format!("{name}_length"));
        MergeRun {
            start,
            length,
            at: pool.variable(&format!("{name}_at"), WgslType::U32),
            key: pool.variable(&format!("{name}_key"), key),
        }
    }

    /// True if the run has elements left.
    fn is_left(&self, pool: &mut ExprPool) -> Expr {
        let end = add(pool, self.start, self.length);
        pool.call("x < y", WgslType::Bool, &[self.at, end])
    }
}

/// Two runs, and the segment of the merged run that an invocation writes.
struct MergePair<'s> {
    sorting: &'s SortParameters,
    segment: SortSegment,
    /// Length of the runs. The kernel receives it as a size; it also selects the slot that holds the runs.
    run: usize,
    front: MergeRun,
    back: MergeRun,
    /// Elements of the merged run before the segment.
    before: Expr,
}

impl SortParameters {
    /// Merges runs of `from` elements in pairs, to whole rows or to runs of `to` elements. The symbols `run`, the
    /// length of a run, and `search_steps` are sizes of the kernel, so that one kernel serves all lengths.
    pub(super) fn lower_merge_path<'a>(
        &self,
        mut scope: KernelScope<'a>,
        from: usize,
        to: Option<usize>,
        [run, search_steps]: [&Dim; 2],
    ) -> Result<LoweredKernel<'a>> {
        let pair = MergePair::new(&mut scope, self, from, run);
        let mut statements = vec![pair.segment.surplus.clone()];
        statements.extend(pair.split(&mut scope, search_steps)?);
        statements.extend(pair.merge(&mut scope, to)?);
        let mut lowered = LoweredKernel::new(scope, TEMPLATE, statements, &pair.segment.count);
        lowered.title = Some("merge_runs");
        Ok(lowered)
    }
}

impl MergePair<'_> {
    fn new<'s>(
        scope: &mut KernelScope,
        sorting: &'s SortParameters,
        from: usize,
        run: &Dim,
    ) -> MergePair<'s> {
        let segment = sorting.invocation_segment(scope);
        let key = scope.compute_type(scope.graph.ty(sorting.x).dtype);
        let pool = &mut scope.pool;
        let (run, size, first) = (
            pool.size(run),
            pool.size(&sorting.size),
            segment.first.emit(pool),
        );
        let two = pool.index(2);
        let merged_length = pool.call("x * y", WgslType::U32, &[run, two]);
        let number = pool.call("x / y", WgslType::U32, &[first, merged_length]);
        let start = pool.call("x * y", WgslType::U32, &[number, merged_length]);
        let back_start = add(pool, start, run);
        let before = pool.call("x - y", WgslType::U32, &[first, start]);
        pool.set_label(before, "before");
        MergePair {
            sorting,
            run: from,
            front: MergeRun::new(scope, "front", start, [run, size], key),
            back: MergeRun::new(scope, "back", back_start, [run, size], key),
            before,
            segment,
        }
    }

    /// Loads the key at coordinate `along` of the row, which is clamped to the end.
    fn load_key(&self, scope: &mut KernelScope, along: Expr) -> Result<Expr> {
        let sorting = self.sorting;
        let last = scope.pool.size(&(&sorting.size - 1));
        let along = scope.pool.call("min(x, y)", WgslType::U32, &[along, last]);
        let index = self.element_index(scope, along);
        element(scope, sorting.results[0], self.run, &index)
    }

    /// Linear index of an element of the row.
    fn element_index(&self, scope: &KernelScope, along: Expr) -> Index {
        let sorting = self.sorting;
        let along = Index::expr(along, &sorting.size);
        let position = sorting.rows.at(&self.segment.row, &along);
        position.linear_index(&scope.graph.ty(sorting.x).shape)
    }

    /// Finds the number of elements of each run that precede the segment, and loads the next element of each.
    fn split(&self, scope: &mut KernelScope, search_steps: &Dim) -> Result<Vec<Statement>> {
        let pool = &mut scope.pool;
        let [low, high] = ["low", "high"].map(|name| pool.variable(name, WgslType::U32));
        let clamped = pool.call("max(x, y)", WgslType::U32, &[self.before, self.back.length]);
        let least = pool.call("x - y", WgslType::U32, &[clamped, self.back.length]);
        let most = pool.call(
            "min(x, y)",
            WgslType::U32,
            &[self.before, self.front.length],
        );
        let mut statements = vec![
            Statement::Declare(low, least),
            Statement::Declare(high, most),
        ];
        let (max_steps, steps) = (Dim::from(u32::BITS as usize), scope.pool.size(search_steps));
        statements.extend(repeat_to(
            scope,
            "halving",
            &max_steps,
            steps,
            |scope, _| self.search_step(scope, [low, high]),
        )?);
        statements.push(Statement::Freeze(low));
        let pool = &mut scope.pool;
        let back_count = pool.call("x - y", WgslType::U32, &[self.before, low]);
        let starts = [(&self.front, low), (&self.back, back_count)];
        let starts = starts.map(|(run, count)| (run, add(&mut scope.pool, run.start, count)));
        for (run, start) in starts {
            let key = self.load_key(scope, start)?;
            statements.push(Statement::Declare(run.at, start));
            statements.push(Statement::Declare(run.key, key));
        }
        Ok(statements)
    }

    /// Emits a step of the binary search over the front run.
    fn search_step(
        &self,
        scope: &mut KernelScope,
        [low, high]: [Expr; 2],
    ) -> Result<Vec<Statement>> {
        let pool = &mut scope.pool;
        let (one, two) = (pool.index(1), pool.index(2));
        let is_open = pool.call("x < y", WgslType::Bool, &[low, high]);
        let sum = add(pool, low, high);
        let middle = pool.call("x / y", WgslType::U32, &[sum, two]);
        let next = add(pool, middle, one);
        let front_index = add(pool, self.front.start, middle);
        // Once the search has ended, this index may precede the back run.
        let back_index = add(pool, self.back.start, self.before);
        let back_index = pool.call("x - min(x, y)", WgslType::U32, &[back_index, next]);
        let (front, back) = (
            self.load_key(scope, front_index)?,
            self.load_key(scope, back_index)?,
        );
        // Equal elements of the front run come first.
        let is_back_first = self.sorting.is_before(scope, back, front);
        let pool = &mut scope.pool;
        let raises_low = pool.call("x & !y", WgslType::Bool, &[is_open, is_back_first]);
        let lowers_high = pool.call("x & y", WgslType::Bool, &[is_open, is_back_first]);
        let new_low = pool.select(raises_low, next, low);
        let new_high = pool.select(lowers_high, middle, high);
        for (expr, name) in [(middle, "middle"), (new_low, "next"), (new_high, "last")] {
            pool.set_label(expr, name);
        }
        Ok(vec![
            Statement::Let(new_low),
            Statement::Let(new_high),
            Statement::Assign(low, new_low),
            Statement::Assign(high, new_high),
        ])
    }

    /// Emits the merge loop.
    fn merge(&self, scope: &mut KernelScope, to: Option<usize>) -> Result<Vec<Statement>> {
        repeat(scope, "k", &Dim::from(INITIAL_RUN), |scope, k| {
            let target = self.segment.first.add(&k);
            let step = self.merge_step(scope, &target, to)?;
            Ok(bounds_guard(scope, &target, &self.sorting.size, step))
        })
    }

    /// Emits an iteration of the merge loop: it takes the smaller of the runs' next elements and writes it to `target`.
    fn merge_step(
        &self,
        scope: &mut KernelScope,
        target: &Index,
        to: Option<usize>,
    ) -> Result<Vec<Statement>> {
        let (sorting, front, back) = (self.sorting, &self.front, &self.back);
        let is_before = sorting.is_before(scope, back.key, front.key);
        let pool = &mut scope.pool;
        let left = [front.is_left(pool), back.is_left(pool)];
        let operands = [left[1], left[0], is_before];
        let is_back = pool.call("x & (!y | z)", WgslType::Bool, &operands);
        pool.set_label(is_back, "is_back");
        let taken = pool.select(is_back, back.at, front.at);
        pool.set_label(taken, "taken");
        let key = pool.select(is_back, back.key, front.key);
        let one = pool.index(1);
        let next = add(pool, taken, one);
        let index = self.element_index(scope, taken);
        let number = element(scope, sorting.results[1], self.run, &index)?;
        let next_key = self.load_key(scope, next)?;
        let position = sorting.rows.at(&self.segment.row, target);
        let mut statements = vec![
            Statement::Let(is_back),
            Statement::Let(taken),
            Statement::Let(next_key),
        ];
        statements.extend(sorting.store(scope, &position, to, [key, number])?);
        for (run, is_taken) in [(front, false), (back, true)] {
            let pool = &mut scope.pool;
            let mut chosen = |taken, kept| match is_taken {
                true => pool.select(is_back, taken, kept),
                false => pool.select(is_back, kept, taken),
            };
            let (at, key) = (chosen(next, run.at), chosen(next_key, run.key));
            statements.push(Statement::Assign(run.at, at));
            statements.push(Statement::Assign(run.key, key));
        }
        Ok(statements)
    }
}

fn add(pool: &mut ExprPool, x: Expr, y: Expr) -> Expr {
    pool.call("x + y", WgslType::U32, &[x, y])
}
