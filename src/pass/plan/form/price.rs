//! What it costs to compile a kernel, and to run it with sizes where numbers stood.

use std::collections::{HashMap, HashSet};

use crate::kernel::emit::{Statement, roots};
use crate::kernel::expr::{Expr, Literal, Node};
use crate::pass::plan::kernel::{INVOCATIONS, Source};
use crate::pass::plan::lanes;

// Cycles that a driver takes for a kernel, and for each of its expressions.
const KERNEL: u64 = 43_000_000;
const EXPRESSION: u64 = 600_000;

// Cycles that the lanes of a vector take together to read a size once more, and to divide by it instead of by a number, which
// is a multiplication.
const READ: u64 = 20;
const DIVIDE: u64 = 150;

/// Rounds of a loop of which nothing is known.
const ROUNDS: u64 = 64;

/// What a kernel costs.
pub(super) struct Price<'a> {
    source: &'a Source,
    /// Sizes that were numbers, and these.
    numbers: HashMap<Expr, i64>,
    /// How often what depends on a variable is computed.
    rounds: HashMap<Expr, u64>,
    seen: HashSet<Expr>,
    /// Cycles of the lanes of a vector.
    pub(super) run: u64,
}

impl<'a> Price<'a> {
    /// Of a kernel some of whose sizes were numbers.
    pub(super) fn new(source: &'a Source, numbers: HashMap<Expr, i64>) -> Price<'a> {
        let mut price = Price {
            source,
            run: READ * numbers.len() as u64,
            numbers,
            rounds: HashMap::new(),
            seen: HashSet::new(),
        };
        price.statements(&source.statements, 1);
        price
    }

    /// Cycles that a driver takes to compile it.
    pub(super) fn compiled(&self) -> u64 {
        KERNEL + EXPRESSION * self.seen.len() as u64
    }

    fn statements(&mut self, statements: &[Statement], times: u64) {
        for statement in statements {
            match statement {
                Statement::Loop {
                    variable, to, body, ..
                } => {
                    let times = times * self.length(*to);
                    self.rounds.insert(*variable, times);
                    self.carried(body, times);
                    self.statements(body, times);
                }
                other => {
                    for block in other.blocks() {
                        self.statements(block, times);
                    }
                }
            }
        }
        for root in roots(statements) {
            self.expr(root);
        }
    }

    /// Variables that change in each round.
    fn carried(&mut self, body: &[Statement], times: u64) {
        for statement in body {
            if let Statement::Assign(variable, _) = statement {
                self.rounds.insert(*variable, times);
            }
        }
    }

    /// Rounds of a loop.
    fn length(&self, end: Expr) -> u64 {
        let number = match self.source.pool.node(end) {
            Node::Literal(Literal::Integer(end)) => Some(*end),
            _ => self.numbers.get(&end).copied(),
        };
        number.map_or(ROUNDS, i64::unsigned_abs)
    }

    /// Adds what an expression costs; how often it is computed.
    fn expr(&mut self, expr: Expr) -> u64 {
        let mut times = self.rounds.get(&expr).copied().unwrap_or(1);
        if self.seen.insert(expr) {
            for operand in self.source.pool.operands(expr) {
                times = times.max(self.expr(*operand));
            }
            self.rounds.insert(expr, times);
            self.run += times * self.more(expr);
        }
        times
    }

    /// Cycles that an expression takes more each time.
    fn more(&self, expr: Expr) -> u64 {
        let pool = &self.source.pool;
        let Node::Call { template, operands } = pool.node(expr) else {
            return 0;
        };
        let divides = matches!(template.as_ref(), "x / y" | "x % y");
        match operands
            .iter()
            .rposition(|operand| self.numbers.contains_key(operand))
        {
            Some(1) if divides => DIVIDE,
            Some(_) => READ,
            None => 0,
        }
    }
}

/// Vectors of lanes in a workgroup of a kernel.
pub(super) fn vectors(source: &Source, lanes: usize) -> u64 {
    let is_one = source.holes.contains(&lanes::size(lanes));
    match is_one {
        true => 1,
        false => INVOCATIONS as u64 / lanes as u64,
    }
}
