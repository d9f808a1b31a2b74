//! Gradients of operators that map each axis linearly: average pooling, resampling, padding with own elements.
//!
//! Such an operator multiplies an axis by a matrix. Its gradient multiplies by the transposed matrix, whose rows are the
//! operator's results for unit vectors.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ReduceFunction;

use super::super::pad::{PadMode, pad_by_mode};
use super::super::pooling::axes;
use super::super::resample::{Interpolation, ResampledAxis};
use super::super::windows::{PoolAxis, Windows};
use super::super::{Args, Composite};

pub(in crate::aten) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
        ],
        |a| average_pool(a, 2),
        &[
            "f32[B, 3, 2, 2], f32[B, 3, 4, 4], [2, 2], [2, 2], [0, 0], False, True, None",
            "f16[3, 3, 3], f16[3, 5, 5], [3, 3], [2, 2], [1, 1], True, False, None",
        ],
    ),
    Composite::one(
        &[
            "aten::avg_pool3d_backward(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
        ],
        |a| average_pool(a, 3),
        &["f32[3, 2, 2, 2], f32[3, 4, 4, 4], [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, 3"],
    ),
    Composite::one(
        &["aten::_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor"],
        |a| adaptive_average_pool(a, 2),
        &["f32[B, 3, 2, 2], f32[B, 3, 5, 4]"],
    ),
    Composite::one(
        &["aten::_adaptive_avg_pool3d_backward(Tensor grad_output, Tensor self) -> Tensor"],
        |a| adaptive_average_pool(a, 3),
        &["f32[3, 2, 2, 1], f32[3, 5, 4, 3]"],
    ),
    Composite::one(
        &[
            "aten::upsample_nearest2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor",
        ],
        |a| resampled(a, Interpolation::Nearest),
        &["f32[2, 3, 8, 6], [8, 6], [2, 3, 4, 4]"],
    ),
    Composite::one(
        &[
            "aten::_upsample_nearest_exact2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor",
        ],
        |a| resampled(a, Interpolation::NearestExact),
        &["f32[2, 3, 8, 6], [8, 6], [2, 3, 4, 4]"],
    ),
    Composite::one(
        &[
            "aten::_upsample_bilinear2d_aa_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
        ],
        |a| resampled(a, Interpolation::AntialiasLinear),
        &["f32[2, 3, 3, 2], [3, 2], [2, 3, 8, 6], False"],
    ),
    Composite::one(
        &[
            "aten::_upsample_lanczos2d_aa_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
        ],
        |a| resampled(a, Interpolation::AntialiasLanczos),
        &["f32[2, 3, 3, 2], [3, 2], [2, 3, 8, 6], False"],
    ),
    Composite::one(
        &[
            "aten::replication_pad1d_backward(Tensor grad_output, Tensor self, SymInt[2] padding) -> Tensor",
            "aten::replication_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding) -> Tensor",
            "aten::replication_pad3d_backward(Tensor grad_output, Tensor self, SymInt[6] padding) -> Tensor",
        ],
        replication_pad,
        &["f32[2, 3, 9], f32[2, 3, 4], [2, 3]"],
    ),
];

/// Multiplies an axis of a gradient by the transposed matrix of `map`, which maps the last axis of a matrix of `input` rows.
fn transposed<'g>(
    gradient: Value<'g>,
    dim: i64,
    input: &Dim,
    map: impl Fn(Value<'g>) -> Result<Value<'g>>,
) -> Result<Value<'g>> {
    let compute = gradient.to_compute();
    let builder = gradient.builder();
    let index = |axis| builder.iota(DType::I64, vec![input.clone(), input.clone()], axis);
    let identity = index(0).eq(index(1)).to(compute.dtype());
    let matrix = map(identity)?;
    let product = compute.move_axis(dim, -1).matmul(matrix.transpose(0, 1));
    Ok(product.move_axis(-1, dim))
}

/// Applies [`transposed`] to the last axes, one map for each, and returns the gradient in its own element type.
fn by_axis<'g, T>(
    gradient: Value<'g>,
    input: &[Dim],
    parameters: impl IntoIterator<Item = T>,
    map: impl Fn(Value<'g>, &T) -> Result<Value<'g>>,
) -> Result<Value<'g>> {
    gradient.builder().check()?;
    let parameters: Vec<T> = parameters.into_iter().collect();
    let first = input.len().saturating_sub(parameters.len());
    let mut axes = input.iter().enumerate().skip(first).zip(&parameters);
    let result = axes.try_fold(gradient, |gradient, ((axis, size), parameters)| {
        transposed(gradient, axis as i64, size, |rows| map(rows, parameters))
    });
    Ok(result?.to(gradient.dtype()))
}

fn average_pool<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    let (gradient, input) = (a.tensor("grad_output"), a.tensor("self"));
    let divisor = a.optional_int("divisor_override");
    let with_padding = a.bool("count_include_pad");
    let map = |rows: Value<'g>, axis: &PoolAxis| {
        let sums =
            Windows::sliding(rows, std::slice::from_ref(axis), 0.0)?.reduce(ReduceFunction::Sum);
        Ok(match divisor {
            Some(_) => sums,
            None => {
                sums / axis
                    .counted_elements(rows, sums, 1, with_padding)
                    .to(sums.dtype())
            }
        })
    };
    let gradient = match divisor {
        Some(0) => return a.reject("divisor_override = 0"),
        Some(divisor) => gradient / divisor,
        None => gradient,
    };
    by_axis(gradient, &input.shape(), axes(a, count)?, map)
}

fn adaptive_average_pool<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    let (gradient, input) = (a.tensor("grad_output"), a.tensor("self"));
    let first = gradient.rank().saturating_sub(count);
    let outputs = gradient.shape().into_iter().skip(first);
    by_axis(gradient, &input.shape(), outputs, |rows, output| {
        let windows = Windows::adaptive(rows, std::slice::from_ref(output), 0.0)?;
        Ok(windows.reduce(ReduceFunction::Sum) / windows.counts())
    })
}

fn resampled<'g>(a: &Args<'g>, interpolation: Interpolation) -> Result<Value<'g>> {
    let gradient = a.tensor("grad_output");
    let scales = ["scales_h", "scales_w"].map(|name| a.optional_float(name));
    let align_corners = a.has("align_corners") && a.bool("align_corners");
    let axes = a.sizes("output_size").into_iter().zip(scales);
    by_axis(
        gradient,
        &a.sizes("input_size"),
        axes,
        |rows, (output, scale)| {
            let scale = scale.filter(|_| !ignores_scale(&interpolation, &rows.size(1), output));
            let axis = ResampledAxis::new(rows, 1, output, scale, align_corners);
            Ok(interpolation.apply(rows, &axis))
        },
    )
}

/// True if the gradient does not depend on the scale, other than the result: PyTorch's `nearest_idx` compares the sizes first
/// (`aten/src/ATen/native/UpSample.h`).
fn ignores_scale(interpolation: &Interpolation, input: &Dim, output: &Dim) -> bool {
    let is_nearest = matches!(
        interpolation,
        Interpolation::Nearest | Interpolation::NearestExact
    );
    is_nearest && (output == input || *output == input * 2)
}

fn replication_pad<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (gradient, input) = (a.tensor("grad_output"), a.tensor("self"));
    // The padding of the last axis comes first.
    let padding = a.sizes("padding");
    let pairs: Vec<&[Dim]> = padding.chunks(2).rev().collect();
    if !padding.len().is_multiple_of(2) || input.rank() < pairs.len() {
        return Err(Error::operator(format!(
            "{} padding sizes for {}",
            padding.len(),
            input.ty()
        )));
    }
    by_axis(gradient, &input.shape(), pairs, |rows, pair| {
        pad_by_mode(rows, pair, PadMode::Replicate)
    })
}
