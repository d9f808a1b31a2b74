//! Norms of vectors and matrices.

use super::factorize::Lu;
use super::linalg::inverse;
use super::matrix::Matrix;
use super::reduce::{dims, require_float};
use super::spectral::spectral_norm;
use super::{Args, CallGradient, Composite, operator};
use crate::error::{Error, Result};
use crate::ir::{Argument, Value};
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| {
            let (order, dims, keepdim) = (a.float("ord"), dims(a), a.bool("keepdim"));
            Ok(norm_of_elements(operand(a)?, order, &dims, keepdim))
        },
        &[
            "f32[B, 3]",
            "f32[2, 3], 1, [1], True",
            "f32[2, 3], 0",
            "f32[2, 3], 3.5, [0]",
            "f16[2, 3], 2, [1]",
        ],
    )
    .with_gradient(vector_norm_gradient),
    Composite::one(
        &[
            "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor",
            "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
            "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
            "aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
        ],
        |a| {
            vector_norm(
                operand(a)?,
                a.optional_float("p").unwrap_or(2.0),
                &dims(a),
                a.bool("keepdim"),
            )
        },
        &[
            "Scalar: f32[B, 3]",
            "ScalarOpt_dim: f32[2, 3], None, [1]",
            "ScalarOpt_dim: f32[2, 3], 1, [0], True",
        ],
    ),
    Composite::one(
        &["aten::frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor"],
        |a| vector_norm(operand(a)?, 2.0, &dims(a), a.bool("keepdim")),
        &["dim: f32[B, 3], [0, 1]"],
    ),
    Composite::one(
        &[
            "aten::linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            "aten::linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| {
            let (x, dims, keepdim) = (operand(a)?, dims(a), a.bool("keepdim"));
            if a.is_none("ord") {
                return vector_norm(x, 2.0, &dims, keepdim);
            }
            match (dims.as_slice(), x.rank()) {
                ([_], _) | ([], 0 | 1) => vector_norm(x, a.float("ord"), &dims, keepdim),
                ([], 2) => MatrixNorm::of(a, "ord")?.norm(x, [0, 1], keepdim),
                ([rows, columns], _) => {
                    MatrixNorm::of(a, "ord")?.norm(x, [*rows, *columns], keepdim)
                }
                _ => Err(Error::operator(
                    "a norm with ord is over one or two dimensions",
                )),
            }
        },
        &[
            "f32[B, 3]",
            "f32[2, 3], 1, [0, 1]",
            "ord_str: f32[2, 3], 'fro'",
            "f32[3], 3",
        ],
    ),
    Composite::one(
        &[
            "aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            "aten::linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| match dims(a).as_slice() {
            [rows, columns] => {
                MatrixNorm::of(a, "ord")?.norm(operand(a)?, [*rows, *columns], a.bool("keepdim"))
            }
            _ => Err(Error::operator("a matrix norm is over two dimensions")),
        },
        &[
            "str_ord: f32[B, 3, 4]",
            "f32[3, 4], 1",
            "f32[2, 3, 4], -1, [0, 2], True",
        ],
    ),
    Composite::one(
        &[
            "aten::linalg_cond(Tensor self, Scalar? p=None) -> Tensor",
            "aten::linalg_cond.p_str(Tensor self, str p) -> Tensor",
        ],
        condition,
        &[
            "f32[3, 3]",
            "f32[4, 3], -2",
            "f32[B, 3, 3], 1",
            "p_str: f32[3, 3], 'nuc'",
        ],
    ),
    Composite::one(
        &["aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor"],
        |a| {
            vector_norm(
                require_float(a.tensor("self") - a.tensor("other"))?,
                a.float("p"),
                &[],
                false,
            )
        },
        &["f32[B, 3], f32[3]", "f32[2, 3], f32[2, 3], 1.5"],
    ),
    Composite::one(
        &["aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor"],
        |a| {
            let x = require_float(a.tensor("self"))?;
            let (axis, wide) = (x.axis(a.int("dim")), x.to_compute());
            let others: Vec<i64> = (0i64..)
                .take(x.rank())
                .filter(|dim| usize::try_from(*dim).ok() != axis)
                .collect();
            let norm = if others.is_empty() {
                wide.abs()
            } else {
                vector_norm(wide, a.float("p"), &others, true)?
            };
            let limit = a.float("maxnorm");
            // The small number keeps rounding from leaving a scaled row above the limit.
            let factor = norm.gt(limit).where_((norm + 1e-7).rdiv(limit), 1.0);
            Ok((wide * factor).to(x.dtype()))
        },
        &["f32[B, 3], 2, 0, 1.0", "f32[2, 3, 4], 1, -1, 0.5"],
    ),
];

/// The argument `self` in the dtype of the norm.
fn operand<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    require_float(x.to(a.dtype("dtype").unwrap_or(x.dtype())))
}

/// The norm of vectors along dimensions (all if none are given): a call of `aten::linalg_vector_norm`, so that it has that
/// operator's gradient.
pub(super) fn vector_norm<'g>(
    x: Value<'g>,
    order: f64,
    dims: &[i64],
    keepdim: bool,
) -> Result<Value<'g>> {
    let numbers = dims.iter().map(|dim| Scalar::Int(*dim).into()).collect();
    let order = Scalar::Float(order).into();
    let arguments = vec![
        x.into(),
        order,
        Argument::List(numbers),
        Scalar::Bool(keepdim).into(),
    ];
    operator("aten.linalg_vector_norm")?.call_one(x.builder(), arguments)
}

/// `(Σ |x|^order)^(1/order)` along dimensions, and its limits for the orders 0 and ±∞.
fn norm_of_elements<'g>(x: Value<'g>, order: f64, dims: &[i64], keepdim: bool) -> Value<'g> {
    let magnitude = x.to_compute().abs();
    let norm = match order {
        f64::INFINITY => magnitude.amax(dims, keepdim),
        f64::NEG_INFINITY => magnitude.amin(dims, keepdim),
        0.0 => magnitude.ne(0).to(magnitude.dtype()).sum(dims, keepdim),
        1.0 => magnitude.sum(dims, keepdim),
        2.0 => (magnitude * magnitude).sum(dims, keepdim).sqrt(),
        order => magnitude.pow(order).sum(dims, keepdim).pow(1.0 / order),
    };
    norm.to(x.dtype())
}

fn vector_norm_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let a = call.args();
    let x = operand(a)?.to_compute();
    let restored = |value: Value<'g>| value.to_compute().restore_dims(x.shape(), &dims(a));
    let [norm, gradient] = [call.result(0)?, call.gradient(0)?].map(restored);
    let gradient = norm_gradient(x, a.float("ord"), norm, gradient, Ties::Share);
    Ok(vec![("self", gradient.to(a.tensor("self").dtype()))])
}

/// How elements of equal magnitude get the gradient of a norm of infinite order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    /// Each gets an equal share.
    Share,
    /// Each gets all of it, as in `cdist` and `pdist`.
    Repeat,
}

/// The gradient of the elements of a norm that kept its axes: PyTorch's `norm_backward` in `FunctionsManual.cpp`. A norm of
/// zero passes none on, nor do elements that are zero where the order is below 1.
pub(super) fn norm_gradient<'g>(
    x: Value<'g>,
    order: f64,
    norm: Value<'g>,
    gradient: Value<'g>,
    ties: Ties,
) -> Value<'g> {
    let (sign, magnitude) = (x.sign(), x.abs());
    let unless_zero = |value: Value<'g>| norm.eq(0.0).where_(0.0, value);
    match order {
        0.0 => x.builder().full(x.dtype(), x.shape(), 0.0),
        1.0 => sign * gradient,
        2.0 => x * unless_zero(gradient / norm),
        f64::INFINITY | f64::NEG_INFINITY => {
            let is_both_nan = x.isnan().logical_and(norm.isnan());
            let is_extreme = magnitude.eq(norm).logical_or(is_both_nan).to(x.dtype());
            let share = match ties {
                Ties::Share => gradient / is_extreme.sum_to(&norm.shape()),
                Ties::Repeat => gradient,
            };
            sign * is_extreme * share
        }
        ..1.0 => {
            let power = x.eq(0.0).where_(0.0, sign * magnitude.pow(order - 1.0));
            power * gradient * norm.pow(1.0 - order)
        }
        1.0..2.0 => {
            sign * magnitude.pow(order - 1.0) * unless_zero(gradient / norm.pow(order - 1.0))
        }
        _ => x * magnitude.pow(order - 2.0) * unless_zero(gradient / norm.pow(order - 1.0)),
    }
}

/// The kind of a matrix norm.
#[derive(Clone, Copy)]
enum MatrixNorm {
    /// Root of the sum of squares.
    Frobenius,
    /// Sum of the singular values.
    Nuclear,
    /// The argument `ord` as a number: 1, 2, infinity or the negative of one.
    Number(f64),
}

impl MatrixNorm {
    /// The norm that the argument `name` selects.
    fn of(a: &Args, name: &str) -> Result<MatrixNorm> {
        match a.get(name) {
            Argument::Str(order) if order == "fro" => Ok(MatrixNorm::Frobenius),
            Argument::Str(order) if order == "nuc" => Ok(MatrixNorm::Nuclear),
            Argument::Str(order) => a.reject(format!("the matrix norm {order}")),
            _ => Ok(MatrixNorm::Number(a.float(name))),
        }
    }

    /// The norm of matrices along two axes: of all elements, of rows or columns, or of the singular values.
    fn norm(self, x: Value<'_>, axes: [i64; 2], keepdim: bool) -> Result<Value<'_>> {
        let spectral = |norm: fn(Value<'_>) -> Value<'_>| spectral_norm(x, axes, keepdim, norm);
        match self {
            MatrixNorm::Frobenius => vector_norm(x, 2.0, &axes, keepdim),
            MatrixNorm::Nuclear => spectral(|values| values.sum(&[-1], false)),
            MatrixNorm::Number(2.0) => spectral(|values| values.amax(&[-1], false)),
            MatrixNorm::Number(-2.0) => spectral(|values| values.amin(&[-1], false)),
            MatrixNorm::Number(order) => row_or_column_norm(x, order, axes, keepdim),
        }
    }
}

/// The largest (positive order) or smallest (negative order) sum of absolute values of a column (orders ±1) or a row
/// (orders ±∞).
fn row_or_column_norm(
    x: Value<'_>,
    order: f64,
    [rows, columns]: [i64; 2],
    keepdim: bool,
) -> Result<Value<'_>> {
    let (summed_axis, compared_axis) = match order.abs() {
        1.0 => (rows, columns),
        f64::INFINITY => (columns, rows),
        _ => return Err(Error::unsupported(format!("the matrix norm {order}"))),
    };
    let sums = x.to_compute().abs().sum(&[summed_axis], true);
    let extreme = if order > 0.0 {
        // The largest sum of an empty matrix is 0.
        sums.amax(&[compared_axis], true).maximum(0.0)
    } else {
        sums.amin(&[compared_axis], true)
    };
    let extreme = extreme.to(x.dtype());
    Ok(if keepdim {
        extreme
    } else {
        extreme.squeeze(&[rows, columns])
    })
}

/// The condition number: a norm of the matrix times that of its inverse, by default from singular values.
fn condition<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let matrix = Matrix::new(x)?;
    if matrix.rows == 0 || matrix.columns == 0 {
        return Ok(a.builder().full(x.dtype(), matrix.batch(), 0.0));
    }
    let order = match a.is_none("p") {
        true => MatrixNorm::Number(2.0),
        false => MatrixNorm::of(a, "p")?,
    };
    let norm = |order: MatrixNorm, x: Value<'g>| order.norm(x, [-2, -1], false);
    if let MatrixNorm::Number(number @ (2.0 | -2.0)) = order {
        return Ok(norm(order, x)? / norm(MatrixNorm::Number(-number), x)?);
    }
    let lu = Lu::new(Matrix::square(x)?, true);
    let is_singular = lu.info().gt(0);
    let matrix_norm = norm(order, x)?;
    let product = matrix_norm * norm(order, inverse(&lu)?)?;
    Ok(match order {
        MatrixNorm::Nuclear => is_singular.where_(matrix_norm * f64::INFINITY, product),
        _ => is_singular
            .logical_or(product.isnan())
            .where_(f64::INFINITY, product),
    })
}
