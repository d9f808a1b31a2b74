//! Accumulators of reductions.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::op::ReduceFunction;
use crate::plan::element::KernelScope;
use crate::plan::lanes;
use crate::plan::reduce::{combine, new_accumulator};

/// The accumulator of a result.
pub struct Accumulator {
    /// Function that combines elements.
    pub function: ReduceFunction,
    /// Variable that holds the result so far.
    pub total: Expr,
    /// Initial value.
    start: Expr,
    /// Variable for a partial sum, where a single sum of all elements would lose precision.
    partial_sum: Option<Expr>,
}

impl Accumulator {
    /// Creates an accumulator for elements of a dtype in a variable named `name`, and one for partial sums named
    /// `partial_sum`, if any.
    pub fn new(
        scope: &mut KernelScope,
        function: ReduceFunction,
        dtype: DType,
        name: &str,
        partial_sum: Option<&str>,
    ) -> Result<Accumulator> {
        let (total, start) = new_accumulator(scope, function, dtype, name)?;
        let ty = scope.pool.ty(total);
        let partial_sum = partial_sum.map(|name| scope.pool.variable(name, ty));
        Ok(Accumulator {
            function,
            total,
            start,
            partial_sum,
        })
    }

    /// Declares the accumulator with its initial value.
    pub fn declare(&self) -> Statement {
        Statement::Declare(self.total, self.start)
    }

    /// Accumulates elements. They are combined as a tree first, then added to the partial sum, if there is one.
    pub fn accumulate(&self, scope: &mut KernelScope, mut elements: Vec<Expr>) -> Statement {
        while elements.len() > 1 {
            elements = elements
                .chunks(2)
                .map(|pair| match pair {
                    [x, y] => combine(scope, self.function, *x, *y),
                    [x, ..] => *x,
                    [] => self.start,
                })
                .collect();
        }
        let target = self.partial_sum.unwrap_or(self.total);
        let sum = elements.into_iter().fold(target, |sum, element| {
            combine(scope, self.function, sum, element)
        });
        Statement::Assign(target, sum)
    }

    /// Combines the partial results of a subgroup's invocations. All of them get the result.
    pub fn combine_subgroup(&self, scope: &mut KernelScope, lanes: usize) -> Vec<Statement> {
        let ty = scope.pool.ty(self.total);
        let exchange = |step: usize| {
            let exchange = match ty {
                WgslType::Bool => format!("subgroupShuffleXor(u32(x), {step}u) != 0u"),
                _ => format!("subgroupShuffleXor(x, {step}u)"),
            };
            let other = scope.pool.call(exchange, ty, &[self.total]);
            Statement::Assign(self.total, self.combine_with(scope, other))
        };
        lanes::shuffle_distances(lanes).map(exchange).collect()
    }

    /// The accumulator combined with another partial result.
    pub fn combine_with(&self, scope: &mut KernelScope, other: Expr) -> Expr {
        combine(scope, self.function, self.total, other)
    }
}

/// Statements around a chunk of elements: those before it start the partial sums, those after it add the partial sums
/// to the totals. Both are empty if no accumulator has a partial sum.
pub fn piece_statements<'r>(
    scope: &mut KernelScope,
    accumulators: impl Iterator<Item = &'r Accumulator>,
) -> [Vec<Statement>; 2] {
    let [mut before, mut after] = [Vec::new(), Vec::new()];
    for accumulator in accumulators {
        let Some(partial_sum) = accumulator.partial_sum else {
            continue;
        };
        before.push(Statement::Declare(partial_sum, accumulator.start));
        let total = accumulator.combine_with(scope, partial_sum);
        after.push(Statement::Assign(accumulator.total, total));
    }
    [before, after]
}
