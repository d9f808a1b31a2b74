//! Factorizations of matrices in the last two dimensions, `[.., rows, columns]`, unrolled over their columns.
//!
//! Each step works on the whole matrix and masks the elements that it must not change. Batches need no extra code.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

/// Largest size of a matrix: the unrolled graph of a larger one would have too many nodes.
const MAX_SIZE: i64 = 128;

/// A value with at least two dimensions, of which the last two are known.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'g> {
    pub value: Value<'g>,
    pub rows: i64,
    pub columns: i64,
}

impl<'g> Matrix<'g> {
    pub fn new(value: Value<'g>) -> Result<Matrix<'g>> {
        let builder = value.builder();
        builder.check()?;
        if value.rank() < 2 || !value.dtype().is_float() {
            return Err(Error::operator(format!(
                "expected a matrix of floats, found {}",
                value.ty()
            )));
        }
        let (rows, columns) = (value.size(-2), value.size(-1));
        let (rows, columns) = (
            builder.symbols().specialize(&rows)?,
            builder.symbols().specialize(&columns)?,
        );
        if MAX_SIZE < rows.max(columns) {
            return Err(Error::unsupported(format!(
                "factorizations of matrices larger than {MAX_SIZE}, such as {}",
                value.ty()
            )));
        }
        Ok(Matrix {
            value,
            rows,
            columns,
        })
    }

    /// A matrix that must be square.
    pub fn square(value: Value<'g>) -> Result<Matrix<'g>> {
        let matrix = Matrix::new(value)?;
        if matrix.rows == matrix.columns {
            Ok(matrix)
        } else {
            Err(Error::operator(format!("{} is not square", value.ty())))
        }
    }

    fn steps(&self) -> i64 {
        self.rows.min(self.columns)
    }

    /// Sizes of the dimensions in front of the matrix.
    pub fn batch(&self) -> Vec<Dim> {
        let mut shape = self.value.shape();
        shape.truncate(shape.len().saturating_sub(2));
        shape
    }

    /// Row indices, `[rows, 1]`.
    fn row(&self) -> Value<'g> {
        let shape = vec![Dim::from(self.rows), Dim::ONE];
        self.value.builder().iota(DType::I64, shape, 0)
    }

    /// Column indices, `[1, columns]`.
    fn column(&self) -> Value<'g> {
        let shape = vec![Dim::ONE, Dim::from(self.columns)];
        self.value.builder().iota(DType::I64, shape, 1)
    }

    fn at(&self, row: i64, column: i64) -> Value<'g> {
        self.value.narrow(-2, row, 1).narrow(-1, column, 1)
    }

    fn with(&self, value: Value<'g>) -> Matrix<'g> {
        Matrix { value, ..*self }
    }

    /// The elements on the diagonal.
    pub fn diagonal(&self) -> Value<'g> {
        let shape = [self.batch(), vec![Dim::ONE, Dim::from(self.steps())]].concat();
        let index =
            self.value
                .builder()
                .iota(DType::I64, shape, self.value.rank().saturating_sub(1));
        let part = self.value.narrow(-1, 0, self.steps());
        part.gather(-2, index).squeeze(&[-2])
    }

    /// Mask that is true on and below the diagonal, or on and above it.
    pub fn in_triangle(&self, upper: bool) -> Value<'g> {
        let (row, column) = (self.row(), self.column());
        if upper {
            row.le(column)
        } else {
            column.le(row)
        }
    }

    /// The part on and below the diagonal, or on and above it.
    pub fn triangle(&self, upper: bool) -> Value<'g> {
        self.in_triangle(upper).where_(self.value, 0.0)
    }

    pub fn transposed(&self) -> Matrix<'g> {
        Matrix {
            value: self.value.transpose(-1, -2),
            rows: self.columns,
            columns: self.rows,
        }
    }

    /// An identity matrix of this batch shape and dtype.
    pub fn identity(&self, rows: i64, columns: i64) -> Matrix<'g> {
        let shape = Matrix {
            rows,
            columns,
            ..*self
        };
        let builder = self.value.builder();
        let sizes = [self.batch(), vec![Dim::from(rows), Dim::from(columns)]].concat();
        let zeros = builder.full(self.value.dtype(), sizes, 0.0);
        shape.with(shape.row().eq(shape.column()).where_(1.0, zeros))
    }
}

/// `P·L·U` in LAPACK's layout: both factors in one matrix, and for each row the row that it was exchanged with.
pub(super) struct Lu<'g> {
    pub factors: Matrix<'g>,
    /// `[.., steps]`, counting from 0.
    pub pivots: Vec<Value<'g>>,
}

impl<'g> Lu<'g> {
    /// Gaussian elimination. With pivoting, the largest element of a column is moved to the diagonal.
    pub fn new(matrix: Matrix<'g>, pivot: bool) -> Lu<'g> {
        let (row, column) = (matrix.row(), matrix.column());
        let mut a = matrix;
        let mut pivots = Vec::new();
        for step in 0..a.steps() {
            let own = a.value.narrow(-1, step, 1);
            let chosen = if pivot {
                row.lt(step).where_(-1.0, own.abs()).argmax(-2, false)
            } else {
                let shape = a.batch();
                a.value.builder().full(DType::I64, shape, step)
            };
            let chosen = chosen.reshape(a.batch());
            a = a.with(with_rows_exchanged(a.value, step, chosen));
            pivots.push(chosen);
            let diagonal = a.at(step, step);
            let divisor = diagonal.eq(0.0).where_(1.0, diagonal);
            let below = row.gt(step);
            let factor = below.where_(a.value.narrow(-1, step, 1) / divisor, 0.0);
            let line = column.gt(step).where_(a.value.narrow(-2, step, 1), 0.0);
            let kept = below.logical_and(column.eq(step));
            a = a.with(kept.where_(factor, a.value - factor * line));
        }
        Lu { factors: a, pivots }
    }

    /// Reads LAPACK's results, whose pivots count from 1.
    pub fn read(factors: Value<'g>, pivots: Value<'g>) -> Result<Lu<'g>> {
        let factors = Matrix::new(factors)?;
        let at = |step| pivots.select(-1, step).to(DType::I64) - 1;
        Ok(Lu {
            factors,
            pivots: (0..factors.steps()).map(at).collect(),
        })
    }

    /// The pivots, counted from 1 as in LAPACK.
    pub fn numbered_pivots(&self) -> Value<'g> {
        let builder = self.factors.value.builder();
        let counted: Vec<Value<'g>> = self.pivots.iter().map(|pivot| *pivot + 1).collect();
        if counted.is_empty() {
            let shape = [self.factors.batch(), vec![Dim::ZERO]].concat();
            return builder.full(DType::I32, shape, 0);
        }
        builder.stack(&counted, -1).to(DType::I32)
    }

    /// The number of the first column without a pivot (from 1), or 0.
    pub fn info(&self) -> Value<'g> {
        let diagonal = self.factors.diagonal();
        let builder = diagonal.builder();
        if self.factors.steps() == 0 {
            return builder.full(DType::I32, self.factors.batch(), 0);
        }
        let is_zero = diagonal.eq(0.0);
        let first = is_zero.to(DType::I64).argmax(-1, false) + 1;
        is_zero.any(&[-1], false).where_(first, 0).to(DType::I32)
    }

    pub fn lower(&self) -> Value<'g> {
        let a = self.factors;
        let (row, column) = (a.row(), a.column());
        let below = column.lt(row).where_(a.value, 0.0);
        let unit = row.eq(column).where_(1.0, below);
        unit.narrow(-1, 0, a.steps())
    }

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

    /// Solves `A·X = B`, or `Aᵀ·X = B`.
    pub fn solve(&self, b: Value<'g>, transposed: bool) -> Result<Value<'g>> {
        let lu = self.factors;
        let b = with_batch(b, &lu.batch())?;
        let exchange = |value: Value<'g>, (step, pivot): (usize, &Value<'g>)| {
            with_rows_exchanged(value, step as i64, *pivot)
        };
        let numbered = self.pivots.iter().enumerate();
        if transposed {
            let swapped = lu.with(lu.value.transpose(-1, -2));
            let half = solve_triangular(
                swapped,
                b,
                TriangleKind {
                    upper: false,
                    unit: false,
                },
            )?;
            let whole = solve_triangular(
                swapped,
                half,
                TriangleKind {
                    upper: true,
                    unit: true,
                },
            )?;
            return Ok(numbered.rev().fold(whole, exchange));
        }
        let b = numbered.fold(b, exchange);
        let half = solve_triangular(
            lu,
            b,
            TriangleKind {
                upper: false,
                unit: true,
            },
        )?;
        solve_triangular(
            lu,
            half,
            TriangleKind {
                upper: true,
                unit: false,
            },
        )
    }
}

/// Exchanges a row with another one, which each matrix of the batch chooses.
fn with_rows_exchanged<'g>(value: Value<'g>, row: i64, other: Value<'g>) -> Value<'g> {
    let index = value.positions(-2);
    let other = other.unsqueeze(-1).unsqueeze(-1);
    let source = index.eq(other).where_(row, index);
    let source = index.eq(row).where_(other, source);
    value.gather(-2, source.expand(value.shape()))
}

/// Broadcasts the dimensions in front of the last two.
fn with_batch<'g>(value: Value<'g>, batch: &[Dim]) -> Result<Value<'g>> {
    let shape = value.shape();
    let (own, matrix) = shape.split_at(shape.len().saturating_sub(2));
    let symbols = value.builder().symbols();
    let common = symbols.broadcast_shapes(&[own.to_vec(), batch.to_vec()])?;
    Ok(value.expand([common.as_slice(), matrix].concat()))
}

/// Whether the right-hand side of a system of equations is a vector or a batch of vectors. It is if its sizes are those of
/// the matrix without the last one.
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

/// The triangle of a matrix that is read, and whether its diagonal counts as ones.
#[derive(Clone, Copy)]
pub(super) struct TriangleKind {
    pub upper: bool,
    pub unit: bool,
}

/// Solves `T·X = B` for a triangular matrix, row by row. Batches broadcast.
pub(super) fn solve_triangular<'g>(
    matrix: Matrix<'g>,
    b: Value<'g>,
    triangle: TriangleKind,
) -> Result<Value<'g>> {
    let builder = b.builder();
    if matrix.rows == 0 {
        return with_batch(b, &matrix.batch());
    }
    let row = matrix.row();
    let mut rest = b;
    let mut found = Vec::new();
    for count in 0..matrix.rows {
        let step = if triangle.upper {
            matrix.rows - 1 - count
        } else {
            count
        };
        let line = rest.narrow(-2, step, 1);
        let x = if triangle.unit {
            line
        } else {
            line / matrix.at(step, step)
        };
        let still = if triangle.upper {
            row.lt(step)
        } else {
            row.gt(step)
        };
        let factor = still.where_(matrix.value.narrow(-1, step, 1), 0.0);
        rest = rest - factor * x;
        found.push(x);
        builder.check()?;
    }
    if triangle.upper {
        found.reverse();
    }
    // The first row was read before its batch was broadcast.
    let shapes: Vec<_> = found.iter().map(|line| line.shape()).collect();
    let common = builder.symbols().broadcast_shapes(&shapes)?;
    let lines: Vec<Value<'g>> = found
        .iter()
        .map(|line| line.expand(common.clone()))
        .collect();
    Ok(builder.concat(&lines, -2))
}

/// The lower factor `L` of `A = L·Lᵀ`. Reads the lower triangle of the matrix.
pub(super) fn cholesky<'g>(matrix: Matrix<'g>) -> Value<'g> {
    let row = matrix.row();
    let mut a = matrix;
    let mut columns = Vec::new();
    for step in 0..a.rows {
        let root = a.at(step, step).sqrt();
        let column = row.ge(step).where_(a.value.narrow(-1, step, 1) / root, 0.0);
        a = a.with(a.value - column * column.transpose(-1, -2));
        columns.push(column);
    }
    if columns.is_empty() {
        return matrix.value;
    }
    matrix.value.builder().concat(&columns, -1)
}

/// Householder reflections in LAPACK's layout (`geqrf`): `R` on and above the diagonal, the vectors below it, and their
/// factors.
pub(super) fn householder_reflections<'g>(matrix: Matrix<'g>) -> (Matrix<'g>, Value<'g>) {
    let (row, column) = (matrix.row(), matrix.column());
    let builder = matrix.value.builder();
    let mut a = matrix;
    let mut factors = Vec::new();
    for step in 0..a.steps() {
        let own = a.value.narrow(-1, step, 1);
        let head = a.at(step, step);
        let below = row.gt(step).where_(own, 0.0);
        let tail = (below * below).sum(&[-2], true);
        let length = (head * head + tail).sqrt();
        let beta = head.ge(0.0).where_(-length, length);
        let is_done = tail.eq(0.0);
        let factor = is_done.where_(0.0, (beta - head) / is_done.where_(1.0, beta));
        let vector = below / is_done.where_(1.0, head - beta);
        let unit = row.eq(step).where_(1.0, vector);
        let line = unit.transpose(-1, -2).matmul(a.value);
        let rest = a.value - factor * unit * line;
        let end = is_done.where_(head, beta);
        let new = row.eq(step).where_(end, row.gt(step).where_(vector, own));
        let rest = column.gt(step).where_(rest, a.value);
        a = a.with(column.eq(step).where_(new, rest));
        factors.push(factor.squeeze(&[-1]));
    }
    let factors = if factors.is_empty() {
        let shape = [matrix.batch(), vec![Dim::ZERO]].concat();
        builder.full(matrix.value.dtype(), shape, 0.0)
    } else {
        builder.concat(&factors, -1)
    };
    (a, factors)
}

/// Applies the product of the reflections, or its transpose, to `b` from the left.
pub(super) fn apply_reflections<'g>(
    vectors: Matrix<'g>,
    factors: Value<'g>,
    b: Value<'g>,
    transposed: bool,
) -> Result<Value<'g>> {
    let row = vectors.row();
    let count = b.builder().symbols().specialize(&factors.size(-1))?;
    let mut steps: Vec<i64> = (0..count.min(vectors.columns)).collect();
    if !transposed {
        steps.reverse();
    }
    let mut result = b;
    for step in steps {
        let below = row.gt(step).where_(vectors.value.narrow(-1, step, 1), 0.0);
        let unit = row.eq(step).where_(1.0, below);
        let factor = factors.narrow(-1, step, 1).unsqueeze(-1);
        result = result - factor * unit * unit.transpose(-1, -2).matmul(result);
    }
    Ok(result)
}
