//! Losses of two tensors: an input and a target.

use std::borrow::Borrow;

use super::checks::ArgumentCheck;
use crate::kw;
use crate::tensor::Tensor;
use crate::trace::Module;
use crate::trace::native::{Arg, Buffer, Forward, TracedTensor, example_sizes, ops, unpack};

/// Reduction of a loss's values for each element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Nothing.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// Reduces the values of a loss.
    pub(super) fn apply(self, values: TracedTensor) -> TracedTensor {
        match self {
            Reduction::None => values,
            Reduction::Mean => values.mean(),
            Reduction::Sum => values.sum(),
        }
    }
}

/// The number by which operators know the reduction.
impl From<Reduction> for Arg {
    fn from(reduction: Reduction) -> Arg {
        Arg::from(reduction as i64)
    }
}

/// Gives input and target one shape, as PyTorch does for losses of differences. A tensor of that shape stays itself.
fn broadcast(x: &TracedTensor, target: &TracedTensor) -> [TracedTensor; 2] {
    let [wide_x, wide_target] = unpack(ops::broadcast_tensors(&[x, target]));
    let own = |own: &TracedTensor, wide: TracedTensor| match example_sizes(own) {
        sizes if sizes == example_sizes(&wide) => own.clone(),
        _ => wide,
    };
    [own(x, wide_x), own(target, wide_target)]
}

/// Defines a loss as a module: its settings with defaults, its weights of classes or elements, and the reduction.
macro_rules! loss_module {
    (
        $(#[$doc:meta])*
        $name:ident
        { $($(#[$about:meta])* $setting:ident: $type:ty = $default:expr),* }
        [ $($(#[$of:meta])* $weight:ident),* ]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            $(
                $weight: Option<Buffer>,
            )*
            $($setting: $type,)*
            #[module(skip)]
            reduction: Reduction,
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }

        impl $name {
            #[doc = concat!("A new `", stringify!($name), "`.")]
            pub fn new() -> $name {
                $name {
                    $($weight: None,)*
                    $($setting: $default,)*
                    reduction: Reduction::Mean,
                }
            }

            /// Reduction of the values for each element; their mean by default.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduction) -> $name {
                self.reduction = reduction;
                self
            }

            $(
                $(#[$about])*
                #[must_use]
                pub fn $setting(mut self, $setting: $type) -> $name {
                    self.$setting = $setting;
                    self
                }
            )*

            $(
                $(#[$of])*
                #[must_use]
                pub fn $weight(mut self, $weight: Tensor) -> $name {
                    self.$weight = Some(Buffer::from($weight));
                    self
                }
            )*
        }
    };
}
pub(super) use loss_module;

/// Defines losses by their modules and a formula of input and target.
macro_rules! losses {
    ($(
        $(#[$doc:meta])*
        $name:ident $settings:tt $weights:tt
        |$loss:ident, $x:ident, $target:ident| $result:expr;
    )*) => {$(
        loss_module! { $(#[$doc])* $name $settings $weights }

        impl<X: Borrow<TracedTensor>, Y: Borrow<TracedTensor>> Forward<(X, Y)> for $name {
            type Output = TracedTensor;

            fn forward(&self, (x, target): (X, Y)) -> TracedTensor {
                let ($loss, $x, $target) = (self, x.borrow(), target.borrow());
                $result
            }
        }
    )*};
}

losses! {
    /// `torch.nn.L1Loss`: absolute differences.
    L1Loss {} []
    |loss, x, target| {
        let [x, target] = broadcast(x, target);
        x.l1_loss_with(&target, kw!(reduction = loss.reduction))
    };
    /// `torch.nn.MSELoss`: squared differences.
    MSELoss {} []
    |loss, x, target| {
        let [x, target] = broadcast(x, target);
        x.mse_loss_with(&target, kw!(reduction = loss.reduction))
    };
    /// `torch.nn.SmoothL1Loss`: squared differences below `beta`, absolute ones above.
    SmoothL1Loss {
        /// The difference at which the loss becomes linear; 1 by default.
        beta: f64 = 1.0
    } []
    |loss, x, target| {
        let [x, target] = broadcast(x, target);
        x.smooth_l1_loss_with(&target, kw!(reduction = loss.reduction, beta = loss.beta))
    };
    /// `torch.nn.HuberLoss`: squared differences below `delta`, absolute ones above.
    HuberLoss {
        /// The difference at which the loss becomes linear; 1 by default.
        delta: f64 = 1.0
    } []
    |loss, x, target| {
        let [x, target] = broadcast(x, target);
        x.huber_loss_with(&target, kw!(reduction = loss.reduction, delta = loss.delta))
    };
    /// `torch.nn.BCELoss`: binary cross entropy of probabilities.
    BCELoss {} [
        /// A factor for each element of a batch.
        weight
    ]
    |loss, x, target| {
        let weight = loss.weight.as_deref();
        x.binary_cross_entropy_with(target, kw!(weight = weight, reduction = loss.reduction))
    };
    /// `torch.nn.BCEWithLogitsLoss`: binary cross entropy of the sigmoid of its input.
    BCEWithLogitsLoss {} [
        /// A factor for each element of a batch.
        weight,
        /// A factor for positive examples of each class.
        pos_weight
    ]
    |loss, x, target| {
        let (weight, positive) = (loss.weight.as_deref(), loss.pos_weight.as_deref());
        x.binary_cross_entropy_with_logits_with(
            target,
            kw!(weight = weight, pos_weight = positive, reduction = loss.reduction),
        )
    };
    /// `torch.nn.KLDivLoss`: the Kullback-Leibler divergence of a log-probability from a probability.
    KLDivLoss {
        /// Whether the target is a log-probability; false by default.
        log_target: bool = false,
        /// Whether to divide the sum by the size of the batch, which is PyTorch's reduction `"batchmean"`; false by default.
        batch_mean: bool = false
    } []
    |loss, x, target| {
        let reduction = if loss.batch_mean { Reduction::Sum } else { loss.reduction };
        let value = x.kl_div_with(target, kw!(reduction = reduction, log_target = loss.log_target));
        if loss.batch_mean { value / x.dim(0) } else { value }
    };
    /// `torch.nn.PoissonNLLLoss`: the negative log-likelihood of Poisson-distributed targets.
    PoissonNLLLoss {
        /// Whether the input is the logarithm of the rate; true by default.
        log_input: bool = true,
        /// Whether to add Stirling's approximation of the constant term; false by default.
        full: bool = false,
        /// Number added to a rate before its logarithm; `1e-8` by default.
        eps: f64 = 1e-8
    } []
    |loss, x, target| {
        x.poisson_nll_loss(target, loss.log_input, loss.full, loss.eps, loss.reduction as i64)
    };
    /// `torch.nn.NLLLoss`: the negative log-likelihood of classes.
    NLLLoss {
        /// The class without a loss; -100 by default.
        ignore_index: i64 = -100
    } [
        /// A factor for each class.
        weight
    ]
    |loss, x, target| {
        let (weight, ignored) = (loss.weight.as_deref(), loss.ignore_index);
        x.nll_loss_nd_with(
            target,
            kw!(weight = weight, reduction = loss.reduction, ignore_index = ignored),
        )
    };
    /// `torch.nn.CrossEntropyLoss`: of logits and classes, or logits and probabilities of classes.
    CrossEntropyLoss {
        /// The class without a loss; -100 by default.
        ignore_index: i64 = -100,
        /// The part of the target that is a uniform distribution; 0 by default.
        label_smoothing: f64 = 0.0
    } [
        /// A factor for each class.
        weight
    ]
    |loss, x, target| {
        x.cross_entropy_loss_with(
            target,
            kw!(
                weight = loss.weight.as_deref(),
                reduction = loss.reduction,
                ignore_index = loss.ignore_index,
                label_smoothing = loss.label_smoothing
            ),
        )
    };
    /// `torch.nn.HingeEmbeddingLoss`: of distances and labels 1 or -1.
    HingeEmbeddingLoss {
        /// The distance at which dissimilar pairs have no loss; 1 by default.
        margin: f64 = 1.0
    } []
    |loss, x, target| {
        x.hinge_embedding_loss_with(target, kw!(margin = loss.margin, reduction = loss.reduction))
    };
    /// `torch.nn.SoftMarginLoss`: logistic loss of labels 1 or -1.
    SoftMarginLoss {} []
    |loss, x, target| x.soft_margin_loss_with(target, kw!(reduction = loss.reduction));
    /// `torch.nn.MultiLabelMarginLoss`: the hinge loss of several classes.
    MultiLabelMarginLoss {} []
    |loss, x, target| x.multilabel_margin_loss_with(target, kw!(reduction = loss.reduction));
    /// `torch.nn.MultiLabelSoftMarginLoss`: binary cross entropy of each class.
    MultiLabelSoftMarginLoss {} [
        /// A factor for each class.
        weight
    ]
    |loss, x, target| {
        let losses = target * x.log_sigmoid() + (1 - target) * (-x).log_sigmoid();
        let losses = match &loss.weight {
            Some(weight) => -losses * weight,
            None => -losses,
        };
        let axis = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
        loss.reduction.apply(losses.sum_dim([axis]) / x.dim(axis))
    };
}

/// `torch.nn.NLLLoss2d`, which is [`NLLLoss`].
pub type NLLLoss2d = NLLLoss;

/// `torch.nn.MultiMarginLoss`: the hinge loss of one class against all others.
#[derive(Clone, Debug, Module)]
pub struct MultiMarginLoss {
    weight: Option<Buffer>,
    p: i64,
    margin: f64,
    #[module(skip)]
    reduction: Reduction,
    check: ArgumentCheck,
}

impl Default for MultiMarginLoss {
    fn default() -> MultiMarginLoss {
        MultiMarginLoss::new()
    }
}

impl MultiMarginLoss {
    /// A loss with degree 1 and margin 1.
    pub fn new() -> MultiMarginLoss {
        MultiMarginLoss {
            weight: None,
            p: 1,
            margin: 1.0,
            reduction: Reduction::Mean,
            check: ArgumentCheck::default(),
        }
    }

    /// The degree, 1 or 2; 1 by default.
    #[must_use]
    #[track_caller]
    pub fn p(mut self, p: i64) -> MultiMarginLoss {
        let message = || format!("only p == 1 and p == 2 supported, but got {p}");
        self.check.require(p == 1 || p == 2, message);
        self.p = p;
        self
    }

    /// The margin; 1 by default.
    #[must_use]
    pub fn margin(mut self, margin: f64) -> MultiMarginLoss {
        self.margin = margin;
        self
    }

    /// A factor for each class.
    #[must_use]
    pub fn weight(mut self, weight: Tensor) -> MultiMarginLoss {
        self.weight = Some(Buffer::from(weight));
        self
    }

    /// Reduction of the values for each element; their mean by default.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> MultiMarginLoss {
        self.reduction = reduction;
        self
    }
}

impl<X: Borrow<TracedTensor>, Y: Borrow<TracedTensor>> Forward<(X, Y)> for MultiMarginLoss {
    type Output = TracedTensor;

    fn forward(&self, (x, target): (X, Y)) -> TracedTensor {
        let (weight, reduction) = (self.weight.as_deref(), self.reduction);
        let call = || {
            x.borrow().multi_margin_loss_with(
                target.borrow(),
                kw!(
                    p = self.p,
                    margin = self.margin,
                    weight = weight,
                    reduction = reduction
                ),
            )
        };
        self.check.failed().unwrap_or_else(call)
    }
}
