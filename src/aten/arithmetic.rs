//! Arithmetic of two tensors, or of a tensor and a number.

use super::bounds_checks::checked_divisor;
use super::pointwise::{
    binary, combine, in_compute_dtype, operands, promote, scaled, stepwise_operands,
};
use super::{Args, CallGradient, Composite};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{ArithmeticOperand, Value, result_type};
use crate::op::{BinaryFunction, UnaryFunction};
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &[
            "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        ],
        |a| sum(a, BinaryFunction::Add, a.number("self"), a.number("other")),
        &[
            "f32[B, 3], f32[3]",
            "i64[3], i64[3], alpha=2",
            "bool[3], bool[3]",
            "f16[3], f16[3], alpha=0.5",
            "Scalar: f32[B], 2",
            "Scalar: i64[3], 0.5",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            "aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            "aten::subtract.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            "aten::subtract.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        ],
        |a| sum(a, BinaryFunction::Sub, a.number("self"), a.number("other")),
        &[
            "f32[B, 3], f32[3]",
            "i64[3], f16[3], alpha=2",
            "Scalar: u8[3], 200",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        ],
        |a| sum(a, BinaryFunction::Sub, a.number("other"), a.number("self")),
        &["f32[B, 3], f32[3], alpha=2", "Scalar: i64[3], 1.5"],
    ),
    Composite::elementwise(
        &[
            "aten::_add_relu.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            "aten::_add_relu.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        ],
        |a| Ok(sum(a, BinaryFunction::Add, a.number("self"), a.number("other"))?.relu()),
        &["f32[B, 3], f32[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::multiply.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::multiply.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        product,
        &[
            "f32[B, 3], f32[3]",
            "bool[3], bool[3]",
            "i32[3], f16[3]",
            "Scalar: f16[3], 0.1",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::div.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::div.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
            "aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
            "aten::divide.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::divide.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::divide.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
            "aten::divide.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
            "aten::true_divide.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::true_divide.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        quotient,
        &[
            "f32[B, 3], f32[3]",
            "i64[3], i64[3]",
            "Scalar: f16[3], 3",
            "Tensor_mode: f32[3], f32[3], rounding_mode='floor'",
            "Tensor_mode: i64[3], i64[3], rounding_mode='trunc'",
            "Scalar_mode: f32[3], 0.1, rounding_mode='trunc'",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::floor_divide(Tensor self, Tensor other) -> Tensor",
            "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| Ok(division(a, BinaryFunction::FloorDivide)),
        &["f32[B, 3], f32[3]", "Scalar: i64[3], 2"],
    ),
    Composite::elementwise(
        &[
            "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
        ],
        |a| Ok(division(a, BinaryFunction::Remainder)),
        &[
            "f32[B, 3], f32[3]",
            "Scalar: i64[3], -3",
            "Scalar_Tensor: 7, f32[3]",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| Ok(division(a, BinaryFunction::Fmod)),
        &["f32[B, 3], f32[3]", "Scalar: i64[3], -3"],
    ),
    Composite::elementwise(
        &[
            "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
            "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
        ],
        power,
        &[
            "Tensor_Tensor: f32[B, 3], f32[3]",
            "Tensor_Scalar: f32[3], 3",
            "Tensor_Scalar: bool[3], 2",
            "Tensor_Scalar: f16[3], 0.5",
            "Tensor_Scalar: i64[3], 2.5",
        ],
    ),
    Composite::one(
        &["aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor"],
        power,
        &["2, f32[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
            "aten::float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
            "aten::float_power.Scalar(Scalar self, Tensor exponent) -> Tensor",
        ],
        float_power,
        &[
            "Tensor_Tensor: f32[B], i64[B]",
            "Tensor_Scalar: i64[3], 2",
            "Scalar: 2, f16[3]",
        ],
    ),
    Composite::elementwise(
        &["aten::square(Tensor self) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            Ok(in_compute_dtype(x, |x| x.pow(2)))
        },
        &["f32[B, 3]", "bool[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::neg(Tensor self) -> Tensor",
            "aten::negative(Tensor self) -> Tensor",
        ],
        |a| Ok(-a.tensor("self")),
        &["f32[B, 3]", "u8[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::abs(Tensor self) -> Tensor",
            "aten::absolute(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").abs()),
        &["f32[B, 3]", "i32[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::sign(Tensor self) -> Tensor",
            "aten::sgn(Tensor self) -> Tensor",
        ],
        |a| Ok(sign(a.tensor("self"))),
        &["f32[B, 3]", "i64[3]", "bool[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::positive(Tensor self) -> Tensor",
            "aten::conj_physical(Tensor self) -> Tensor",
            "aten::_conj_physical(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self")),
        &["f32[B, 3]"],
    ),
    Composite::elementwise(
        &["aten::reciprocal(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").reciprocal()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        ],
        |a| add_combined(a, |x, y| x * y),
        &[
            "f32[B, 3], f32[3], f32[B, 1], value=0.5",
            "i64[3], i64[3], i64[3], value=2",
            "f16[3], f16[3], f16[3]",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        ],
        |a| add_combined(a, |x, y| x / y),
        &["f32[B, 3], f32[3], f32[B, 1], value=0.5"],
    ),
    Composite::elementwise(
        &[
            "aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
            "aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
        ],
        lerp,
        &[
            "Scalar: f32[B, 3], f32[3], 0.3",
            "Scalar: f16[3], f16[3], 0.7",
            "Tensor: f32[3], f32[3], f32[3]",
        ],
    ),
    Composite::elementwise(
        &["aten::hypot(Tensor self, Tensor other) -> Tensor"],
        |a| binary(a, BinaryFunction::Hypot),
        &["f32[B, 3], f32[3]"],
    ),
    Composite::elementwise(
        &["aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor"],
        |a| {
            let (x, exponent) = (a.tensor("self"), a.tensor("other"));
            let scale = a.builder().combine(BinaryFunction::Pow, 2.0, exponent);
            Ok(combine(a, BinaryFunction::Mul, x.into(), scale.into()))
        },
        &["f32[B, 3], i64[3]", "i64[3], i64[3]"],
    ),
    Composite::many(
        &["aten::frexp.Tensor(Tensor self) -> (Tensor, Tensor)"],
        frexp,
        &["f32[B, 3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::copysign.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::copysign.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Copysign),
        &["f32[B, 3], f32[3]", "Scalar: i64[3], -1"],
    ),
    Composite::elementwise(
        &["aten::nextafter(Tensor self, Tensor other) -> Tensor"],
        nextafter,
        &["f32[B, 3], f32[3]"],
    ),
    Composite::elementwise(
        &["aten::heaviside(Tensor self, Tensor values) -> Tensor"],
        heaviside,
        &["f32[B, 3], f32[]", "i64[3], i64[3]"],
    ),
    Composite::elementwise(
        &["aten::gcd(Tensor self, Tensor other) -> Tensor"],
        |a| binary(a, BinaryFunction::Gcd),
        &["i64[B, 3], i64[3]"],
    ),
    Composite::elementwise(
        &["aten::lcm(Tensor self, Tensor other) -> Tensor"],
        lcm,
        &["i64[B, 3], i64[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::atan2(Tensor self, Tensor other) -> Tensor",
            "aten::arctan2(Tensor self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::Atan2),
        &["f32[B, 3], f32[3]", "i64[3], i64[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor",
            "aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor",
            "aten::special_xlogy(Tensor self, Tensor other) -> Tensor",
            "aten::special_xlogy.other_scalar(Tensor self, Scalar other) -> Tensor",
            "aten::special_xlogy.self_scalar(Scalar self, Tensor other) -> Tensor",
        ],
        |a| Ok(times_log(a, |y| y.log())),
        &[
            "f32[B, 3], f32[3]",
            "xlogy.Scalar_Self: 2, f16[3]",
            "xlogy.Scalar_Other: i64[3], 3",
        ],
    )
    .with_gradient(|call| times_log_gradient(call, 0.0, |y| y.log())),
    Composite::elementwise(
        &[
            "aten::special_xlog1py(Tensor self, Tensor other) -> Tensor",
            "aten::special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor",
            "aten::special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor",
        ],
        |a| Ok(times_log(a, |y| y.log1p())),
        &["f32[B, 3], f32[3]", "self_scalar: 2, f32[3]"],
    )
    .with_gradient(|call| times_log_gradient(call, 1.0, |y| y.log1p())),
    Composite::elementwise(
        &["aten::logaddexp(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(log_sum(a, |x| x.exp(), 1.0)),
        &["f32[B, 3], f32[3]", "f16[3], f16[3]"],
    )
    .with_gradient(|call| log_sum_gradient(call, |x| x.exp())),
    Composite::elementwise(
        &["aten::logaddexp2(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(log_sum(a, |x| x.exp2(), std::f64::consts::LOG2_E)),
        &["f32[B, 3], f32[3]"],
    )
    .with_gradient(|call| log_sum_gradient(call, |x| x.exp2())),
];

/// `x ± alpha · y`; the sum of two `bool`s is "or".
fn sum<'g>(
    a: &Args<'g>,
    function: BinaryFunction,
    x: ArithmeticOperand<'g>,
    y: ArithmeticOperand<'g>,
) -> Result<Value<'g>> {
    let (dtype, [x, y]) = promote([x, y]);
    if dtype == DType::Bool {
        return match function {
            BinaryFunction::Add if a.is_number("alpha", 0.0) => {
                Ok(a.builder().combine(BinaryFunction::LogicalOr, x, false))
            }
            BinaryFunction::Add => Ok(a.builder().combine(BinaryFunction::LogicalOr, x, y)),
            _ => a.reject("bool cannot be subtracted"),
        };
    }
    let alpha = match a.number("alpha") {
        ArithmeticOperand::Scalar(Scalar::Int(1)) => Scalar::Int(1).into(),
        _ => a.number_as("alpha", dtype),
    };
    let y = scaled(a, y, alpha);
    Ok(a.builder().combine(function, x, y).to(dtype))
}

/// The product of two operands; for two `bool`s it is "and".
fn product<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, y]) = promote([a.number("self"), a.number("other")]);
    if dtype == DType::Bool {
        return Ok(a.builder().combine(BinaryFunction::LogicalAnd, x, y));
    }
    Ok(a.builder().combine(BinaryFunction::Mul, x, y).to(dtype))
}

/// The quotient in the rounding mode of the call. A float quotient is rounded to the compute dtype before it is
/// truncated, as in PyTorch.
fn quotient<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, y]) = promote([a.number("self"), a.number("other")]);
    match a.str("rounding_mode").as_str() {
        "" => binary(a, BinaryFunction::Div),
        "floor" => Ok(division(a, BinaryFunction::FloorDivide)),
        "trunc" if dtype.is_float() => Ok(a
            .builder()
            .combine(BinaryFunction::Div, x, y)
            .trunc()
            .to(dtype)),
        "trunc" => Ok(division(a, BinaryFunction::TruncDivide)),
        other => a.reject(format!("rounding_mode = {other:?}")),
    }
}

/// Applies a function of division. The result has a check that fails for integer divisors of zero, as PyTorch's
/// operators do.
fn division<'g>(a: &Args<'g>, function: BinaryFunction) -> Value<'g> {
    let (x, y) = (a.number("self"), a.number("other"));
    let dtype = result_type(&[x.clone(), y.clone()]);
    let y = match dtype.is_integer() {
        true => checked_divisor(a.builder(), dtype, y),
        false => y,
    };
    combine(a, function, x, y)
}

fn power<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [base, exponent]) = promote([a.number("self"), a.number("exponent")]);
    let result = match (base, exponent) {
        (ArithmeticOperand::Value(base), exponent @ ArithmeticOperand::Scalar(_)) => {
            base.pow(exponent)
        }
        (base, exponent) => a.builder().combine(BinaryFunction::Pow, base, exponent),
    };
    Ok(result.to(dtype))
}

/// `self` to the power `exponent`, in double precision for all dtypes.
fn float_power<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let double = |number| match number {
        ArithmeticOperand::Value(value) => value.to(DType::F64).into(),
        number => number,
    };
    let (base, exponent) = (double(a.number("self")), double(a.number("exponent")));
    Ok(a.builder().combine(BinaryFunction::Pow, base, exponent))
}

/// The sign of each element; a `bool` is its own sign.
fn sign(x: Value) -> Value {
    if x.dtype() == DType::Bool {
        x
    } else {
        x.sign()
    }
}

/// `self + value · f(tensor1, tensor2)`. `tensor1` is multiplied by `value` before `f` is applied.
fn add_combined<'g>(
    a: &Args<'g>,
    function: fn(Value<'g>, Value<'g>) -> Value<'g>,
) -> Result<Value<'g>> {
    let (dtype, [x, y, z]) = operands(a, ["self", "tensor1", "tensor2"]);
    let y = match a.is_number("value", 1.0) {
        true => y,
        false => y * a.number_as("value", dtype),
    };
    Ok((x + function(y, z)).to(dtype))
}

/// Linear interpolation from `self` to `end`, computed from the nearer end as `aten/src/ATen/native/Lerp.h` does.
fn lerp<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [start, end]) = operands(a, ["self", "end"]);
    let difference = end - start;
    let result = match a.number("weight") {
        ArithmeticOperand::Scalar(weight) if weight.to_f64().abs() < 0.5 => {
            start + difference * weight
        }
        ArithmeticOperand::Scalar(weight) => end - difference * (1.0 - weight.to_f64()),
        weight => {
            let (_, [weight]) = promote([weight]);
            let weight = difference
                .builder()
                .combine(BinaryFunction::Mul, weight, 1.0);
            weight.abs().lt(0.5).where_(
                start + difference * weight,
                end - difference * weight.rsub(1.0),
            )
        }
    };
    Ok(result.to(dtype))
}

/// Mantissa and exponent, the latter as `i32`.
fn frexp<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let x = a.tensor("self");
    let mantissa = in_compute_dtype(x, |x| x.function(UnaryFunction::Mantissa));
    let exponent = x.to_compute().function(UnaryFunction::Exponent);
    Ok(vec![mantissa, exponent.to(DType::I32)])
}

/// The next `f32` number after `self` in the direction of `other`.
fn nextafter<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, y]) = promote([a.number("self"), a.number("other")]);
    if dtype != DType::F32 {
        return a.reject(format!(
            "neighbours of {dtype} numbers are not supported, only of f32"
        ));
    }
    Ok(a.builder().combine(BinaryFunction::NextAfter, x, y))
}

/// 0 below 0, `values` at 0, 1 above. Not-a-number gives 0.
fn heaviside<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, values]) = operands(a, ["self", "values"]);
    let step = x.gt(0).to(values.dtype());
    Ok(x.eq(0).where_(values, step).to(dtype))
}

/// The least common multiple, which is 0 for two zeros.
fn lcm<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, y]) = operands(a, ["self", "other"]);
    let divisor = x.combine(BinaryFunction::Gcd, y);
    Ok((x.trunc_divide(divisor.maximum(1)) * y).abs().to(dtype))
}

/// `x · log y`; 0 where `x` is 0; not-a-number where `y` is. `log` is the logarithm to apply.
fn times_log<'g>(a: &Args<'g>, log: fn(Value<'g>) -> Value<'g>) -> Value<'g> {
    let [x, y] = stepwise_operands(a, ["self", "other"]);
    let product = x.eq(0.0).where_(0.0, x * log(y));
    y.isnan().where_(f64::NAN, product)
}

/// Gradients of [`times_log`], whose logarithm is that of `y + shift`.
fn times_log_gradient<'g>(
    call: &CallGradient<'g>,
    shift: f64,
    log: fn(Value<'g>) -> Value<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let [x, y] = stepwise_operands(call.args(), ["self", "other"]);
    let gradient = call.gradient(0)?;
    let is_pole = x.eq(0.0).logical_and(y.le(-shift));
    let first = is_pole.where_(0.0, gradient * log(y));
    let second = gradient * x / (y + shift);
    Ok([call.operand("self", first), call.operand("other", second)].concat())
}

/// `log(b^x + b^y)` to the base `b`, shifted by the larger operand so that nothing overflows. `power` computes `b^x`,
/// and `scale` is `1 / ln b`.
fn log_sum<'g>(a: &Args<'g>, power: fn(Value<'g>) -> Value<'g>, scale: f64) -> Value<'g> {
    let (dtype, [x, y]) = operands(a, ["self", "other"]);
    let log_term = power(-(x - y).abs()).log1p();
    let scaled_term = if scale == 1.0 {
        log_term
    } else {
        log_term * scale
    };
    let same_infinity = x.eq(y).logical_and(x.abs().eq(f64::INFINITY));
    same_infinity
        .where_(x, x.maximum(y) + scaled_term)
        .to(dtype)
}

/// Gradients of [`log_sum`]. Where both operands are the same infinity they are not-a-number, as in PyTorch.
fn log_sum_gradient<'g>(
    call: &CallGradient<'g>,
    power: fn(Value<'g>) -> Value<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (_, [x, y]) = operands(call.args(), ["self", "other"]);
    let gradient = call.gradient(0)?.to_compute();
    let share = |x: Value<'g>, y: Value<'g>| gradient / (power(y - x) + 1.0);
    Ok([
        call.operand("self", share(x, y)),
        call.operand("other", share(y, x)),
    ]
    .concat())
}
