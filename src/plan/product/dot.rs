//! The portable matrix product: one invocation computes a small tile of the result in registers.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Node;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Literal, WgslType};
use crate::kernel::index::{self, Index};
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, operand};
use crate::plan::group::Group;
use crate::plan::kernel::{
    LoweredKernel, ceil_div, clamped_offset, invocation, offset_bounds_guard, repeat, store,
};

const TEMPLATE: &str = include_str!("../../../shaders/dot.wgsl");

/// Most rows, and most columns, of a tile.
const MAX_TILE: usize = 4;

/// Lowers a matrix product with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
) -> Result<LoweredKernel<'a>> {
    let (a, b) = (operand(node, 0)?, operand(node, 1)?);
    let graph = scope.graph;
    let result = node.results.first().copied().unwrap_or(a);
    let shape = &graph.ty(result).shape;
    let ([batch @ .., rows, columns], Some(k_size)) = (shape.as_slice(), graph.ty(a).shape.last())
    else {
        return Err(Error::internal("operands of dot have too few axes"));
    };
    let (height, width) = (tile_size(rows), tile_size(columns));
    let mut tiles: Vec<Dim> = batch.to_vec();
    tiles.push(ceil_div(rows, height));
    tiles.push(ceil_div(columns, width));
    let count = Dim::product(&tiles);
    let (index, surplus) = invocation(&mut scope, &count);
    let mut batch_indices = index::delinearize(&index, &tiles);
    let column = batch_indices.pop().unwrap_or_else(Index::zero);
    let row = batch_indices.pop().unwrap_or_else(Index::zero);
    let (row, column) = (
        with_label(&mut scope, &row.scale(&Dim::from(height)), "row"),
        with_label(&mut scope, &column.scale(&Dim::from(width)), "column"),
    );
    let row_of =
        |scope: &mut KernelScope, i| clamped_offset(scope, &row, i, rows, &format!("row{i}"));
    let column_of = |scope: &mut KernelScope, j| {
        clamped_offset(scope, &column, j, columns, &format!("column{j}"))
    };
    let position = |batch_indices: &[Index], matrix_coordinates: [Index; 2]| {
        Position::from_coordinates([batch_indices, matrix_coordinates.as_slice()].concat())
    };
    let dtype = graph.ty(a).dtype;
    let sums = accumulators(&mut scope, dtype, height, width);
    let mut statements = vec![surplus];
    let zero = zero(&mut scope, dtype);
    statements.extend(
        sums.iter()
            .flatten()
            .map(|sum| Statement::Declare(*sum, zero)),
    );
    statements.extend(repeat(&mut scope, "k", k_size, |scope, k| {
        let mut left = Vec::new();
        for i in 0..height {
            let row = row_of(scope, i);
            let element = scope.element(a, &position(&batch_indices, [row, k.clone()]), None)?;
            scope.pool.set_label(element, &format!("a{i}"));
            left.push(element);
        }
        let mut right = Vec::new();
        for j in 0..width {
            let column = column_of(scope, j);
            let element = scope.element(b, &position(&batch_indices, [k.clone(), column]), None)?;
            right.push(element);
        }
        Ok(add_outer_product(scope, &sums, &left, &right))
    })?);
    statements.extend(sums.iter().flatten().map(|sum| Statement::Freeze(*sum)));
    for (i, sums) in sums.iter().enumerate() {
        let mut row_writes = Vec::new();
        for (j, sum) in sums.iter().enumerate() {
            let matrix_coordinates = [row_of(&mut scope, i), column_of(&mut scope, j)];
            let writes = store(
                &mut scope,
                group,
                result,
                *sum,
                &position(&batch_indices, matrix_coordinates),
            )?;
            row_writes.extend(offset_bounds_guard(&mut scope, &column, j, columns, writes));
        }
        statements.extend(offset_bounds_guard(&mut scope, &row, i, rows, row_writes));
    }
    Ok(LoweredKernel::new(scope, TEMPLATE, statements, &count))
}

/// Returns how many neighbours along an axis of this size an invocation computes.
pub fn tile_size(size: &Dim) -> usize {
    size.as_const()
        .and_then(|size| usize::try_from(size).ok())
        .map_or(MAX_TILE, |size| size.clamp(1, MAX_TILE))
}

/// Labels the expression of an index, and returns the index.
pub fn with_label(scope: &mut KernelScope, index: &Index, name: &str) -> Index {
    let expr = index.emit(&mut scope.pool);
    scope.pool.set_label(expr, name);
    index.clone()
}

/// Creates the accumulator variables of a tile.
pub fn accumulators(
    scope: &mut KernelScope,
    dtype: DType,
    height: usize,
    width: usize,
) -> Vec<Vec<Expr>> {
    let ty = scope.compute_type(dtype);
    let mut row = |i: usize| {
        (0..width)
            .map(|j| scope.pool.variable(&format!("sum{i}{j}"), ty))
            .collect()
    };
    (0..height).map(&mut row).collect()
}

/// Returns the zero of a dtype.
pub fn zero(scope: &mut KernelScope, dtype: DType) -> Expr {
    let ty = scope.compute_type(dtype);
    let literal = if dtype.is_float() {
        Literal::from(0.0)
    } else {
        Literal::Integer(0)
    };
    scope.pool.literal(ty, literal)
}

/// Adds the outer product of a column of the left factor and a row of the right one to a tile.
pub fn add_outer_product(
    scope: &mut KernelScope,
    sums: &[Vec<Expr>],
    left: &[Expr],
    right: &[Expr],
) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (sums, x) in sums.iter().zip(left) {
        for (sum, y) in sums.iter().zip(right) {
            let ty: WgslType = scope.pool.ty(*x);
            let product = scope.pool.call("x * y", ty, &[*x, *y]);
            let total = scope.pool.call("x + y", ty, &[*sum, product]);
            statements.push(Statement::Assign(*sum, total));
        }
    }
    statements
}
