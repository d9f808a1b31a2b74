//! Checks of indices and divisors that PyTorch rejects, with PyTorch's messages.

use crate::dtype::DType;
use crate::ir::{Builder, Number, Value};
use crate::shape::Shape;

/// The negative indices that are rejected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NegativeIndices {
    /// All negative indices.
    Rejected,
    /// Negative indices below `-size`; the others count from the end.
    FromEnd,
}

/// Checks indices of an axis of a value.
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

/// Checks indices of an axis of a value; the operator has its own message.
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

/// Checks that the divisor of an integer division is not zero.
pub(super) fn checked_divisor<'g>(
    builder: &'g Builder,
    dtype: DType,
    divisor: Number<'g>,
) -> Number<'g> {
    let value = match divisor {
        Number::Scalar(scalar) if scalar.to_i64() != 0 => return divisor,
        Number::Value(value) => value.to(dtype),
        number => builder.full(dtype, Shape::new(), number),
    };
    value.check_nonzero("ZeroDivisionError").into()
}
