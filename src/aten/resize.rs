//! Resampling of the spatial axes to another size.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::reduce::require_elements_in_last_axes;
use super::resample::{Interpolation, ResampledAxis};
use super::{Args, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
            "aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 1, Interpolation::Nearest),
        &[
            "f32[B, 3, L], [7]",
            "vec: f32[B, 3, L], None, [2.0]",
            "u8[1, 2, 5], [3]",
        ],
    ),
    Composite::one(
        &[
            "aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::Nearest),
        &[
            "f32[B, 3, H, W], [7, 5]",
            "vec: f32[B, 3, H, W], None, [2.0, 0.5]",
            "vec: f32[1, 1, 5, 3], None, [1.1, 2.3]",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 3, Interpolation::Nearest),
        &["f32[1, 2, 3, 4, 5], [2, 5, 10]"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
            "aten::_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 1, Interpolation::NearestExact),
        &["f32[B, 3, L], [7]"],
    ),
    Composite::one(
        &[
            "aten::_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::NearestExact),
        &[
            "f32[B, 3, H, W], [7, 5]",
            "vec: f32[1, 2, 4, 4], None, [1.6, 0.7]",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 3, Interpolation::NearestExact),
        &["f32[1, 2, 3, 4, 5], [2, 5, 10]"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor",
            "aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 1, Interpolation::Linear),
        &["f32[B, 3, L], [7], False", "f16[1, 3, 5], [9], True"],
    ),
    Composite::one(
        &[
            "aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::Linear),
        &[
            "f32[B, 3, H, W], [7, 5], False",
            "f32[B, 3, H, W], [7, 5], True",
            "vec: f32[B, 3, H, W], None, False, [2.0, 1.5]",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 3, Interpolation::Linear),
        &["f32[1, 2, 3, 4, 5], [2, 5, 10], False"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::Cubic),
        &[
            "f32[B, 3, H, W], [7, 5], False",
            "f16[1, 1, 4, 5], [3, 8], True",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::AntialiasLinear),
        &[
            "f32[B, 3, H, W], [3, 5], False",
            "vec: f32[1, 1, 8, 9], None, False, [0.4, 1.5]",
        ],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::AntialiasCubic),
        &["f32[B, 3, H, W], [3, 5], False"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::_upsample_lanczos2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
            "aten::_upsample_lanczos2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
        ],
        |a| resize(a, 2, Interpolation::AntialiasLanczos),
        &["f32[B, 3, H, W], [3, 5], False"],
    )
    .with_strides(StrideRule::Suggested),
];

/// Resamples the last `count` axes, from the last to the first.
fn resize<'g>(a: &Args<'g>, count: usize, kernel: Interpolation) -> Result<Value<'g>> {
    let x = a.tensor(if a.has("input") { "input" } else { "self" });
    a.builder().check()?;
    let Some(first) = x.rank().checked_sub(count) else {
        return a.reject(format!("resizes {count} axes, not {}", x.ty()));
    };
    let x = require_elements_in_last_axes(x, count + 1)?;
    let scales = scales(a, count);
    let sizes = if a.is_none("output_size") {
        let scaled = |(axis, scale): (usize, &Option<f64>)| {
            let scale = scale.ok_or_else(|| Error::operator("has neither sizes nor scales"))?;
            scaled_size(x, &x.size((first + axis) as i64), scale)
        };
        scales
            .iter()
            .enumerate()
            .map(scaled)
            .collect::<Result<_>>()?
    } else {
        a.sizes("output_size")
    };
    if sizes.len() != count {
        return a.reject(format!("{} sizes for {count} axes", sizes.len()));
    }
    let interpolates = !matches!(kernel, Interpolation::Nearest | Interpolation::NearestExact);
    let mut y = if interpolates && x.dtype() == DType::U8 {
        x.to(DType::F32)
    } else if interpolates {
        x.to_compute()
    } else {
        x
    };
    for (axis, (size, scale)) in sizes.iter().zip(&scales).enumerate().rev() {
        let dim = (first + axis) as i64;
        let scale = match kernel {
            Interpolation::Nearest if count == 2 => {
                unless_equal_or_double(*scale, &x.size(dim), size, x)?
            }
            _ => *scale,
        };
        let resampled_axis = ResampledAxis::new(y, dim, size, scale, a.bool("align_corners"));
        y = kernel.apply(y, &resampled_axis);
        if interpolates && x.dtype() == DType::U8 {
            // PyTorch rounds to bytes after each axis.
            y = (y + 0.5)
                .floor()
                .clamp(Some(0.0.into()), Some(255.0.into()));
        }
    }
    Ok(y.to(x.dtype()))
}

/// The scale of each axis; `None` if the caller gave no positive one.
fn scales(a: &Args, count: usize) -> Vec<Option<f64>> {
    let usable = |scale: Option<f64>| scale.filter(|scale| 0.0 < *scale);
    if a.has("scale_factors") {
        let given = a.optional_floats("scale_factors").unwrap_or_default();
        return (0..count)
            .map(|axis| usable(given.get(axis).copied()))
            .collect();
    }
    let names: &[&str] = match count {
        1 => &["scales"],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    names
        .iter()
        .map(|name| usable(a.optional_float(name)))
        .collect()
}

/// The scale of nearest neighbours in images, which PyTorch ignores where an axis keeps or doubles its size
/// (`nearest_idx` in `aten/src/ATen/native/UpSample.h`).
fn unless_equal_or_double(
    scale: Option<f64>,
    from: &Dim,
    to: &Dim,
    x: Value,
) -> Result<Option<f64>> {
    let Some(factor) = scale.filter(|factor| *factor != 1.0 && *factor != 2.0) else {
        return Ok(scale);
    };
    let symbols = x.builder().symbols();
    let is_ignored = symbols.equal(to, from)? || symbols.equal(to, &(from * 2))?;
    Ok((!is_ignored).then_some(factor))
}

/// `floor(size · scale)`; symbolic if the scale is a fraction whose denominator is a small power of two.
fn scaled_size(x: Value, size: &Dim, scale: f64) -> Result<Dim> {
    if size.as_const().is_none() {
        for denominator in (0..16).map(|power| 1i64 << power) {
            let numerator = scale * denominator as f64;
            if numerator.fract() == 0.0 && numerator.abs() < f64::from(1 << 24) {
                return Ok((size * (numerator as i64)).floor_div(&Dim::from(denominator)));
            }
        }
    }
    let size = x.builder().symbols().specialize(size)?;
    Ok(Dim::from((size as f64 * scale) as i64))
}
