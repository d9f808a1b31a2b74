//! Reductions: sums, means, extremes, `any` and `all`.

use super::{Args, CallGradient, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| Ok(in_dtype(a, Value::sum)),
        &[
            "f32[B, 3]",
            "dim_IntList: f32[B, 3], [-1], True",
            "dim_IntList: bool[2, 3], [0]",
            "dim_IntList: f16[0, 3], [0], dtype=f32",
            "i32[]",
        ],
    ),
    Composite::one(
        &[
            "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| Ok(in_dtype(a, Value::prod)),
        &[
            "f32[B, 3]",
            "dim_int: i64[2, 3], 1, True",
            "dim_int: bool[2, 0], 1",
        ],
    ),
    Composite::one(
        &[
            "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let x = if x.dtype().is_float() {
                x.isnan().where_(0, x)
            } else {
                x
            };
            Ok(sum_as(
                x,
                a.dtype("dtype"),
                &a.ints("dim"),
                a.bool("keepdim"),
            ))
        },
        &["f32[B, 3]", "f32[2, 3], [1], True", "i64[2, 3], [0]"],
    ),
    Composite::one(
        &[
            "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let x = require_float(x.to(a.dtype("dtype").unwrap_or(x.dtype())))?;
            Ok(x.mean(&dims(a), a.bool("keepdim")))
        },
        &[
            "f32[B, 3]",
            "dim: f32[B, 3, 4], [1, -1], True",
            "dim: f16[2, 3], [1]",
            "f32[0]",
            "dim: i64[2, 3], [0], dtype=f32",
        ],
    ),
    Composite::one(
        &[
            "aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let x = require_float(x.to(a.dtype("dtype").unwrap_or(x.dtype())))?;
            let (dims, keepdim) = (dims(a), a.bool("keepdim"));
            let total = x
                .to_compute()
                .isnan()
                .where_(0, x.to_compute())
                .sum(&dims, keepdim);
            let count = x.isnan().logical_not().sum(&dims, keepdim);
            Ok((total / count).to(x.dtype()))
        },
        &["f32[B, 3]", "f16[2, 3], [1], True"],
    )
    .with_gradient(nan_mean_gradient),
    Composite::one(
        &["aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"],
        |a| Ok(require_elements(a.tensor("self"), &dims(a))?.amax(&dims(a), a.bool("keepdim"))),
        &[
            "f32[B, 3]",
            "i64[2, 3], [0, 1], True",
            "bool[2, 3], [1]",
            "f32[], [0]",
        ],
    ),
    Composite::one(
        &["aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"],
        |a| Ok(require_elements(a.tensor("self"), &dims(a))?.amin(&dims(a), a.bool("keepdim"))),
        &["f32[B, 3]", "i64[2, 3], [0, 1], True", "bool[2, 3], [1]"],
    ),
    Composite::many(
        &[
            "aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
            "aten::_aminmax(Tensor self) -> (Tensor, Tensor)",
            "aten::_aminmax.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)",
        ],
        |a| {
            let (x, dims) = (require_elements(a.tensor("self"), &dims(a))?, dims(a));
            Ok(vec![
                x.amin(&dims, a.bool("keepdim")),
                x.amax(&dims, a.bool("keepdim")),
            ])
        },
        &["f32[B, 3]", "i64[2, 3], dim=1, keepdim=True"],
    ),
    Composite::one(
        &["aten::max(Tensor self) -> Tensor"],
        |a| Ok(require_elements(a.tensor("self"), &[])?.amax(&[], false)),
        &["f32[B, 3]", "i64[]", "bool[3]"],
    ),
    Composite::one(
        &["aten::min(Tensor self) -> Tensor"],
        |a| Ok(require_elements(a.tensor("self"), &[])?.amin(&[], false)),
        &["f32[B, 3]", "i64[]", "bool[3]"],
    ),
    Composite::many(
        &[
            "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ],
        |a| {
            let (dim, keepdim) = (a.int("dim"), a.bool("keepdim"));
            let x = require_elements(a.tensor("self"), &[dim])?;
            Ok(vec![x.amax(&[dim], keepdim), x.argmax(dim, keepdim)])
        },
        &[
            "dim: f32[B, 3], 1",
            "dim: i64[2, 3], 0, True",
            "dim: bool[2, 3], 1",
            "dim: f32[], 0",
        ],
    )
    .with_gradient(at_extreme),
    Composite::many(
        &[
            "aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ],
        |a| {
            let (dim, keepdim) = (a.int("dim"), a.bool("keepdim"));
            let x = require_elements(a.tensor("self"), &[dim])?;
            Ok(vec![x.amin(&[dim], keepdim), x.argmin(dim, keepdim)])
        },
        &[
            "dim: f32[B, 3], 1",
            "dim: i64[2, 3], 0, True",
            "dim: bool[2, 3], 1",
        ],
    )
    .with_gradient(at_extreme),
    Composite::one(
        &["aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"],
        |a| Ok(arg_extreme(a, Value::argmax)),
        &[
            "f32[B, 3]",
            "f32[2, 3], 1, True",
            "i64[2, 3], 0",
            "f32[2, 3], None, True",
        ],
    ),
    Composite::one(
        &["aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"],
        |a| Ok(arg_extreme(a, Value::argmin)),
        &["f32[B, 3]", "f32[2, 3], 1, True"],
    ),
    Composite::one(
        &[
            "aten::any(Tensor self) -> Tensor",
            "aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor",
            "aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        ],
        |a| Ok(any_or_all(a, Value::any)),
        &[
            "f32[B, 3]",
            "dim: bool[2, 3], 1, True",
            "dims: i64[2, 3], [0, 1]",
            "u8[3]",
            "bool[0]",
        ],
    ),
    Composite::one(
        &[
            "aten::all(Tensor self) -> Tensor",
            "aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor",
            "aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        ],
        |a| Ok(any_or_all(a, Value::all)),
        &[
            "f32[B, 3]",
            "dim: bool[2, 3], 1, True",
            "dims: i64[2, 3], [0, 1]",
            "u8[3]",
            "bool[0]",
        ],
    ),
    Composite::one(
        &["aten::_is_all_true(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").all(&[], false)),
        &["bool[B]"],
    ),
    Composite::one(
        &["aten::_is_any_true(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").any(&[], false)),
        &["bool[B]"],
    ),
    Composite::one(
        &[
            "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor",
            "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
        ],
        |a| Ok(a.tensor("self").to_bool().sum(&dims(a), false)),
        &[
            "f32[B, 3]",
            "i64[2, 3], 1",
            "dim_IntList: bool[2, 3], [0, 1]",
        ],
    ),
    Composite::one(
        &[
            "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
            "aten::special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
        ],
        |a| {
            Ok(log_sum_exp(
                a.tensor("self").to_float(),
                &dims(a),
                a.bool("keepdim"),
            ))
        },
        &[
            "f32[B, 3], [1]",
            "i64[2, 3], [0, 1], True",
            "f16[2, 3], [1]",
            "f32[0, 2], [0]",
        ],
    ),
    Composite::one(
        &["aten::sum_to_size(Tensor self, SymInt[] size) -> Tensor"],
        |a| sum_to(a.tensor("self"), a.sizes("size")),
        &["f32[B, 3, 4], [3, 1]", "f32[2, 3], [2, 3]"],
    ),
];

/// Of equal extreme elements along an axis, the one whose index is returned gets the gradient.
fn at_extreme<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, x) = (call.args(), call.args().tensor("self"));
    if x.rank() == 0 {
        return Ok(vec![("self", call.gradient(0)?)]);
    }
    let restored = |value: Value<'g>| value.restore_dims(x.shape(), &[a.int("dim")]);
    let (gradient, index) = (restored(call.gradient(0)?), restored(call.result(1)?));
    let is_extreme = x.positions(a.int("dim")).eq(index);
    Ok(vec![("self", is_extreme.where_(gradient, 0.0))])
}

/// The gradient of a mean without not-a-number. It is not-a-number itself where no element counts, as in PyTorch.
fn nan_mean_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, x) = (call.args(), call.args().tensor("self"));
    let counts = x.isnan().logical_not();
    let gradient = call.gradient(0)?.restore_dims(x.shape(), &dims(a));
    let share = gradient / counts.sum(&dims(a), true);
    Ok(vec![(
        "self",
        (counts.to(share.dtype()) * share).to(x.dtype()),
    )])
}

/// The argument `dim` as a list. An empty list means all dimensions, as in PyTorch.
pub(super) fn dims(a: &Args) -> Vec<i64> {
    if a.has("dim") {
        a.ints("dim")
    } else {
        Vec::new()
    }
}

/// A sum or product in the dtype that the call asks for.
fn in_dtype<'g>(a: &Args<'g>, reduce: fn(Value<'g>, &[i64], bool) -> Value<'g>) -> Value<'g> {
    let x = a.tensor("self");
    let dtype = a.dtype("dtype");
    reduce(
        x.to(dtype.unwrap_or(x.dtype())),
        &dims(a),
        a.bool("keepdim"),
    )
    .to(dtype.unwrap_or(x.dtype().to_sum()))
}

/// A sum in the given dtype, by default PyTorch's dtype for sums.
fn sum_as<'g>(x: Value<'g>, dtype: Option<DType>, dims: &[i64], keepdim: bool) -> Value<'g> {
    let result_dtype = dtype.unwrap_or(x.dtype().to_sum());
    x.to(dtype.unwrap_or(x.dtype()))
        .sum(dims, keepdim)
        .to(result_dtype)
}

/// Requires a float dtype: PyTorch has no means of integers.
pub(super) fn require_float(x: Value) -> Result<Value> {
    if x.dtype().is_float() {
        return Ok(x);
    }
    Err(
        Error::operator(format!("expected a float dtype, found {}", x.ty()))
            .help("convert with .float() or pass dtype"),
    )
}

/// Requires elements along the dimensions, or at all if `dims` is empty.
fn require_elements<'g>(x: Value<'g>, dims: &[i64]) -> Result<Value<'g>> {
    if !x.has_elements(dims)? {
        return Err(Error::operator(format!(
            "expected at least one element along the reduced axes, found {}",
            x.ty()
        )));
    }
    Ok(x)
}

/// Requires elements along the last axes; only the batch axis in front of them may be empty.
pub(super) fn require_elements_in_last_axes(x: Value, axes: usize) -> Result<Value> {
    let first = x.rank().saturating_sub(axes);
    let dims: Vec<i64> = (first..x.rank()).map(|axis| axis as i64).collect();
    if dims.is_empty() {
        return Ok(x);
    }
    require_elements(x, &dims)
}

/// `argmax` or `argmin` along the argument `dim`, or of all elements without one.
fn arg_extreme<'g>(a: &Args<'g>, function: fn(Value<'g>, i64, bool) -> Value<'g>) -> Value<'g> {
    let (x, keepdim) = (a.tensor("self"), a.bool("keepdim"));
    if let Some(dim) = a.optional_int("dim") {
        return function(x, dim, keepdim);
    }
    let index = function(x.flatten(0, -1), 0, false);
    if keepdim {
        index.reshape(vec![Dim::ONE; x.rank()])
    } else {
        index
    }
}

/// `any` and `all`, which return `bool`, except for `uint8`.
fn any_or_all<'g>(a: &Args<'g>, reduce: fn(Value<'g>, &[i64], bool) -> Value<'g>) -> Value<'g> {
    let x = a.tensor("self");
    let result = reduce(x, &dims(a), a.bool("keepdim"));
    if x.dtype() == DType::U8 {
        result.to(DType::U8)
    } else {
        result
    }
}

/// `log Σ exp x`, shifted by the largest element so that it does not overflow.
pub(super) fn log_sum_exp<'g>(x: Value<'g>, dims: &[i64], keepdim: bool) -> Value<'g> {
    let wide = x.to_compute();
    let largest = wide.amax(dims, true);
    let shift = largest.abs().eq(f64::INFINITY).where_(0, largest);
    let total = (wide - shift).exp().sum(dims, keepdim).log();
    (total + shift.reshape(total.shape())).to(x.dtype())
}

/// Sums over the axes that broadcasting from `size` would expand.
fn sum_to<'g>(x: Value<'g>, size: Shape) -> Result<Value<'g>> {
    if size.is_empty() {
        return Ok(x.sum(&[], false));
    }
    let leading = x.rank().checked_sub(size.len()).ok_or_else(|| {
        Error::operator(format!(
            "{} does not sum to {} dimensions",
            x.ty(),
            size.len()
        ))
    })?;
    let summed_axes = (0i64..)
        .zip(x.shape())
        .enumerate()
        .filter_map(|(axis, (dim, x_size))| {
            let wanted = axis.checked_sub(leading).and_then(|axis| size.get(axis));
            let is_one = |size: &Dim| x.builder().symbols().equal(size, &Dim::ONE);
            match wanted.map(|wanted| Ok(is_one(wanted)? && !is_one(&x_size)?)) {
                None | Some(Ok(true)) => Some(Ok(dim)),
                Some(Ok(false)) => None,
                Some(Err(error)) => Some(Err(error)),
            }
        });
    let dims = summed_axes.collect::<Result<Vec<i64>>>()?;
    Ok(if dims.is_empty() {
        x
    } else {
        x.sum(&dims, true)
    }
    .reshape(size))
}
