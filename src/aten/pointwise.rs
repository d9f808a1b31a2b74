//! Helpers of pointwise operators: type promotion, and the precision in which PyTorch's CPU kernels compute.

use super::Args;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{ArithmeticOperand, Value, result_type};
use crate::op::BinaryFunction;
use crate::scalar::Scalar;
use crate::shape::Shape;

/// Applies a formula to a tensor in its compute dtype: half precision is computed in `f32` and rounded once.
pub(super) fn in_compute_dtype<'g>(
    x: Value<'g>,
    formula: impl FnOnce(Value<'g>) -> Value<'g>,
) -> Value<'g> {
    let dtype = x.dtype();
    round_to(dtype, formula(x.to_compute()))
}

/// [`in_compute_dtype`] for formulas that return floats: integers and `bool` are computed in `f32`.
pub(super) fn in_float_dtype<'g>(
    x: Value<'g>,
    formula: impl FnOnce(Value<'g>) -> Value<'g>,
) -> Value<'g> {
    in_compute_dtype(x.to_float(), formula)
}

/// Rounds a result from the compute dtype of `dtype` to `dtype`; results of other dtypes (comparisons) stay.
pub(super) fn round_to(dtype: DType, result: Value<'_>) -> Value<'_> {
    if result.dtype() == dtype.to_compute() {
        result.to(dtype)
    } else {
        result
    }
}

/// The dtype of an operation on these operands (`torch.result_type`), and the operands with tensors in the dtype in which
/// PyTorch's CPU kernels compute: `f32` for half precision.
pub(super) fn promote<'g, const N: usize>(
    operands: [ArithmeticOperand<'g>; N],
) -> (DType, [ArithmeticOperand<'g>; N]) {
    let dtype = result_type(&operands);
    let operands = operands.map(|operand| match operand {
        ArithmeticOperand::Value(value) => value.to(dtype.to_compute()).into(),
        number => number,
    });
    (dtype, operands)
}

/// The dtype of an operation on the named arguments, and the arguments as tensors of the compute dtype.
pub(super) fn operands<'g, const N: usize>(
    a: &Args<'g>,
    names: [&str; N],
) -> (DType, [Value<'g>; N]) {
    let numbers = names.map(|name| a.number(name));
    let dtype = result_type(&numbers);
    (
        dtype,
        numbers.map(|number| tensor_of(a, number, dtype.to_compute())),
    )
}

/// [`operands`] for a function of floats: integers and `bool` are computed in `f32`.
pub(super) fn float_operands<'g, const N: usize>(
    a: &Args<'g>,
    names: [&str; N],
) -> (DType, [Value<'g>; N]) {
    let numbers = names.map(|name| a.number(name));
    let dtype = result_type(&numbers).to_float();
    (
        dtype,
        numbers.map(|number| tensor_of(a, number, dtype.to_compute())),
    )
}

/// Operands of a function of floats for which PyTorch rounds every step to the dtype.
pub(super) fn stepwise_operands<'g, const N: usize>(
    a: &Args<'g>,
    names: [&str; N],
) -> [Value<'g>; N] {
    let numbers = names.map(|name| a.number(name));
    let dtype = result_type(&numbers).to_float();
    numbers.map(|number| tensor_of(a, number, dtype))
}

/// A number as a tensor of a dtype. Numbers that are no tensors become tensors without axes.
fn tensor_of<'g>(a: &Args<'g>, number: ArithmeticOperand<'g>, dtype: DType) -> Value<'g> {
    match number {
        ArithmeticOperand::Value(value) => value.to(dtype),
        number => a.builder().full(dtype, Shape::new(), number),
    }
}

/// Applies a scalar function to the arguments `self` and `other`.
pub(super) fn binary<'g>(a: &Args<'g>, function: BinaryFunction) -> Result<Value<'g>> {
    Ok(combine(a, function, a.number("self"), a.number("other")))
}

/// Applies a scalar function with promotion. The result is a comparison, or has the promoted dtype.
pub(super) fn combine<'g>(
    a: &Args<'g>,
    function: BinaryFunction,
    x: ArithmeticOperand<'g>,
    y: ArithmeticOperand<'g>,
) -> Value<'g> {
    let (dtype, [x, y]) = promote([x, y]);
    let result = a.builder().combine(function, x, y);
    if function.is_comparison() {
        result
    } else if function.is_float_only() {
        result.to(dtype.to_float())
    } else {
        result.to(dtype)
    }
}

/// `number · scale`, folded if both are known.
pub(super) fn scaled<'g>(
    a: &Args<'g>,
    number: ArithmeticOperand<'g>,
    scale: ArithmeticOperand<'g>,
) -> ArithmeticOperand<'g> {
    use ArithmeticOperand::{Scalar as Known, Size};
    match (number, scale) {
        (number, Known(Scalar::Int(1))) => number,
        (Known(Scalar::Float(number)), Known(scale)) => (number * scale.to_f64()).into(),
        (Known(number), Known(Scalar::Float(scale))) => (number.to_f64() * scale).into(),
        (Known(number), Known(scale)) => number.to_i64().wrapping_mul(scale.to_i64()).into(),
        (Size(size), Known(Scalar::Int(scale))) => (size * scale).into(),
        (number @ (Known(_) | Size(_)), scale @ (Known(_) | Size(_))) => {
            let number = a.builder().full(DType::F32, Shape::new(), number);
            a.builder()
                .combine(BinaryFunction::Mul, number, scale)
                .into()
        }
        (number, scale) => a
            .builder()
            .combine(BinaryFunction::Mul, number, scale)
            .into(),
    }
}
