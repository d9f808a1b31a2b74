//! Elementwise maximum and minimum of two tensors, and clamping.

use super::pointwise::{binary, operands, promote, round_to};
use super::{Args, CallGradient, Composite};
use crate::error::Result;
use crate::ir::{ArithmeticOperand, Value};
use crate::op::BinaryFunction;

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &[
            "aten::maximum(Tensor self, Tensor other) -> Tensor",
            "aten::max.other(Tensor self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Maximum),
        &["f32[B, 3], f32[3]", "i64[3], f16[3]", "bool[3], bool[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::minimum(Tensor self, Tensor other) -> Tensor",
            "aten::min.other(Tensor self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Minimum),
        &["f32[B, 3], f32[3]", "u8[3], i8[3]"],
    ),
    Composite::elementwise(
        &["aten::fmax(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(ignoring_nan(a, BinaryFunction::Maximum)),
        &["f32[B, 3], f32[3]", "i64[3], bool[1]"],
    )
    .with_gradient(|call| to_first_of_equals(call, BinaryFunction::Ge)),
    Composite::elementwise(
        &["aten::fmin(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(ignoring_nan(a, BinaryFunction::Minimum)),
        &["f32[B, 3], f32[3]"],
    )
    .with_gradient(|call| to_first_of_equals(call, BinaryFunction::Le)),
    Composite::elementwise(
        &[
            "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
            "aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
            "aten::clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
            "aten::clip.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
            "aten::clamp_min(Tensor self, Scalar min) -> Tensor",
            "aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor",
            "aten::clamp_max(Tensor self, Scalar max) -> Tensor",
            "aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor",
        ],
        clamp,
        &[
            "f32[B, 3], -1, 1",
            "i64[3], 0.5",
            "f32[3], max=2",
            "u8[3], 1, 9",
            "clamp.Tensor: f32[B, 3], f32[3], f32[B, 1]",
            "clamp_min: i32[3], 2",
            "clamp_max.Tensor: f16[3], f32[3]",
        ],
    )
    .with_gradient(clamp_gradient),
];

/// The maximum or minimum of two operands. Where one is not-a-number, the result is the other.
fn ignoring_nan<'g>(a: &Args<'g>, function: BinaryFunction) -> Value<'g> {
    let (dtype, [x, y]) = operands(a, ["self", "other"]);
    let result = x.combine(function, y).to(dtype.to_compute());
    let result = if dtype.is_float() {
        x.isnan().where_(y, y.isnan().where_(x, result))
    } else {
        result
    };
    round_to(dtype, result)
}

/// Gradients of [`ignoring_nan`]: the first of two equal operands is the one that was chosen.
fn to_first_of_equals<'g>(
    call: &CallGradient<'g>,
    comparison: BinaryFunction,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (_, [x, y]) = operands(call.args(), ["self", "other"]);
    let is_first = x.combine(comparison, y).logical_or(y.isnan());
    let gradient = call.gradient(0)?;
    let first = call.operand("self", is_first.where_(gradient, 0.0));
    let second = call.operand("other", is_first.where_(0.0, gradient));
    Ok([first, second].concat())
}

/// Clamps `self` to the bounds `min` and `max`, of which either may be absent.
fn clamp<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, low, high) = (
        a.number("self"),
        a.optional_number("min"),
        a.optional_number("max"),
    );
    // `x` stands in for an absent bound, so that it does not change the promoted dtype.
    let (dtype, [x, low, high]) = promote([x.clone(), low.unwrap_or(x.clone()), high.unwrap_or(x)]);
    let ArithmeticOperand::Value(x) = x else {
        return a.reject("a number cannot be clamped");
    };
    let (low, high) = (
        (!a.is_none("min")).then_some(low),
        (!a.is_none("max")).then_some(high),
    );
    Ok(x.clamp(low, high).to(dtype))
}

/// The operand has the gradient from bound to bound, bounds included, and a bound where the operand is beyond it. Where the
/// bounds cross, the upper one has it.
fn clamp_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (args, gradient) = (call.args(), call.gradient(0)?);
    let x = args.tensor("self");
    let (low, high) = (args.optional_number("min"), args.optional_number("max"));
    let mut is_within = x.eq(x);
    if let Some(low) = low.clone() {
        is_within = is_within.logical_and(x.ge(low));
    }
    if let Some(high) = high.clone() {
        is_within = is_within.logical_and(x.le(high));
    }
    let mut gradients = vec![("self", is_within, x)];
    if let Some(ArithmeticOperand::Value(low)) = low {
        let is_below = x.lt(low);
        let is_low = match high.clone() {
            Some(high) => is_below.logical_and(low.lt(high)),
            None => is_below,
        };
        gradients.push(("min", is_low, low));
    }
    if let Some(ArithmeticOperand::Value(high)) = high {
        let is_above = x.gt(high);
        let is_high = match low {
            Some(low) => is_above.logical_or(high.lt(low)),
            None => is_above,
        };
        gradients.push(("max", is_high, high));
    }
    let reduced = gradients.into_iter().map(|(name, passes, operand)| {
        let part = passes.where_(gradient, 0.0).sum_to(&operand.shape());
        (name, part.to(operand.dtype()))
    });
    Ok(reduced.collect())
}
