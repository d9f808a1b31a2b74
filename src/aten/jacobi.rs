//! Singular values and eigenvalues by Jacobi rotations, unrolled. A round rotates disjoint pairs of columns at once; a
//! sweep is a sequence of rounds in which every pair of columns meets once.
//!
//! Golub and Van Loan, Matrix Computations, 8.5 (cyclic Jacobi, round-robin order) and 8.6.3 (one-sided Jacobi).
//! Vectors are determined up to their signs, which may differ from LAPACK's.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::Value;

use super::matrix::Matrix;

/// Number of sweeps. It is fixed, since the graph is unrolled; convergence is quadratic.
const SWEEPS: i64 = 9;

/// A thin singular value decomposition `A = U·diag(S)·Vᵀ`, with as many singular values as the smaller of rows and
/// columns.
pub(super) struct Svd<'g> {
    /// `U`: left singular vectors as columns.
    pub left: Value<'g>,
    /// `S`: singular values in descending order.
    pub values: Value<'g>,
    /// `V`: right singular vectors as columns.
    pub right: Value<'g>,
}

impl<'g> Svd<'g> {
    /// Decomposes a batch of matrices; wide matrices through their transpose.
    pub fn new(matrix: Matrix<'g>) -> Svd<'g> {
        if matrix.rows < matrix.columns {
            let transposed_svd = Svd::new(matrix.transposed());
            return Svd {
                left: transposed_svd.right,
                values: transposed_svd.values,
                right: transposed_svd.left,
            };
        }
        let size = matrix.columns;
        let (mut a, mut v) = (matrix.value, matrix.identity(size, size).value);
        for pairs in schedule(a, size) {
            let partner_columns = a.index_select(-1, pairs.partner);
            let squared_norms = (a * a).sum(&[-2], false);
            let (cos, sin) = pairs.rotation(squared_norms, (a * partner_columns).sum(&[-2], false));
            let (cos, sin) = (cos.unsqueeze(-2), sin.unsqueeze(-2));
            a = a * cos - partner_columns * sin;
            v = v * cos - v.index_select(-1, pairs.partner) * sin;
        }
        let (values, order) = (a * a).sum(&[-2], false).sqrt().sort(-1, true);
        let divisor = values.eq(0.0).where_(1.0, values).unsqueeze(-2);
        Svd {
            left: reordered_columns(a, order) / divisor,
            values,
            right: reordered_columns(v, order),
        }
    }

    /// The pseudoinverse `V·diag(1 / S)·Uᵀ` of the singular values above `cutoff`, which has the batch sizes.
    pub fn pseudo_inverse(&self, cutoff: Value<'g>) -> Value<'g> {
        let is_above = self.values.gt(cutoff.unsqueeze(-1));
        let divisor = is_above.where_(self.values, 1.0);
        let inverse = is_above.where_(divisor.reciprocal(), 0.0).unsqueeze(-2);
        (self.right * inverse).matmul(self.left.transpose(-1, -2))
    }
}

/// Eigenvalues of a symmetric matrix in ascending order, and the eigenvectors as columns.
pub(super) fn symmetric_eigen<'g>(matrix: Matrix<'g>) -> (Value<'g>, Value<'g>) {
    let size = matrix.columns;
    let (mut a, mut v) = (matrix.value, matrix.identity(size, size).value);
    for pairs in schedule(a, size) {
        let mut column_shape = a.shape();
        if let Some(last) = column_shape.last_mut() {
            *last = Dim::ONE;
        }
        let partner_index = pairs.partner.unsqueeze(-1).expand(column_shape);
        let off_diagonal = a.gather(-1, partner_index).squeeze(&[-1]);
        let (cos, sin) = pairs.rotation(Matrix { value: a, ..matrix }.diagonal(), off_diagonal);
        let (row_cos, row_sin) = (cos.unsqueeze(-1), sin.unsqueeze(-1));
        let (cos, sin) = (cos.unsqueeze(-2), sin.unsqueeze(-2));
        a = a * cos - a.index_select(-1, pairs.partner) * sin;
        a = a * row_cos - a.index_select(-2, pairs.partner) * row_sin;
        v = v * cos - v.index_select(-1, pairs.partner) * sin;
    }
    let (values, order) = Matrix { value: a, ..matrix }.diagonal().sort(-1, false);
    (values, reordered_columns(v, order))
}

/// Reorders columns. `order` is `[.., columns]`: each matrix of the batch has its own order.
fn reordered_columns<'g>(value: Value<'g>, order: Value<'g>) -> Value<'g> {
    value.gather(-1, order.unsqueeze(-2).expand(value.shape()))
}

/// The pairs of columns that one round rotates.
struct RotationPairs<'g> {
    /// Column numbers `0..size`.
    index: Value<'g>,
    /// For each column, the column that it is rotated with; itself if the round leaves it alone.
    partner: Value<'g>,
}

/// The pairs of every round of every sweep. For an odd number `m` of columns, round `r` pairs the columns whose indices
/// sum to `r` modulo `m`; one column would pair with itself. For an even number, `m` is one less, and the last column
/// pairs with the column that would pair with itself.
fn schedule<'g>(x: Value<'g>, size: i64) -> impl Iterator<Item = RotationPairs<'g>> {
    let is_even = size % 2 == 0;
    let modulus = if is_even { size - 1 } else { size };
    let rounds = if size < 2 { 0 } else { modulus };
    let index = x.builder().iota(DType::I64, vec![Dim::from(size)], 0);
    (0..SWEEPS * rounds).map(move |round| {
        let round = round % modulus;
        let paired = index.rsub(round).remainder(modulus);
        let partner = if is_even {
            let unpaired = round * (size / 2) % modulus;
            let paired = paired.eq(index).where_(size - 1, paired);
            index.eq(size - 1).where_(unpaired, paired)
        } else {
            paired
        };
        RotationPairs { index, partner }
    })
}

impl<'g> RotationPairs<'g> {
    /// Cosine and sine, for each column, of the rotation that makes `off_diagonal` vanish. The partner's sine is the
    /// negative. `diagonal` is the diagonal of a symmetric matrix, and `off_diagonal` its elements between each column
    /// and its partner; for singular values that matrix is `AᵀA`.
    fn rotation(&self, diagonal: Value<'g>, off_diagonal: Value<'g>) -> (Value<'g>, Value<'g>) {
        let partner_diagonal = diagonal.index_select(-1, self.partner);
        let rotates = off_diagonal
            .ne(0.0)
            .logical_and(self.partner.ne(self.index));
        let ratio = (partner_diagonal - diagonal) / (rotates.where_(off_diagonal, 1.0) * 2.0);
        let is_first = self.index.lt(self.partner).expand(ratio.shape());
        let is_positive = ratio
            .gt(0.0)
            .logical_or(ratio.eq(0.0).logical_and(is_first));
        let magnitude = (ratio.abs() + (ratio * ratio + 1.0).sqrt()).reciprocal();
        let tangent = is_positive.where_(magnitude, -magnitude);
        let tangent = rotates.where_(tangent, 0.0);
        let cos = (tangent * tangent + 1.0).rsqrt();
        (cos, tangent * cos)
    }
}
