//! Losses of three tensors.

use std::borrow::Borrow;
use std::f64::consts::TAU;
use std::fmt;
use std::sync::Arc;

use super::PairwiseDistance;
use super::checks::{ArgumentCheck, refuse};
use super::loss::{Reduction, loss_module};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// Defines losses of three tensors by their modules and a formula.
macro_rules! losses {
    ($(
        $(#[$doc:meta])*
        $name:ident $settings:tt
        |$loss:ident, $a:ident, $b:ident, $c:ident| $result:expr;
    )*) => {$(
        loss_module! { $(#[$doc])* $name $settings [] }

        impl<A, B, C> Forward<(A, B, C)> for $name
        where
            A: Borrow<TracedTensor>,
            B: Borrow<TracedTensor>,
            C: Borrow<TracedTensor>,
        {
            type Output = TracedTensor;

            fn forward(&self, (a, b, c): (A, B, C)) -> TracedTensor {
                let ($loss, $a, $b, $c) = (self, a.borrow(), b.borrow(), c.borrow());
                $result
            }
        }
    )*};
}

losses! {
    /// `torch.nn.MarginRankingLoss`: of two inputs and labels 1 or -1, which say which one is larger.
    MarginRankingLoss {
        /// The difference from which on there is no loss; 0 by default.
        margin: f64 = 0.0
    } |loss, a, b, target| {
        a.margin_ranking_loss_with(b, target, kw!(margin = loss.margin, reduction = loss.reduction))
    };
    /// `torch.nn.CosineEmbeddingLoss`: of two inputs and labels 1 or -1, which say whether they are similar.
    CosineEmbeddingLoss {
        /// The similarity up to which dissimilar pairs have no loss; 0 by default.
        margin: f64 = 0.0
    } |loss, a, b, target| {
        a.cosine_embedding_loss_with(b, target, kw!(margin = loss.margin, reduction = loss.reduction))
    };
    /// `torch.nn.TripletMarginLoss`: of an anchor, a similar and a dissimilar input.
    TripletMarginLoss {
        /// The difference of the distances from which on there is no loss; 1 by default.
        margin: f64 = 1.0,
        /// The degree of the norm; 2 by default.
        p: f64 = 2.0,
        /// Number added to each difference; `1e-6` by default.
        eps: f64 = 1e-6,
        /// Whether the distance of the similar from the dissimilar input counts if it is smaller; false by default.
        swap: bool = false
    } |loss, anchor, positive, negative| {
        anchor.triplet_margin_loss_with(
            positive,
            negative,
            kw!(
                margin = loss.margin,
                p = loss.p,
                eps = loss.eps,
                swap = loss.swap,
                reduction = loss.reduction
            ),
        )
    };
    /// `torch.nn.GaussianNLLLoss`: the negative log-likelihood of normally distributed targets; called with input, target and
    /// variance. PyTorch's check for negative variances is left out.
    GaussianNLLLoss {
        /// Whether to add the constant term; false by default.
        full: bool = false,
        /// The smallest variance; `1e-6` by default.
        eps: f64 = 1e-6
    } |loss, x, target, variance| {
        let variance = match x.rank() == variance.rank() + 1 {
            true => variance.unsqueeze(-1),
            false => variance.clone(),
        };
        if variance.error().is_none() && variance.rank() != x.rank() {
            return refuse("var is of incorrect size".to_string());
        }
        let variance = variance.clamp_min(loss.eps);
        let losses = 0.5 * (variance.log() + (x - target).pow(2) / variance);
        let losses = match loss.full {
            true => losses + 0.5 * TAU.ln(),
            false => losses,
        };
        loss.reduction.apply(losses)
    };
}

/// A distance of two tensors that the user defines.
type Distance = Arc<dyn Fn(&TracedTensor, &TracedTensor) -> TracedTensor + Send + Sync>;

/// `torch.nn.TripletMarginWithDistanceLoss`: of an anchor, a similar and a dissimilar input.
#[derive(Clone, Module)]
pub struct TripletMarginWithDistanceLoss {
    distance_function: PairwiseDistance,
    /// The distance that replaces `distance_function`.
    #[module(skip)]
    own_distance: Option<Distance>,
    margin: f64,
    swap: bool,
    #[module(skip)]
    reduction: Reduction,
    check: ArgumentCheck,
}

impl fmt::Debug for TripletMarginWithDistanceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TripletMarginWithDistanceLoss")
            .field("margin", &self.margin)
            .field("swap", &self.swap)
            .field("reduction", &self.reduction)
            .finish_non_exhaustive()
    }
}

impl Default for TripletMarginWithDistanceLoss {
    fn default() -> TripletMarginWithDistanceLoss {
        TripletMarginWithDistanceLoss::new()
    }
}

impl TripletMarginWithDistanceLoss {
    /// A loss of Euclidean distances.
    pub fn new() -> TripletMarginWithDistanceLoss {
        TripletMarginWithDistanceLoss {
            distance_function: PairwiseDistance::new(),
            own_distance: None,
            margin: 1.0,
            swap: false,
            reduction: Reduction::Mean,
            check: ArgumentCheck::default(),
        }
    }

    /// The distance of two tensors; the Euclidean one by default.
    #[must_use]
    pub fn distance_function(
        mut self,
        distance: impl Fn(&TracedTensor, &TracedTensor) -> TracedTensor + Send + Sync + 'static,
    ) -> TripletMarginWithDistanceLoss {
        self.own_distance = Some(Arc::new(distance));
        self
    }

    /// The difference of the distances from which on there is no loss; 1 by default.
    #[must_use]
    #[track_caller]
    pub fn margin(mut self, margin: f64) -> TripletMarginWithDistanceLoss {
        let message = || format!("expected margin to be greater than 0, but got {margin}");
        self.check.require(margin > 0.0, message);
        self.margin = margin;
        self
    }

    /// Whether the distance of the similar from the dissimilar input counts if it is smaller; false by default.
    #[must_use]
    pub fn swap(mut self, swap: bool) -> TripletMarginWithDistanceLoss {
        self.swap = swap;
        self
    }

    /// Reduction of the values for each element; their mean by default.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> TripletMarginWithDistanceLoss {
        self.reduction = reduction;
        self
    }

    /// The distance of two tensors.
    fn distance(&self, a: &TracedTensor, b: &TracedTensor) -> TracedTensor {
        match &self.own_distance {
            Some(distance) => distance(a, b),
            None => self.distance_function.call((a, b)),
        }
    }

    /// The loss for each triple.
    fn losses(&self, [anchor, positive, negative]: [&TracedTensor; 3]) -> TracedTensor {
        let near = self.distance(anchor, positive);
        let far = self.distance(anchor, negative);
        let far = match self.swap {
            true => far.minimum(&self.distance(positive, negative)),
            false => far,
        };
        (self.margin + near - far).clamp_min(0)
    }
}

/// Called with an anchor, a similar and a dissimilar input.
impl<A, B, C> Forward<(A, B, C)> for TripletMarginWithDistanceLoss
where
    A: Borrow<TracedTensor>,
    B: Borrow<TracedTensor>,
    C: Borrow<TracedTensor>,
{
    type Output = TracedTensor;

    fn forward(&self, (a, b, c): (A, B, C)) -> TracedTensor {
        let call = || self.losses([a.borrow(), b.borrow(), c.borrow()]);
        let losses = self.check.failed().unwrap_or_else(call);
        self.reduction.apply(losses)
    }
}
