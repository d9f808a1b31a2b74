//! Gradients of cumulative reductions.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::{Scan, ScanFunction};

pub(super) fn scan<'g>(scan: &Scan, node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let (x, result, gradient) = (node.operand(0)?, node.result(0)?, node.gradient(0)?);
    let axis = scan.axis as i64;
    let gradient = match scan.function {
        ScanFunction::Sum => sum_of_later(gradient, axis),
        ScanFunction::Prod => of_product(x, result, gradient, axis),
        ScanFunction::LogSumExp => of_log_sum_exp(x, result, gradient, axis),
        ScanFunction::Max | ScanFunction::Min => {
            return Err(Error::internal(
                "cumulative extremes have a rule in their row",
            ));
        }
    };
    Ok(vec![Some(gradient)])
}

/// For each element of an axis, the sum of it and those after it.
fn sum_of_later(x: Value, axis: i64) -> Value {
    let sums = x.flip(&[axis]).scan(ScanFunction::Sum, axis);
    sums.flip(&[axis])
}

/// The derivative of a product at its first zero is the product without that zero; behind it all are zero.
fn of_product<'g>(x: Value<'g>, result: Value<'g>, gradient: Value<'g>, axis: i64) -> Value<'g> {
    let is_zero = x.eq(0.0);
    let zeros = is_zero.to(DType::I64).scan(ScanFunction::Sum, axis);
    let is_before = zeros.eq(0);
    let is_first = is_zero.logical_and(zeros.eq(1));
    let without_first = is_first.where_(1.0, x).scan(ScanFunction::Prod, axis);
    let before = sum_of_later(gradient * result, axis) / is_before.where_(x, 1.0);
    let at_first = sum_of_later(gradient * without_first, axis);
    is_before.where_(before, is_first.where_(at_first, 0.0))
}

/// `exp(x) * sum(gradient / exp(result))` over later elements, in logarithms; positive and negative gradients apart.
fn of_log_sum_exp<'g>(
    x: Value<'g>,
    result: Value<'g>,
    gradient: Value<'g>,
    axis: i64,
) -> Value<'g> {
    let part = |gradient: Value<'g>| {
        let logarithm = gradient.gt(0.0).where_(gradient.log(), f64::NEG_INFINITY);
        let sums = (logarithm - result)
            .flip(&[axis])
            .scan(ScanFunction::LogSumExp, axis)
            .flip(&[axis]);
        (sums + x).exp()
    };
    part(gradient) - part(-gradient)
}
