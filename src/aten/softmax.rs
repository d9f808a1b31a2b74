//! Softmax and its relatives. Half precision computes in `f32`.

use crate::error::Result;
use crate::ir::Value;
use crate::shape::wrap_dim;

use super::{Args, CallGradient, Composite};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
            "aten::special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
        ],
        |a| Ok(operand(a).softmax(a.int("dim"))),
        &[
            "f32[B, T, 7], -1",
            "f16[3, 4], 0",
            "i64[5], 0, f32",
            "f32[], 0",
        ],
    )
    .with_gradient(softmax_gradient),
    Composite::one(
        &[
            "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
            "aten::special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
        ],
        |a| Ok(log_softmax(operand(a), a.int("dim"))),
        &["f32[B, T, 7], -1", "f16[3, 4], 0"],
    )
    .with_gradient(log_softmax_gradient),
    Composite::one(
        &["aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"],
        |a| Ok(half_to_float(a).softmax(a.int("dim"))),
        &["f32[B, 7], 1, False", "f16[3, 4], 0, True"],
    )
    .with_gradient(softmax_gradient),
    Composite::one(
        &["aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"],
        |a| Ok(log_softmax(half_to_float(a), a.int("dim"))),
        &["f32[B, 7], 1, False"],
    )
    .with_gradient(log_softmax_gradient),
    Composite::one(
        &["aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor"],
        |a| Ok(safe_softmax(operand(a), a.int("dim"))),
        &["f32[B, 7], 1"],
    )
    .with_gradient(softmax_gradient),
    Composite::one(
        &[
            "aten::_masked_softmax(Tensor self, Tensor mask, int? dim=None, int? mask_type=None) -> Tensor",
        ],
        masked_softmax,
        &[
            "f32[2, 3, 4, 4], bool[4, 4], -1, 0",
            "f32[2, 3, 4, 5], bool[2, 5], 3, 1",
        ],
    ),
];

/// `y (g - Σ g y)` for a result `y` and its gradient `g`.
fn softmax_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (y, g) = (call.result(0)?.to_compute(), call.gradient(0)?.to_compute());
    let product = g * y;
    let gradient = product - y * along(call, product);
    Ok(vec![(
        "self",
        gradient.to(call.args().tensor("self").dtype()),
    )])
}

/// `g - exp(y) Σ g` for a result `y` and its gradient `g`.
fn log_softmax_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (y, g) = (call.result(0)?.to_compute(), call.gradient(0)?.to_compute());
    let gradient = g - y.exp() * along(call, g);
    Ok(vec![(
        "self",
        gradient.to(call.args().tensor("self").dtype()),
    )])
}

/// The sums along the axis of a call.
fn along<'g>(call: &CallGradient<'g>, x: Value<'g>) -> Value<'g> {
    match x.rank() {
        0 => x,
        _ => x.sum(&[call.args().int("dim")], true),
    }
}

/// The argument `self` in the dtype of the result: the argument `dtype` or, by default, its own float dtype (`f32` for
/// integers).
fn operand<'g>(a: &Args<'g>) -> Value<'g> {
    let x = a.tensor("self");
    x.to(a.dtype("dtype").unwrap_or(x.dtype().to_float()))
}

/// The argument `self`, in the compute dtype if the call says `half_to_float`.
fn half_to_float<'g>(a: &Args<'g>) -> Value<'g> {
    let x = a.tensor("self");
    if a.bool("half_to_float") {
        x.to_compute()
    } else {
        x
    }
}

/// `x - log Σ exp x`, shifted by the largest element so that it does not overflow. Along the last axis, PyTorch's CPU kernel
/// keeps the sum and its logarithm in the dtype of `x`, even in half precision.
pub(super) fn log_softmax(x: Value, dim: i64) -> Value {
    let wide = x.to_compute();
    let shifted = wide - wide.amax(&[dim], true);
    let total = shifted.exp().sum(&[dim], true);
    let is_last = wrap_dim(dim, x.rank()).is_ok_and(|axis| axis + 1 == x.rank());
    let log = match is_last {
        true => total
            .to(x.dtype())
            .to_compute()
            .log()
            .to(x.dtype())
            .to_compute(),
        false => total.log(),
    };
    (shifted - log).to(x.dtype())
}

/// Softmax that gives zeros instead of not-a-number where every element is minus infinity.
pub(super) fn safe_softmax(x: Value, dim: i64) -> Value {
    let is_all_masked = x.eq(f64::NEG_INFINITY).all(&[dim], true);
    is_all_masked.where_(0.0, x.softmax(dim))
}

/// Softmax with a mask, as `aten/src/ATen/native/SoftMax.cpp` computes it: true excludes an element. Mask type 0 is `[L, L]`
/// for queries and keys, type 1 is `[B, L]` for keys, type 2 has the operand's shape. A row without remaining elements gives
/// not-a-number.
fn masked_softmax<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, mask) = (a.tensor("self"), a.tensor("mask").to_bool());
    let mask = match a.optional_int("mask_type") {
        Some(1) => mask.unsqueeze(1).unsqueeze(1),
        _ => mask,
    };
    let dim = a.optional_int("dim").unwrap_or(-1);
    Ok(mask.where_(f64::NEG_INFINITY, x).softmax(dim))
}
