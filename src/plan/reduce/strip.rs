//! Reductions by single invocations, each of which computes one result or several adjacent columns.

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::kernel::index::Index;
use crate::op::ReduceFunction;
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, vec8};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, epilogue, invocation, repeat_all};
use crate::plan::reduce::accumulator::{self, Accumulator};
use crate::plan::reduce::{
    PARTIAL_SUM_LENGTH, ReductionAxes, accumulator_name, by_invocations, repeat_in_chunks,
};

/// Lowers a reduction with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    function: ReduceFunction,
    reduction: &ReductionAxes,
) -> Result<LoweredKernel<'a>> {
    let width = results_per_invocation(scope.capabilities, reduction);
    let count = Dim::product(&reduction.kept).floor_div(&Dim::from(width));
    let (index, surplus) = invocation(&mut scope, &count);
    let positions = vec8::element_positions(&index, width).into_iter();
    let positions = positions.map(|position| {
        let coordinates = position.coordinates(&reduction.kept);
        Position::from_both(position.linear_index(&reduction.kept), coordinates)
    });
    let positions: Vec<Position> = positions.collect();
    let innermost = reduction.reduced.last().and_then(|size| size.as_const());
    let is_long = innermost.is_none_or(|size| size > PARTIAL_SUM_LENGTH);
    let uses_partial_sums =
        function == ReduceFunction::Sum && reduction.dtype.is_float() && is_long;
    let mut accumulators = Vec::new();
    for number in 0..width {
        let variable_name = |name: &str| match width {
            1 => name.to_string(),
            _ => format!("{name}{number}"),
        };
        let (total, partial_sum) = (
            variable_name(accumulator_name(function)),
            uses_partial_sums.then(|| variable_name("part")),
        );
        let accumulator = Accumulator::new(
            &mut scope,
            function,
            reduction.dtype,
            &total,
            partial_sum.as_deref(),
        )?;
        accumulators.push(accumulator);
    }
    let mut statements = vec![surplus];
    statements.extend(accumulators.iter().map(Accumulator::declare));
    let results = AdjacentResults {
        reduction,
        positions,
        accumulators,
        uses_partial_sums,
    };
    statements.extend(results.accumulate_all(&mut scope)?);
    statements.extend(results.write(&mut scope, group)?);
    Ok(by_invocations(scope, statements, &count))
}

/// The results of one invocation.
struct AdjacentResults<'p> {
    reduction: &'p ReductionAxes,
    /// Positions of the results.
    positions: Vec<Position>,
    /// Accumulators of the results.
    accumulators: Vec<Accumulator>,
    /// True for sums that add partial sums.
    uses_partial_sums: bool,
}

impl AdjacentResults<'_> {
    /// Accumulates all elements.
    fn accumulate_all(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let reduced = self.reduction.reduced.as_slice();
        let (outer, inner) = match reduced.split_last() {
            Some((inner, outer)) if self.uses_partial_sums => (outer, Some(inner)),
            _ => (reduced, None),
        };
        repeat_all(scope, "k", outer, |scope, mut reduced| {
            let Some(inner) = inner else {
                return self.accumulate(scope, &reduced);
            };
            let (variable, number) = scope.counter("j", inner);
            reduced.push(number);
            let body = self.accumulate(scope, &reduced)?;
            let [mut before, after] =
                accumulator::piece_statements(scope, self.accumulators.iter());
            Ok(repeat_in_chunks(
                scope,
                inner,
                PARTIAL_SUM_LENGTH,
                variable,
                |chunk_loop| {
                    before.push(chunk_loop(body));
                    before.extend(after);
                    before
                },
            ))
        })
    }

    /// Accumulates one element of each result.
    fn accumulate(&self, scope: &mut KernelScope, reduced: &[Index]) -> Result<Vec<Statement>> {
        scope.with_vector_width(self.positions.len(), |scope| {
            let pairs = self.positions.iter().zip(&self.accumulators);
            pairs
                .map(|(result, accumulator)| {
                    let position = self
                        .reduction
                        .operand_position(&result.coordinates(&self.reduction.kept), reduced);
                    let element = scope.element(self.reduction.operand, &position, None)?;
                    Ok(accumulator.accumulate(scope, vec![element]))
                })
                .collect()
        })
    }

    /// Writes the results.
    fn write(&self, scope: &mut KernelScope, group: &Group) -> Result<Vec<Statement>> {
        let totals = self
            .accumulators
            .iter()
            .map(|accumulator| accumulator.total);
        let mut statements: Vec<Statement> = totals.map(Statement::Freeze).collect();
        scope.inline_values(&group.other_outputs);
        for output in group.outputs() {
            let results = self.positions.iter().zip(&self.accumulators);
            let element = |(position, accumulator): (&Position, &Accumulator)| {
                let total = accumulator.total;
                epilogue(scope, output, self.reduction.result, total, position)
            };
            let elements: Vec<(Expr, Position)> = results.map(element).collect::<Result<_>>()?;
            statements.extend(vec8::store_all(scope, output, &elements)?);
        }
        Ok(statements)
    }
}

/// Number of adjacent results that an invocation computes: as many columns as a rasteriser loads at once.
fn results_per_invocation(capabilities: &Capabilities, reduction: &ReductionAxes) -> usize {
    let rank = reduction.kept.len() + reduction.reduced.len();
    match reduction.kept.last() {
        Some(size) if capabilities.software && !reduction.axes.contains(&(rank - 1)) => {
            vec8::vector_width(capabilities, size)
        }
        _ => 1,
    }
}
