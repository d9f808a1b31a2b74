//! Epilogue loop: writes the results that an invocation holds in variables. With a long epilogue a loop writes them, so
//! that the source contains the epilogue only for a few of them.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::emit::{Statement, roots};
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::KernelScope;
use crate::plan::kernel::{bounds_guard, repeat};

/// Most simple operations per iteration. With more, the driver's compile time outweighs the savings of a run.
const MAX_ITERATION_COST: usize = 64;
/// Fewest results per iteration. With fewer, moving the remaining variables costs too much.
const MIN_RESULTS: usize = 4;

/// Emits the statements that write a line of results, given its number and its variables.
type WriteLine<'w> = &'w mut dyn FnMut(&mut KernelScope, &Index, &[Expr]) -> Result<Vec<Statement>>;

/// Method of writing the results of a line.
#[derive(Clone, Copy)]
pub enum LineEpilogue {
    /// All at once.
    Unrolled,
    /// By a separate loop.
    Looped,
}

/// Writes lines of variables. A cheap epilogue is emitted for all lines at once. For an expensive one a loop writes the
/// first lines in each iteration and then moves the remaining variables up: drivers have no better way to index registers.
pub fn write_lines(
    scope: &mut KernelScope,
    lines: LineEpilogue,
    cost: u32,
    results: &[Vec<Expr>],
    write: WriteLine,
) -> Result<Vec<Statement>> {
    let max_results = (MAX_ITERATION_COST / cost.max(1) as usize).max(MIN_RESULTS);
    let width = results.first().map_or(1, Vec::len).max(1);
    let iterations = results.len().div_ceil((max_results / width).max(1)).max(1);
    let count = results.len().div_ceil(iterations);
    let name = match lines {
        LineEpilogue::Unrolled => "turn",
        LineEpilogue::Looped => "line",
    };
    repeat(scope, name, &Dim::from(iterations), |scope, turn| {
        let first = turn.scale(&Dim::from(count));
        let written = write_iteration(scope, &results[..count], &first, results.len(), write)?;
        let variables = results[..count].iter().flatten().copied();
        let mut statements: Vec<Statement> = match lines {
            LineEpilogue::Unrolled => variables.map(Statement::Freeze).collect(),
            // The inner loop moves these variables.
            LineEpilogue::Looped => Vec::new(),
        };
        statements.extend(written);
        if iterations > 1 {
            statements.extend(move_up(results, count));
        }
        Ok(statements)
    })
}

/// Writes the lines of an iteration that exist.
fn write_iteration(
    scope: &mut KernelScope,
    results: &[Vec<Expr>],
    first: &Index,
    count: usize,
    write: WriteLine,
) -> Result<Vec<Statement>> {
    let mut lines = Vec::new();
    for (i, results) in results.iter().enumerate() {
        let number = first.add_size(&Dim::from(i));
        let line = write(scope, &number, results)?;
        lines.push(bounds_guard(scope, &number, &Dim::from(count), line));
    }
    let shared = shared_expressions(&scope.pool, &lines)
        .into_iter()
        .map(Statement::Let);
    Ok(shared.chain(lines.into_iter().flatten()).collect())
}

/// Moves all lines up by `by`.
fn move_up(held: &[Vec<Expr>], by: usize) -> impl Iterator<Item = Statement> + '_ {
    let lines = held.iter().zip(&held[by..]);
    let variables = lines.flat_map(|(to, from)| to.iter().zip(from));
    variables.map(|(to, from)| Statement::Assign(*to, *from))
}

/// Loads and indices that all lines of an iteration share: they are computed once before the lines.
fn shared_expressions(pool: &ExprPool, lines: &[Vec<Statement>]) -> Vec<Expr> {
    let [first, second, ..] = lines else {
        return Vec::new();
    };
    let (first, second) = (expressions(pool, first), expressions(pool, second));
    let is_common = |expr: &&Expr| first.contains(*expr) && second.contains(*expr);
    let own = first.union(&second).filter(|expr| !is_common(expr));
    let read: BTreeSet<Expr> = own.flat_map(|expr| pool.operands(*expr)).copied().collect();
    let is_worth_it = |expr: &&Expr| match pool.node(**expr) {
        ExprNode::Load { .. } | ExprNode::TextureLoad { .. } => true,
        ExprNode::Call { .. } => pool.ty(**expr) == WgslType::U32 && read.contains(*expr),
        _ => false,
    };
    let common = first.iter().filter(is_common).filter(is_worth_it);
    common.copied().collect()
}

/// All expressions that statements use.
fn expressions(pool: &ExprPool, statements: &[Statement]) -> BTreeSet<Expr> {
    let (mut open, mut seen) = (roots(statements), BTreeSet::new());
    while let Some(expr) = open.pop() {
        if seen.insert(expr) {
            open.extend(pool.operands(expr));
        }
    }
    seen
}
