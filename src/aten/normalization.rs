//! Normalization by statistics: of the batch, of a group, of the last dimensions.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

use super::{Args, CallGradient, Composite, StrideRule};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
        ],
        |a| Ok(batch_norm(a, a.bool("training"))?.output),
        &[
            "f32[B, 3, H, W], f32[3], f32[3], f32[3], f32[3], False, 0.1, 1e-5, True",
            "f16[2, 4, 5], None, None, None, None, True, 0.1, 1e-5, True",
        ],
    )
    .with_gradient(|call| batch_norm_gradient(call, call.args().bool("training")))
    .with_strides(StrideRule::Suggested),
    Composite::many(
        &[
            "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            "aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            "aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        ],
        |a| Ok(batch_norm(a, a.bool("training"))?.with_statistics()),
        &["f32[B, 3, H, W], f32[3], f32[3], f32[3], f32[3], True, 0.1, 1e-5"],
    )
    .with_gradient(|call| batch_norm_gradient(call, call.args().bool("training")))
    .with_strides(StrideRule::Suggested),
    Composite::many(
        &[
            "aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        ],
        |a| Ok(batch_norm(a, false)?.with_statistics()),
        &["f32[B, 3, H, W], f32[3], f32[3], f32[3], f32[3], 0.1, 1e-5"],
    )
    .with_gradient(|call| batch_norm_gradient(call, false)),
    Composite::many(
        &[
            "aten::_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
        ],
        |a| Ok(batch_norm(a, true)?.with_reserve(a)),
        &["f32[B, 3, 4], f32[3], f32[3], f32[3], f32[3], 0.1, 1e-5"],
    )
    .with_gradient(|call| batch_norm_gradient(call, true)),
    Composite::many(
        &[
            "aten::_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
        ],
        |a| Ok(batch_norm(a, false)?.with_reserve(a)),
        &["f32[B, 3, 4], f32[3], f32[3], f32[3], f32[3], 0.1, 1e-5"],
    )
    .with_gradient(|call| batch_norm_gradient(call, false)),
    Composite::many(
        &[
            "aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)",
        ],
        |a| batch_norm(a, a.bool("training"))?.with_update(a),
        &["f32[B, 3, 4], f32[3], f32[3], f32[3], f32[3], True, 0.1, 1e-5"],
    )
    .with_gradient(|call| batch_norm_gradient(call, call.args().bool("training"))),
    Composite::one(
        &[
            "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
        ],
        instance_norm,
        &[
            "f32[B, 3, H, W], f32[3], f32[3], None, None, True, 0.1, 1e-5, True",
            "f16[2, 3, 8], None, None, f16[3], f16[3], False, 0.1, 1e-5, True",
        ],
    ),
    Composite::one(
        &[
            "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor",
        ],
        |a| Ok(layer_norm(a)?.output),
        &[
            "f32[B, T, 8], [8], f32[8], f32[8]",
            "f16[3, 4, 5], [4, 5], f16[4, 5]",
        ],
    ),
    Composite::many(
        &[
            "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
        ],
        |a| Ok(layer_norm(a)?.with_statistics()),
        &["f32[B, T, 8], [8], f32[8], f32[8], 1e-5"],
    )
    .with_differentiable_results(1),
    Composite::one(
        &[
            "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor",
        ],
        |a| Ok(group_norm(a, a.int("num_groups"))?.output),
        &["f32[B, 6, H, W], 3, f32[6], f32[6]", "f16[2, 4], 2"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::many(
        &[
            "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)",
        ],
        |a| Ok(group_norm(a, a.int("group"))?.with_statistics()),
        &["f32[2, 6, 5], f32[6], f32[6], 2, 6, 5, 3, 1e-5"],
    )
    .with_strides(StrideRule::Suggested),
    Composite::one(
        &[
            "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
        ],
        |a| Ok(rms_norm(a)?.0),
        &["f32[B, T, 8], [8], f32[8], 1e-6", "f16[3, 4, 5], [4, 5]"],
    ),
    Composite::many(
        &[
            "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
        ],
        |a| rms_norm(a).map(|(output, rstd)| vec![output, rstd]),
        &["f32[B, T, 8], [8], f32[8], 1e-6"],
    )
    .with_differentiable_results(1),
    Composite::one(
        &["aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor"],
        |a| {
            let v = a.tensor("v");
            Ok(v * (a.tensor("g") / norm_except(v, 2.0, a.int("dim"))))
        },
        &["f32[4, 3, 2], f32[4, 1, 1]", "f32[4, 3], f32[1, 3], 1"],
    ),
    Composite::many(
        &["aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)"],
        |a| {
            // PyTorch keeps the norms of half-precision values in single precision.
            let v = a.tensor("v").to_compute();
            let norm = norm_except(v, 2.0, a.int("dim"));
            let scaled = v * (a.tensor("g").to_compute() / norm);
            Ok(vec![scaled.to(a.tensor("v").dtype()), norm])
        },
        &["f32[4, 3, 2], f32[4, 1, 1]", "bf16[4, 3], bf16[4, 1]"],
    )
    .with_differentiable_results(1),
    Composite::one(
        &["aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor"],
        |a| Ok(norm_except(a.tensor("v"), a.float("pow"), a.int("dim"))),
        &["f32[4, 3, 2], 2, 1", "f32[4, 3], dim=-1"],
    ),
];

/// The results of a normalization, in their final dtypes.
struct NormalizationResults<'g> {
    output: Value<'g>,
    /// Mean as PyTorch returns it.
    mean: Value<'g>,
    /// Reciprocal standard deviation, `1 / √(variance + eps)`, as PyTorch returns it.
    rstd: Value<'g>,
    /// Mean and variance of the batch in the compute dtype, if they were computed.
    batch_statistics: Option<(Value<'g>, Value<'g>)>,
}

impl<'g> NormalizationResults<'g> {
    /// The results of PyTorch's `native_` operators: output, mean and reciprocal standard deviation.
    fn with_statistics(self) -> Vec<Value<'g>> {
        vec![self.output, self.mean, self.rstd]
    }

    /// [`NormalizationResults::with_statistics`] and an empty fourth result. In PyTorch that is memory for the backward
    /// pass on some devices.
    fn with_reserve(self, a: &Args<'g>) -> Vec<Value<'g>> {
        let reserve = a.builder().full(DType::U8, vec![Dim::ZERO], 0);
        vec![self.output, self.mean, self.rstd, reserve]
    }

    /// [`NormalizationResults::with_statistics`] and the running statistics, moved towards those of the batch by the
    /// argument `momentum`. The running variance is unbiased.
    fn with_update(self, a: &Args<'g>) -> Result<Vec<Value<'g>>> {
        let (old_mean, old_var) = (a.tensor("running_mean"), a.tensor("running_var"));
        let momentum = a.float("momentum");
        let (mean, var) = match self.batch_statistics {
            None => (old_mean, old_var),
            Some((mean, var)) => {
                let x = a.tensor("input");
                let count = x.numel().floor_div(&x.size(channel_dim(x)));
                let count = a.builder().full(mean.dtype(), vec![], count);
                let unbiased = var * (count / (count - 1));
                let updated = |old: Value<'g>, new: Value<'g>| {
                    (new * momentum + old.to_compute() * (1.0 - momentum)).to(old.dtype())
                };
                (updated(old_mean, mean), updated(old_var, unbiased))
            }
        };
        Ok(vec![self.output, self.mean, self.rstd, mean, var])
    }
}

/// The channel dimension: the second, or the only one.
fn channel_dim(x: Value) -> i64 {
    if x.rank() < 2 { 0 } else { 1 }
}

/// `(x - mean) / √(var + eps) · weight + bias` over all dimensions but the channel dimension, with batch statistics or
/// running statistics.
fn batch_norm<'g>(a: &Args<'g>, training: bool) -> Result<NormalizationResults<'g>> {
    let input = a.tensor("input");
    let norm = BatchNorm::new(a, training)?;
    let scale = scaled(norm.rstd, a.optional_tensor("weight"));
    let output = norm.centred * norm.per_channel(scale);
    let output = shifted(output, a, |bias| norm.per_channel(bias));
    let dtype = ["weight", "bias", "running_mean"]
        .into_iter()
        .find_map(|name| a.optional_tensor(name))
        .map_or(input.dtype(), Value::dtype);
    let statistics = match norm.batch_statistics {
        Some((mean, _)) => (mean.to(dtype), norm.rstd.to(dtype)),
        None => {
            let empty = a.builder().full(dtype, vec![Dim::ZERO], 0);
            (empty, empty)
        }
    };
    Ok(NormalizationResults {
        output: output.to(input.dtype()),
        mean: statistics.0,
        rstd: statistics.1,
        batch_statistics: norm.batch_statistics,
    })
}

/// A batch norm before weight and bias, in the compute type.
struct BatchNorm<'g> {
    /// The input minus the mean.
    centred: Value<'g>,
    /// The reciprocal standard deviation of each channel.
    rstd: Value<'g>,
    /// Mean and biased variance of the batch, if they normalize it.
    batch_statistics: Option<(Value<'g>, Value<'g>)>,
    channel: i64,
}

impl<'g> BatchNorm<'g> {
    fn new(a: &Args<'g>, training: bool) -> Result<BatchNorm<'g>> {
        let x = a.tensor("input");
        a.builder().check()?;
        let (x, channel) = (x.to_compute(), channel_dim(x));
        let running_statistics = a
            .optional_tensor("running_mean")
            .zip(a.optional_tensor("running_var"));
        let uses_batch = training || running_statistics.is_none();
        let batch_statistics = uses_batch.then(|| match other_dims(x, channel).as_slice() {
            [] => (x, x * 0.0),
            dims => (x.mean(dims, false), x.var(dims, 0.0, false)),
        });
        let (mean, var) = match (batch_statistics, running_statistics) {
            (Some(statistics), _) => statistics,
            (None, Some((mean, var))) => (mean.to_compute(), var.to_compute()),
            (None, None) => return Err(Error::operator("has no running statistics")),
        };
        Ok(BatchNorm {
            centred: x - broadcast_along(mean, x, channel),
            rstd: (var + a.float("eps")).rsqrt(),
            batch_statistics,
            channel,
        })
    }

    /// Reshapes a vector with an element for each channel so that it broadcasts against the input.
    fn per_channel(&self, vector: Value<'g>) -> Value<'g> {
        broadcast_along(vector, self.centred, self.channel)
    }

    /// The sum of each channel.
    fn sum(&self, x: Value<'g>) -> Value<'g> {
        match other_dims(x, self.channel).as_slice() {
            [] => x,
            dims => x.sum(dims, false),
        }
    }
}

/// All dimensions but one.
fn other_dims(x: Value, channel: i64) -> Vec<i64> {
    let dims = 0..x.rank() as i64;
    dims.filter(|dim| *dim != channel).collect()
}

/// Gradients of a batch norm, with one pass over the input for its sums (PyTorch's `native_batch_norm_backward`).
fn batch_norm_gradient<'g>(
    call: &CallGradient<'g>,
    training: bool,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, gradient) = (call.args(), call.gradient(0)?.to_compute());
    let norm = BatchNorm::new(a, training)?;
    let (sum, product_sum) = (norm.sum(gradient), norm.sum(gradient * norm.centred));
    let rest = match norm.batch_statistics {
        None => gradient,
        Some(_) => {
            let count = gradient.numel().floor_div(&sum.numel());
            let slope = product_sum * norm.rstd * norm.rstd / &count;
            let mean = norm.per_channel(sum / &count);
            gradient - mean - norm.centred * norm.per_channel(slope)
        }
    };
    let scale = scaled(norm.rstd, a.optional_tensor("weight"));
    let of_input = rest * norm.per_channel(scale);
    let mut gradients = vec![("input", of_input.to(a.tensor("input").dtype()))];
    let of_parameters = [("weight", product_sum * norm.rstd), ("bias", sum)];
    for (name, of_parameter) in of_parameters {
        if let Some(parameter) = a.optional_tensor(name) {
            gradients.push((name, of_parameter.to(parameter.dtype())));
        }
    }
    Ok(gradients)
}

/// Normalizes each image and channel by its own statistics, or by running statistics like a batch norm.
fn instance_norm<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    if !a.bool("use_input_stats") {
        return Ok(batch_norm(a, false)?.output);
    }
    let input = a.tensor("input");
    a.builder().check()?;
    let dims: Vec<i64> = (2..input.rank() as i64).collect();
    if dims.is_empty() {
        return a.reject(format!("{} has no spatial dimensions", input.ty()));
    }
    let (x, eps) = (input.to_compute(), a.float("eps"));
    let rstd = (x.var(&dims, 0.0, true) + eps).rsqrt();
    let mut y = (x - x.mean(&dims, true)) * rstd;
    if let Some(weight) = a.optional_tensor("weight") {
        y = y * broadcast_along(weight.to_compute(), x, 1);
    }
    Ok(shifted(y, a, |bias| broadcast_along(bias, x, 1)).to(input.dtype()))
}

/// Normalizes over the last dimensions, as many as `normalized_shape` has.
fn layer_norm<'g>(a: &Args<'g>) -> Result<NormalizationResults<'g>> {
    let input = a.tensor("input");
    let dims = last_dims(a, input)?;
    let (x, eps) = (input.to_compute(), a.float("eps"));
    let mean = x.mean(&dims, true);
    let centred = x - mean;
    let rstd = ((centred * centred).mean(&dims, true) + eps).rsqrt();
    let mut y = centred * rstd;
    if let Some(weight) = a.optional_tensor("weight") {
        y = y * weight.to_compute();
    }
    Ok(NormalizationResults {
        output: shifted(y, a, |bias| bias).to(input.dtype()),
        mean: mean.to(statistics_dtype(a)),
        rstd: rstd.to(statistics_dtype(a)),
        batch_statistics: None,
    })
}

/// Normalizes each group of channels of each image by its own statistics.
fn group_norm<'g>(a: &Args<'g>, groups: i64) -> Result<NormalizationResults<'g>> {
    let input = a.tensor("input");
    a.builder().check()?;
    let shape = input.shape();
    let [batch, channels, space @ ..] = shape.as_slice() else {
        return Err(Error::operator(format!("normalizes no {}", input.ty())));
    };
    if groups < 1 {
        return a.reject(format!("{groups} groups"));
    }
    let (x, eps) = (input.to_compute(), a.float("eps"));
    let group_numel = &channels.floor_div(&Dim::from(groups)) * &Dim::product(space);
    let grouped = x.reshape(vec![batch.clone(), Dim::from(groups), group_numel]);
    let mean = grouped.mean(&[-1], true);
    let rstd = (grouped.var(&[-1], 0.0, true) + eps).rsqrt();
    let mut y = ((grouped - mean) * rstd).reshape(shape.clone());
    if let Some(weight) = a.optional_tensor("weight") {
        y = y * broadcast_along(weight.to_compute(), x, 1);
    }
    let dtype = statistics_dtype(a);
    let per_group = |value: Value<'g>| {
        value
            .reshape(vec![batch.clone(), Dim::from(groups)])
            .to(dtype)
    };
    Ok(NormalizationResults {
        output: shifted(y, a, |bias| broadcast_along(bias, x, 1)).to(input.dtype()),
        mean: per_group(mean),
        rstd: per_group(rstd),
        batch_statistics: None,
    })
}

/// Output and reciprocal root mean square, `1 / √(mean(x²) + eps)`. The default `eps` is that of the compute dtype.
fn rms_norm<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let input = a.tensor("input");
    let dims = last_dims(a, input)?;
    let x = input.to_compute();
    let eps = a
        .optional_float("eps")
        .or(x.dtype().epsilon())
        .unwrap_or(0.0);
    let rstd = ((x * x).mean(&dims, true) + eps).rsqrt();
    let mut y = x * rstd;
    if let Some(weight) = a.optional_tensor("weight") {
        y = y * weight.to_compute();
    }
    Ok((y.to(input.dtype()), rstd))
}

/// The last dimensions, as many as `normalized_shape` has; their sizes must match.
fn last_dims(a: &Args, x: Value) -> Result<Vec<i64>> {
    a.builder().check()?;
    let (wanted, shape) = (a.sizes("normalized_shape"), x.shape());
    let complain = || format!("normalized_shape = {wanted:?} is not the end of {}", x.ty());
    let end = x
        .rank()
        .checked_sub(wanted.len())
        .and_then(|first| shape.get(first..));
    let Some(end) = end.filter(|end| !end.is_empty()) else {
        return Err(Error::operator(complain()));
    };
    for (size, wanted_size) in end.iter().zip(&wanted) {
        a.builder()
            .symbols()
            .require_equal(size, wanted_size, complain)?;
    }
    Ok((1..=wanted.len() as i64).map(|dim| -dim).collect())
}

/// The dtype of the returned statistics: that of the parameters or, if there are none, of the input.
fn statistics_dtype(a: &Args) -> DType {
    let parameter = a.optional_tensor("weight").or(a.optional_tensor("bias"));
    parameter.unwrap_or(a.tensor("input")).dtype()
}

/// The norm of order `power` of `v` over all dimensions except `dim`; the reduced dimensions have size 1. `dim = -1`
/// reduces all dimensions to a scalar.
fn norm_except(v: Value, power: f64, dim: i64) -> Value {
    // Of the negative dimensions, only -1 means all.
    let dim = if dim < -1 { dim + v.rank() as i64 } else { dim };
    let dims: Vec<i64> = (0..v.rank() as i64).filter(|other| *other != dim).collect();
    let wide = v.to_compute();
    if dim == -1 {
        return wide
            .abs()
            .pow(power)
            .sum(&[], false)
            .pow(1.0 / power)
            .to(v.dtype());
    }
    if dims.is_empty() {
        return v.abs();
    }
    wide.abs()
        .pow(power)
        .sum(&dims, true)
        .pow(1.0 / power)
        .to(v.dtype())
}

/// The reciprocal standard deviation times the weight, if there is one.
fn scaled<'g>(rstd: Value<'g>, weight: Option<Value<'g>>) -> Value<'g> {
    weight.map_or(rstd, |weight| rstd * weight.to_compute())
}

/// Adds the argument `bias`, if there is one. `broadcast` reshapes it so that it broadcasts against `y`.
fn shifted<'g>(
    y: Value<'g>,
    a: &Args<'g>,
    broadcast: impl Fn(Value<'g>) -> Value<'g>,
) -> Value<'g> {
    match a.optional_tensor("bias") {
        Some(bias) => y + broadcast(bias.to_compute()),
        None => y,
    }
}

/// Reshapes a vector with an element for each index of a dimension so that it broadcasts against `x`.
fn broadcast_along<'g>(vector: Value<'g>, x: Value<'g>, dim: i64) -> Value<'g> {
    let mut shape = vec![Dim::ONE; x.rank()];
    if let Some(size) = usize::try_from(dim)
        .ok()
        .and_then(|axis| shape.get_mut(axis))
    {
        *size = vector.numel();
    }
    vector.reshape(shape)
}
