//! Scans (cumulative sums and the like) and scatters. One invocation loops over a row, so that results do not depend on
//! the order of invocations. Where subgroups are vector lanes, a subgroup may share a row.

mod subgroup;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Node, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::{ReduceFunction, Scan, ScanFunction, Scatter, ScatterFunction};
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, operand, scalar, write};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, bounds_guard, ceil_div, invocation, repeat};
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../shaders/scan.wgsl");
const SCATTER_TEMPLATE: &str = include_str!("../../shaders/scatter.wgsl");

/// Longest segment of a row that an invocation scatters into. It copies the segment's elements, and Mesa's rasteriser
/// ends loops silently after 65,535 iterations.
const MAX_SEGMENT: usize = 1 << 15;

/// The rows of a shape along an axis: a row is identified by its coordinates along the other axes.
pub struct AxisRows {
    /// The shape without the axis.
    pub others: Shape,
    /// Number of rows.
    pub count: Dim,
    axis: usize,
}

impl AxisRows {
    /// Divides a shape into rows along an axis.
    pub fn new(shape: &[Dim], axis: usize) -> AxisRows {
        let mut others = shape.to_vec();
        if axis < others.len() {
            others.remove(axis);
        }
        AxisRows {
            count: Dim::product(&others),
            others,
            axis,
        }
    }

    /// Position of an element of a row.
    pub fn at(&self, row: &[Index], along: &Index) -> Position {
        let mut coordinates = row.to_vec();
        coordinates.insert(self.axis.min(row.len()), along.clone());
        Position::from_coordinates(coordinates)
    }
}

/// Lowers a scan along an axis.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    scan: &Scan,
) -> Result<LoweredKernel<'a>> {
    let x = operand(node, 0)?;
    let accumulator = ScanAccumulator::new(&mut scope, x, scan.function)?;
    match subgroup::invocations_per_row(&scope, x, scan) {
        Some(lanes) => subgroup::lower(scope, group.root, x, &accumulator, scan.axis, lanes),
        None => lower_invocations(scope, group.root, x, &accumulator, scan.axis),
    }
}

/// A kernel in which an invocation scans a row. It reads single elements, since texture reads are slower here.
fn lower_invocations<'a>(
    scope: KernelScope<'a>,
    root: ValueId,
    x: ValueId,
    accumulator: &ScanAccumulator,
    axis: usize,
) -> Result<LoweredKernel<'a>> {
    let mut scope = scope.reading_u64();
    let shape = &scope.graph.ty(x).shape;
    let rows = AxisRows::new(shape, axis);
    let (index, surplus) = invocation(&mut scope, &rows.count);
    let row = index::delinearize(&index, &rows.others);
    let mut statements = vec![surplus];
    statements.extend(accumulator.declarations());
    statements.extend(repeat(&mut scope, "k", &shape[axis], |scope, k| {
        let position = rows.at(&row, &k);
        let element = scope.element(x, &position, None)?;
        let mut body = accumulator.accumulate(scope, element);
        let result = accumulator.total(scope);
        body.push(write(scope, root, result, &position)?);
        Ok(body)
    })?);
    Ok(LoweredKernel::new(scope, TEMPLATE, statements, &rows.count))
}

/// The accumulator of a scan.
struct ScanAccumulator {
    function: ScanFunction,
    dtype: DType,
    /// The identity element.
    start: Expr,
    /// Variable for the result so far.
    total: Expr,
    /// Variable for the accumulated rounding error of a sum in single precision.
    error: Option<Expr>,
}

impl ScanAccumulator {
    fn new(scope: &mut KernelScope, x: ValueId, function: ScanFunction) -> Result<ScanAccumulator> {
        let dtype = scope.graph.ty(x).dtype;
        let register = scope.compute_type(dtype);
        // The identity of `log(Σ exp)` is that of the maximum.
        let reduction = function.reduction().unwrap_or(ReduceFunction::Max);
        let pool = &mut scope.pool;
        let is_compensated = function == ScanFunction::Sum && register == WgslType::F32;
        Ok(ScanAccumulator {
            function,
            dtype,
            total: pool.variable("total", register),
            error: is_compensated.then(|| pool.variable("lost", WgslType::F32)),
            start: scalar::identity(pool, reduction, dtype, scope.capabilities)?,
        })
    }

    /// Declares the variables.
    fn declarations(&self) -> Vec<Statement> {
        let variables = [self.total].into_iter().chain(self.error);
        variables
            .map(|variable| Statement::Declare(variable, self.start))
            .collect()
    }

    /// Combines two elements.
    fn combine(&self, scope: &mut KernelScope, x: Expr, y: Expr) -> Expr {
        let pool = &mut scope.pool;
        let Some(reduction) = self.function.reduction() else {
            let ty = pool.ty(x);
            return pool.call(scalar::typed("log_add_exp(x, y)", ty), ty, &[x, y]);
        };
        // Integers wrap at once, so that cumulative products stay within their type. Floats are rounded where they are
        // written.
        let dtype = if self.dtype.is_float() {
            DType::F32
        } else {
            self.dtype
        };
        scalar::reduce_pair(pool, reduction, x, y, dtype)
    }

    /// Accumulates an element.
    fn accumulate(&self, scope: &mut KernelScope, element: Expr) -> Vec<Statement> {
        match self.error {
            Some(error) => compensated_sum(scope, self.total, error, element),
            None => {
                let next = self.combine(scope, self.total, element);
                vec![Statement::Assign(self.total, next)]
            }
        }
    }

    /// The result so far.
    fn total(&self, scope: &mut KernelScope) -> Expr {
        let pool = &mut scope.pool;
        let total = match self.error {
            Some(error) => pool.call("x + y", WgslType::F32, &[self.total, error]),
            None => self.total,
        };
        scalar::narrow(pool, total, self.dtype)
    }

    /// The result after an element, without accumulating it.
    fn total_with(&self, scope: &mut KernelScope, element: Expr) -> Expr {
        let total = match self.error {
            Some(error) => {
                let rest = scope.pool.call("x + y", WgslType::F32, &[error, element]);
                scope.pool.call("x + y", WgslType::F32, &[self.total, rest])
            }
            None => self.combine(scope, self.total, element),
        };
        scalar::narrow(&mut scope.pool, total, self.dtype)
    }
}

/// Adds an element to a compensated sum (Neumaier).
fn compensated_sum(
    scope: &mut KernelScope,
    total: Expr,
    error: Expr,
    element: Expr,
) -> Vec<Statement> {
    let pool = &mut scope.pool;
    let before = pool.variable("earlier", WgslType::F32);
    let sum = pool.call("x + y", WgslType::F32, &[before, element]);
    let rest = pool.call("sum_error(x, y)", WgslType::F32, &[before, element]);
    let more = pool.call("x + y", WgslType::F32, &[error, rest]);
    vec![
        Statement::Declare(before, total),
        Statement::Assign(error, more),
        Statement::Assign(total, sum),
    ]
}

/// Lowers a scatter: copies a value and combines elements of another one into the copy.
pub fn lower_scatter<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    scatter: &Scatter,
) -> Result<LoweredKernel<'a>> {
    let (x, indices, source) = (operand(node, 0)?, operand(node, 1)?, operand(node, 2)?);
    let graph = scope.graph;
    let (shape, dtype) = (&graph.ty(x).shape, graph.ty(x).dtype);
    let rows = AxisRows::new(shape, scatter.axis);
    // Long rows are divided into segments, one for each invocation.
    let size = &shape[scatter.axis];
    let segments = [rows.count.clone(), ceil_div(size, MAX_SEGMENT)];
    let count = Dim::product(&segments);
    let (index, surplus) = invocation(&mut scope, &count);
    let mut coordinates = index::delinearize(&index, &segments);
    let first = coordinates.pop().unwrap_or_else(Index::zero);
    let first = first.scale(&Dim::from(MAX_SEGMENT));
    let row = coordinates.pop().unwrap_or_else(Index::zero);
    let row = index::delinearize(&row, &rows.others);
    let length = size.minimum(&Dim::from(MAX_SEGMENT));
    let mut statements = vec![surplus];
    statements.extend(repeat(&mut scope, "i", &length, |scope, i| {
        let along = first.add(&i);
        let position = rows.at(&row, &along);
        let inside = (!along.is_less_than(size)).then(|| scope.is_below(&along, size));
        let element = scope.element(x, &position, inside)?;
        let copy = write(scope, group.root, element, &position)?;
        Ok(bounds_guard(scope, &along, size, vec![copy]))
    })?);
    let index_shape = &graph.ty(indices).shape;
    let body = repeat(&mut scope, "k", &index_shape[scatter.axis], |scope, k| {
        let position = rows.at(&row, &k);
        let number = scope.element(indices, &position, None)?;
        let element = scope.element(source, &position, None)?;
        let along = scope.wrapped_index(number, size);
        let target = rows.at(&row, &along);
        let combined =
            combine_with_target(scope, group.root, scatter.function, element, &target, dtype)?;
        let written = write(scope, group.root, combined, &target)?;
        let has_one_segment = size
            .as_const()
            .is_some_and(|size| size <= MAX_SEGMENT as i64);
        if has_one_segment {
            return Ok(vec![written]);
        }
        // Indices before the segment wrap to large unsigned offsets.
        let [along, first] = [&along, &first].map(|index| index.emit(&mut scope.pool));
        let end = scope.pool.index(MAX_SEGMENT as u32);
        let is_in_segment = scope
            .pool
            .call("x - y < z", WgslType::Bool, &[along, first, end]);
        Ok(vec![Statement::If(is_in_segment, vec![written])])
    })?;
    // Rows outside the indices' shape stay unchanged.
    let index_rows = AxisRows::new(index_shape, scatter.axis);
    let mut inside = None;
    for (axis, (coordinate, size)) in row.iter().zip(&index_rows.others).enumerate() {
        if *size != rows.others[axis] {
            let within = scope.is_below(coordinate, size);
            inside = Some(scope.pool.and(inside, within));
        }
    }
    match inside {
        Some(inside) => statements.push(Statement::If(inside, body)),
        None => statements.extend(body),
    }
    Ok(LoweredKernel::new(
        scope,
        SCATTER_TEMPLATE,
        statements,
        &count,
    ))
}

/// Combines an element with the element of `root` at its target. A scatter without a reduction replaces that element.
fn combine_with_target(
    scope: &mut KernelScope,
    root: ValueId,
    function: ScatterFunction,
    element: Expr,
    target: &Position,
    dtype: DType,
) -> Result<Expr> {
    let Some(reduction) = function.reduction() else {
        return Ok(element);
    };
    let buffer = scope.bind_buffer(root)?;
    let index = scope.element_index(root, target);
    let index = index.emit(&mut scope.pool);
    let element_type = scope.buffers[buffer].buffer.element;
    let current = scope.pool.load(buffer, element_type, index);
    let current = scalar::from_storage(&mut scope.pool, current, dtype);
    let pool = &mut scope.pool;
    Ok(scalar::reduce_pair(
        pool, reduction, current, element, dtype,
    ))
}
