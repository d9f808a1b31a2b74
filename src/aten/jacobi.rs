//! Singular values and eigenvalues by Jacobi rotations, unrolled. Each round rotates all disjoint pairs of columns at once.
//!
//! Golub and Van Loan, Matrix Computations, 8.5 (cyclic Jacobi, round-robin order) and 8.6.3 (one-sided Jacobi). Vectors are
//! determined up to their signs, which may differ from LAPACK's.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::Value;

use super::factorize::Matrix;

/// Number of sweeps over all pairs; convergence is quadratic.
const SWEEPS: i64 = 9;

/// `A = U·diag(S)·Vᵀ` with as many columns as the smaller side, and values in descending order.
pub(super) struct Svd<'g> {
    pub left: Value<'g>,
    pub values: Value<'g>,
    pub right: Value<'g>,
}

impl<'g> Svd<'g> {
    pub fn new(matrix: Matrix<'g>) -> Svd<'g> {
        if matrix.rows < matrix.columns {
            let turned = Svd::new(matrix.transposed());
            return Svd {
                left: turned.right,
                values: turned.values,
                right: turned.left,
            };
        }
        let size = matrix.columns;
        let (mut a, mut v) = (matrix.value, matrix.identity(size, size).value);
        for pairs in schedule(a, size) {
            let other = a.index_select(-1, pairs.partner);
            let lengths = (a * a).sum(&[-2], false);
            let (cos, sin) = pairs.rotation(lengths, (a * other).sum(&[-2], false));
            let (cos, sin) = (cos.unsqueeze(-2), sin.unsqueeze(-2));
            a = a * cos - other * sin;
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

    /// `V·diag(1 / S)·Uᵀ` over the values above a cutoff.
    pub fn pseudo_inverse(&self, cutoff: Value<'g>) -> Value<'g> {
        let counts = self.values.gt(cutoff.unsqueeze(-1));
        let safe = counts.where_(self.values, 1.0);
        let inverse = counts.where_(safe.reciprocal(), 0.0).unsqueeze(-2);
        (self.right * inverse).matmul(self.left.transpose(-1, -2))
    }
}

/// Eigenvalues of a symmetric matrix in ascending order, and the eigenvectors as columns.
pub(super) fn symmetric_eigen<'g>(matrix: Matrix<'g>) -> (Value<'g>, Value<'g>) {
    let size = matrix.columns;
    let (mut a, mut v) = (matrix.value, matrix.identity(size, size).value);
    for pairs in schedule(a, size) {
        let mut line = a.shape();
        if let Some(last) = line.last_mut() {
            *last = Dim::ONE;
        }
        let beside = pairs.partner.unsqueeze(-1).expand(line);
        let off = a.gather(-1, beside).squeeze(&[-1]);
        let (cos, sin) = pairs.rotation(Matrix { value: a, ..matrix }.diagonal(), off);
        let (row_cos, row_sin) = (cos.unsqueeze(-1), sin.unsqueeze(-1));
        let (cos, sin) = (cos.unsqueeze(-2), sin.unsqueeze(-2));
        a = a * cos - a.index_select(-1, pairs.partner) * sin;
        a = a * row_cos - a.index_select(-2, pairs.partner) * row_sin;
        v = v * cos - v.index_select(-1, pairs.partner) * sin;
    }
    let (values, order) = Matrix { value: a, ..matrix }.diagonal().sort(-1, false);
    (values, reordered_columns(v, order))
}

/// Reorders columns; each matrix of the batch has its own order.
fn reordered_columns<'g>(value: Value<'g>, order: Value<'g>) -> Value<'g> {
    value.gather(-1, order.unsqueeze(-2).expand(value.shape()))
}

/// For each column, the column that it is rotated with in one round; itself if none.
struct RotationPairs<'g> {
    index: Value<'g>,
    partner: Value<'g>,
}

/// The rounds of every sweep. In round `r` of an odd number `m` of columns, columns whose indices sum to `r` modulo `m` form
/// a pair. If the number is even, the last column pairs with the one that would pair with itself.
fn schedule<'g>(x: Value<'g>, size: i64) -> impl Iterator<Item = RotationPairs<'g>> {
    let is_even = size % 2 == 0;
    let modulus = if is_even { size - 1 } else { size };
    let rounds = if size < 2 { 0 } else { modulus };
    let index = x.builder().iota(DType::I64, vec![Dim::from(size)], 0);
    (0..SWEEPS * rounds).map(move |round| {
        let round = round % modulus;
        let met = index.rsub(round).remainder(modulus);
        let partner = if is_even {
            let lone = round * (size / 2) % modulus;
            let met = met.eq(index).where_(size - 1, met);
            index.eq(size - 1).where_(lone, met)
        } else {
            met
        };
        RotationPairs { index, partner }
    })
}

impl<'g> RotationPairs<'g> {
    /// For each column, the cosine and sine of the rotation that makes its product with its partner vanish. The partner's
    /// sine is the negative.
    fn rotation(&self, own: Value<'g>, product: Value<'g>) -> (Value<'g>, Value<'g>) {
        let other = own.index_select(-1, self.partner);
        let rotates = product.ne(0.0).logical_and(self.partner.ne(self.index));
        let ratio = (other - own) / (rotates.where_(product, 1.0) * 2.0);
        let is_first = self.index.lt(self.partner).expand(ratio.shape());
        let is_positive = ratio
            .gt(0.0)
            .logical_or(ratio.eq(0.0).logical_and(is_first));
        let slope = (ratio.abs() + (ratio * ratio + 1.0).sqrt()).reciprocal();
        let tangent = is_positive.where_(slope, -slope);
        let tangent = rotates.where_(tangent, 0.0);
        let cos = (tangent * tangent + 1.0).rsqrt();
        (cos, tangent * cos)
    }
}
