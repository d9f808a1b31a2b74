//! Gradients of convolutions.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::Value;
use crate::op::ConvAxis;

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

/// The parameters of a convolution, one number for each spatial axis.
struct Convolution {
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    is_transposed: bool,
    groups: i64,
}

impl Convolution {
    fn from_args(a: &Args, filter: Value) -> Result<Convolution> {
        let spatial_axes = filter.rank().saturating_sub(2);
        let per_axis = |name| one_per_axis(a.ints(name), spatial_axes);
        Ok(Convolution {
            stride: per_axis("stride")?,
            padding: per_axis("padding")?,
            dilation: per_axis("dilation")?,
            is_transposed: a.bool("transposed"),
            groups: a.int("groups").max(1),
        })
    }

    /// The geometry of the convolution of the larger of input and output, which gives the smaller.
    fn axes(&self) -> Vec<ConvAxis> {
        let numbers = self.stride.iter().zip(&self.padding).zip(&self.dilation);
        let axis = |((stride, padding), dilation): ((&i64, &i64), &i64)| ConvAxis {
            dilation: *dilation,
            ..ConvAxis::padded(*stride, *padding)
        };
        numbers.map(axis).collect()
    }

    /// The gradient of the input of a convolution is a transposed convolution of the output's gradient, and the reverse.
    fn input_gradient<'g>(&self, [gradient, input, filter]: [Value<'g>; 3]) -> Result<Value<'g>> {
        let result = match self.is_transposed {
            true => gradient.conv(filter, self.axes(), self.groups),
            false => {
                let flipped = transposed_filter(filter, self.groups)?;
                gradient.conv(flipped, self.transposed_axes(filter)?, self.groups)
            }
        };
        // A stride leaves elements at the end of the axis that no window reaches.
        let sizes = input.shape().into_iter().enumerate().skip(2);
        Ok(sizes.fold(result, |result, (axis, size)| {
            result.narrow(axis as i64, 0, size)
        }))
    }

    /// The geometry of the transposed convolution, with as many elements at the end as an input can have.
    fn transposed_axes(&self, filter: Value) -> Result<Vec<ConvAxis>> {
        let symbols = filter.builder().symbols();
        let taps = filter.shape().into_iter().skip(2);
        let axis = |(taps, axis): (Dim, ConvAxis)| {
            let extent = axis.dilation.saturating_mul(symbols.specialize(&taps)? - 1);
            let low = extent.saturating_sub(axis.low);
            Ok(ConvAxis {
                stride: 1,
                low,
                high: low.saturating_add(axis.stride - 1),
                dilation: axis.dilation,
                base_dilation: axis.stride,
            })
        };
        taps.zip(self.axes()).map(axis).collect()
    }

    /// The gradient of the filter: the products of the elements of each window of the larger of input and output with the
    /// elements of the smaller, summed over batch and windows.
    fn filter_gradient<'g>(&self, [gradient, input, filter]: [Value<'g>; 3]) -> Result<Value<'g>> {
        let (large, small) = match self.is_transposed {
            true => (gradient, input),
            false => (input, gradient),
        };
        let groups = Dim::from(self.groups);
        let [batch, channels] = [small.size(0), small.size(1).floor_div(&groups)];
        // [G, N Y, (C / G) K]
        let windows = patches(large, filter, &self.axes(), &groups)?.transpose(0, 1);
        let [_, _, positions, elements] = windows.sizes()?;
        let windows = windows.reshape(vec![groups.clone(), &batch * &positions, elements]);
        // [G, O / G, N Y]
        let rows = small
            .reshape(vec![
                batch.clone(),
                groups.clone(),
                channels.clone(),
                positions.clone(),
            ])
            .permute([1, 2, 0, 3])
            .reshape(vec![groups, channels, batch * positions]);
        Ok(rows.matmul(windows).reshape(filter.shape()))
    }
}

/// The sum over batch and positions, in which all elements count.
fn bias_gradient(gradient: Value) -> Value {
    let dims: Vec<i64> = (0..gradient.rank() as i64)
        .filter(|dim| *dim != 1)
        .collect();
    gradient.to_compute().sum(&dims, false)
}
