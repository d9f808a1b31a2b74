//! Epilogue loop: writes the results that an invocation holds in variables. With a long epilogue a loop writes them, so
//! that the source contains the epilogue only for a few of them.
//!
//! Results are grouped in lines of equal length: the results of a row, or those of a vec4 of columns. An iteration
//! writes a number of lines.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::emit::{Statement, roots};
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::KernelScope;
use crate::plan::kernel::{bounds_guard, repeat};

/// Most simple operations of epilogues per iteration. With more, the driver's compile time outweighs the savings of a
/// run.
const MAX_ITERATION_COST: usize = 64;
/// Fewest results per iteration. With fewer, moving the remaining variables costs too much.
const MIN_RESULTS: usize = 4;

/// Emits the statements that write a line of results, given its index and its variables.
type WriteLine<'w> = &'w mut dyn FnMut(&mut KernelScope, &Index, &[Expr]) -> Result<Vec<Statement>>;

/// Describes how the function that [`write_lines`] calls writes the results of a line.
#[derive(Clone, Copy)]
pub enum LineEpilogue {
    /// All at once.
    Unrolled,
    /// By a separate loop.
    Looped,
}

/// Writes lines of variables. `cost` is the cost of the epilogue per variable, in simple operations. A cheap epilogue
/// is emitted for all lines at once. For an expensive one a loop writes the first lines in each iteration and then
/// moves the remaining variables up: drivers have no better way to index registers.
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
    repeat(scope, name, &Dim::from(iterations), |scope, iteration| {
        let first = iteration.scale(&Dim::from(count));
        let writes = write_iteration(scope, &results[..count], &first, results.len(), write)?;
        let variables = results[..count].iter().flatten().copied();
        let mut statements: Vec<Statement> = match lines {
            LineEpilogue::Unrolled => variables.map(Statement::Freeze).collect(),
            // The inner loop moves these variables.
            LineEpilogue::Looped => Vec::new(),
        };
        statements.extend(writes);
        if iterations > 1 {
            statements.extend(move_up(results, count));
        }
        Ok(statements)
    })
}

/// Writes the lines of an iteration. `results` are their variables, and `first` is the index of the first one. The last
/// iteration leaves out lines beyond `count`, the number of all lines.
fn write_iteration(
    scope: &mut KernelScope,
    results: &[Vec<Expr>],
    first: &Index,
    count: usize,
    write: WriteLine,
) -> Result<Vec<Statement>> {
    let mut lines = Vec::new();
    for (i, results) in results.iter().enumerate() {
        let index = first.add_size(&Dim::from(i));
        let line = write(scope, &index, results)?;
        lines.push(bounds_guard(scope, &index, &Dim::from(count), line));
    }
    let shared_lets = shared_expressions(&scope.pool, &lines)
        .into_iter()
        .map(Statement::Let);
    Ok(shared_lets.chain(lines.into_iter().flatten()).collect())
}

/// Assigns each line the variables of the line that follows `count` lines later.
fn move_up(results: &[Vec<Expr>], count: usize) -> impl Iterator<Item = Statement> + '_ {
    let lines = results.iter().zip(&results[count..]);
    let pairs = lines.flat_map(|(to, from)| to.iter().zip(from));
    pairs.map(|(to, from)| Statement::Assign(*to, *from))
}

/// Loads and indices that all lines of an iteration share: they are computed once before the lines. The first two lines
/// show which expressions are common.
fn shared_expressions(pool: &ExprPool, lines: &[Vec<Statement>]) -> Vec<Expr> {
    let [first, second, ..] = lines else {
        return Vec::new();
    };
    let (first, second) = (expressions(pool, first), expressions(pool, second));
    let is_common = |expr: &&Expr| first.contains(*expr) && second.contains(*expr);
    let differing = first.union(&second).filter(|expr| !is_common(expr));
    let operands: BTreeSet<Expr> = differing
        .flat_map(|expr| pool.operands(*expr))
        .copied()
        .collect();
    let is_worth_sharing = |expr: &&Expr| match pool.node(**expr) {
        ExprNode::Load { .. } | ExprNode::TextureLoad { .. } => true,
        ExprNode::Call { .. } => pool.ty(**expr) == WgslType::U32 && operands.contains(*expr),
        _ => false,
    };
    let common = first.iter().filter(is_common).filter(is_worth_sharing);
    common.copied().collect()
}

/// All expressions that statements use.
fn expressions(pool: &ExprPool, statements: &[Statement]) -> BTreeSet<Expr> {
    let (mut worklist, mut visited) = (roots(statements), BTreeSet::new());
    while let Some(expr) = worklist.pop() {
        if visited.insert(expr) {
            worklist.extend(pool.operands(expr));
        }
    }
    visited
}
