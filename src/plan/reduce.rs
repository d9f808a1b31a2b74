//! Reductions. An invocation computes one result or neighbouring results; a workgroup computes one result if there are
//! many elements and few results.

pub mod accumulator;
pub mod argument;
pub mod pooling;
pub mod rows;
mod shared;
pub mod strip;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Graph, Node, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Literal, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::{ArgReduce, ArgReduceFunction, BinaryFunction, Reduce, ReduceFunction};
use crate::plan::cost::example_size;
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, operand, scalar};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, ceil_div, invocation, repeat, store};
use crate::plan::lanes;
use crate::shape::Shape;

/// Template of reductions.
pub const TEMPLATE: &str = include_str!("../../shaders/reduce.wgsl");
/// Template of reductions by workgroups.
pub const WORKGROUP_TEMPLATE: &str = include_str!("../../shaders/reduce_workgroup.wgsl");
const ARGUMENT_TEMPLATE: &str = include_str!("../../shaders/arg_reduce.wgsl");

/// Invocations that share a reduction.
pub const WORKGROUP_INVOCATIONS: i64 = 64;
/// Fewest elements per result, and most results, of a reduction by workgroups.
const MIN_WORKGROUP_ELEMENTS: usize = 1024;
const MAX_WORKGROUP_RESULTS: usize = 256;
/// Largest number of elements that a sum adds directly. Longer sums add partial sums of this many elements, for
/// precision.
pub const PARTIAL_SUM_LENGTH: i64 = 128;

/// Lowers a reduction to the variant that fits its sizes.
pub fn lower<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    reduce: &Reduce,
) -> Result<LoweredKernel<'a>> {
    if !scope.layout(group.root).is_row_major() {
        return pooling::lower(scope, group, node, reduce);
    }
    let reduction = ReductionAxes::new(scope.graph, node, &reduce.axes)?;
    let size = |shape: &[Dim]| example_size(scope.graph, &Dim::product(shape));
    let (reduced, kept) = (size(&reduction.reduced), size(&reduction.kept));
    let has_few_results =
        kept <= MAX_WORKGROUP_RESULTS && !rows::keep_busy(scope.capabilities, kept, reduced);
    if reduced >= MIN_WORKGROUP_ELEMENTS && has_few_results {
        shared::lower(scope, group, reduce.function, &reduction)
    } else {
        strip::lower(scope, group, reduce.function, &reduction)
    }
}

/// Operand of a reduction, with its axes divided into reduced and kept ones.
pub struct ReductionAxes {
    /// The operand.
    pub operand: ValueId,
    /// The result of the reduction, before the epilogue.
    pub result: ValueId,
    /// Dtype of operand and result.
    pub dtype: DType,
    /// The reduced axes.
    pub axes: Vec<usize>,
    /// Number of axes of the operand.
    rank: usize,
    /// Sizes of the kept axes.
    pub kept: Shape,
    /// Sizes of the reduced axes.
    pub reduced: Shape,
}

impl ReductionAxes {
    /// Divides the axes of a node's operand.
    pub fn new(graph: &Graph, node: &Node, axes: &[usize]) -> Result<ReductionAxes> {
        let operand = operand(node, 0)?;
        let ty = graph.ty(operand);
        let result = node.results.first().copied().unwrap_or(operand);
        let is_reduced = |axis: &usize| axes.contains(axis);
        let pick = |wanted: bool| {
            let axes = (0..ty.rank()).filter(|axis| is_reduced(axis) == wanted);
            axes.map(|axis| ty.shape[axis].clone()).collect::<Shape>()
        };
        Ok(ReductionAxes {
            operand,
            result,
            dtype: ty.dtype,
            axes: axes.to_vec(),
            rank: ty.rank(),
            kept: pick(false),
            reduced: pick(true),
        })
    }

    /// Coordinates in the operand from those of the kept and of the reduced axes.
    pub fn operand_position(&self, kept: &[Index], reduced: &[Index]) -> Position {
        let (mut kept, mut reduced) = (kept.iter(), reduced.iter());
        let axes = (0..self.rank).map(|axis| {
            let source = if self.axes.contains(&axis) {
                reduced.next()
            } else {
                kept.next()
            };
            source.cloned().unwrap_or_else(Index::zero)
        });
        Position::from_coordinates(axes.collect())
    }

    /// The result that an invocation or workgroup computes, and a statement that ends surplus ones.
    pub fn output(&self, scope: &mut KernelScope) -> (ReductionOutput, Statement) {
        let count = Dim::product(&self.kept);
        let (index, surplus) = invocation(scope, &count);
        let kept = index::delinearize(&index, &self.kept);
        (ReductionOutput { count, index, kept }, surplus)
    }
}

/// One of `count` results: its index, and its coordinates along the kept axes.
pub struct ReductionOutput {
    /// Number of results.
    pub count: Dim,
    /// Linear index of the result.
    index: Index,
    /// Coordinates along the kept axes.
    pub kept: Vec<Index>,
}

impl ReductionOutput {
    /// Applies the epilogue to the result and stores what the group writes.
    pub fn store(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        reduction: &ReductionAxes,
        value: Expr,
    ) -> Result<Vec<Statement>> {
        let position = Position::from_both(self.index.clone(), self.kept.clone());
        store(scope, group, reduction.result, value, &position)
    }
}

/// Emits a loop over `0..size` as two nested loops, the inner one over a chunk of about `chunk_length` values of
/// `variable`. `around` builds the body of the outer loop; it receives a function that makes the inner loop from its
/// body.
pub fn repeat_in_chunks(
    scope: &mut KernelScope,
    size: &Dim,
    chunk_length: i64,
    variable: Expr,
    around: impl FnOnce(&dyn Fn(Vec<Statement>) -> Statement) -> Vec<Statement>,
) -> Vec<Statement> {
    let hint = size.eval(&scope.graph.hints).unwrap_or(chunk_length);
    // The chunks grow with the size so that neither loop exceeds the drivers' limits on iterations.
    let step = u32::try_from(chunk_length.max(hint / 16_384).max(1)).unwrap_or(u32::MAX);
    let pool = &mut scope.pool;
    let from = pool.variable("j_from", WgslType::U32);
    let (zero, chunk, end) = (pool.index(0), pool.index(step), pool.size(size));
    let to = pool.call("min(x + y, z)", WgslType::U32, &[from, chunk, end]);
    let inner = move |body: Vec<Statement>| Statement::Loop {
        variable,
        from,
        to,
        step: 1,
        body,
    };
    vec![Statement::Loop {
        variable: from,
        from: zero,
        to: end,
        step,
        body: around(&inner),
    }]
}

/// Combines the partial results `total` of a workgroup's invocations in a binary tree, in the workgroup array `shares`.
/// Returns the statements and the combined result.
pub fn combine_workgroup(
    scope: &mut KernelScope,
    function: ReduceFunction,
    total: Expr,
    shares: &str,
) -> (Vec<Statement>, Expr) {
    let ty = scope.pool.ty(total);
    let line = |text: &str| Statement::Line(text.to_string());
    let own = scope.pool.variable(&format!("{shares}[local]"), ty);
    let other = scope.pool.variable(&format!("{shares}[local + width]"), ty);
    let combined = combine(scope, function, own, other);
    let result = scope.pool.variable(&format!("{shares}[0]"), ty);
    let (local, width) = (
        scope.pool.variable("local", WgslType::U32),
        scope.pool.variable("width", WgslType::U32),
    );
    let is_active = scope.pool.call("x < y", WgslType::Bool, &[local, width]);
    let statements = vec![
        Statement::Assign(own, total),
        line("workgroupBarrier();"),
        Statement::Block(
            format!(
                "for (var width = {}u; width > 0u; width /= 2u)",
                WORKGROUP_INVOCATIONS / 2
            ),
            vec![
                Statement::If(is_active, vec![Statement::Assign(own, combined)]),
                line("workgroupBarrier();"),
            ],
        ),
    ];
    (statements, result)
}

/// A kernel of `count` invocations. If they would fill too few workgroups of the default size to use all cores of a
/// rasteriser, each workgroup is one subgroup.
pub fn by_invocations<'a>(
    scope: KernelScope<'a>,
    statements: Vec<Statement>,
    count: &Dim,
) -> LoweredKernel<'a> {
    let number = example_size(scope.graph, count);
    let is_few = |lanes: &usize| {
        number > 0 && lanes::subgroups_per_workgroup(*lanes, number.div_ceil(*lanes)) == 1
    };
    let Some(lanes) = scope.capabilities.simd_lanes().filter(is_few) else {
        return LoweredKernel::new(scope, TEMPLATE, statements, count);
    };
    let workgroups = ceil_div(count, lanes);
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, workgroups);
    lowered.has_uniform_index = false;
    lowered
        .template_values
        .extend([lanes::workgroup_size(lanes), lanes::invocation_index(lanes)]);
    lowered
}

/// Variable name of an accumulator.
pub fn accumulator_name(function: ReduceFunction) -> &'static str {
    match function {
        ReduceFunction::Sum => "sum",
        ReduceFunction::Prod => "product",
        ReduceFunction::Max => "largest",
        ReduceFunction::Min => "smallest",
    }
}

/// An accumulator and its initial value.
pub fn new_accumulator(
    scope: &mut KernelScope,
    function: ReduceFunction,
    dtype: DType,
    name: &str,
) -> Result<(Expr, Expr)> {
    let ty = scope.compute_type(dtype);
    let start = scalar::identity(&mut scope.pool, function, dtype, scope.capabilities)?;
    Ok((scope.pool.variable(name, ty), start))
}

/// Combines two partial results.
pub fn combine(scope: &mut KernelScope, function: ReduceFunction, x: Expr, y: Expr) -> Expr {
    // Narrow types are wrapped or rounded once, at the end.
    scalar::reduce_pair(&mut scope.pool, function, x, y, DType::F32)
}

/// Lowers an argmax or argmin.
pub fn lower_argument<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    reduce: &ArgReduce,
) -> Result<LoweredKernel<'a>> {
    let reduction = ReductionAxes::new(scope.graph, node, &[reduce.axis])?;
    if !scope.layout(group.root).is_row_major() {
        return argument::lower_images(scope, group, &reduction, reduce.function);
    }
    if argument::is_supported(&scope, &reduction) {
        return argument::lower(scope, group, &reduction, reduce.function);
    }
    let (output, surplus) = reduction.output(&mut scope);
    let first = scope.element(
        reduction.operand,
        &reduction.operand_position(&output.kept, &[Index::zero()]),
        None,
    )?;
    let best = scope.pool.variable("best", scope.pool.ty(first));
    let best_index = scope.pool.variable("best_index", WgslType::U32);
    let zero = scope.pool.literal(WgslType::U32, Literal::Integer(0));
    let mut statements = vec![
        surplus,
        Statement::Declare(best, first),
        Statement::Declare(best_index, zero),
    ];
    let size = reduction.reduced[0].clone();
    statements.extend(repeat(&mut scope, "k", &size, |scope, k| {
        let element = scope.element(
            reduction.operand,
            &reduction.operand_position(&output.kept, std::slice::from_ref(&k)),
            None,
        )?;
        let better = beats_best(scope, reduce.function, element, best);
        let k = k.emit(&mut scope.pool);
        Ok(vec![Statement::If(
            better,
            vec![
                Statement::Assign(best, element),
                Statement::Assign(best_index, k),
            ],
        )])
    })?);
    statements.push(Statement::Freeze(best_index));
    let number = scalar::size_as(&mut scope.pool, best_index, DType::I64, scope.capabilities);
    statements.extend(output.store(&mut scope, group, &reduction, number)?);
    Ok(LoweredKernel::new(
        scope,
        ARGUMENT_TEMPLATE,
        statements,
        &output.count,
    ))
}

/// True if an element beats the best so far: NaN beats everything except NaN.
pub fn beats_best(
    scope: &mut KernelScope,
    function: ArgReduceFunction,
    x: Expr,
    best: Expr,
) -> Expr {
    let comparison = match function {
        ArgReduceFunction::Max => BinaryFunction::Gt,
        ArgReduceFunction::Min => BinaryFunction::Lt,
    };
    let pool = &mut scope.pool;
    let beats = scalar::binary(pool, comparison, x, best, DType::F32);
    if !matches!(pool.ty(x), WgslType::F32 | WgslType::F64) {
        return beats;
    }
    let is_nan = scalar::typed("is_nan(x)", pool.ty(x));
    let (is_x_nan, is_best_nan) = (
        pool.call(is_nan.clone(), WgslType::Bool, &[x]),
        pool.call(is_nan, WgslType::Bool, &[best]),
    );
    pool.call(
        "!z & (y | x)",
        WgslType::Bool,
        &[beats, is_x_nan, is_best_nan],
    )
}
