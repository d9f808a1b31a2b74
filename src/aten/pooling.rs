//! Pooling over one to three spatial axes: a reduction over windows.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::{ReduceFunction, ScatterFunction};
use crate::scalar::Scalar;

use super::reduce::require_elements_in_last_axes;
use super::windows::{PoolAxis, Windows};
use super::{Args, CallGradient, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], bool ceil_mode=False) -> Tensor",
        ],
        |a| max_pool(a, 1),
        &[
            "f32[B, 3, L], [3], [2], [1]",
            "f32[3, 9], [2], ceil_mode=True",
        ],
    )
    .with_gradient(|call| maximum_gradient(call, &max_pool_windows(call.args(), 1)?))
    .with_strides(StrideRule::Standard),
    Composite::one(
        &[
            "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor",
        ],
        |a| max_pool(a, 2),
        &[
            "f32[B, 3, H, W], [3, 3], [2, 2], [1, 1]",
            "f16[2, 8, 8], 3, 2, ceil_mode=True, dilation=2",
            "i64[1, 2, 5, 6], [2, 3], padding=1",
        ],
    )
    .with_gradient(|call| maximum_gradient(call, &max_pool_windows(call.args(), 2)?))
    .with_strides(StrideRule::Images(2)),
    Composite::one(
        &[
            "aten::max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor",
        ],
        |a| max_pool(a, 3),
        &["f32[2, 2, 5, 6, 7], [2, 3, 2], padding=1"],
    )
    .with_gradient(|call| maximum_gradient(call, &max_pool_windows(call.args(), 3)?))
    .with_strides(StrideRule::Images(3)),
    Composite::many(
        &[
            "aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], bool ceil_mode=False) -> (Tensor, Tensor)",
        ],
        |a| Ok(maxima_and_indices(&max_pool_windows(a, 1)?)),
        &["f32[2, 3, 9], [3], [2], [1]"],
    )
    .with_gradient(|call| maximum_gradient(call, &max_pool_windows(call.args(), 1)?))
    .with_strides(StrideRule::Images(1)),
    Composite::many(
        &[
            "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
        ],
        |a| Ok(maxima_and_indices(&max_pool_windows(a, 2)?)),
        &[
            "f32[B, 3, H, W], [2, 2]",
            "f32[3, 7, 8], [3, 2], 2, 1, 2, True",
        ],
    )
    .with_gradient(|call| maximum_gradient(call, &max_pool_windows(call.args(), 2)?))
    .with_strides(StrideRule::Images(2)),
    Composite::many(
        &[
            "aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
        ],
        |a| Ok(maxima_and_indices(&max_pool_windows(a, 3)?)),
        &["f32[2, 2, 5, 6, 7], [2, 3, 2], padding=1"],
    )
    .with_gradient(|call| maximum_gradient(call, &max_pool_windows(call.args(), 3)?))
    .with_strides(StrideRule::Images(3)),
    Composite::one(
        &[
            "aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
        ],
        |a| average_pool(a, 1),
        &[
            "f32[B, 3, L], [3], [2], [1]",
            "f32[3, 9], [2], ceil_mode=True",
        ],
    )
    .with_strides(StrideRule::Images(1)),
    Composite::one(
        &[
            "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
        ],
        |a| average_pool(a, 2),
        &[
            "f32[B, 3, H, W], [3, 3], [2, 2], [1, 1]",
            "f32[2, 8, 8], [3, 2], 2, 1, ceil_mode=True, count_include_pad=False",
            "f16[1, 2, 6, 6], 2, divisor_override=3",
            "i64[1, 2, 6, 6], 2",
        ],
    )
    .with_strides(StrideRule::Images(2)),
    Composite::one(
        &[
            "aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
        ],
        |a| average_pool(a, 3),
        &["f32[2, 2, 5, 6, 7], [2, 3, 2], padding=1, count_include_pad=False"],
    ),
    Composite::one(
        &["aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor"],
        |a| adaptive_average_pool(a, 1),
        &["f32[B, 3, L], [1]", "f32[3, 10], [4]"],
    )
    .with_strides(StrideRule::Images(1)),
    Composite::one(
        &[
            "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
            "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
        ],
        |a| adaptive_average_pool(a, 2),
        &[
            "f32[B, 3, H, W], [1, 1]",
            "f32[B, 3, H, W], [3, 2]",
            "f16[2, 6, 8], [3, 3]",
        ],
    )
    .with_strides(StrideRule::Images(2)),
    Composite::one(
        &[
            "aten::adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
            "aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
        ],
        |a| adaptive_average_pool(a, 3),
        &["f32[1, 2, 5, 6, 7], [2, 3, 1]"],
    ),
    Composite::many(
        &["aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)"],
        |a| Ok(maxima_and_indices(&adaptive_max_pool_windows(a, 1)?)),
        &["f32[B, 3, L], [3]"],
    )
    .with_gradient(|call| maximum_gradient(call, &adaptive_max_pool_windows(call.args(), 1)?))
    .with_strides(StrideRule::Images(1)),
    Composite::many(
        &["aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)"],
        |a| Ok(maxima_and_indices(&adaptive_max_pool_windows(a, 2)?)),
        &["f32[B, 3, H, W], [1, 1]", "f32[3, 7, 8], [3, 4]"],
    )
    .with_gradient(|call| maximum_gradient(call, &adaptive_max_pool_windows(call.args(), 2)?))
    .with_strides(StrideRule::Images(2)),
    Composite::many(
        &["aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)"],
        |a| Ok(maxima_and_indices(&adaptive_max_pool_windows(a, 3)?)),
        &["f32[1, 2, 5, 6, 7], [2, 3, 1]"],
    )
    .with_gradient(|call| maximum_gradient(call, &adaptive_max_pool_windows(call.args(), 3)?)),
    Composite::one(
        &["aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor"],
        |a| max_unpool(a, 2),
        &["f32[1, 2, 3, 3], i64[1, 2, 3, 3], [6, 6]"],
    )
    .with_strides(StrideRule::Images(2)),
    Composite::one(
        &[
            "aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
        ],
        |a| max_unpool(a, 3),
        &["f32[2, 2, 2, 2], i64[2, 2, 2, 2], [4, 4, 4], [2, 2, 2], [0, 0, 0]"],
    ),
];

/// The windows along each of the last `count` axes, from the arguments of a pool that is not adaptive. An empty stride
/// means the window's size.
pub(super) fn axes(a: &Args, count: usize) -> Result<Vec<PoolAxis>> {
    let per_axis = |name: &str, default: &[i64]| -> Result<Vec<i64>> {
        let numbers = if a.has(name) {
            a.ints(name)
        } else {
            Vec::new()
        };
        let numbers = if numbers.is_empty() {
            default
        } else {
            &numbers
        };
        match numbers {
            [single] => Ok(vec![*single; count]),
            several if several.len() == count => Ok(several.to_vec()),
            _ => Err(Error::operator(format!(
                "{name} = {numbers:?} does not fit {count} spatial axes"
            ))),
        }
    };
    let size = per_axis("kernel_size", &[])?;
    let stride = per_axis("stride", &size)?;
    let padding = per_axis("padding", &[0])?;
    let dilation = per_axis("dilation", &[1])?;
    let numbers = size.into_iter().zip(stride).zip(padding).zip(dilation);
    numbers
        .map(|(((size, stride), padding), dilation)| {
            let extent = dilation.saturating_mul(size.saturating_sub(1)).saturating_add(1);
            let largest = size.max(stride).max(padding).max(dilation);
            if largest > i64::from(i32::MAX) || size < 1 || stride < 1 || dilation < 1 || padding < 0 || padding > extent / 2 {
                return Err(Error::operator(format!(
                    "a window of {size} with stride {stride}, padding {padding}, dilation {dilation}"
                )));
            }
            Ok(PoolAxis {
                size,
                stride,
                padding,
                dilation,
                ceil_mode: a.bool("ceil_mode"),
            })
        })
        .collect()
}

/// The windows of max pooling over the last `count` axes.
fn max_pool_windows<'g>(a: &Args<'g>, count: usize) -> Result<Windows<'g>> {
    let x = require_elements_in_last_axes(a.tensor("self"), count + 1)?;
    Windows::sliding(x, &axes(a, count)?, max_pool_padding(x.dtype()))
}

/// Max pooling over the last `count` axes.
fn max_pool<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    Ok(max_pool_windows(a, count)?.reduce(ReduceFunction::Max))
}

/// The gradient of the largest element of each window.
fn maximum_gradient<'g>(
    call: &CallGradient<'g>,
    windows: &Windows<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let gradient = windows.gradient_of_maximum(call.gradient(0)?)?;
    Ok(vec![("self", gradient)])
}

/// The largest element of each window, and its index in the flattened spatial axes.
fn maxima_and_indices<'g>(windows: &Windows<'g>) -> Vec<Value<'g>> {
    vec![windows.reduce(ReduceFunction::Max), windows.argmax()]
}

/// [`max_pool_windows`] with the argument `output_size` instead of window parameters.
fn adaptive_max_pool_windows<'g>(a: &Args<'g>, count: usize) -> Result<Windows<'g>> {
    let x = require_elements_in_last_axes(a.tensor("self"), count + 1)?;
    Windows::adaptive(x, &outputs(a, x, count)?, max_pool_padding(x.dtype()))
}

/// The sum over windows of a zero-padded input, divided by the number of counted elements. That number depends only on the
/// position of the window.
fn average_pool<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    let x = require_elements_in_last_axes(a.tensor("self"), count + 1)?;
    let axes = axes(a, count)?;
    let sums = Windows::sliding(x.to_compute(), &axes, 0.0)?.reduce(ReduceFunction::Sum);
    let divide = |sums: Value<'g>, denominator: Value<'g>| {
        if x.dtype().is_float() {
            (sums / denominator.to(sums.dtype())).to(x.dtype())
        } else {
            sums.trunc_divide(denominator.to(x.dtype()))
        }
    };
    let constant = |number: i64| a.builder().full(DType::I64, vec![], number);
    if let Some(divisor) = a.optional_int("divisor_override") {
        if divisor == 0 {
            return a.reject("divisor_override = 0");
        }
        return Ok(divide(sums, constant(divisor)));
    }
    let with_padding = a.bool("count_include_pad");
    let first = x.rank().saturating_sub(count) as i64;
    let mut divisor = constant(1);
    for (axis, geometry) in (first..).zip(&axes) {
        divisor = divisor * geometry.counted_elements(x, sums, axis, with_padding);
    }
    Ok(divide(sums, divisor))
}

/// Average pooling with the argument `output_size` instead of window parameters.
fn adaptive_average_pool<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    let x = require_elements_in_last_axes(a.tensor("self"), count)?;
    let windows = Windows::adaptive(x.to_compute(), &outputs(a, x, count)?, 0.0)?;
    let sums = windows.reduce(ReduceFunction::Sum);
    Ok((sums / windows.counts()).to(x.dtype()))
}

/// The output sizes of the last `count` axes, from the argument `output_size`.
fn outputs(a: &Args, x: Value, count: usize) -> Result<Vec<Dim>> {
    let sizes = a.sizes("output_size");
    let sizes = match sizes.as_slice() {
        [single] => vec![single.clone(); count],
        _ => sizes,
    };
    if sizes.len() != count || x.rank() < count + 1 {
        return Err(Error::operator(format!(
            "{} output sizes for {}",
            sizes.len(),
            x.ty()
        )));
    }
    Ok(sizes)
}

/// Writes each element to the position that its index selects, in an output of zeros.
fn max_unpool<'g>(a: &Args<'g>, count: usize) -> Result<Value<'g>> {
    let (x, indices) = (a.tensor("self"), a.tensor("indices"));
    scatter_in_planes(x, indices, &outputs(a, x, count)?, ScatterFunction::Set)
}

/// Scatters each element of `x` to the position that its index selects in its plane, in an output of zeros. Planes are the last
/// axes; those of the output have the given sizes.
pub(super) fn scatter_in_planes<'g>(
    x: Value<'g>,
    indices: Value<'g>,
    sizes: &[Dim],
    function: ScatterFunction,
) -> Result<Value<'g>> {
    let shape = x.shape();
    let Some(planes) = x
        .rank()
        .checked_sub(sizes.len())
        .and_then(|rank| shape.get(..rank))
    else {
        return Err(Error::operator(format!("{} has no planes", x.ty())));
    };
    let flat = |spatial: &[Dim]| vec![Dim::product(planes), Dim::product(spatial)];
    let inner = flat(shape.get(planes.len()..).unwrap_or_default());
    let zeros = x.builder().full(x.dtype(), flat(sizes), 0);
    let [indices, x] = [indices, x].map(|value| value.reshape(inner.clone()));
    let filled = zeros.scatter(1, indices, x, function);
    Ok(filled.reshape([planes, sizes].concat()))
}

/// The padding value that never becomes the maximum.
fn max_pool_padding(dtype: DType) -> Scalar {
    match dtype.integer_range() {
        Some((low, _)) => Scalar::Int(low),
        None => Scalar::Float(f64::NEG_INFINITY),
    }
}
