//! Results that an invocation holds in variables, written one after another: by a loop where their epilogue is long, so that
//! its text is there for a few of them only.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::emit::{Statement, roots};
use crate::kernel::expr::{Expr, Node, Pool, Type};
use crate::kernel::index::Index;
use crate::pass::plan::element::Scope;
use crate::pass::plan::kernel::{below, repeat};

/// Simple operations of a turn on an element of each result: with more the driver takes longer to compile than runs save.
const LONGEST: usize = 64;
/// Results of a turn at least: with fewer, what is held would move up more often than it is worth.
const FEWEST: usize = 4;

/// Statements that write a line of results by its number and its variables.
type Write<'w> = &'w mut dyn FnMut(&mut Scope, &Index, &[Expr]) -> Result<Vec<Statement>>;

/// How lines are written.
#[derive(Clone, Copy)]
pub enum Lines {
    /// Each at once.
    Short,
    /// Each in turns itself.
    Long,
}

/// Writes lines of variables, by what an epilogue costs for an element: all at once if that is little, else in turns, each of
/// which writes the first ones and moves the others up. Drivers have no better way to find registers by numbers.
pub fn in_turns(
    scope: &mut Scope,
    (lines, cost): (Lines, u32),
    held: &[Vec<Expr>],
    write: Write,
) -> Result<Vec<Statement>> {
    let results = (LONGEST / cost.max(1) as usize).max(FEWEST);
    let width = held.first().map_or(1, Vec::len).max(1);
    let turns = held.len().div_ceil((results / width).max(1)).max(1);
    let count = held.len().div_ceil(turns);
    let name = match lines {
        Lines::Short => "turn",
        Lines::Long => "line",
    };
    repeat(scope, name, &Dim::from(turns), |scope, turn| {
        let first = turn.scale(&Dim::from(count));
        let written = written(scope, &held[..count], &first, held.len(), write)?;
        let variables = held[..count].iter().flatten().copied();
        let mut statements: Vec<Statement> = match lines {
            Lines::Short => variables.map(Statement::Freeze).collect(),
            // Their own turns move them up.
            Lines::Long => Vec::new(),
        };
        statements.extend(written);
        if turns > 1 {
            statements.extend(moved(held, count));
        }
        Ok(statements)
    })
}

/// Writes the lines of a turn, as far as there are so many.
fn written(
    scope: &mut Scope,
    held: &[Vec<Expr>],
    first: &Index,
    count: usize,
    write: Write,
) -> Result<Vec<Statement>> {
    let mut lines = Vec::new();
    for (i, held) in held.iter().enumerate() {
        let number = first.add_size(&Dim::from(i));
        let line = write(scope, &number, held)?;
        lines.push(below(scope, &number, &Dim::from(count), line));
    }
    let shared = shared(&scope.pool, &lines).into_iter().map(Statement::Let);
    Ok(shared.chain(lines.into_iter().flatten()).collect())
}

/// Moves all lines up by some.
fn moved(held: &[Vec<Expr>], by: usize) -> impl Iterator<Item = Statement> + '_ {
    let lines = held.iter().zip(&held[by..]);
    let variables = lines.flat_map(|(to, from)| to.iter().zip(from));
    variables.map(|(to, from)| Statement::Assign(*to, *from))
}

/// What all lines read and where they read it or write to, as far as that is the same: computed once, in front of them.
fn shared(pool: &Pool, lines: &[Vec<Statement>]) -> Vec<Expr> {
    let [first, second, ..] = lines else {
        return Vec::new();
    };
    let (first, second) = (expressions(pool, first), expressions(pool, second));
    let is_common = |expr: &&Expr| first.contains(*expr) && second.contains(*expr);
    let own = first.union(&second).filter(|expr| !is_common(expr));
    let read: BTreeSet<Expr> = own.flat_map(|expr| pool.operands(*expr)).copied().collect();
    let is_worth_it = |expr: &&Expr| match pool.node(**expr) {
        Node::Load { .. } | Node::Texel { .. } => true,
        Node::Call { .. } => pool.ty(**expr) == Type::U32 && read.contains(*expr),
        _ => false,
    };
    let common = first.iter().filter(is_common).filter(is_worth_it);
    common.copied().collect()
}

/// All that statements are made of.
fn expressions(pool: &Pool, statements: &[Statement]) -> BTreeSet<Expr> {
    let (mut open, mut seen) = (roots(statements), BTreeSet::new());
    while let Some(expr) = open.pop() {
        if seen.insert(expr) {
            open.extend(pool.operands(expr));
        }
    }
    seen
}
