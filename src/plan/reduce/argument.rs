//! Argmax and argmin on devices whose subgroups are vector lanes. A subgroup shares a long row and exchanges partial
//! results. For windows of images in a vec4 layout, as of max pooling, an invocation searches those of four channels.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::op::ArgReduceFunction;
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, scalar, vec4};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, ceil_div, epilogue, repeat};
use crate::plan::lanes;
use crate::plan::reduce::rows::lower_subgroups;
use crate::plan::reduce::{ARGUMENT_TEMPLATE, ReductionAxes, ReductionOutput, beats_best};
use crate::plan::vec4_layout::{self, CHANNEL_AXIS};

/// Longest row that a single invocation searches.
const MAX_SINGLE_LENGTH: i64 = 64;

/// Longest window of images.
const MAX_WINDOW: i64 = 32;

/// True for short windows of images, one result for each channel and position.
pub fn is_of_images(graph: &Graph, node: &Node, axis: usize) -> bool {
    let Ok(reduction) = ReductionAxes::new(graph, node, &[axis]) else {
        return false;
    };
    let length = reduction.reduced.first().and_then(Dim::as_const);
    let is_short = length.is_some_and(|length| (1..=MAX_WINDOW).contains(&length));
    is_short && axis > CHANNEL_AXIS && reduction.dtype == DType::F32
}

/// Lowers the reduction of windows of images. See [`is_of_images`].
pub fn lower_images<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    reduction: &ReductionAxes,
    function: ArgReduceFunction,
) -> Result<LoweredKernel<'a>> {
    let (first, surplus, count) =
        vec4_layout::invocation_vec4(&mut scope, &reduction.kept, CHANNEL_AXIS);
    let channels = vec4::neighbours(&first, CHANNEL_AXIS).into_iter();
    let results = channels
        .map(|kept| {
            let index = best_of_window(&mut scope, reduction, function, &kept)?;
            let index = scalar::size_as(&mut scope.pool, index, DType::I64, scope.capabilities);
            let position = Position::from_coordinates(kept);
            epilogue(&mut scope, group.root, reduction.result, index, &position)
        })
        .collect::<Result<Vec<_>>>()?;
    let store = scope.store_vec4(group.root, CHANNEL_AXIS, &results)?;
    let statements = vec![surplus, store];
    Ok(LoweredKernel::new(
        scope,
        ARGUMENT_TEMPLATE,
        statements,
        &count,
    ))
}

/// The index of the best element of a window, as an expression without a loop.
fn best_of_window(
    scope: &mut KernelScope,
    reduction: &ReductionAxes,
    function: ArgReduceFunction,
    kept: &[Index],
) -> Result<Expr> {
    let length = reduction.reduced.first().and_then(Dim::as_const);
    let element = |scope: &mut KernelScope, k: i64| {
        let position = reduction.operand_position(kept, &[Index::from(Dim::from(k))]);
        scope.element(reduction.operand, &position, None)
    };
    let (mut best, mut best_index) = (element(scope, 0)?, scope.pool.index(0));
    for k in 1..length.unwrap_or(1) {
        let x = element(scope, k)?;
        let better = beats_best(scope, function, x, best);
        let index = scope.pool.size(&Dim::from(k));
        best = scope.pool.select(better, x, best);
        best_index = scope.pool.select(better, index, best_index);
    }
    Ok(best_index)
}

/// True if subgroups can share the rows: long rows of a type that they can exchange.
pub fn is_supported(scope: &KernelScope, reduction: &ReductionAxes) -> bool {
    let length = reduction.reduced.first().and_then(Dim::as_const);
    let register = scope.compute_type(reduction.dtype);
    scope.capabilities.simd_lanes().is_some()
        && length.is_some_and(|length| length > MAX_SINGLE_LENGTH)
        && matches!(register, WgslType::F32 | WgslType::I32)
}

/// Lowers the reduction.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    reduction: &ReductionAxes,
    function: ArgReduceFunction,
) -> Result<LoweredKernel<'a>> {
    let (output, surplus) = reduction.output(&mut scope);
    let missing = || Error::internal("no subgroups to share a row");
    let lanes = scope.capabilities.simd_lanes().ok_or_else(missing)?;
    let (lane, lane_index) = scope.counter("lane", &Dim::from(lanes));
    let first = reduction.operand_position(&output.kept, std::slice::from_ref(&lane_index));
    let first = scope.element(reduction.operand, &first, None)?;
    let search = ArgReduceSearch {
        reduction,
        function,
        output,
        lanes,
        lane_index,
        best: scope.pool.variable("best", scope.pool.ty(first)),
        best_index: scope.pool.variable("best_index", WgslType::U32),
    };
    let mut statements = vec![
        surplus,
        Statement::Declare(search.best, first),
        Statement::Declare(search.best_index, lane),
    ];
    statements.extend(search.search_row(&mut scope)?);
    for step in lanes::shuffle_distances(lanes) {
        statements.extend(search.exchange(&mut scope, step));
    }
    statements.push(Statement::Freeze(search.best_index));
    let index = scalar::size_as(
        &mut scope.pool,
        search.best_index,
        DType::I64,
        scope.capabilities,
    );
    let stores = search.output.store(&mut scope, group, reduction, index)?;
    let zero = scope.pool.index(0);
    let is_first = scope.pool.call("x == y", WgslType::Bool, &[lane, zero]);
    statements.push(Statement::If(is_first, stores));
    let rows = &search.output.count;
    Ok(lower_subgroups(scope, statements, rows, lanes))
}

/// State of an invocation's search.
struct ArgReduceSearch<'p> {
    reduction: &'p ReductionAxes,
    function: ArgReduceFunction,
    output: ReductionOutput,
    /// Invocations of the subgroup.
    lanes: usize,
    /// Index of the invocation in its subgroup.
    lane_index: Index,
    /// Variable for the best element so far.
    best: Expr,
    /// Variable for the index of that element.
    best_index: Expr,
}

impl ArgReduceSearch<'_> {
    /// Searches the invocation's elements of the row.
    fn search_row(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let size = &self.reduction.reduced[0];
        repeat(
            scope,
            "trip",
            &ceil_div(size, self.lanes),
            |scope, round| {
                let element_index = round.scale(&Dim::from(self.lanes)).add(&self.lane_index);
                let k = element_index.emit(&mut scope.pool);
                let position = self
                    .reduction
                    .operand_position(&self.output.kept, &[Index::expr(k, size)]);
                let element = scope.element(self.reduction.operand, &position, None)?;
                let better = beats_best(scope, self.function, element, self.best);
                let take = Statement::If(better, self.update_best(element, k));
                if element_index.is_less_than(size) {
                    return Ok(vec![take]);
                }
                let end = scope.pool.size(size);
                let inside = scope.pool.call("x < y", WgslType::Bool, &[k, end]);
                Ok(vec![Statement::If(inside, vec![take])])
            },
        )
    }

    /// Statements that replace the best element and its index.
    fn update_best(&self, element: Expr, index: Expr) -> Vec<Statement> {
        vec![
            Statement::Assign(self.best, element),
            Statement::Assign(self.best_index, index),
        ]
    }

    /// Takes the result of the invocation at distance `step` if it is better, or equal with a smaller index.
    fn exchange(&self, scope: &mut KernelScope, step: usize) -> Vec<Statement> {
        let ty = scope.pool.ty(self.best);
        let shuffle = format!("subgroupShuffleXor(x, {step}u)");
        let other = scope.pool.call(shuffle.clone(), ty, &[self.best]);
        let index = scope.pool.call(shuffle, WgslType::U32, &[self.best_index]);
        let better = beats_best(scope, self.function, other, self.best);
        let worse = beats_best(scope, self.function, self.best, other);
        let pool = &mut scope.pool;
        pool.set_label(other, "other");
        pool.set_label(index, "other_index");
        let operands = [better, worse, index, self.best_index];
        let takes = pool.call("x | (!y & (z < w))", WgslType::Bool, &operands);
        pool.set_label(takes, "takes");
        vec![
            Statement::Let(other),
            Statement::Let(index),
            Statement::If(takes, self.update_best(other, index)),
        ]
    }
}
