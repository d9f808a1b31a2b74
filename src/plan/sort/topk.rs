//! Top-k: an invocation loops over a row and keeps the best elements in order. Few long rows are split into parts, see
//! [`crate::plan::fuse::topk_split`]. Initial runs are sorted in the same way, with k equal to their length.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Literal, WgslType};
use crate::kernel::index::{self, Index};
use crate::plan::element::{KernelScope, scalar};
use crate::plan::kernel::{LoweredKernel, bounds_guard, invocation, repeat};
use crate::plan::sort::{INITIAL_RUN, SortParameters};

const TEMPLATE: &str = include_str!("../../../shaders/topk.wgsl");

/// Largest k: each element takes two registers and some lines of source.
pub const MAX_K: usize = 64;

/// Variables for one of the best elements so far, by rank: its key, and its index in the row.
struct RankedElement {
    key: Expr,
    index: Expr,
}

/// An element that may be kept.
struct Candidate {
    key: Expr,
    index: Expr,
    /// For each rank, whether the element precedes the element of that rank or the rank is empty.
    comes_before: Vec<Expr>,
}

impl SortParameters {
    /// The top k elements of each row, in order.
    pub(super) fn lower_topk<'a>(
        &self,
        mut scope: KernelScope<'a>,
        k: usize,
    ) -> Result<LoweredKernel<'a>> {
        let (number, surplus) = invocation(&mut scope, &self.rows.count);
        let row = index::delinearize(&number, &self.rows.others);
        let start = Index::zero();
        let (search, ranked) = self.keep_best(&mut scope, &row, &start, &self.size, k)?;
        let mut statements = vec![surplus];
        statements.extend(search);
        for (rank, entry) in ranked.iter().enumerate() {
            statements.extend(self.store_ranked(
                &mut scope,
                &row,
                &Index::from(rank),
                entry,
                None,
            )?);
        }
        let mut lowered = LoweredKernel::new(scope, TEMPLATE, statements, &self.rows.count);
        lowered.title = Some("topk");
        Ok(lowered)
    }

    /// Sorts the initial runs, one per invocation.
    pub(super) fn lower_initial_runs<'a>(
        &self,
        mut scope: KernelScope<'a>,
    ) -> Result<LoweredKernel<'a>> {
        let segment = self.invocation_segment(&mut scope);
        let (row, first, length) = (&segment.row, &segment.first, Dim::from(INITIAL_RUN));
        let (search, ranked) = self.keep_best(&mut scope, row, first, &length, INITIAL_RUN)?;
        let mut statements = vec![segment.surplus.clone()];
        statements.extend(search);
        for (rank, entry) in ranked.iter().enumerate() {
            let target = first.add(&Index::from(rank));
            let stores = self.store_ranked(&mut scope, row, &target, entry, Some(INITIAL_RUN))?;
            statements.extend(bounds_guard(&mut scope, &target, &self.size, stores.into()));
        }
        let mut lowered = LoweredKernel::new(scope, TEMPLATE, statements, &segment.count);
        lowered.title = Some("sort_runs");
        Ok(lowered)
    }

    /// Finds the top `k` of `length` elements of a row from `first` on. Returns the statements and the found elements
    /// by rank.
    fn keep_best(
        &self,
        scope: &mut KernelScope,
        row: &[Index],
        first: &Index,
        length: &Dim,
        k: usize,
    ) -> Result<(Vec<Statement>, Vec<RankedElement>)> {
        let ty = match scope.compute_type(scope.graph.ty(self.x).dtype) {
            WgslType::F32 => WgslType::I32,
            ty => ty,
        };
        let ranked: Vec<RankedElement> = (0..k).map(|i| RankedElement::new(scope, i, ty)).collect();
        let mut statements = Vec::new();
        for entry in &ranked {
            statements.extend(entry.declare(scope));
        }
        statements.extend(repeat(scope, "k", length, |scope, step| {
            let along = first.add(&step);
            let candidate = self.candidate(scope, row, [&step, &along], &ranked)?;
            let insertion = candidate.insert(scope, &ranked);
            Ok(bounds_guard(scope, &along, &self.size, insertion))
        })?);
        let indices = ranked.iter().map(|entry| Statement::Freeze(entry.index));
        statements.extend(indices);
        Ok((statements, ranked))
    }

    /// Sort key of an element. Single precision maps to integers, which need a single comparison.
    fn sort_key(&self, scope: &mut KernelScope, element: Expr) -> Expr {
        let key = match scope.pool.ty(element) {
            WgslType::F32 => scope.pool.call("order_of(x)", WgslType::I32, &[element]),
            _ => element,
        };
        scope.pool.set_label(key, "key");
        key
    }

    /// The element at coordinate `along` of a row, compared with the best elements so far. `step` is the number of
    /// elements before it.
    fn candidate(
        &self,
        scope: &mut KernelScope,
        row: &[Index],
        [step, along]: [&Index; 2],
        ranked: &[RankedElement],
    ) -> Result<Candidate> {
        let guard = (!along.is_less_than(&self.size)).then(|| scope.is_below(along, &self.size));
        let element = scope.element(self.x, &self.rows.at(row, along), guard)?;
        let key = self.sort_key(scope, element);
        let [step, index] = [step, along].map(|index| index.emit(&mut scope.pool));
        let mut comes_before = Vec::new();
        for (rank, entry) in (0..).zip(ranked) {
            let is_before = self.is_before(scope, key, entry.key);
            let pool = &mut scope.pool;
            let number = pool.index(rank);
            let is_free = pool.call("x <= y", WgslType::Bool, &[step, number]);
            let before = pool.call("x | y", WgslType::Bool, &[is_before, is_free]);
            pool.set_label(before, &format!("is_before{rank}"));
            comes_before.push(before);
        }
        Ok(Candidate {
            key,
            index,
            comes_before,
        })
    }

    /// Writes the element of a rank and its index.
    fn store_ranked(
        &self,
        scope: &mut KernelScope,
        row: &[Index],
        target: &Index,
        entry: &RankedElement,
        run: Option<usize>,
    ) -> Result<[Statement; 2]> {
        let position = self.rows.at(row, &Index::expr(entry.index, &self.size));
        let element = scope.element(self.x, &position, None)?;
        let number = scalar::size_as(&mut scope.pool, entry.index, DType::I64, scope.capabilities);
        self.store(scope, &self.rows.at(row, target), run, [element, number])
    }
}

impl RankedElement {
    fn new(scope: &mut KernelScope, rank: usize, key: WgslType) -> RankedElement {
        RankedElement {
            key: scope.pool.variable(&format!("key{rank}"), key),
            index: scope.pool.variable(&format!("index{rank}"), WgslType::U32),
        }
    }

    fn declare(&self, scope: &mut KernelScope) -> [Statement; 2] {
        let pool = &mut scope.pool;
        let initial_key = match pool.ty(self.key) {
            WgslType::Bool => pool.literal(WgslType::Bool, Literal::Bool(false)),
            ty @ (WgslType::F32 | WgslType::F64) => pool.literal(ty, 0.0),
            ty => pool.literal(ty, Literal::Integer(0)),
        };
        let zero = pool.index(0);
        [
            Statement::Declare(self.key, initial_key),
            Statement::Declare(self.index, zero),
        ]
    }
}

impl Candidate {
    /// Inserts the element at the first rank that it precedes. The elements from there on move by one rank.
    fn insert(&self, scope: &mut KernelScope, ranked: &[RankedElement]) -> Vec<Statement> {
        let pool = &mut scope.pool;
        let comparisons = self.comes_before.iter();
        let mut statements: Vec<Statement> = comparisons
            .map(|comparison| Statement::Let(*comparison))
            .collect();
        for (rank, entry) in ranked.iter().enumerate().rev() {
            let (mut key, mut index) = (self.key, self.index);
            if let Some(previous) = rank.checked_sub(1) {
                let moves = self.comes_before[previous];
                key = pool.select(moves, ranked[previous].key, key);
                index = pool.select(moves, ranked[previous].index, index);
            }
            let takes = self.comes_before[rank];
            key = pool.select(takes, key, entry.key);
            index = pool.select(takes, index, entry.index);
            statements.push(Statement::Assign(entry.key, key));
            statements.push(Statement::Assign(entry.index, index));
        }
        statements
    }
}
