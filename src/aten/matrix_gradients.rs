//! Gradients of matrix factorizations and of what is solved with them, after PyTorch's `FunctionsManual.cpp`
//! (`torch/csrc/autograd`). Gradients of functions of symmetric matrices are symmetric, although one triangle is read.

use super::CallGradient;
use super::factorize::{TriangleKind, is_vector_side, solve_triangular};
use super::matrix::Matrix;
use crate::error::Result;
use crate::ir::Value;

/// Gradients of arguments by name.
type Named<'g> = Vec<(&'static str, Value<'g>)>;

/// `A = L·Lᵀ`: the gradient is the symmetric part of `L⁻ᵀ·Φ(Lᵀ·ΔL)·L⁻¹`, where `Φ` keeps the lower triangle and half of the
/// diagonal.
pub(super) fn cholesky<'g>(call: &CallGradient<'g>) -> Result<Named<'g>> {
    let lower = |value: Value<'g>| match call.args().bool("upper") {
        true => value.transpose(-1, -2),
        false => value,
    };
    let (factor, gradient) = (lower(call.result(0)?), lower(call.gradient(0)?));
    let product = Matrix::square(factor.transpose(-1, -2).matmul(gradient))?;
    let (row, column) = (product.row_indices(), product.column_indices());
    let below = row.gt(column).where_(product.value, 0.0);
    let half = row.eq(column).where_(product.value * 0.5, below);
    let left = solve_transposed(factor, half)?;
    let both = solve_transposed(factor, left.transpose(-1, -2))?;
    Ok(vec![("self", (both + both.transpose(-1, -2)) * 0.5)])
}

/// Solves `Lᵀ·X = B` for a lower triangular matrix `L`.
fn solve_transposed<'g>(lower: Value<'g>, b: Value<'g>) -> Result<Value<'g>> {
    let triangle = TriangleKind {
        upper: true,
        unit: false,
    };
    solve_triangular(Matrix::square(lower.transpose(-1, -2))?, b, triangle)
}

/// `A·X = B` for the Cholesky factor of `A`. `solve` solves it for another right-hand side.
pub(super) fn cholesky_solve<'g>(
    call: &CallGradient<'g>,
    solve: impl Fn(Value<'g>) -> Result<Value<'g>>,
) -> Result<Named<'g>> {
    let (b, factor) = (call.args().tensor("self"), call.args().tensor("input2"));
    let of_b = solve(call.gradient(0)?)?;
    let product = of_b.matmul(call.result(0)?.transpose(-1, -2));
    let symmetric = product + product.transpose(-1, -2);
    let of_factor = match call.args().bool("upper") {
        true => -factor.matmul(symmetric),
        false => -symmetric.matmul(factor),
    };
    Ok(vec![
        ("self", of_b.sum_to(&b.shape())),
        ("input2", of_factor.sum_to(&factor.shape())),
    ])
}

/// `A = V·diag(λ)·Vᵀ` with the gradients of the eigenvalues and, if the loss depends on them, of the eigenvectors.
pub(super) fn eigen<'g>(
    [values, vectors]: [Value<'g>; 2],
    of_values: Value<'g>,
    of_vectors: Option<Value<'g>>,
) -> Result<Named<'g>> {
    let transposed = vectors.transpose(-1, -2);
    let square = Matrix::square(vectors)?;
    let is_diagonal = square.row_indices().eq(square.column_indices());
    let others = of_vectors.map(|gradient| {
        let distance = values.unsqueeze(-2) - values.unsqueeze(-1);
        transposed.matmul(gradient) / is_diagonal.where_(1.0, distance)
    });
    let diagonal = of_values.unsqueeze(-1);
    let core = match others {
        Some(others) => is_diagonal.where_(diagonal, others),
        None => is_diagonal.where_(diagonal, 0.0),
    };
    Ok(vec![("self", vectors.matmul(core).matmul(transposed))])
}

/// The least-squares solution `X = A⁺·B` and, if the call returns them, the squares of the residuals.
pub(super) fn least_squares<'g>(
    call: &CallGradient<'g>,
    pseudo_inverse: Value<'g>,
) -> Result<Named<'g>> {
    let (matrix, b) = (call.args().tensor("self"), call.args().tensor("b"));
    let is_vector = is_vector_side(Matrix::new(matrix)?, b)?;
    let column = |value: Value<'g>| match is_vector {
        true => value.unsqueeze(-1),
        false => value,
    };
    let (right, solution) = (column(b), column(call.result(0)?));
    let gradient = column(call.gradient(0)?);
    let mut of_matrix = of_pseudo_inverse(
        matrix,
        pseudo_inverse,
        gradient.matmul(right.transpose(-1, -2)),
    );
    let mut of_right = pseudo_inverse.transpose(-1, -2).matmul(gradient);
    let residuals = call.gradient(1)?;
    // Without residuals the result is an empty vector.
    if residuals.rank() + 1 == right.rank() && !residuals.size(-1).is(0) {
        let residual = matrix.matmul(solution) - right;
        let of_residual = residual * residuals.unsqueeze(-2) * 2.0;
        of_matrix = of_matrix + of_residual.matmul(solution.transpose(-1, -2));
        of_right = of_right - of_residual;
    }
    let of_right = of_right.sum_to(&right.shape());
    Ok(vec![
        ("self", of_matrix.sum_to(&matrix.shape())),
        ("b", of_right.reshape(b.shape())),
    ])
}

/// The gradient of a matrix of full rank from that of its pseudo-inverse (Golub and Pereyra 1973).
fn of_pseudo_inverse<'g>(matrix: Value<'g>, inverse: Value<'g>, gradient: Value<'g>) -> Value<'g> {
    let (inverse_t, gradient_t) = (inverse.transpose(-1, -2), gradient.transpose(-1, -2));
    let direct = inverse_t.matmul(gradient).matmul(inverse_t);
    // The part of the gradient outside of the range of the matrix, and the part outside of its rows.
    let outside = gradient_t - matrix.matmul(inverse).matmul(gradient_t);
    let range = outside.matmul(inverse).matmul(inverse_t);
    let outside = gradient_t - gradient_t.matmul(inverse).matmul(matrix);
    let rows = inverse_t.matmul(inverse).matmul(outside);
    range + rows - direct
}
