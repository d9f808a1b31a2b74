//! Linear algebra on small matrices: determinants, inverses, systems of equations, factorizations.

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::factorize::{
    Lu, TriangleKind, apply_reflections, cholesky, cholesky_info, householder_reflections,
    is_vector_side, solve_triangular,
};
use super::matrix::Matrix;
use super::matrix_gradients;
use super::{Args, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::linalg_det(Tensor A) -> Tensor",
            "aten::det(Tensor self) -> Tensor",
        ],
        |a| Ok(determinant(&elimination(a)?)),
        &["f32[3, 3]", "f32[B, 4, 4]"],
    ),
    Composite::many(
        &[
            "aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
            "aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)",
        ],
        |a| {
            let (sign, log) = log_determinant(&elimination(a)?);
            Ok(vec![sign, log])
        },
        &["f32[B, 3, 3]"],
    ),
    Composite::one(
        &["aten::logdet(Tensor self) -> Tensor"],
        |a| {
            let (sign, log) = log_determinant(&elimination(a)?);
            Ok(sign.eq(-1.0).where_(f64::NAN, log))
        },
        &["f32[3, 3]"],
    ),
    Composite::one(
        &[
            "aten::linalg_inv(Tensor A) -> Tensor",
            "aten::inverse(Tensor self) -> Tensor",
        ],
        |a| inverse(&elimination(a)?),
        &["f32[B, 3, 3]"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::many(
        &[
            "aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
        ],
        |a| {
            let lu = elimination(a)?;
            Ok(vec![inverse(&lu)?, lu.info()])
        },
        &["f32[3, 3]"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::one(
        &["aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor"],
        |a| Ok(solve(a)?.0),
        &[
            "f32[3, 3], f32[3]",
            "f32[B, 3, 3], f32[B, 3, 2]",
            "f32[3, 3], f32[2, 3], left=False",
        ],
    ),
    Composite::many(
        &[
            "aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
        ],
        |a| solve(a).map(|(x, lu)| vec![x, lu.info()]),
        &["f32[3, 3], f32[3, 2]"],
    ),
    Composite::one(
        &[
            "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
        ],
        |a| {
            let (matrix, b) = (a.tensor("self"), a.tensor("B"));
            let triangle = TriangleKind {
                upper: a.bool("upper"),
                unit: a.bool("unitriangular"),
            };
            triangular(matrix, b, triangle, a.bool("left"))
        },
        &[
            "f32[3, 3], f32[B, 3, 2], upper=True",
            "f32[3, 3], f32[2, 3], upper=False, left=False",
        ],
    ),
    Composite::many(
        &[
            "aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)",
        ],
        |a| {
            let matrix = a.tensor("A");
            let unit = a.bool("unitriangular");
            let x = if a.bool("transpose") {
                let triangle = TriangleKind {
                    upper: !a.bool("upper"),
                    unit,
                };
                triangular(matrix.transpose(-1, -2), a.tensor("self"), triangle, true)?
            } else {
                let triangle = TriangleKind {
                    upper: a.bool("upper"),
                    unit,
                };
                triangular(matrix, a.tensor("self"), triangle, true)?
            };
            let shape = x.shape();
            let mut batch: Vec<Dim> = shape.iter().rev().skip(2).rev().cloned().collect();
            batch.extend([matrix.size(-2), matrix.size(-1)]);
            Ok(vec![x, matrix.expand(batch)])
        },
        &["f32[3, 2], f32[3, 3]", "f32[B, 3, 2], f32[3, 3]"],
    ),
    Composite::one(
        &[
            "aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor",
            "aten::cholesky(Tensor self, bool upper=False) -> Tensor",
        ],
        cholesky_factor,
        &["f32[3, 3]"],
    )
    .with_gradient(matrix_gradients::cholesky)
    .with_strides(StrideRule::ColumnMajor),
    Composite::many(
        &[
            "aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
        ],
        |a| {
            let factor = cholesky_factor(a)?;
            Ok(vec![factor, cholesky_info(Matrix::square(factor)?)])
        },
        &["f32[3, 3]"],
    )
    .with_gradient(matrix_gradients::cholesky)
    .with_strides(StrideRule::ColumnMajor),
    Composite::one(
        &["aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"],
        |a| solve_by_cholesky(a.tensor("input2"), a.bool("upper"), a.tensor("self")),
        &["f32[3, 2], f32[3, 3]"],
    )
    .with_gradient(|call| {
        let (factor, upper) = (call.args().tensor("input2"), call.args().bool("upper"));
        matrix_gradients::cholesky_solve(call, |b| solve_by_cholesky(factor, upper, b))
    })
    .with_strides(StrideRule::ColumnMajor),
    Composite::one(
        &["aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor"],
        |a| {
            let factor = Matrix::square(a.tensor("self"))?;
            let identity = factor.identity(factor.rows, factor.rows).value;
            solve_by_cholesky(factor.value, a.bool("upper"), identity)
        },
        &["f32[3, 3]"],
    ),
    Composite::many(
        &[
            "aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
            "aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots, Tensor info)",
        ],
        |a| {
            let lu = Lu::new(Matrix::new(matrix_argument(a))?, a.bool("pivot"));
            Ok(vec![lu.factors.value, lu.numbered_pivots(), lu.info()])
        },
        &["f32[B, 3, 4]"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::many(
        &["aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)"],
        |a| {
            let lu = Lu::new(Matrix::new(matrix_argument(a))?, a.bool("pivot"));
            Ok(vec![lu.factors.value, lu.numbered_pivots()])
        },
        &["f32[4, 3]"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::many(
        &["aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"],
        |a| {
            let lu = Lu::new(Matrix::new(matrix_argument(a))?, a.bool("pivot"));
            let permutation = if a.bool("pivot") {
                lu.permutation()
            } else {
                a.builder()
                    .full(lu.factors.value.dtype(), vec![Dim::ZERO], 0.0)
            };
            Ok(vec![permutation, lu.lower(), lu.upper()])
        },
        &["f32[3, 4]"],
    ),
    Composite::many(
        &[
            "aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
        ],
        |a| {
            let lu = Lu::read(a.tensor("LU_data"), a.tensor("LU_pivots"))?;
            let empty = a
                .builder()
                .full(lu.factors.value.dtype(), vec![Dim::ZERO], 0.0);
            let (pivots, data) = (a.bool("unpack_pivots"), a.bool("unpack_data"));
            let id_or_empty =
                |wanted: bool, value: Value<'_>| if wanted { value.id() } else { empty.id() };
            let ids = [
                id_or_empty(pivots, lu.permutation()),
                id_or_empty(data, lu.lower()),
                id_or_empty(data, lu.upper()),
            ];
            Ok(ids.into_iter().map(|id| a.builder().value(id)).collect())
        },
        &["f32[3, 3], i32[3]"],
    ),
    Composite::one(
        &[
            "aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
        ],
        |a| {
            let lu = Lu::read(a.tensor("LU"), a.tensor("pivots"))?;
            let b = a.tensor("B");
            if a.bool("left") {
                return lu.solve(b, a.bool("adjoint"));
            }
            let x = lu.solve(b.transpose(-1, -2), !a.bool("adjoint"))?;
            Ok(x.transpose(-1, -2))
        },
        &["f32[2, 2], i32[2], f32[2, 3]"],
    ),
    Composite::one(
        &["aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor"],
        |a| Lu::read(a.tensor("LU_data"), a.tensor("LU_pivots"))?.solve(a.tensor("self"), false),
        &["f32[2, 3], f32[2, 2], i32[2]"],
    ),
    Composite::many(
        &["aten::linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)"],
        |a| qr_factorization(a.tensor("A"), &a.str("mode")),
        &["f32[4, 3]", "f32[B, 3, 4], 'complete'"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::many(
        &["aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)"],
        |a| {
            let mode = if a.bool("some") {
                "reduced"
            } else {
                "complete"
            };
            qr_factorization(a.tensor("self"), mode)
        },
        &["f32[4, 3]"],
    ),
    Composite::many(
        &["aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)"],
        |a| {
            let (vectors, factors) = householder_reflections(Matrix::new(a.tensor("self"))?);
            Ok(vec![vectors.value, factors])
        },
        &["f32[4, 3]"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::one(
        &["aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor"],
        |a| product_of_reflections(a.tensor("input"), a.tensor("tau")),
        &["f32[4, 3], f32[3]"],
    )
    .with_strides(StrideRule::ColumnMajor),
    Composite::one(
        &["aten::orgqr(Tensor self, Tensor input2) -> Tensor"],
        |a| product_of_reflections(a.tensor("self"), a.tensor("input2")),
        &["f32[4, 3], f32[3]"],
    ),
    Composite::one(
        &[
            "aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor",
        ],
        |a| {
            let vectors = Matrix::new(a.tensor("self"))?;
            let (factors, b) = (a.tensor("input2"), a.tensor("input3"));
            if a.bool("left") {
                return apply_reflections(vectors, factors, b, a.bool("transpose"));
            }
            let transposed = apply_reflections(vectors, factors, b.transpose(-1, -2), !a.bool("transpose"))?;
            Ok(transposed.transpose(-1, -2))
        },
        &[
            "f32[3, 3], f32[3], f32[3, 2]",
            "f32[3, 3], f32[3], f32[2, 3], False",
        ],
    ),
    Composite::one(
        &[
            "aten::linalg_matrix_power(Tensor self, int n) -> Tensor",
            "aten::matrix_power(Tensor self, int n) -> Tensor",
        ],
        matrix_power,
        &["f32[3, 3], 3", "f32[B, 2, 2], -2", "f32[3, 3], 0"],
    ),
    Composite::one(
        &["aten::linalg_tensorinv(Tensor self, int ind=2) -> Tensor"],
        tensor_inverse,
        &["f32[2, 3, 6], 2"],
    ),
    Composite::one(
        &["aten::linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor"],
        tensor_solve,
        &["f32[2, 3, 6], f32[2, 3]"],
    ),
];

/// The matrix argument, which the overload calls `A` or `self`.
fn matrix_argument<'g>(a: &Args<'g>) -> Value<'g> {
    a.tensor(if a.has("A") { "A" } else { "self" })
}

/// LU factors, with pivoting, of the matrix argument, which must be square.
fn elimination<'g>(a: &Args<'g>) -> Result<Lu<'g>> {
    Ok(Lu::new(Matrix::square(matrix_argument(a))?, true))
}

/// The product of the diagonal of `U`, with the sign of the permutation.
fn determinant<'g>(lu: &Lu<'g>) -> Value<'g> {
    lu.factors.diagonal().prod(&[-1], false) * lu.sign()
}

/// Sign of the determinant, and the logarithm of its absolute value.
fn log_determinant<'g>(lu: &Lu<'g>) -> (Value<'g>, Value<'g>) {
    let diagonal = lu.factors.diagonal();
    let sign = diagonal.sign().prod(&[-1], false) * lu.sign();
    (sign, diagonal.abs().log().sum(&[-1], false))
}

/// The inverse of a factorized square matrix.
pub(super) fn inverse<'g>(lu: &Lu<'g>) -> Result<Value<'g>> {
    let size = lu.factors.rows;
    lu.solve(lu.factors.identity(size, size).value, false)
}

/// Solves `A·X = B`, or `X·A = B` if `left` is false. Also returns the factors of `A`.
fn solve<'g>(a: &Args<'g>) -> Result<(Value<'g>, Lu<'g>)> {
    let (matrix, b) = (Matrix::square(a.tensor("A"))?, a.tensor("B"));
    let lu = Lu::new(matrix, true);
    if is_vector_side(matrix, b)? {
        return Ok((lu.solve(b.unsqueeze(-1), false)?.squeeze(&[-1]), lu));
    }
    if a.bool("left") {
        return Ok((lu.solve(b, false)?, lu));
    }
    let x = lu.solve(b.transpose(-1, -2), true)?;
    Ok((x.transpose(-1, -2), lu))
}

/// Solves `T·X = B` for a triangular matrix `T`, or `X·T = B` if `left` is false.
fn triangular<'g>(
    matrix: Value<'g>,
    b: Value<'g>,
    triangle: TriangleKind,
    left: bool,
) -> Result<Value<'g>> {
    if left {
        return solve_triangular(Matrix::square(matrix)?, b, triangle);
    }
    let transposed = TriangleKind {
        upper: !triangle.upper,
        ..triangle
    };
    let matrix = Matrix::square(matrix.transpose(-1, -2))?;
    Ok(solve_triangular(matrix, b.transpose(-1, -2), transposed)?.transpose(-1, -2))
}

/// The Cholesky factor of the argument `self`, which is read in the triangle that `upper` names: `L` of `A = L·Lᵀ`, or
/// `U` of `A = Uᵀ·U`.
fn cholesky_factor<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, upper) = (a.tensor("self"), a.bool("upper"));
    let lower = if upper { x.transpose(-1, -2) } else { x };
    let factor = cholesky(Matrix::square(lower)?);
    Ok(if upper {
        factor.transpose(-1, -2)
    } else {
        factor
    })
}

/// Solves `A·X = B` given the Cholesky factor of `A`: an upper triangle if `upper`, else a lower one.
fn solve_by_cholesky<'g>(factor: Value<'g>, upper: bool, b: Value<'g>) -> Result<Value<'g>> {
    let lower = if upper {
        factor.transpose(-1, -2)
    } else {
        factor
    };
    let lower = Matrix::square(lower)?;
    let intermediate = solve_triangular(
        lower,
        b,
        TriangleKind {
            upper: false,
            unit: false,
        },
    )?;
    let transposed = Matrix::square(lower.value.transpose(-1, -2))?;
    solve_triangular(
        transposed,
        intermediate,
        TriangleKind {
            upper: true,
            unit: false,
        },
    )
}

/// `Q` and `R` of `x`. The mode `complete` gives a square `Q`, `reduced` as many columns as the smaller side has, and
/// `r` an empty `Q`.
fn qr_factorization<'g>(x: Value<'g>, mode: &str) -> Result<Vec<Value<'g>>> {
    let matrix = Matrix::new(x)?;
    let (vectors, factors) = householder_reflections(matrix);
    let steps = matrix.rows.min(matrix.columns);
    let width = match mode {
        "complete" => matrix.rows,
        "reduced" | "r" => steps,
        other => return Err(Error::operator(format!("mode = {other:?}"))),
    };
    let upper = vectors.triangle(true).narrow(-2, 0, width);
    if mode == "r" {
        return Ok(vec![
            x.builder().full(x.dtype(), vec![Dim::ZERO], 0.0),
            upper,
        ]);
    }
    let identity = matrix.identity(matrix.rows, width).value;
    Ok(vec![
        apply_reflections(vectors, factors, identity, false)?,
        upper,
    ])
}

/// The product of Householder reflections, cut to the shape of `vectors`. `factors` are LAPACK's `tau`.
fn product_of_reflections<'g>(vectors: Value<'g>, factors: Value<'g>) -> Result<Value<'g>> {
    let vectors = Matrix::new(vectors)?;
    let identity = vectors.identity(vectors.rows, vectors.columns).value;
    apply_reflections(vectors, factors, identity, false)
}

/// Raises a matrix to an integer power by repeated squaring; a negative power inverts it first.
fn matrix_power<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, exponent) = (a.tensor("self"), a.int("n"));
    let base = if exponent < 0 {
        inverse(&elimination(a)?)?
    } else {
        x
    };
    let mut remaining = exponent.unsigned_abs();
    if remaining == 0 {
        let matrix = Matrix::square(x)?;
        return Ok(matrix.identity(matrix.rows, matrix.columns).value);
    }
    let (mut square, mut product) = (base, None);
    loop {
        if remaining % 2 == 1 {
            product = Some(product.map_or(square, |product: Value<'g>| product.matmul(square)));
        }
        remaining /= 2;
        if remaining == 0 {
            return Ok(product.unwrap_or(base));
        }
        square = square.matmul(square);
    }
}

/// The inverse of a value as a matrix whose rows are the first `ind` dimensions and whose columns are the others.
fn tensor_inverse<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let shape = x.shape();
    let split = usize::try_from(a.int("ind")).unwrap_or(0);
    let (Some(row_sizes), Some(column_sizes)) = (shape.get(..split), shape.get(split..)) else {
        return a.reject(format!("ind = {split} of {}", x.ty()));
    };
    let matrix = x.reshape(vec![Dim::product(row_sizes), Dim::product(column_sizes)]);
    let inverted = inverse(&Lu::new(Matrix::square(matrix)?, true))?;
    Ok(inverted.reshape([column_sizes, row_sizes].concat()))
}

/// Solves `tensordot(A, X, X.ndim) = B` after moving `dims` of `A` to its end.
fn tensor_solve<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, b) = (a.tensor("self"), a.tensor("other"));
    let moved: Vec<usize> = a
        .ints("dims")
        .into_iter()
        .filter_map(|dim| x.axis(dim))
        .collect();
    let others = (0..x.rank()).filter(|axis| !moved.contains(axis));
    let x = x.permute(others.chain(moved.iter().copied()).collect::<Vec<_>>());
    let shape = x.shape();
    let solution_shape = shape.get(b.rank()..).unwrap_or_default().to_vec();
    let size = Dim::product(&solution_shape);
    let matrix = Matrix::square(x.reshape(vec![b.numel(), size]))?;
    let solution = Lu::new(matrix, true).solve(b.reshape(vec![b.numel(), Dim::ONE]), false)?;
    Ok(solution.reshape(solution_shape))
}
