//! Convolutions and transposed convolutions over one to three spatial axes.

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Argument, Value};
use crate::op::ConvAxis;

use super::{Args, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor",
            "aten::_convolution.deprecated(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, int[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled) -> Tensor",
        ],
        |a| convolution(a, a.bool("transposed")),
        &[
            "f32[B, 4, H], f32[6, 2, 3], f32[6], [2], [1], [1], False, [0], 2, False, False, False, False",
            "f16[2, 4, 5, 5], f16[4, 3, 3, 3], None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1, False, False, False, False",
        ],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
            "aten::convolution_overrideable(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
        ],
        |a| convolution(a, a.bool("transposed")),
        &["f32[2, 3, 8, 8], f32[4, 3, 3, 3], f32[4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1"],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, str padding, SymInt[] dilation, SymInt groups) -> Tensor",
        ],
        |a| convolution(a, false),
        &["f32[2, 3, 9], f32[4, 3, 4], f32[4], [1], 'same', [2], 1"],
    ),
    Composite::one(
        &[
            "aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], SymInt[1] dilation=[1], SymInt groups=1) -> Tensor",
            "aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], str padding='valid', SymInt[1] dilation=[1], SymInt groups=1) -> Tensor",
        ],
        |a| convolution(a, false),
        &[
            "f32[B, 4, L], f32[6, 4, 3], f32[6], stride=2",
            "padding: f32[4, 9], f32[4, 1, 2], padding='same', groups=4",
        ],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor",
            "aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], str padding='valid', SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor",
        ],
        |a| convolution(a, false),
        &[
            "f32[B, 3, H, W], f32[8, 3, 3, 3], f32[8], padding=1",
            "f32[4, 9, 9], f32[4, 1, 3, 3], stride=[2, 1], dilation=2, groups=4",
            "f16[1, 3, 8, 8], f16[4, 3, 1, 1], f16[4]",
            "padding: f32[1, 2, 6, 7], f32[2, 2, 2, 3], padding='same'",
        ],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor",
            "aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], str padding='valid', SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor",
        ],
        |a| convolution(a, false),
        &["f32[B, 2, 5, 5, 5], f32[3, 2, 3, 3, 3], f32[3], padding=[1, 0, 1]"],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], SymInt[1] output_padding=[0], SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor",
        ],
        |a| convolution(a, true),
        &["f32[B, 4, L], f32[4, 3, 3], f32[6], stride=2, padding=1, output_padding=1, groups=2"],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], SymInt[2] output_padding=[0, 0], SymInt groups=1, SymInt[2] dilation=[1, 1]) -> Tensor",
        ],
        |a| convolution(a, true),
        &[
            "f32[B, 4, H, W], f32[4, 3, 2, 2], f32[3], stride=2",
            "f32[4, 5, 5], f32[4, 1, 3, 3], padding=1, groups=4, dilation=2",
        ],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &[
            "aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], SymInt[3] output_padding=[0, 0, 0], SymInt groups=1, SymInt[3] dilation=[1, 1, 1]) -> Tensor",
        ],
        |a| convolution(a, true),
        &["f32[2, 2, 3, 3, 3], f32[2, 2, 3, 3, 3], stride=2, output_padding=1"],
    )
    .with_strides(StrideRule::Convolution),
    Composite::one(
        &["aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor"],
        time_batch_channel,
        &["f32[T, B, 4], f32[3, 4, 5], f32[5], 1"],
    ),
];

/// Parameters of a convolution; each list has one number for each spatial axis.
struct ConvParameters {
    stride: Vec<i64>,
    dilation: Vec<i64>,
    padding: Padding,
    output_padding: Vec<i64>,
    groups: i64,
}

/// Zero padding of the input.
enum Padding {
    /// Zeros at each end of each spatial axis.
    Sizes(Vec<i64>),
    /// As many zeros as keep the size of the input; if the number is odd, the extra zero is at the end.
    Same,
}

/// Reads the parameters of a convolution from a call and applies it.
fn convolution<'g>(a: &Args<'g>, transposed: bool) -> Result<Value<'g>> {
    let (x, filter) = (a.tensor("input"), a.tensor("weight"));
    let spatial_axes = filter.rank().saturating_sub(2);
    let per_axis = |name| one_per_axis(a.ints(name), spatial_axes);
    let padding = match a.get("padding") {
        Argument::Str(text) if text == "valid" => Padding::Sizes(vec![0; spatial_axes]),
        Argument::Str(text) if text == "same" => Padding::Same,
        Argument::Str(text) => return a.reject(format!("padding = {text:?}")),
        _ => Padding::Sizes(per_axis("padding")?),
    };
    let output_padding = if a.has("output_padding") {
        per_axis("output_padding")?
    } else {
        vec![0; spatial_axes]
    };
    let parameters = ConvParameters {
        stride: per_axis("stride")?,
        dilation: per_axis("dilation")?,
        padding,
        output_padding,
        groups: a.int("groups"),
    };
    parameters.apply(x, filter, a.optional_tensor("bias"), transposed)
}

impl ConvParameters {
    /// Convolves, adds the bias and rounds once to the dtype of `x`. An input without a batch axis temporarily gets one
    /// of size 1.
    fn apply<'g>(
        &self,
        x: Value<'g>,
        filter: Value<'g>,
        bias: Option<Value<'g>>,
        transposed: bool,
    ) -> Result<Value<'g>> {
        x.builder().check()?;
        // PyTorch returns no channels if the filter has no input channels.
        let is_empty = !transposed && filter.rank() > 1 && filter.size(1).is(0);
        let (filter, bias) = if is_empty {
            (filter.narrow(0, 0, 0), None)
        } else {
            (filter, bias)
        };
        let dtype = x.dtype();
        let is_unbatched = x.rank() + 1 == filter.rank();
        let batched = if is_unbatched { x.unsqueeze(0) } else { x };
        let axes = self.axes(filter, transposed)?;
        let filter = if transposed {
            transposed_filter(filter, self.groups)?
        } else {
            filter
        };
        let mut y = if dtype.is_float() {
            batched
                .to_compute()
                .conv(filter.to_compute(), axes, self.groups)
        } else {
            integer_convolution(batched, filter, &axes, self.groups)?
        };
        if let Some(bias) = bias {
            let mut shape = vec![Dim::ONE; y.rank()];
            if let Some(channels) = shape.get_mut(1) {
                *channels = bias.numel();
            }
            y = y + bias.to_compute().reshape(shape);
        }
        let y = y.to(dtype);
        Ok(if is_unbatched { y.select(0, 0) } else { y })
    }

    /// The geometry of each spatial axis. A transposed convolution becomes an ordinary one over a dilated input.
    fn axes(&self, filter: Value, transposed: bool) -> Result<Vec<ConvAxis>> {
        let symbols = filter.builder().symbols();
        let mut axes = Vec::new();
        for (axis, taps) in filter.shape().iter().skip(2).enumerate() {
            let of_axis = |list: &[i64]| list.get(axis).copied().unwrap_or(1);
            let (stride, dilation) = (of_axis(&self.stride), of_axis(&self.dilation));
            // Distance between the first and the last tap.
            let extent = dilation.saturating_mul(symbols.specialize(taps)? - 1);
            let (low, high) = match &self.padding {
                Padding::Sizes(sizes) => (of_axis(sizes), of_axis(sizes)),
                Padding::Same if stride != 1 => {
                    return Err(Error::operator("padding = \"same\" requires stride 1"));
                }
                Padding::Same => (extent / 2, extent - extent / 2),
            };
            axes.push(if transposed {
                ConvAxis {
                    stride: 1,
                    low: extent.saturating_sub(low),
                    high: extent
                        .saturating_sub(high)
                        .saturating_add(of_axis(&self.output_padding)),
                    dilation,
                    base_dilation: stride,
                }
            } else {
                ConvAxis {
                    stride,
                    low,
                    high,
                    dilation,
                    base_dilation: 1,
                }
            });
        }
        Ok(axes)
    }
}

/// One number for each axis; a single number is repeated.
pub(super) fn one_per_axis(numbers: Vec<i64>, axes: usize) -> Result<Vec<i64>> {
    match numbers.as_slice() {
        [single] => Ok(vec![*single; axes]),
        several if several.len() == axes => Ok(numbers),
        _ => Err(Error::operator(format!(
            "{numbers:?} does not fit {axes} spatial axes"
        ))),
    }
}

/// Converts the filter `[inputs, outputs / groups, taps..]` of a transposed convolution to the filter
/// `[outputs, inputs / groups, taps..]` of the ordinary convolution over the dilated input, with taps reversed.
/// `inputs` and `outputs` are numbers of channels.
pub(super) fn transposed_filter(filter: Value, groups: i64) -> Result<Value> {
    let shape = filter.shape();
    let [inputs, outputs, taps @ ..] = shape.as_slice() else {
        return Err(Error::operator("the filter has too few dimensions"));
    };
    let groups = Dim::from(groups.max(1));
    let spatial_axes: Vec<i64> = (2..).zip(taps).map(|(axis, _)| axis).collect();
    let split_shape = [
        &[groups.clone(), inputs.floor_div(&groups), outputs.clone()],
        taps,
    ]
    .concat();
    let merged_shape = [&[outputs * &groups, inputs.floor_div(&groups)], taps].concat();
    Ok(filter
        .flip(&spatial_axes)
        .reshape(split_shape)
        .transpose(1, 2)
        .reshape(merged_shape))
}

/// Convolves integers by a matrix product over windows; the primitive supports floats only.
fn integer_convolution<'g>(
    x: Value<'g>,
    filter: Value<'g>,
    axes: &[ConvAxis],
    groups: i64,
) -> Result<Value<'g>> {
    let groups = Dim::from(groups.max(1));
    let patches = patches(x, filter, axes, &groups)?;
    // [N, G, C / G, Y, K] -> [N, G, Y, (C / G) K]
    let [batch, _, channels, positions, taps] = patches.sizes()?;
    let k = channels * taps;
    let shape = vec![batch, groups.clone(), positions, k.clone()];
    let patches = patches.transpose(2, 3).reshape(shape);
    let outputs = filter.size(0);
    let filters = filter.reshape(vec![groups.clone(), outputs.floor_div(&groups), k]);
    let product = patches.matmul(filters.transpose(1, 2)).transpose(2, 3);
    let sizes = (2i64..).zip(axes);
    let sizes = sizes.map(|(axis, conv_axis)| conv_axis.output(&x.size(axis), &filter.size(axis)));
    Ok(product.reshape(
        [x.size(0), outputs]
            .into_iter()
            .chain(sizes)
            .collect::<Vec<Dim>>(),
    ))
}

/// The elements of all windows, `[N, G, C / G, Y, K]`: `Y` windows of `K` positions of a filter `[.., .., taps..]`.
pub(super) fn patches<'g>(
    x: Value<'g>,
    filter: Value<'g>,
    axes: &[ConvAxis],
    groups: &Dim,
) -> Result<Value<'g>> {
    let mut windows = x;
    for (axis, conv_axis) in (2i64..).zip(axes) {
        let taps = x.builder().symbols().specialize(&filter.size(axis))?;
        windows = pad_axis(
            dilate(windows, axis, conv_axis.base_dilation),
            axis,
            conv_axis,
        )
        .unfold(axis, taps, conv_axis.stride, conv_axis.dilation);
    }
    let shape = windows.shape();
    let (Some([batch, channels]), Some(output_sizes)) =
        (shape.get(..2), shape.get(2..2 + axes.len()))
    else {
        return Err(Error::operator("the input has too few dimensions"));
    };
    let positions = Dim::product(output_sizes);
    let taps = Dim::product(filter.shape().iter().skip(2));
    let channels = channels.floor_div(groups);
    Ok(windows.reshape(vec![
        batch.clone(),
        groups.clone(),
        channels,
        positions,
        taps,
    ]))
}

/// Inserts `factor - 1` zeros between the elements of an axis.
pub(super) fn dilate(x: Value, axis: i64, factor: i64) -> Value {
    if factor == 1 {
        return x;
    }
    let mut shape = x.shape();
    let (mut low, mut high) = (
        vec![Dim::ZERO; shape.len() + 1],
        vec![Dim::ZERO; shape.len() + 1],
    );
    let axis_index = usize::try_from(axis).unwrap_or(0);
    if let (Some(size), Some(high)) = (shape.get_mut(axis_index), high.get_mut(axis_index + 1)) {
        *size = &*size * factor;
        *high = Dim::from(factor.saturating_sub(1));
    }
    low.truncate(high.len());
    let length = (x.size(axis) - 1) * factor + 1;
    x.unsqueeze(axis + 1)
        .pad(&low, &high, 0)
        .reshape(shape)
        .narrow(axis, 0, length)
}

/// Pads or crops one axis by the amounts `low` and `high` of its geometry.
fn pad_axis<'g>(x: Value<'g>, axis: i64, conv_axis: &ConvAxis) -> Value<'g> {
    let amounts = |amount: i64| -> Vec<Dim> {
        (0..x.rank() as i64)
            .map(|other_axis| {
                if other_axis == axis {
                    Dim::from(amount)
                } else {
                    Dim::ZERO
                }
            })
            .collect()
    };
    x.pad(&amounts(conv_axis.low), &amounts(conv_axis.high), 0)
}

/// Computes `torch.conv_tbc`: input `[time, batch, channel]`, filter `[taps, input channels, output channels]`.
fn time_batch_channel<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let parameters = ConvParameters {
        stride: vec![1],
        dilation: vec![1],
        padding: Padding::Sizes(vec![a.int("pad")]),
        output_padding: vec![0],
        groups: 1,
    };
    let x = a.tensor("self").permute([1, 2, 0]);
    let filter = a.tensor("weight").permute([2, 1, 0]);
    let y = parameters.apply(x, filter, a.optional_tensor("bias"), false)?;
    Ok(y.permute([2, 0, 1]))
}
