//! Reductions by single invocations, each of which computes one result or several adjacent columns.

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
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
    parts: &ReductionAxes,
) -> Result<LoweredKernel<'a>> {
    let across = results_per_invocation(scope.capabilities, parts);
    let count = Dim::product(&parts.kept).floor_div(&Dim::from(across));
    let (index, surplus) = invocation(&mut scope, &count);
    let places = vec8::element_positions(&index, across).into_iter();
    let places = places.map(|place| {
        let coordinates = place.coordinates(&parts.kept);
        Position::from_both(place.linear_index(&parts.kept), coordinates)
    });
    let places: Vec<Position> = places.collect();
    let innermost = parts.reduced.last().and_then(|size| size.as_const());
    let is_long = innermost.is_none_or(|size| size > PARTIAL_SUM_LENGTH);
    let in_parts = function == ReduceFunction::Sum && parts.dtype.is_float() && is_long;
    let mut running = Vec::new();
    for number in 0..across {
        let named = |name: &str| match across {
            1 => name.to_string(),
            _ => format!("{name}{number}"),
        };
        let (total, part) = (
            named(accumulator_name(function)),
            in_parts.then(|| named("part")),
        );
        let one = Accumulator::new(&mut scope, function, parts.dtype, &total, part.as_deref())?;
        running.push(one);
    }
    let mut statements = vec![surplus];
    statements.extend(running.iter().map(Accumulator::declare));
    let strip = AdjacentResults {
        parts,
        places,
        running,
        in_parts,
    };
    statements.extend(strip.accumulate_all(&mut scope)?);
    statements.extend(strip.write(&mut scope, group)?);
    Ok(by_invocations(scope, statements, &count))
}

/// The results of one invocation.
struct AdjacentResults<'p> {
    parts: &'p ReductionAxes,
    places: Vec<Position>,
    running: Vec<Accumulator>,
    in_parts: bool,
}

impl AdjacentResults<'_> {
    /// Accumulates all elements.
    fn accumulate_all(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let reduced = self.parts.reduced.as_slice();
        let (outer, inner) = match reduced.split_last() {
            Some((inner, outer)) if self.in_parts => (outer, Some(inner)),
            _ => (reduced, None),
        };
        repeat_all(scope, "k", outer, |scope, mut reduced| {
            let Some(inner) = inner else {
                return self.accumulate(scope, &reduced);
            };
            let (variable, number) = scope.counter("j", inner);
            reduced.push(number);
            let body = self.accumulate(scope, &reduced)?;
            let [mut before, after] = accumulator::piece_statements(scope, self.running.iter());
            Ok(repeat_in_chunks(
                scope,
                inner,
                PARTIAL_SUM_LENGTH,
                variable,
                |piece| {
                    before.push(piece(body));
                    before.extend(after);
                    before
                },
            ))
        })
    }

    /// Accumulates one element of each result.
    fn accumulate(&self, scope: &mut KernelScope, reduced: &[Index]) -> Result<Vec<Statement>> {
        scope.with_vector_width(self.places.len(), |scope| {
            let pairs = self.places.iter().zip(&self.running);
            pairs
                .map(|(place, one)| {
                    let position = self
                        .parts
                        .operand_position(&place.coordinates(&self.parts.kept), reduced);
                    let element = scope.element(self.parts.operand, &position, None)?;
                    Ok(one.accumulate(scope, vec![element]))
                })
                .collect()
        })
    }

    /// Writes the results.
    fn write(&self, scope: &mut KernelScope, group: &Group) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        let mut written = Vec::new();
        for (place, one) in self.places.iter().zip(&self.running) {
            statements.push(Statement::Freeze(one.total));
            written.push(epilogue(scope, group, self.parts.result, one.total, place)?);
        }
        statements.extend(vec8::store_all(scope, group.root, &written)?);
        Ok(statements)
    }
}

/// Number of adjacent results that an invocation computes: as many columns as a rasteriser loads at once.
fn results_per_invocation(capabilities: &Capabilities, parts: &ReductionAxes) -> usize {
    let rank = parts.kept.len() + parts.reduced.len();
    match parts.kept.last() {
        Some(size) if capabilities.software && !parts.axes.contains(&(rank - 1)) => {
            vec8::vector_width(capabilities, size)
        }
        _ => 1,
    }
}
