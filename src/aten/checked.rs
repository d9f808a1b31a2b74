//! Indices and divisors that PyTorch refuses, with its messages.

use crate::dtype::DType;
use crate::ir::{Builder, Number, Value};
use crate::shape::Shape;

/// The indices of an axis that are refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Negative {
    /// Negative ones as well.
    Refused,
    /// Only those that lie further from the end than the axis is long.
    FromEnd,
}

/// Indices of an axis of a value.
pub(super) fn index<'g>(x: Value<'g>, dim: i64, index: Value<'g>, negative: Negative) -> Value<'g> {
    let axis = match x.rank() {
        0 => 0,
        _ => x.axis(dim).unwrap_or_default(),
    };
    let message =
        format!("index {{value}} is out of bounds for dimension {axis} with size {{size}}");
    index_or(x, dim, index, negative, &message)
}

/// Indices of an axis of a value, with a message of the operator's own.
pub(super) fn index_or<'g>(
    x: Value<'g>,
    dim: i64,
    index: Value<'g>,
    negative: Negative,
    message: &str,
) -> Value<'g> {
    // A scalar is indexed as a vector of one element.
    let size = match x.rank() {
        0 => x.numel(),
        _ => x.size(dim),
    };
    let low = match negative {
        Negative::Refused => 0.into(),
        Negative::FromEnd => -&size,
    };
    index.to(DType::I64).within(low, &size, message)
}

/// The divisor of a division of integers of a dtype, which must not be zero.
pub(super) fn divisor<'g>(builder: &'g Builder, dtype: DType, divisor: Number<'g>) -> Number<'g> {
    let value = match divisor {
        Number::Scalar(scalar) if scalar.to_i64() != 0 => return divisor,
        Number::Value(value) => value.to(dtype),
        number => builder.full(dtype, Shape::new(), number),
    };
    value.nonzero("ZeroDivisionError").into()
}
