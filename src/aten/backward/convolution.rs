//! Gradients of convolutions.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{Conv, ConvAxis};

use super::super::convolution::{one_per_axis, patches, transposed_filter};
use super::super::{Args, Composite};

pub(in crate::aten) const ROWS: &[Composite] = &[Composite::many(
    &[
        "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
        "aten::convolution_backward_overrideable(Tensor grad_output, Tensor input, Tensor weight, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
    ],
    convolution_backward,
    &[
        "f32[2, 6, 4, 4], f32[2, 4, 8, 8], f32[6, 2, 3, 3], [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 2, [True, True, True]",
        "f32[B, 6, 6], f32[B, 4, 8], f32[6, 4, 3], None, [1], [0], [1], False, [0], 1, [True, True, False]",
        "f32[2, 4, 9], f32[2, 6, 4], f32[6, 2, 3], [4], [2], [0], [1], True, [0], 2, [True, True, True]",
        "f16[2, 3, 5, 5], f16[2, 2, 7, 7], f16[3, 2, 2, 2], [3], [1, 1], [0, 0], [2, 2], False, [0, 0], 1, [True, True, True]",
    ],
)];

/// Returns the gradients of input, filter and bias; empty ones where the mask is false.
fn convolution_backward<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let [gradient, input, filter] = ["grad_output", "input", "weight"].map(|name| a.tensor(name));
    a.builder().check()?;
    let convolution = Convolution::from_args(a, filter)?;
    let Some(mask) = a.int_array("output_mask") else {
        return a.reject("output_mask requires three flags");
    };
    let [of_input, of_filter, of_bias] = mask.map(|flag| flag != 0);
    let compute = [gradient, input, filter].map(Value::to_compute);
    let none = || a.builder().full(gradient.dtype(), vec![Dim::ZERO], 0);
    let result = |is_wanted: bool, result: &dyn Fn() -> Result<Value<'g>>| match is_wanted {
        true => Ok(result()?.to(gradient.dtype())),
        false => Ok(none()),
    };
    Ok(vec![
        result(of_input, &|| convolution.input_gradient(compute))?,
        result(of_filter, &|| convolution.filter_gradient(compute))?,
        result(of_bias, &|| Ok(bias_gradient(gradient)))?,
    ])
}

/// The parameters of a convolution.
struct Convolution {
    /// The convolution of the larger of input and output, which gives the smaller.
    of_larger: Conv,
    is_transposed: bool,
}

impl Convolution {
    fn from_args(a: &Args, filter: Value) -> Result<Convolution> {
        let spatial_axes = filter.rank().saturating_sub(2);
        let per_axis = |name| one_per_axis(a.ints(name), spatial_axes);
        let (stride, padding) = (per_axis("stride")?, per_axis("padding")?);
        let numbers = stride.iter().zip(&padding).zip(per_axis("dilation")?);
        let axis = |((stride, padding), dilation): ((&i64, &i64), i64)| ConvAxis {
            dilation,
            ..ConvAxis::padded(*stride, *padding)
        };
        Ok(Convolution {
            of_larger: Conv {
                axes: numbers.map(axis).collect(),
                groups: a.int("groups").max(1),
            },
            is_transposed: a.bool("transposed"),
        })
    }

    /// The gradient of the input of a transposed convolution is a convolution of the output's gradient.
    fn input_gradient<'g>(&self, [gradient, input, filter]: [Value<'g>; 3]) -> Result<Value<'g>> {
        let Conv { axes, groups } = self.of_larger.clone();
        match self.is_transposed {
            true => Ok(gradient.conv(filter, axes, groups)),
            false => conv_input_gradient(&self.of_larger, gradient, input, filter),
        }
    }

    fn filter_gradient<'g>(&self, [gradient, input, filter]: [Value<'g>; 3]) -> Result<Value<'g>> {
        match self.is_transposed {
            true => conv_filter_gradient(&self.of_larger, input, gradient, filter),
            false => conv_filter_gradient(&self.of_larger, gradient, input, filter),
        }
    }
}

/// The gradient of a convolution's input: a convolution of the result's gradient by the transposed filter, in which strides
/// and distances between input elements change places.
pub(crate) fn conv_input_gradient<'g>(
    conv: &Conv,
    gradient: Value<'g>,
    input: Value<'g>,
    filter: Value<'g>,
) -> Result<Value<'g>> {
    let transposed = transposed_filter(filter, conv.groups)?;
    let result = gradient.conv(transposed, transposed_axes(conv, filter)?, conv.groups);
    // A stride leaves elements at the end of the axis that no window reaches.
    let sizes = input.shape().into_iter().enumerate().skip(2);
    Ok(sizes.fold(result, |result, (axis, size)| {
        result.narrow(axis as i64, 0, size)
    }))
}

/// The geometry of the transposed convolution, with as many elements at the end as an input can have.
fn transposed_axes(conv: &Conv, filter: Value) -> Result<Vec<ConvAxis>> {
    let symbols = filter.builder().symbols();
    let taps = filter.shape().into_iter().skip(2);
    let axis = |(taps, axis): (Dim, &ConvAxis)| {
        let extent = axis.dilation.saturating_mul(symbols.specialize(&taps)? - 1);
        Ok(ConvAxis {
            stride: axis.base_dilation,
            low: extent.saturating_sub(axis.low),
            high: extent
                .saturating_sub(axis.high)
                .saturating_add(axis.stride - 1),
            dilation: axis.dilation,
            base_dilation: axis.stride,
        })
    };
    taps.zip(&conv.axes).map(axis).collect()
}

/// The gradient of a convolution's filter: the products of the elements of each window of the input with the elements of the
/// result's gradient, summed over batch and windows.
pub(crate) fn conv_filter_gradient<'g>(
    conv: &Conv,
    gradient: Value<'g>,
    input: Value<'g>,
    filter: Value<'g>,
) -> Result<Value<'g>> {
    let groups = Dim::from(conv.groups);
    let [batch, channels] = [gradient.size(0), gradient.size(1).floor_div(&groups)];
    // [N, G, C / G, Y, K] -> [G, K (C / G), N Y]: channels are neighbours, which kernels load together.
    let windows = patches(input, filter, &conv.axes, &groups)?;
    let [_, _, inputs, positions, taps] = windows.sizes()?;
    let shape = vec![groups.clone(), &taps * &inputs, &batch * &positions];
    let windows = windows.permute([1, 4, 2, 0, 3]).reshape(shape);
    // [N, G, O / G, Y] -> [G, N Y, O / G]
    let shape = vec![
        batch.clone(),
        groups.clone(),
        channels.clone(),
        positions.clone(),
    ];
    let gradient = gradient.reshape(shape).permute([1, 0, 3, 2]);
    let gradient = gradient.reshape(vec![groups.clone(), batch * positions, channels.clone()]);
    // [G, K, C / G, O / G] -> [G, O / G, C / G, K]
    let products = windows.matmul(gradient);
    let products = products.reshape(vec![groups, taps, inputs, channels]);
    Ok(products.permute([0, 3, 2, 1]).reshape(filter.shape()))
}

/// The sum over batch and positions, in which all elements count.
fn bias_gradient(gradient: Value) -> Value {
    let dims: Vec<i64> = (0..gradient.rank() as i64)
        .filter(|dim| *dim != 1)
        .collect();
    gradient.to_compute().sum(&dims, false)
}
