//! Cost model of merged kernels: the cycles to compile a kernel, and those that a run takes longer with sizes in place
//! of numbers.

use std::collections::{HashMap, HashSet};

use crate::kernel::emit::{Statement, roots};
use crate::kernel::expr::{Expr, ExprNode, Literal};
use crate::plan::kernel::{INVOCATIONS, KernelSource};
use crate::plan::lanes;

// Cycles that a driver takes to compile a kernel, and for each of its expressions.
const COMPILE_KERNEL_CYCLES: u64 = 43_000_000;
const COMPILE_EXPRESSION_CYCLES: u64 = 600_000;

// Additional cycles for all lanes of a vector to load a size, and to divide by a size. Division by a number is a
// multiplication.
const LOAD_SIZE_CYCLES: u64 = 20;
const DIVIDE_BY_SIZE_CYCLES: u64 = 150;

/// Assumed iterations of a loop whose length is unknown.
const DEFAULT_ITERATIONS: u64 = 64;

/// Cost of a kernel.
pub(super) struct KernelCost<'a> {
    source: &'a KernelSource,
    /// Sizes that replace numbers, with these numbers.
    constants: HashMap<Expr, i64>,
    /// How often each visited expression and each variable is evaluated.
    evaluations: HashMap<Expr, u64>,
    /// Expressions whose cost is counted.
    visited: HashSet<Expr>,
    /// Additional cycles of a run, per vector of lanes.
    pub(super) run_cycles: u64,
}

impl<'a> KernelCost<'a> {
    /// Computes the cost of a kernel in which sizes replace these numbers.
    pub(super) fn new(source: &'a KernelSource, constants: HashMap<Expr, i64>) -> KernelCost<'a> {
        let mut cost = KernelCost {
            source,
            run_cycles: LOAD_SIZE_CYCLES * constants.len() as u64,
            constants,
            evaluations: HashMap::new(),
            visited: HashSet::new(),
        };
        cost.visit_statements(&source.statements, 1);
        cost
    }

    /// Returns the cycles that a driver takes to compile the kernel.
    pub(super) fn compile_cycles(&self) -> u64 {
        COMPILE_KERNEL_CYCLES + COMPILE_EXPRESSION_CYCLES * self.visited.len() as u64
    }

    /// Adds the cost of statements that run `times` times.
    fn visit_statements(&mut self, statements: &[Statement], times: u64) {
        for statement in statements {
            match statement {
                Statement::Loop {
                    variable, to, body, ..
                } => {
                    let times = times * self.iterations(*to);
                    self.evaluations.insert(*variable, times);
                    self.record_carried(body, times);
                    self.visit_statements(body, times);
                }
                other => {
                    for block in other.blocks() {
                        self.visit_statements(block, times);
                    }
                }
            }
        }
        for root in roots(statements) {
            self.visit_expr(root);
        }
    }

    /// Records the variables that change in each iteration.
    fn record_carried(&mut self, body: &[Statement], times: u64) {
        for statement in body {
            if let Statement::Assign(variable, _) = statement {
                self.evaluations.insert(*variable, times);
            }
        }
    }

    /// Returns the iterations of a loop.
    fn iterations(&self, end: Expr) -> u64 {
        let number = match self.source.pool.node(end) {
            ExprNode::Literal(Literal::Integer(end)) => Some(*end),
            _ => self.constants.get(&end).copied(),
        };
        number.map_or(DEFAULT_ITERATIONS, i64::unsigned_abs)
    }

    /// Adds the cost of an expression, and returns how often it is evaluated.
    fn visit_expr(&mut self, expr: Expr) -> u64 {
        let mut times = self.evaluations.get(&expr).copied().unwrap_or(1);
        if self.visited.insert(expr) {
            for operand in self.source.pool.operands(expr) {
                times = times.max(self.visit_expr(*operand));
            }
            self.evaluations.insert(expr, times);
            self.run_cycles += times * self.extra_cycles(expr);
        }
        times
    }

    /// Returns the additional cycles of one evaluation of an expression.
    fn extra_cycles(&self, expr: Expr) -> u64 {
        let pool = &self.source.pool;
        let ExprNode::Call { template, operands } = pool.node(expr) else {
            return 0;
        };
        let divides = matches!(template.as_ref(), "x / y" | "x % y");
        match operands
            .iter()
            .rposition(|operand| self.constants.contains_key(operand))
        {
            Some(1) if divides => DIVIDE_BY_SIZE_CYCLES,
            Some(_) => LOAD_SIZE_CYCLES,
            None => 0,
        }
    }
}

/// Returns the vectors of lanes in a workgroup of a kernel.
pub(super) fn vectors_per_workgroup(source: &KernelSource, lanes: usize) -> u64 {
    let is_one_subgroup = source
        .template_values
        .contains(&lanes::workgroup_size(lanes));
    match is_one_subgroup {
        true => 1,
        false => INVOCATIONS as u64 / lanes as u64,
    }
}
