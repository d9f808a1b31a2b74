//! Layers that draw random numbers in training and are deterministic otherwise.

use super::activation::leaky;
use super::philox::Philox;
use super::{Args, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::dropout(Tensor input, float p, bool train) -> Tensor"],
        |a| {
            let x = a.tensor("input");
            if has_dropout(a) { apply_dropout(a, x, a.float("p")) } else { Ok(x) }
        },
        &["f32[B, 3], 0.5, False", "f32[B, 3], 0.0, True", "f16[B, 3], 0.25, True", "f32[3], 1.0, True"],
    )
    .with_strides(StrideRule::ItselfOrNew)
    .with_random(has_dropout),
    Composite::one(
        &["aten::feature_dropout(Tensor input, float p, bool train) -> Tensor"],
        |a| {
            let x = a.tensor("input");
            if !has_dropout(a) {
                return Ok(x);
            }
            let p = probability(a.float("p"))?;
            Ok(x * (keep_mask(a, p, feature_shape(x)?).to(x.dtype()) * keep_scale(p)))
        },
        &["f32[B, 3], 0.5, False", "f32[B, 3, 4], 0.5, True"],
    )
    .with_strides(StrideRule::ItselfOrNew)
    .with_random(has_dropout),
    Composite::one(
        &["aten::alpha_dropout(Tensor input, float p, bool train) -> Tensor"],
        |a| alpha_dropout(a, |x| Ok(x.shape())),
        &["f32[B, 3], 0.5, False", "f32[B, 3, 4], 0.5, True"],
    )
    .with_strides(StrideRule::ItselfOrNew)
    .with_random(has_dropout),
    Composite::one(
        &["aten::feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor"],
        |a| alpha_dropout(a, feature_shape),
        &["f32[B, 3], 0.5, False", "f32[B, 3, 4], 0.5, True"],
    )
    .with_strides(StrideRule::ItselfOrNew)
    .with_random(has_dropout),
    Composite::many(
        &["aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)"],
        |a| {
            let (x, p) = (a.tensor("input"), probability(a.float("p"))?);
            if !has_native_dropout(a) {
                return Ok(vec![x, a.builder().full(DType::Bool, x.shape(), true)]);
            }
            let mask = keep_mask(a, p, x.shape());
            Ok(vec![x * mask.to(x.dtype()) * keep_scale(p), mask])
        },
        &["f32[B, 3], 0.5, False", "f32[B, 3], 0.5, None", "f32[B, 3], 0.5, True"],
    )
    .with_strides(StrideRule::Elementwise)
    .with_random(has_native_dropout),
    Composite::one(
        &[
            "aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None) -> Tensor",
            "aten::rrelu_with_noise(Tensor self, Tensor noise, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None) -> Tensor",
        ],
        rrelu,
        &["f32[B, 3]", "rrelu_with_noise: f32[3], f32[3]", "f32[B, 3], training=True"],
    )
    .with_strides(StrideRule::Elementwise)
    .with_random(|a| a.bool("training")),
];

/// Whether a call with the argument `train` draws random numbers.
fn has_dropout(a: &Args) -> bool {
    a.bool("train") && a.float("p") != 0.0
}

/// [`has_dropout`] for `native_dropout`, whose argument `train` defaults to true.
fn has_native_dropout(a: &Args) -> bool {
    (a.is_none("train") || a.bool("train")) && a.float("p") != 0.0
}

/// `p`, if it is a probability; else an error.
fn probability(p: f64) -> Result<f64> {
    let complaint = || Error::operator(format!("a probability of {p}"));
    (0.0..=1.0).contains(&p).then_some(p).ok_or_else(complaint)
}

/// The factor for elements that are kept with probability `1 - p`. It preserves the mean.
fn keep_scale(p: f64) -> f64 {
    if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) }
}

/// Random mask of the elements that are kept; each is dropped with probability `p`.
fn keep_mask<'g>(a: &Args<'g>, p: f64, shape: Shape) -> Value<'g> {
    Philox::of(a).uniform(DType::F32, shape).lt(1.0 - p)
}

/// Zeroes elements at random with probability `p`, and scales the others so that the mean is preserved.
pub(super) fn apply_dropout<'g>(a: &Args<'g>, x: Value<'g>, p: f64) -> Result<Value<'g>> {
    let p = probability(p)?;
    Ok(x * (keep_mask(a, p, x.shape()).to(x.dtype()) * keep_scale(p)))
}

/// The shape of a mask with one element for each channel of each sample.
fn feature_shape(x: Value) -> Result<Shape> {
    if x.rank() < 2 {
        return Err(Error::operator(
            "feature dropout requires a batch axis and a channel axis",
        ));
    }
    let sizes = x.shape().into_iter().enumerate();
    Ok(sizes
        .map(|(axis, size)| if axis < 2 { size } else { Dim::ONE })
        .collect())
}

/// Sets random elements to the value at which SELU saturates, then restores mean and variance. `shape` returns the
/// shape of the mask for an input.
fn alpha_dropout<'g>(a: &Args<'g>, shape: fn(Value<'g>) -> Result<Shape>) -> Result<Value<'g>> {
    /// SELU saturates at `-ALPHA`: the product of its constants alpha and scale.
    const ALPHA: f64 = 1.7580993408473766;
    let (x, p) = (a.tensor("input"), probability(a.float("p"))?);
    if !has_dropout(a) {
        return Ok(x);
    }
    let keep = keep_mask(a, p, shape(x)?).to(x.dtype());
    if p == 1.0 {
        return Ok(x * keep);
    }
    let scale = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let shift = (keep - 1.0) * (ALPHA * scale) + ALPHA * scale * p;
    Ok(x * (keep * scale) + shift)
}

/// Leaky ReLU with random slopes for each element in training; otherwise with the mean of the bounds.
fn rrelu<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, low, high) = (a.tensor("self"), a.float("lower"), a.float("upper"));
    if !a.bool("training") {
        return Ok(leaky(x, (low + high) / 2.0));
    }
    let slopes = Philox::of(a).uniform(x.to_compute().dtype(), x.shape()) * (high - low) + low;
    Ok(x.le(0.0).where_(x * slopes.to(x.dtype()), x))
}
