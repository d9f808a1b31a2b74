//! Linear algebra on small matrices by singular values and eigenvalues.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{ArithmeticOperand, Value};

use super::factorize::{apply_reflections, householder_reflections, is_vector_side};
use super::jacobi::{Svd, symmetric_eigen};
use super::matrix::Matrix;
use super::matrix_gradients;
use super::{Args, Composite};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor"],
        |a| Ok(Svd::new(Matrix::new(a.tensor("A"))?).values),
        &["f32[4, 3]", "f32[B, 3, 4]"],
    ),
    Composite::many(
        &[
            "aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
        ],
        |a| {
            let [left, values, right] = svd_factors(a.tensor("A"), a.bool("full_matrices"))?;
            Ok(vec![left, values, right.transpose(-1, -2)])
        },
        &["f32[3, 3]", "f32[4, 3], False"],
    ),
    Composite::many(
        &[
            "aten::svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
        ],
        |a| {
            let x = a.tensor("self");
            let [left, values, right] = svd_factors(x, !a.bool("some"))?;
            if a.bool("compute_uv") {
                return Ok(vec![left, values, right]);
            }
            let zeros = |size: Dim| {
                let mut shape = x.shape();
                shape.truncate(shape.len().saturating_sub(2));
                shape.extend([size.clone(), size]);
                a.builder().full(x.dtype(), shape, 0.0)
            };
            Ok(vec![zeros(x.size(-2)), values, zeros(x.size(-1))])
        },
        &["f32[3, 3]"],
    ),
    Composite::many(
        &[
            "aten::linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
        ],
        |a| {
            let (values, vectors) = eigen(a)?;
            Ok(vec![values, vectors])
        },
        &["f32[3, 3]"],
    )
    .with_gradient(|call| {
        let results = [call.result(0)?, call.result(1)?];
        matrix_gradients::eigen(results, call.gradient(0)?, call.gradient_if_used(1))
    }),
    Composite::one(
        &["aten::linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor"],
        |a| Ok(eigen(a)?.0),
        &["f32[B, 3, 3]"],
    )
    .with_gradient(|call| {
        let results = eigen(call.args())?.into();
        matrix_gradients::eigen(results, call.gradient(0)?, None)
    }),
    Composite::one(
        &[
            "aten::linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
            "aten::linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
            "aten::linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor",
            "aten::linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor",
        ],
        |a| {
            let x = a.tensor(if a.has("input") { "input" } else { "self" });
            if 2 <= x.rank() && x.numel().is(0) {
                let mut batch = x.shape();
                batch.truncate(batch.len().saturating_sub(2));
                return Ok(a.builder().full(DType::I64, batch, 0));
            }
            let values = if a.bool("hermitian") {
                symmetric_eigen(symmetric_from_triangle(x, false)?).0.abs()
            } else {
                Svd::new(Matrix::new(x)?).values
            };
            Ok(rank(values, rank_threshold(a, x, values)?))
        },
        &[
            "f32[4, 3]",
            "atol_rtol_float: f32[3, 3], atol=0.5, hermitian=True",
        ],
    ),
    Composite::one(
        &[
            "aten::linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor",
            "aten::linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
            "aten::linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
            "aten::linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor",
            "aten::pinverse(Tensor self, float rcond=1.0000000000000001e-15) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let matrix = if a.bool("hermitian") {
                symmetric_from_triangle(x, false)?
            } else {
                Matrix::new(x)?
            };
            let svd = Svd::new(matrix);
            Ok(svd.pseudo_inverse(rank_threshold(a, x, svd.values)?))
        },
        &[
            "f32[4, 3], 1e-15",
            "atol_rtol_float: f32[B, 3, 4], rtol=0.01",
        ],
    ),
    Composite::one(
        &[
            "aten::nuclear_norm(Tensor self, bool keepdim=False) -> Tensor",
            "aten::nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> Tensor",
        ],
        |a| {
            let dims = a.int_array("dim").unwrap_or([-2, -1]);
            spectral_norm(a.tensor("self"), dims, a.bool("keepdim"), |values| {
                values.sum(&[-1], false)
            })
        },
        &["f32[4, 3]", "dim: f32[3, 2, 4], [0, 2], True"],
    ),
    Composite::many(
        &[
            "aten::linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)",
        ],
        least_squares,
        &[
            "f32[4, 3], f32[4, 2], driver='gelsd'",
            "f32[2, 3], f32[2, 3]",
            "f32[1, 4, 3], f32[4, 2]",
        ],
    )
    .with_gradient(|call| {
        let a = call.args();
        let matrix = Matrix::new(a.tensor("self"))?;
        let svd = Svd::new(matrix);
        let cutoff = singular_value_threshold(matrix, svd.values, a.optional_float("rcond"))?;
        matrix_gradients::least_squares(call, svd.pseudo_inverse(cutoff))
    }),
    Composite::one(
        &[
            "aten::linalg_matrix_exp(Tensor self) -> Tensor",
            "aten::matrix_exp(Tensor self) -> Tensor",
        ],
        |a| exponential(Matrix::square(a.tensor("self"))?),
        &["f32[3, 3]"],
    ),
];

/// A norm of the singular values of the matrices along two dimensions.
pub(super) fn spectral_norm<'g>(
    x: Value<'g>,
    [rows, columns]: [i64; 2],
    keepdim: bool,
    norm: impl Fn(Value<'g>) -> Value<'g>,
) -> Result<Value<'g>> {
    let (Some(row), Some(column)) = (x.axis(rows), x.axis(columns)) else {
        return Ok(x);
    };
    let mut axes: Vec<usize> = (0..x.rank())
        .filter(|axis| *axis != row && *axis != column)
        .collect();
    axes.extend([row, column]);
    let result = norm(Svd::new(Matrix::new(x.permute(axes))?).values);
    if !keepdim {
        return Ok(result);
    }
    let (low, high) = (row.min(column) as i64, row.max(column) as i64);
    Ok(result.unsqueeze(low).unsqueeze(high))
}

/// `U`, `S` and `V` of the singular value decomposition; with `full`, `U` and `V` are completed to square matrices.
fn svd_factors(x: Value, full: bool) -> Result<[Value; 3]> {
    let matrix = Matrix::new(x)?;
    let svd = Svd::new(matrix);
    let completed = |vectors| {
        if full {
            complete_basis(vectors)
        } else {
            Ok(vectors)
        }
    };
    Ok([completed(svd.left)?, svd.values, completed(svd.right)?])
}

/// Completes orthonormal columns to a square matrix.
fn complete_basis(vectors: Value) -> Result<Value> {
    let matrix = Matrix::new(vectors)?;
    if matrix.columns == matrix.rows {
        return Ok(vectors);
    }
    let (reflected, factors) = householder_reflections(matrix);
    let start = matrix.identity(matrix.rows, matrix.rows).value;
    let basis = apply_reflections(reflected, factors, start, false)?;
    let rest = basis.narrow(-1, matrix.columns, matrix.rows - matrix.columns);
    Ok(vectors.builder().concat(&[vectors, rest], -1))
}

/// Eigenvalues and eigenvectors of the argument `self`, of which the call reads one triangle.
fn eigen<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let upper = a.str("UPLO").eq_ignore_ascii_case("U");
    Ok(symmetric_eigen(symmetric_from_triangle(
        a.tensor("self"),
        upper,
    )?))
}

/// The symmetric matrix that one triangle represents.
fn symmetric_from_triangle(x: Value, upper: bool) -> Result<Matrix> {
    let matrix = Matrix::square(x)?;
    let transposed = x.transpose(-1, -2);
    Ok(Matrix {
        value: matrix.in_triangle(upper).where_(x, transposed),
        ..matrix
    })
}

/// The threshold below which singular values count as zero: the larger of `atol` and `rtol` times the largest value
/// (`get_atol_rtol` of `aten/src/ATen/native/LinearAlgebra.cpp`).
fn rank_threshold<'g>(a: &Args<'g>, x: Value<'g>, values: Value<'g>) -> Result<Value<'g>> {
    let dtype = x.dtype();
    let number = |name: &str| {
        a.optional_number(name).map(|number| match number {
            ArithmeticOperand::Value(tolerances) => tolerances.to(dtype),
            number => a.builder().full(dtype, vec![], number),
        })
    };
    let largest = x
        .builder()
        .symbols()
        .specialize(&x.size(-2).maximum(&x.size(-1)))?;
    let default = dtype.epsilon().unwrap_or(0.0) * largest as f64;
    let tolerance = number("tol");
    let relative = match (number("rtol").or(number("rcond")), number("atol")) {
        (Some(relative), _) => relative,
        (None, _) if tolerance.is_some() => return Ok(tolerance.unwrap_or(values).maximum(0.0)),
        (None, Some(absolute)) => absolute
            .gt(0.0)
            .where_(0.0, a.builder().full(dtype, vec![], default)),
        (None, None) => a.builder().full(dtype, vec![], default),
    };
    if values.size(-1).is(0) {
        let mut shape = values.shape();
        shape.pop();
        return Ok(a.builder().full(dtype, shape, 0.0));
    }
    let scaled = values.amax(&[-1], false) * relative;
    Ok(match number("atol") {
        Some(absolute) => scaled.maximum(absolute),
        None => scaled.maximum(0.0),
    })
}

/// The least-squares solution of minimal norm. Residuals are returned where PyTorch returns them for matrices of full rank.
fn least_squares<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let (matrix, b) = (Matrix::new(a.tensor("self"))?, a.tensor("b"));
    let driver = match a.str("driver") {
        text if text.is_empty() => "gelsy".to_string(),
        text => text,
    };
    let svd = Svd::new(matrix);
    let cutoff = singular_value_threshold(matrix, svd.values, a.optional_float("rcond"))?;
    let is_vector = is_vector_side(matrix, b)?;
    let right = if is_vector { b.unsqueeze(-1) } else { b };
    let solution = svd.pseudo_inverse(cutoff).matmul(right);
    let residual = matrix.value.matmul(solution) - right;
    let has_residuals = matrix.columns < matrix.rows && driver != "gelsy" && !right.size(-1).is(0);
    let empty = |dtype| a.builder().full(dtype, vec![Dim::ZERO], 0);
    Ok(vec![
        if is_vector {
            solution.squeeze(&[-1])
        } else {
            solution
        },
        if has_residuals {
            (residual * residual).sum(&[-2], false)
        } else {
            empty(b.dtype())
        },
        match driver.as_str() {
            "gels" => empty(DType::I64),
            // LAPACK does not read the matrix if there are no right-hand sides.
            "gelsy" if right.size(-1).is(0) => a.builder().full(DType::I64, matrix.batch(), 0),
            _ => rank(svd.values, cutoff),
        },
        if driver == "gelsd" || driver == "gelss" {
            svd.values
        } else {
            empty(b.dtype())
        },
    ])
}

/// The threshold below which singular values count as zero: a fraction of the largest, by default the rounding error.
fn singular_value_threshold<'g>(
    matrix: Matrix<'g>,
    values: Value<'g>,
    relative: Option<f64>,
) -> Result<Value<'g>> {
    let dtype = matrix.value.dtype();
    if matrix.rows.min(matrix.columns) == 0 {
        return Ok(values.builder().full(dtype, matrix.batch(), 0.0));
    }
    let largest = matrix.rows.max(matrix.columns) as f64;
    let relative = relative.unwrap_or(dtype.epsilon().unwrap_or(0.0) * largest);
    Ok(values.amax(&[-1], false) * relative)
}

/// The number of singular values above a cutoff.
fn rank<'g>(values: Value<'g>, cutoff: Value<'g>) -> Value<'g> {
    let counts = values.gt(cutoff.unsqueeze(-1)).to(DType::I64);
    counts.sum(&[-1], false)
}

/// The matrix exponential: Taylor's polynomial of degree 18 of the matrix halved until its norm is at most 3, squared as
/// many times (bounds from Bader, Blanes and Casas 2019).
fn exponential(matrix: Matrix) -> Result<Value> {
    const DEGREE: i64 = 18;
    const BOUND: f64 = 3.0;
    const MAX_SQUARINGS: i64 = 8;
    let x = matrix.value;
    if matrix.rows == 0 {
        return Ok(x);
    }
    let norm = x.abs().sum(&[-2], true).amax(&[-1], true);
    let squarings = (norm / BOUND).log2().ceil();
    let squarings = squarings.clamp(Some(0.0.into()), Some((MAX_SQUARINGS as f64).into()));
    let scaled = x / squarings.exp2();
    let identity = matrix.identity(matrix.rows, matrix.rows).value;
    let mut sum = identity;
    for power in (1..=DEGREE).rev() {
        sum = identity + scaled.matmul(sum) / power;
    }
    for count in 0..MAX_SQUARINGS {
        sum = squarings.gt(count as f64).where_(sum.matmul(sum), sum);
    }
    Ok(sum)
}
