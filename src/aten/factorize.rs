//! Factorizations of matrices in the last two dimensions, `[.., rows, columns]`, unrolled over their columns.
//!
//! Each elimination step works on the whole matrix and masks the elements that it must not change. Batches need no
//! extra code. Step `k` works on row `k` and column `k`. Pivots and the scalar factors of reflections follow LAPACK's
//! conventions.

use super::matrix::Matrix;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;

/// The factorization `P·L·U` of a matrix in LAPACK's layout (`getrf`).
pub(super) struct Lu<'g> {
    /// `L` below the diagonal, whose ones are not stored, and `U` on and above the diagonal.
    pub factors: Matrix<'g>,
    /// For each step, the row that was exchanged with the row of the step, counted from 0: an `i64` tensor of the batch
    /// sizes.
    pub pivots: Vec<Value<'g>>,
}

impl<'g> Lu<'g> {
    /// Gaussian elimination. With `pivot`, each step moves the element of the largest magnitude on or below the
    /// diagonal of its column to the diagonal.
    pub fn new(matrix: Matrix<'g>, pivot: bool) -> Lu<'g> {
        let (row_index, column_index) = (matrix.row_indices(), matrix.column_indices());
        let mut a = matrix;
        let mut pivots = Vec::new();
        for step in 0..a.steps() {
            let current_column = a.value.narrow(-1, step, 1);
            let pivot_row = if pivot {
                row_index
                    .lt(step)
                    .where_(-1.0, current_column.abs())
                    .argmax(-2, false)
            } else {
                let shape = a.batch();
                a.value.builder().full(DType::I64, shape, step)
            };
            let pivot_row = pivot_row.reshape(a.batch());
            a = a.with_value(with_rows_exchanged(a.value, step, pivot_row));
            pivots.push(pivot_row);
            let diagonal = a.element(step, step);
            let divisor = diagonal.eq(0.0).where_(1.0, diagonal);
            let is_below = row_index.gt(step);
            let multipliers = is_below.where_(a.value.narrow(-1, step, 1) / divisor, 0.0);
            let row_tail = column_index
                .gt(step)
                .where_(a.value.narrow(-2, step, 1), 0.0);
            let is_multiplier = is_below.logical_and(column_index.eq(step));
            a = a.with_value(is_multiplier.where_(multipliers, a.value - multipliers * row_tail));
        }
        Lu { factors: a, pivots }
    }

    /// Takes LAPACK's results: both factors in one matrix, and pivots that count from 1.
    pub fn read(factors: Value<'g>, pivots: Value<'g>) -> Result<Lu<'g>> {
        let factors = Matrix::new(factors)?;
        let pivot_of_step = |step| pivots.select(-1, step).to(DType::I64) - 1;
        Ok(Lu {
            factors,
            pivots: (0..factors.steps()).map(pivot_of_step).collect(),
        })
    }

    /// The pivots as LAPACK counts them, from 1: `i32`, `[.., steps]`.
    pub fn numbered_pivots(&self) -> Value<'g> {
        let builder = self.factors.value.builder();
        let one_based: Vec<Value<'g>> = self.pivots.iter().map(|pivot| *pivot + 1).collect();
        if one_based.is_empty() {
            let shape = [self.factors.batch(), vec![Dim::ZERO]].concat();
            return builder.full(DType::I32, shape, 0);
        }
        builder.stack(&one_based, -1).to(DType::I32)
    }

    /// LAPACK's `info`: the number of the first zero on the diagonal of `U`, counted from 1, or 0 if there is none.
    pub fn info(&self) -> Value<'g> {
        let diagonal = self.factors.diagonal();
        let builder = diagonal.builder();
        if self.factors.steps() == 0 {
            return builder.full(DType::I32, self.factors.batch(), 0);
        }
        number_of_first(diagonal.eq(0.0))
    }

    /// `L`, with ones on the diagonal: `[.., rows, steps]`.
    pub fn lower(&self) -> Value<'g> {
        let a = self.factors;
        let (row_index, column_index) = (a.row_indices(), a.column_indices());
        let strictly_lower = column_index.lt(row_index).where_(a.value, 0.0);
        let unit_lower = row_index.eq(column_index).where_(1.0, strictly_lower);
        unit_lower.narrow(-1, 0, a.steps())
    }

    /// `U`: `[.., steps, columns]`.
    pub fn upper(&self) -> Value<'g> {
        self.factors
            .triangle(true)
            .narrow(-2, 0, self.factors.steps())
    }

    /// The permutation matrix `P`: its product with `L·U` is the original matrix.
    pub fn permutation(&self) -> Value<'g> {
        let identity = self.factors.identity(self.factors.rows, self.factors.rows);
        self.pivots
            .iter()
            .enumerate()
            .fold(identity.value, |value, (step, pivot)| {
                with_rows_exchanged(value, step as i64, *pivot)
            })
            .transpose(-1, -2)
    }

    /// The determinant of the permutation: 1 or -1.
    pub fn sign(&self) -> Value<'g> {
        let dtype = self.factors.value.dtype();
        let one = self
            .factors
            .value
            .builder()
            .full(dtype, self.factors.batch(), 1.0);
        self.pivots
            .iter()
            .enumerate()
            .fold(one, |sign, (step, pivot)| {
                pivot.eq(step as i64).where_(sign, -sign)
            })
    }

    /// Solves `A·X = B`; with `transposed`, `Aᵀ·X = B`. The batch sizes of `A` and `B` broadcast.
    pub fn solve(&self, b: Value<'g>, transposed: bool) -> Result<Value<'g>> {
        let lu = self.factors;
        let b = expand_batch(b, &lu.batch())?;
        let exchange_rows = |value: Value<'g>, (step, pivot): (usize, &Value<'g>)| {
            with_rows_exchanged(value, step as i64, *pivot)
        };
        let pivots_by_step = self.pivots.iter().enumerate();
        if transposed {
            let transposed_factors = lu.with_value(lu.value.transpose(-1, -2));
            let intermediate = solve_triangular(
                transposed_factors,
                b,
                TriangleKind {
                    upper: false,
                    unit: false,
                },
            )?;
            let unpermuted = solve_triangular(
                transposed_factors,
                intermediate,
                TriangleKind {
                    upper: true,
                    unit: true,
                },
            )?;
            return Ok(pivots_by_step.rev().fold(unpermuted, exchange_rows));
        }
        let b = pivots_by_step.fold(b, exchange_rows);
        let intermediate = solve_triangular(
            lu,
            b,
            TriangleKind {
                upper: false,
                unit: true,
            },
        )?;
        solve_triangular(
            lu,
            intermediate,
            TriangleKind {
                upper: true,
                unit: false,
            },
        )
    }
}

/// Exchanges `row` with the row `other`, which each matrix of the batch chooses: `other` has the batch sizes.
fn with_rows_exchanged<'g>(value: Value<'g>, row: i64, other: Value<'g>) -> Value<'g> {
    let row_index = value.positions(-2);
    let other = other.unsqueeze(-1).unsqueeze(-1);
    let source_row = row_index.eq(other).where_(row, row_index);
    let source_row = row_index.eq(row).where_(other, source_row);
    value.gather(-2, source_row.expand(value.shape()))
}

/// Broadcasts the dimensions before the last two with `batch`.
fn expand_batch<'g>(value: Value<'g>, batch: &[Dim]) -> Result<Value<'g>> {
    let shape = value.shape();
    let (own_batch, matrix_sizes) = shape.split_at(shape.len().saturating_sub(2));
    let symbols = value.builder().symbols();
    let common_batch = symbols.broadcast_shapes(&[own_batch.to_vec(), batch.to_vec()])?;
    Ok(value.expand([common_batch.as_slice(), matrix_sizes].concat()))
}

/// Whether the right-hand side `b` of a system of equations is a vector or a batch of vectors. It is if it has one
/// dimension, or if its sizes are those of the matrix without the last one.
pub(super) fn is_vector_side(matrix: Matrix, b: Value) -> Result<bool> {
    if b.rank() == 1 {
        return Ok(true);
    }
    let symbols = b.builder().symbols();
    let mut is_vector = b.rank() + 1 == matrix.value.rank();
    for (size, other) in b.shape().iter().zip(&matrix.value.shape()) {
        is_vector = is_vector && symbols.equal(size, other)?;
    }
    Ok(is_vector)
}

/// How a triangular solver reads its matrix.
#[derive(Clone, Copy)]
pub(super) struct TriangleKind {
    /// Reads the triangle on and above the diagonal, else the one on and below it.
    pub upper: bool,
    /// Takes the diagonal as ones, whatever the matrix has there.
    pub unit: bool,
}

/// Solves `T·X = B` for a triangular matrix `T`, by substitution row by row. Batches broadcast.
pub(super) fn solve_triangular<'g>(
    matrix: Matrix<'g>,
    b: Value<'g>,
    triangle: TriangleKind,
) -> Result<Value<'g>> {
    let builder = b.builder();
    if matrix.rows == 0 {
        return expand_batch(b, &matrix.batch());
    }
    let row_index = matrix.row_indices();
    let mut residual = b;
    let mut solved_rows = Vec::new();
    for iteration in 0..matrix.rows {
        let step = if triangle.upper {
            matrix.rows - 1 - iteration
        } else {
            iteration
        };
        let rhs_row = residual.narrow(-2, step, 1);
        let x = if triangle.unit {
            rhs_row
        } else {
            rhs_row / matrix.element(step, step)
        };
        let is_unsolved = if triangle.upper {
            row_index.lt(step)
        } else {
            row_index.gt(step)
        };
        let coefficients = is_unsolved.where_(matrix.value.narrow(-1, step, 1), 0.0);
        residual = residual - coefficients * x;
        solved_rows.push(x);
        builder.check()?;
    }
    if triangle.upper {
        solved_rows.reverse();
    }
    // With a unit diagonal, the first solved row has the batch sizes of `b` alone; later rows have the broadcast ones.
    let shapes: Vec<_> = solved_rows.iter().map(|row| row.shape()).collect();
    let common_shape = builder.symbols().broadcast_shapes(&shapes)?;
    let rows_of_x: Vec<Value<'g>> = solved_rows
        .iter()
        .map(|row| row.expand(common_shape.clone()))
        .collect();
    Ok(builder.concat(&rows_of_x, -2))
}

/// The lower factor `L` of `A = L·Lᵀ`. Reads the lower triangle of the matrix.
pub(super) fn cholesky<'g>(matrix: Matrix<'g>) -> Value<'g> {
    let row_index = matrix.row_indices();
    let mut a = matrix;
    let mut columns = Vec::new();
    for step in 0..a.rows {
        let root = a.element(step, step).sqrt();
        let column = row_index
            .ge(step)
            .where_(a.value.narrow(-1, step, 1) / root, 0.0);
        a = a.with_value(a.value - column * column.transpose(-1, -2));
        columns.push(column);
    }
    if columns.is_empty() {
        return matrix.value;
    }
    matrix.value.builder().concat(&columns, -1)
}

/// LAPACK's `info` of a Cholesky factor: the number of the first diagonal element that is not positive, counted from 1, or
/// 0 if all are. The leading part of the matrix of this size is not positive-definite.
pub(super) fn cholesky_info<'g>(factor: Matrix<'g>) -> Value<'g> {
    if factor.rows == 0 {
        return factor.value.builder().full(DType::I32, factor.batch(), 0);
    }
    // A device may turn the negation of a comparison into the opposite one, which not-a-number does not meet.
    number_of_first(factor.diagonal().gt(0.0).where_(0, 1))
}

/// The number of the first 1 (or true) among ones and zeros along the last axis, counted from 1; 0 if there is none.
fn number_of_first<'g>(marks: Value<'g>) -> Value<'g> {
    let first = marks.to(DType::I64).argmax(-1, false) + 1;
    let has_any = marks.any(&[-1], false);
    has_any.where_(first, 0).to(DType::I32)
}

/// Householder reflections `I - tau·v·vᵀ` in LAPACK's layout (`geqrf`). Returns a matrix with `R` on and above the
/// diagonal and the vectors `v` below it, whose ones on the diagonal are not stored; and the factors `tau`,
/// `[.., steps]`.
pub(super) fn householder_reflections<'g>(matrix: Matrix<'g>) -> (Matrix<'g>, Value<'g>) {
    let (row_index, column_index) = (matrix.row_indices(), matrix.column_indices());
    let builder = matrix.value.builder();
    let mut a = matrix;
    let mut taus = Vec::new();
    for step in 0..a.steps() {
        let current_column = a.value.narrow(-1, step, 1);
        let diagonal = a.element(step, step);
        let column_tail = row_index.gt(step).where_(current_column, 0.0);
        let tail_square = (column_tail * column_tail).sum(&[-2], true);
        let norm = (diagonal * diagonal + tail_square).sqrt();
        let beta = diagonal.ge(0.0).where_(-norm, norm);
        let is_reduced = tail_square.eq(0.0);
        let tau = is_reduced.where_(0.0, (beta - diagonal) / is_reduced.where_(1.0, beta));
        let vector_tail = column_tail / is_reduced.where_(1.0, diagonal - beta);
        let reflector = row_index.eq(step).where_(1.0, vector_tail);
        let projection = reflector.transpose(-1, -2).matmul(a.value);
        let reflected = a.value - tau * reflector * projection;
        let new_diagonal = is_reduced.where_(diagonal, beta);
        let new_column = row_index.eq(step).where_(
            new_diagonal,
            row_index.gt(step).where_(vector_tail, current_column),
        );
        let updated = column_index.gt(step).where_(reflected, a.value);
        a = a.with_value(column_index.eq(step).where_(new_column, updated));
        taus.push(tau.squeeze(&[-1]));
    }
    let taus = if taus.is_empty() {
        let shape = [matrix.batch(), vec![Dim::ZERO]].concat();
        builder.full(matrix.value.dtype(), shape, 0.0)
    } else {
        builder.concat(&taus, -1)
    };
    (a, taus)
}

/// Multiplies `b` from the left by the product of the reflections, or by its transpose. `vectors` has the layout of
/// [`householder_reflections`]; `factors` are its `tau`.
pub(super) fn apply_reflections<'g>(
    vectors: Matrix<'g>,
    factors: Value<'g>,
    b: Value<'g>,
    transposed: bool,
) -> Result<Value<'g>> {
    let row_index = vectors.row_indices();
    let count = b.builder().symbols().specialize(&factors.size(-1))?;
    let mut steps: Vec<i64> = (0..count.min(vectors.columns)).collect();
    if !transposed {
        steps.reverse();
    }
    let mut result = b;
    for step in steps {
        let vector_tail = row_index
            .gt(step)
            .where_(vectors.value.narrow(-1, step, 1), 0.0);
        let reflector = row_index.eq(step).where_(1.0, vector_tail);
        let tau = factors.narrow(-1, step, 1).unsqueeze(-1);
        result = result - tau * reflector * reflector.transpose(-1, -2).matmul(result);
    }
    Ok(result)
}
