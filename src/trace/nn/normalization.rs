//! Normalisation layers.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, rank_error, size_error};
use super::{NormalizedShape, call_many, init};
use crate::error::Result;
use crate::kw;
use crate::tensor::Tensor;
use crate::trace::Module;
use crate::trace::native::{Buffer, Forward, Parameter, TracedTensor, Training, Visitor, failed};

/// `torch.nn.BatchNorm1d`
pub type BatchNorm1d = BatchNorm<1>;
/// `torch.nn.BatchNorm2d`
pub type BatchNorm2d = BatchNorm<2>;
/// `torch.nn.BatchNorm3d`
pub type BatchNorm3d = BatchNorm<3>;
/// `torch.nn.InstanceNorm1d`
pub type InstanceNorm1d = InstanceNorm<1>;
/// `torch.nn.InstanceNorm2d`
pub type InstanceNorm2d = InstanceNorm<2>;
/// `torch.nn.InstanceNorm3d`
pub type InstanceNorm3d = InstanceNorm<3>;

/// Scale and shift of each channel, and running statistics.
#[derive(Clone, Debug, Module)]
struct ChannelParameters {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    running_mean: Option<Buffer>,
    running_var: Option<Buffer>,
    num_batches_tracked: Option<Buffer>,
    /// Number of channels.
    count: usize,
}

impl ChannelParameters {
    /// Parameters if `affine`, and statistics if `tracked`.
    fn new(channels: usize, affine: bool, tracked: bool) -> ChannelParameters {
        let parameter = |init| affine.then(|| Parameter::new([channels], init));
        let statistic = |init| tracked.then(|| Buffer::new([channels], init));
        ChannelParameters {
            weight: parameter(init::ones()),
            bias: parameter(init::zeros()),
            running_mean: statistic(init::zeros()),
            running_var: statistic(init::ones()),
            num_batches_tracked: tracked.then(|| Buffer::from(Tensor::from(0i64))),
            count: channels,
        }
    }

    /// Drops the parameters unless `affine`, and the statistics unless `tracked`.
    fn retain(&mut self, affine: bool, tracked: bool) {
        for parameter in [&mut self.weight, &mut self.bias] {
            *parameter = parameter.take().filter(|_| affine);
        }
        let statistics = [&mut self.running_mean, &mut self.running_var];
        for buffer in statistics
            .into_iter()
            .chain([&mut self.num_batches_tracked])
        {
            *buffer = buffer.take().filter(|_| tracked);
        }
    }

    /// Running mean and variance.
    fn statistics(&self) -> (Option<&TracedTensor>, Option<&TracedTensor>) {
        (self.running_mean.as_deref(), self.running_var.as_deref())
    }
}

/// A normalisation of each channel over the batch, such as `torch.nn.BatchNorm2d`. In training mode it uses the statistics
/// of the batch and updates the running ones, which are states of the graph.
#[derive(Clone, Debug)]
pub struct BatchNorm<const N: usize> {
    channels: ChannelParameters,
    training: Training,
    momentum: Option<f64>,
    eps: f64,
}

impl<const N: usize> BatchNorm<N> {
    /// A normalisation of `channels` channels.
    pub fn new(channels: usize) -> BatchNorm<N> {
        BatchNorm {
            channels: ChannelParameters::new(channels, true, true),
            training: Training::default(),
            momentum: Some(0.1),
            eps: 1e-5,
        }
    }

    /// Number added to the variance; `1e-5` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> BatchNorm<N> {
        self.eps = eps;
        self
    }

    /// Weight of a batch in the running statistics; 0.1 by default. With `None` the statistics are the mean over all
    /// batches.
    #[must_use]
    pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> BatchNorm<N> {
        self.momentum = momentum.into();
        self
    }

    /// Whether to scale and shift the channels; true by default.
    #[must_use]
    pub fn affine(mut self, affine: bool) -> BatchNorm<N> {
        self.channels.retain(affine, true);
        self
    }

    /// Whether to keep running statistics; true by default. Without them the module always uses those of the batch.
    #[must_use]
    pub fn track_running_stats(mut self, tracked: bool) -> BatchNorm<N> {
        self.channels.retain(true, tracked);
        self
    }
}

impl<const N: usize> BatchNorm<N> {
    /// Normalises by the statistics of the batch, and updates the running statistics `mean` and `variance`.
    fn forward_training(
        &self,
        x: &TracedTensor,
        mean: &TracedTensor,
        variance: &TracedTensor,
    ) -> TracedTensor {
        let channels = &self.channels;
        let arguments = vec![
            x.into(),
            channels.weight.as_deref().into(),
            channels.bias.as_deref().into(),
            mean.into(),
            variance.into(),
            true.into(),
            self.momentum.unwrap_or(1.0).into(),
            self.eps.into(),
        ];
        let count = channels.num_batches_tracked.as_deref();
        let count_stored = count.map_or(Ok(()), |count| count.store(&(count + 1)));
        let [y, _, _, new_mean, new_variance] =
            call_many("_native_batch_norm_legit_functional", arguments);
        let average = |old: &TracedTensor, new: TracedTensor| match (self.momentum, count) {
            // With momentum 1, the new value is the statistic of this batch.
            (None, Some(count)) => old + (new - old) / count,
            _ => new,
        };
        let all_stored = count_stored
            .and_then(|()| mean.store(&average(mean, new_mean)))
            .and_then(|()| variance.store(&average(variance, new_variance)));
        all_stored.map_or_else(failed, |()| y)
    }
}

impl<const N: usize> Module for BatchNorm<N> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        self.channels.visit(visitor);
        visitor.field("training", &self.training);
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for BatchNorm<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (x, channels) = (x.borrow(), &self.channels);
        let ranks = if N == 1 { vec![2, 3] } else { vec![N + 2] };
        let refused = rank_error(&format!("BatchNorm{N}d"), x, &ranks);
        if let Some(refused) = refused.or_else(|| size_error(x, 1, channels.count, "channels")) {
            return refused;
        }
        let (mean, variance) = channels.statistics();
        if let (true, Some(mean), Some(variance)) = (self.training.is_on(), mean, variance) {
            return self.forward_training(x, mean, variance);
        }
        let uses_batch_statistics = self.training.is_on() || mean.is_none();
        x.batch_norm(
            channels.weight.as_deref(),
            channels.bias.as_deref(),
            mean,
            variance,
            uses_batch_statistics,
            self.momentum.unwrap_or(0.0),
            self.eps,
            true,
        )
    }
}

/// A normalisation of each channel of each batch element, such as `torch.nn.InstanceNorm2d`. With running statistics it
/// updates them in training mode, as states of the graph, and uses them in evaluation mode. As in PyTorch,
/// `num_batches_tracked` does not change.
#[derive(Clone, Debug)]
pub struct InstanceNorm<const N: usize> {
    channels: ChannelParameters,
    training: Training,
    momentum: f64,
    eps: f64,
}

impl<const N: usize> InstanceNorm<N> {
    /// A normalisation of `channels` channels without parameters.
    pub fn new(channels: usize) -> InstanceNorm<N> {
        InstanceNorm::with(channels, false, false)
    }

    /// A normalisation with optional scale and shift of each channel, and optional running statistics.
    pub fn with(channels: usize, affine: bool, track_running_stats: bool) -> InstanceNorm<N> {
        InstanceNorm {
            channels: ChannelParameters::new(channels, affine, track_running_stats),
            training: Training::default(),
            momentum: 0.1,
            eps: 1e-5,
        }
    }

    /// Number added to the variance; `1e-5` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> InstanceNorm<N> {
        self.eps = eps;
        self
    }

    /// Returns an error if the input has a wrong rank or, for parameters of channels, a wrong number of channels.
    fn refused(&self, x: &TracedTensor) -> Option<TracedTensor> {
        let channels = &self.channels;
        let has_parameters = channels.weight.is_some() || channels.running_mean.is_some();
        let axis = -1 - N as i64;
        rank_error(&format!("InstanceNorm{N}d"), x, &[N + 1, N + 2]).or_else(|| {
            let check = || size_error(x, axis, channels.count, "channels");
            has_parameters.then(check).flatten()
        })
    }
}

impl<const N: usize> InstanceNorm<N> {
    /// Updates the running statistics by the means over `batch` of those of its elements. The variance is unbiased.
    fn store_statistics(
        &self,
        batch: &TracedTensor,
        mean: &TracedTensor,
        variance: &TracedTensor,
    ) -> Result<()> {
        let axes = (2..N as i64 + 2).collect::<Vec<i64>>();
        let means = batch.mean_dim(axes.as_slice());
        let variances = batch.var_dim(axes.as_slice());
        let average = |old: &TracedTensor, new: TracedTensor| {
            old * (1.0 - self.momentum) + new.mean_dim([0]) * self.momentum
        };
        mean.store(&average(mean, means))?;
        variance.store(&average(variance, variances))
    }
}

impl<const N: usize> Module for InstanceNorm<N> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        self.channels.visit(visitor);
        visitor.field("training", &self.training);
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for InstanceNorm<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (x, channels) = (x.borrow(), &self.channels);
        if let Some(refused) = self.refused(x) {
            return refused;
        }
        let is_batched = x.rank() == N + 2;
        let batch = if is_batched {
            x.clone()
        } else {
            x.unsqueeze(0)
        };
        let (mean, variance) = channels.statistics();
        let uses_input_statistics = self.training.is_on() || mean.is_none();
        if let (true, Some(mean), Some(variance)) = (self.training.is_on(), mean, variance)
            && let Err(error) = self.store_statistics(&batch, mean, variance)
        {
            return failed(error);
        }
        let result = batch.instance_norm(
            channels.weight.as_deref(),
            channels.bias.as_deref(),
            mean,
            variance,
            uses_input_statistics,
            self.momentum,
            self.eps,
            true,
        );
        if is_batched {
            result
        } else {
            result.squeeze_dim(0)
        }
    }
}

/// Converts sizes; negative ones become 0.
fn to_usize_sizes(sizes: &[i64]) -> Vec<usize> {
    let sizes = sizes.iter();
    sizes
        .map(|size| usize::try_from(*size).unwrap_or(0))
        .collect()
}

/// `torch.nn.LayerNorm`: a normalisation over the last axes.
#[derive(Clone, Debug, Module)]
pub struct LayerNorm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    normalized_shape: Vec<i64>,
    eps: f64,
}

impl LayerNorm {
    /// A normalisation over the last axis, which has this size, or over the last axes, which have these sizes.
    pub fn new(normalized_shape: impl Into<NormalizedShape>) -> LayerNorm {
        let NormalizedShape(normalized_shape) = normalized_shape.into();
        let sizes = to_usize_sizes(&normalized_shape);
        LayerNorm {
            weight: Some(Parameter::new(&sizes, init::ones())),
            bias: Some(Parameter::new(&sizes, init::zeros())),
            normalized_shape,
            eps: 1e-5,
        }
    }

    /// Number added to the variance; `1e-5` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> LayerNorm {
        self.eps = eps;
        self
    }

    /// Whether to scale and shift the elements; true by default.
    #[must_use]
    pub fn elementwise_affine(mut self, affine: bool) -> LayerNorm {
        self.weight = self.weight.filter(|_| affine);
        self.bias(affine)
    }

    /// Whether to shift the elements; true by default.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> LayerNorm {
        self.bias = self.bias.filter(|_| bias);
        self
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for LayerNorm {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        x.borrow().layer_norm_with(
            self.normalized_shape.as_slice(),
            kw!(weight = weight, bias = bias, eps = self.eps),
        )
    }
}

/// `torch.nn.GroupNorm`
#[derive(Clone, Debug, Module)]
pub struct GroupNorm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    groups: i64,
    channels: usize,
    eps: f64,
    check: ArgumentCheck,
}

impl GroupNorm {
    /// A normalisation of `channels` channels in `groups` groups.
    #[track_caller]
    pub fn new(groups: i64, channels: usize) -> GroupNorm {
        let divides = groups > 0 && channels.is_multiple_of(groups.unsigned_abs() as usize);
        let check = ArgumentCheck::of(divides, || {
            format!("num_channels ({channels}) must be divisible by num_groups ({groups})")
        });
        GroupNorm {
            weight: Some(Parameter::new([channels], init::ones())),
            bias: Some(Parameter::new([channels], init::zeros())),
            groups,
            channels,
            eps: 1e-5,
            check,
        }
    }

    /// Number added to the variance; `1e-5` by default.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> GroupNorm {
        self.eps = eps;
        self
    }

    /// Whether to scale and shift the channels; true by default.
    #[must_use]
    pub fn affine(mut self, affine: bool) -> GroupNorm {
        self.weight = self.weight.filter(|_| affine);
        self.bias = self.bias.filter(|_| affine);
        self
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for GroupNorm {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (x, refused) = (x.borrow(), self.check.failed());
        if let Some(refused) = refused.or_else(|| size_error(x, 1, self.channels, "channels")) {
            return refused;
        }
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        x.group_norm_with(
            self.groups,
            kw!(weight = weight, bias = bias, eps = self.eps),
        )
    }
}

/// `torch.nn.RMSNorm`: a normalisation over the last axes.
#[derive(Clone, Debug, Module)]
pub struct RMSNorm {
    weight: Option<Parameter>,
    normalized_shape: Vec<i64>,
    eps: Option<f64>,
}

impl RMSNorm {
    /// A normalisation over the last axis, which has this size, or over the last axes, which have these sizes.
    pub fn new(normalized_shape: impl Into<NormalizedShape>) -> RMSNorm {
        let NormalizedShape(normalized_shape) = normalized_shape.into();
        RMSNorm {
            weight: Some(Parameter::new(
                to_usize_sizes(&normalized_shape),
                init::ones(),
            )),
            normalized_shape,
            eps: None,
        }
    }

    /// Number added to the mean of squares; by default the machine epsilon of the element type.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> RMSNorm {
        self.eps = Some(eps);
        self
    }

    /// Whether to scale the elements; true by default.
    #[must_use]
    pub fn elementwise_affine(mut self, affine: bool) -> RMSNorm {
        self.weight = self.weight.filter(|_| affine);
        self
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for RMSNorm {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        x.borrow().rms_norm_with(
            self.normalized_shape.as_slice(),
            kw!(weight = self.weight.as_deref(), eps = self.eps),
        )
    }
}
