//! Checks of indices and divisors that PyTorch rejects, with PyTorch's messages.

use crate::dtype::DType;
use crate::ir::{Builder, Number, Value};
use crate::shape::Shape;

/// The negative indices that are rejected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Negative {
    /// All negative indices.
    Refused,
    /// Negative indices below `-size`; the others count from the end.
    FromEnd,
}

/// Checks indices of an axis of a value.
pub(super) fn index<'g>(x: Value<'g>, dim: i64, index: Value<'g>, negative: Negative) -> Value<'g> {
    let axis = match x.rank() {
        0 => 0,
        _ => x.axis(dim).unwrap_or_default(),
    };
    let message =
        format!("index {{value}} is out of bounds for dimension {axis} with size {{size}}");
    index_or(x, dim, index, negative, &message)
}

/// Checks indices of an axis of a value; the operator has its own message.
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

/// Checks that the divisor of an integer division is not zero.
pub(super) fn divisor<'g>(builder: &'g Builder, dtype: DType, divisor: Number<'g>) -> Number<'g> {
    let value = match divisor {
        Number::Scalar(scalar) if scalar.to_i64() != 0 => return divisor,
        Number::Value(value) => value.to(dtype),
        number => builder.full(dtype, Shape::new(), number),
    };
    value.nonzero("ZeroDivisionError").into()
}
