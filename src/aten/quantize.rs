//! Fake quantisation: rounds values to the nearest quantised ones.

use super::{Args, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::shape::{Shape, wrap_dim};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> Tensor",
            "aten::fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max) -> Tensor",
        ],
        |a| Ok(per_tensor(a)?.dequantised()),
        &[
            "f32[B, 3], 0.1, 3, 0, 255",
            "tensor_qparams: f32[3], f32[1], i32[1], -128, 127",
        ],
    )
    .with_strides(StrideRule::Preserve),
    Composite::many(
        &[
            "aten::fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
        ],
        |a| Ok(per_tensor(a)?.with_mask().to_vec()),
        &["f32[B, 3], 0.1, 3, 0, 255"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::many(
        &[
            "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
        ],
        |a| {
            let x = a.tensor("self");
            let enabled = a.tensor("fake_quant_enabled").reshape(Shape::new()).ne(0);
            let [output, mask] = per_tensor(a)?.with_mask();
            Ok(vec![
                enabled.where_(output, x),
                mask.logical_or(enabled.logical_not()),
            ])
        },
        &["f32[B, 3], f32[1], i32[1], i64[1], 0, 255"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> Tensor",
        ],
        |a| Ok(per_channel(a)?.dequantised()),
        &["f32[B, 3], f32[3], i32[3], 1, 0, 255"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::many(
        &[
            "aten::fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
        ],
        |a| Ok(per_channel(a)?.with_mask().to_vec()),
        &["f32[B, 3], f32[3], i32[3], 1, 0, 255"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::_fake_quantize_learnable_per_tensor_affine(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, float grad_factor=1.) -> Tensor",
        ],
        |a| Ok(with_rounded_zero_point(per_tensor(a)?).dequantised()),
        &["f32[B, 3], f32[1], f32[1], 0, 255"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::_fake_quantize_learnable_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max, float grad_factor=1.) -> Tensor",
        ],
        |a| Ok(with_rounded_zero_point(per_channel(a)?).dequantised()),
        &["f32[B, 3], f32[3], f32[3], 1, 0, 255"],
    )
    .with_strides(StrideRule::Preserve),
];

/// The operands of a quantisation.
struct Quantisation<'g> {
    /// The values to quantise.
    x: Value<'g>,
    /// Difference between neighbouring quantised values.
    scale: Value<'g>,
    /// The integer that represents zero.
    zero_point: Value<'g>,
    /// The smallest and the largest integer.
    bounds: [i64; 2],
}

impl<'g> Quantisation<'g> {
    /// The integers before they are clamped, as floats.
    fn integers(&self) -> Value<'g> {
        (self.x.to_compute() * self.scale.reciprocal()).round() + self.zero_point
    }

    /// The values that the clamped integers represent. Not-a-number becomes the lowest integer.
    fn dequantised(&self) -> Value<'g> {
        let [low, high] = self.bounds;
        let integers = self.integers();
        let integers = integers.isnan().where_(low as f64, integers);
        let clamped = integers.clamp(Some((low as f64).into()), Some((high as f64).into()));
        ((clamped - self.zero_point) * self.scale).to(self.x.dtype())
    }

    /// The quantised values, and a mask of those that needed no clamping.
    fn with_mask(&self) -> [Value<'g>; 2] {
        let [low, high] = self.bounds;
        let integers = self.integers();
        let mask = integers
            .ge(low as f64)
            .logical_and(integers.le(high as f64));
        [self.dequantised(), mask]
    }
}

/// The arguments `quant_min` and `quant_max`.
fn bounds(a: &Args) -> Result<[i64; 2]> {
    let [low, high] = [a.int("quant_min"), a.int("quant_max")];
    if high < low {
        return Err(Error::operator(format!(
            "quant_min {low} is above quant_max {high}"
        )));
    }
    Ok([low, high])
}

/// The quantisation with one scale and zero point.
fn per_tensor<'g>(a: &Args<'g>) -> Result<Quantisation<'g>> {
    let x = a.tensor("self");
    let scalar = |name: &str| a.tensor(name).to(DType::F32).reshape(Shape::new());
    Ok(Quantisation {
        x,
        scale: scalar("scale"),
        zero_point: scalar("zero_point"),
        bounds: bounds(a)?,
    })
}

/// The quantisation with a scale and a zero point for each index of the argument `axis`.
fn per_channel<'g>(a: &Args<'g>) -> Result<Quantisation<'g>> {
    let x = a.tensor("self");
    let axis = wrap_dim(a.int("axis"), x.rank())?;
    let mut shape = vec![Dim::ONE; x.rank()];
    if let (Some(slot), Some(size)) = (shape.get_mut(axis), x.shape().get(axis)) {
        *slot = size.clone();
    }
    let along_axis = |name: &str| a.tensor(name).to(DType::F32).reshape(shape.clone());
    Ok(Quantisation {
        x,
        scale: along_axis("scale"),
        zero_point: along_axis("zero_point"),
        bounds: bounds(a)?,
    })
}

/// Rounds a learnt zero point to an integer between the bounds.
fn with_rounded_zero_point(quantised: Quantisation<'_>) -> Quantisation<'_> {
    let [low, high] = quantised.bounds.map(|bound| bound as f64);
    let zero_point = quantised.zero_point.round();
    Quantisation {
        zero_point: zero_point.clamp(Some(low.into()), Some(high.into())),
        ..quantised
    }
}
