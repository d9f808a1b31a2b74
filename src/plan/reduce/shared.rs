//! Reductions with few results of many elements each: the invocations of a subgroup or workgroup share the elements of a
//! result.

use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::WgslType;
use crate::kernel::index::{self, Index};
use crate::op::ReduceFunction;
use crate::plan::element::KernelScope;
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, repeat};
use crate::plan::reduce::accumulator::{self, Accumulator};
use crate::plan::reduce::rows::lower_subgroups;
use crate::plan::reduce::{
    PARTIAL_SUM_LENGTH, ReductionAxes, ReductionOutput, WORKGROUP_INVOCATIONS, WORKGROUP_TEMPLATE,
    accumulator_name, combine_workgroup, repeat_in_chunks,
};

/// Lowers a reduction with its epilogue. On a device whose subgroups are vector lanes a subgroup computes a result, since
/// barriers between subgroups are slow there; on others a workgroup does.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    function: ReduceFunction,
    reduction: &ReductionAxes,
) -> Result<LoweredKernel<'a>> {
    let register = scope.compute_type(reduction.dtype);
    let lanes = scope.capabilities.simd_lanes();
    let lanes = lanes.filter(|_| matches!(register, WgslType::F32 | WgslType::I32));
    let invocations = lanes.map_or(WORKGROUP_INVOCATIONS, |lanes| lanes as i64);
    let name = if lanes.is_some() { "lane" } else { "local" };
    let (output, surplus) = reduction.output(&mut scope);
    let (local, number) = scope.counter(name, &Dim::from(invocations));
    let share = Share {
        reduction,
        output,
        invocations,
        number,
    };
    let uses_partial_sums = function == ReduceFunction::Sum
        && reduction.dtype.is_float()
        && (share.rounds().as_const()).is_none_or(|rounds| rounds > PARTIAL_SUM_LENGTH);
    let total = accumulator_name(function);
    let partial_sum = uses_partial_sums.then_some("part");
    let accumulator = Accumulator::new(&mut scope, function, reduction.dtype, total, partial_sum)?;
    let mut statements = vec![surplus, accumulator.declare()];
    statements.extend(share.accumulate(&mut scope, &accumulator, uses_partial_sums)?);
    let result = match lanes {
        Some(lanes) => {
            statements.extend(accumulator.combine_subgroup(&mut scope, lanes));
            accumulator.total
        }
        None => {
            let (tree, result) =
                combine_workgroup(&mut scope, function, accumulator.total, "shares");
            statements.extend(tree);
            result
        }
    };
    statements.push(Statement::Freeze(result));
    let writes = share.output.store(&mut scope, group, reduction, result)?;
    let zero = scope.pool.index(0);
    let is_first = scope.pool.call("x == y", WgslType::Bool, &[local, zero]);
    statements.push(Statement::If(is_first, writes));
    let count = share.output.count;
    if let Some(lanes) = lanes {
        return Ok(lower_subgroups(scope, statements, &count, lanes));
    }
    let memory = format!(
        "var<workgroup> shares: array<{}, {WORKGROUP_INVOCATIONS}>;\n",
        scope.pool.ty(accumulator.total).wgsl()
    );
    let mut lowered = LoweredKernel::of_workgroups(scope, WORKGROUP_TEMPLATE, statements, count);
    lowered.template_values.push(("memory", memory));
    Ok(lowered)
}

/// The part of a result's elements that one invocation accumulates.
struct Share<'p> {
    reduction: &'p ReductionAxes,
    output: ReductionOutput,
    /// Invocations that share the elements.
    invocations: i64,
    /// Number of the invocation among them.
    number: Index,
}

impl Share<'_> {
    /// Number of elements of an invocation, at most.
    fn rounds(&self) -> Dim {
        let elements = Dim::product(&self.reduction.reduced);
        elements.ceil_div(&Dim::from(self.invocations))
    }

    fn accumulate(
        &self,
        scope: &mut KernelScope,
        accumulator: &Accumulator,
        uses_partial_sums: bool,
    ) -> Result<Vec<Statement>> {
        let rounds = self.rounds();
        if !uses_partial_sums {
            return repeat(scope, "trip", &rounds, |scope, round| {
                self.accumulate_one(scope, accumulator, &round)
            });
        }
        let (variable, round) = scope.counter("trip", &rounds);
        let body = self.accumulate_one(scope, accumulator, &round)?;
        let [mut before, after] = accumulator::piece_statements(scope, [accumulator].into_iter());
        let chunk = PARTIAL_SUM_LENGTH;
        Ok(repeat_in_chunks(
            scope,
            &rounds,
            chunk,
            variable,
            |chunk_loop| {
                before.push(chunk_loop(body));
                before.extend(after);
                before
            },
        ))
    }

    /// Accumulates one element of a round, if there is one for this invocation.
    fn accumulate_one(
        &self,
        scope: &mut KernelScope,
        accumulator: &Accumulator,
        round: &Index,
    ) -> Result<Vec<Statement>> {
        let element_count = Dim::product(&self.reduction.reduced);
        let number = round.scale(&Dim::from(self.invocations)).add(&self.number);
        let number = number.emit(&mut scope.pool);
        scope.pool.set_label(number, "k");
        let element_index = Index::expr(number, &element_count);
        let reduced = index::delinearize(&element_index, &self.reduction.reduced);
        let position = self.reduction.operand_position(&self.output.kept, &reduced);
        let element = scope.element(self.reduction.operand, &position, None)?;
        let accumulate = accumulator.accumulate(scope, vec![element]);
        if element_count
            .as_const()
            .is_some_and(|count| count % self.invocations == 0)
        {
            return Ok(vec![accumulate]);
        }
        let end = scope.pool.size(&element_count);
        let inside = scope.pool.call("x < y", WgslType::Bool, &[number, end]);
        Ok(vec![Statement::If(inside, vec![accumulate])])
    }
}
