//! Checks of indices and divisors that PyTorch rejects, with PyTorch's messages. Each function returns its operand with
//! a check ([`crate::op::Check`]) added to the graph.

use crate::dtype::DType;
use crate::ir::{ArithmeticOperand, Builder, Value};
use crate::shape::Shape;

/// How an operator treats negative indices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NegativeIndices {
    /// All negative indices are errors.
    Rejected,
    /// Negative indices count from the end; those below `-size` are errors.
    FromEnd,
}

/// Checks indices along the axis `dim` of `x`. Returns them as `i64`.
pub(super) fn checked_index<'g>(
    x: Value<'g>,
    dim: i64,
    index: Value<'g>,
    negative: NegativeIndices,
) -> Value<'g> {
    let axis = match x.rank() {
        0 => 0,
        _ => x.axis(dim).unwrap_or_default(),
    };
    let message =
        format!("index {{value}} is out of bounds for dimension {axis} with size {{size}}");
    checked_index_with_message(x, dim, index, negative, &message)
}

/// [`checked_index`] for an operator with a message of its own, in which `{value}` is the index and `{size}` the size.
pub(super) fn checked_index_with_message<'g>(
    x: Value<'g>,
    dim: i64,
    index: Value<'g>,
    negative: NegativeIndices,
    message: &str,
) -> Value<'g> {
    // A scalar is indexed as a vector of one element.
    let size = match x.rank() {
        0 => x.numel(),
        _ => x.size(dim),
    };
    let low = match negative {
        NegativeIndices::Rejected => 0.into(),
        NegativeIndices::FromEnd => -&size,
    };
    index.to(DType::I64).check_in_range(low, &size, message)
}

/// Checks that the divisor of an integer division is not zero. Returns it converted to `dtype`, or unchanged if it is a
/// known number other than zero.
pub(super) fn checked_divisor<'g>(
    builder: &'g Builder,
    dtype: DType,
    divisor: ArithmeticOperand<'g>,
) -> ArithmeticOperand<'g> {
    let value = match divisor {
        ArithmeticOperand::Scalar(scalar) if scalar.to_i64() != 0 => return divisor,
        ArithmeticOperand::Value(value) => value.to(dtype),
        number => builder.full(dtype, Shape::new(), number),
    };
    value.check_nonzero("ZeroDivisionError").into()
}
