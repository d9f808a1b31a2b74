//! Variances and covariances.

use super::reduce::{dims, require_float};
use super::{Args, CallGradient, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::BinaryFunction;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::var(Tensor self, bool unbiased=True) -> Tensor",
            "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
            "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        ],
        |a| Ok(variance(a)?.0),
        &[
            "f32[B, 3]",
            "dim: f32[2, 3], [1], False, True",
            "correction: f32[2, 3], [0], correction=0",
            "f16[4]",
        ],
    ),
    Composite::one(
        &[
            "aten::std(Tensor self, bool unbiased=True) -> Tensor",
            "aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
            "aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        ],
        |a| Ok(deviation(a)?.0),
        &[
            "f32[B, 3]",
            "dim: f32[2, 3], [1], False, True",
            "correction: f32[2, 3], [0], correction=0",
        ],
    )
    .with_gradient(deviation_gradient),
    Composite::many(
        &[
            "aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
            "aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
            "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        ],
        |a| variance(a).map(|(variance, mean)| vec![variance, mean]),
        &[
            "f32[B, 3]",
            "correction: f32[2, 3], [0], correction=0, keepdim=True",
        ],
    ),
    Composite::many(
        &[
            "aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
            "aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
            "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        ],
        |a| deviation(a).map(|(deviation, mean)| vec![deviation, mean]),
        &[
            "f32[B, 3]",
            "correction: f32[2, 3], [0], correction=0, keepdim=True",
        ],
    )
    .with_gradient(deviation_gradient),
    Composite::one(
        &[
            "aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let frequencies = a.optional_tensor("fweights");
            let importances = a.optional_tensor("aweights");
            covariance(x, a.float("correction"), frequencies, importances)
        },
        &[
            "f32[3, B]",
            "f32[5], correction=0",
            "f32[2, 4], fweights=i64[4], aweights=f32[4]",
        ],
    ),
    Composite::one(
        &["aten::corrcoef(Tensor self) -> Tensor"],
        |a| {
            let covariance = covariance(a.tensor("self"), 1.0, None, None)?;
            if covariance.rank() == 0 {
                // 1, or not-a-number if the variance is 0.
                return Ok(covariance.combine(BinaryFunction::Div, covariance));
            }
            let deviation = super::split::diagonal(covariance, 0, 0, 1)?.sqrt();
            let scaled = covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0);
            Ok(scaled.clamp(Some((-1.0).into()), Some(1.0.into())))
        },
        &["f32[3, B]", "f32[5]"],
    ),
];

/// The number that is subtracted from the number of elements in the divisor, from the argument `unbiased` or
/// `correction`.
fn correction(a: &Args) -> f64 {
    if a.has("unbiased") {
        f64::from(u8::from(a.bool("unbiased")))
    } else {
        a.optional_float("correction").unwrap_or(1.0)
    }
}

/// Variance and mean along the call's dimensions.
fn variance<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let (x, dims, keepdim) = (require_float(a.tensor("self"))?, dims(a), a.bool("keepdim"));
    Ok((x.var(&dims, correction(a), keepdim), x.mean(&dims, keepdim)))
}

/// Standard deviation and mean; half precision is rounded once, at the end.
fn deviation<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let (x, dims, keepdim) = (require_float(a.tensor("self"))?, dims(a), a.bool("keepdim"));
    let variance = x.to_compute().var(&dims, correction(a), keepdim);
    Ok((variance.sqrt().to(x.dtype()), x.mean(&dims, keepdim)))
}

/// Gradients of [`deviation`]. A deviation of zero passes none on.
fn deviation_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, x) = (call.args(), call.args().tensor("self"));
    let (dims, wide) = (dims(a), x.to_compute());
    let restored = |value: Value<'g>| value.to_compute().restore_dims(x.shape(), &dims);
    let deviation = restored(call.result(0)?);
    let gradient = restored(call.gradient(0)?);
    let scale = deviation.eq(0.0).where_(0.0, gradient / deviation);
    let count = wide.numel_along(&dims);
    let divisor = (count - correction(a)).maximum(0.0);
    let mut sum = (wide - wide.mean(&dims, true)) * (scale / divisor);
    if let Some(gradient) = call.gradient_if_used(1) {
        sum = sum + restored(gradient) / count;
    }
    Ok(vec![("self", sum.to(x.dtype()))])
}

/// Covariance of the rows of a matrix; a scalar for a vector. `frequencies` and `importances` weight the columns, as
/// `fweights` and `aweights` of `torch.cov` do.
fn covariance<'g>(
    x: Value<'g>,
    correction: f64,
    frequencies: Option<Value<'g>>,
    importances: Option<Value<'g>>,
) -> Result<Value<'g>> {
    let rows = match x.rank() {
        0 => x.reshape(vec![Dim::ONE, Dim::ONE]),
        1 => x.unsqueeze(0),
        2 => x,
        _ => return Err(Error::operator(format!("covariance of {}", x.ty()))),
    };
    let rows = rows.to_float();
    let weights = match (frequencies, importances) {
        (Some(frequencies), Some(importances)) => Some(frequencies * importances),
        (one, other) => one.or(other),
    };
    let builder = x.builder();
    let total = match weights {
        Some(weights) => weights.sum(&[0], false),
        None => builder.full(DType::I64, Shape::new(), rows.size(1)),
    };
    let weighted = |rows: Value<'g>| weights.map_or(rows, |weights| rows * weights);
    let mean = weighted(rows).sum(&[1], true) / total;
    let divisor = match (weights, importances) {
        (Some(weights), Some(importances)) if correction != 0.0 => {
            total - (weights * importances).sum(&[0], false) * correction / total
        }
        _ => total - correction,
    };
    let centred = rows - mean;
    let product = centred.matmul(weighted(centred).to(centred.dtype()).transpose(0, 1));
    let scaled = product / divisor.to(product.dtype()).maximum(0.0);
    Ok(scaled.squeeze(&[0, 1]))
}
