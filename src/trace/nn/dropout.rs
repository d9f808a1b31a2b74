//! Dropouts: the identity, except in training mode.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, rank_error};
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor, Training};

/// Defines dropouts by the ranks of their input, if these are checked, and what they do in training mode.
macro_rules! dropouts {
    ($($(#[$doc:meta])* $name:ident $ranks:expr, |$x:ident, $p:ident| $result:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            p: f64,
            training: Training,
            check: ArgumentCheck,
        }

        impl $name {
            /// A dropout with probability `p` in training mode. PyTorch's default is 0.5.
            #[track_caller]
            pub fn new(p: f64) -> $name {
                let mut check = ArgumentCheck::default();
                check.require_probability(p);
                $name { p, training: Training::default(), check }
            }
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                let ($x, $p) = (x.borrow(), self.p);
                let ranks: Option<&[usize]> = $ranks;
                let refused = ranks.and_then(|ranks| rank_error(stringify!($name), $x, ranks));
                match self.check.failed().or(refused) {
                    Some(refused) => refused,
                    None if self.training.is_on() => $result,
                    None => $x.clone(),
                }
            }
        }
    )*};
}

dropouts! {
    /// `torch.nn.Dropout`: each element becomes zero with probability `p`.
    Dropout None, |x, p| x.dropout(p, true);
    /// `torch.nn.Dropout1d`: each channel of a series becomes zero with probability `p`.
    Dropout1d Some(&[2, 3]), |x, p| drop_channels(x, 3, |x| x.feature_dropout(p, true));
    /// `torch.nn.Dropout2d`: each channel of an image becomes zero with probability `p`. Three axes are batch, channels and
    /// length, as in PyTorch.
    Dropout2d None, |x, p| x.feature_dropout(p, true);
    /// `torch.nn.Dropout3d`: each channel of a volume becomes zero with probability `p`.
    Dropout3d Some(&[4, 5]), |x, p| drop_channels(x, 5, |x| x.feature_dropout(p, true));
    /// `torch.nn.AlphaDropout`: keeps the mean and variance of self-normalising networks.
    AlphaDropout None, |x, p| x.alpha_dropout(p, true);
    /// `torch.nn.FeatureAlphaDropout`: [`AlphaDropout`] of whole channels.
    FeatureAlphaDropout None, |x, p| x.feature_alpha_dropout(p, true);
}

impl Dropout {
    /// The current dropout probability: 0 unless in training mode.
    pub(super) fn probability(&self) -> f64 {
        if self.training.is_on() { self.p } else { 0.0 }
    }
}

/// Applies a dropout of channels to an input with `rank` axes, or without the batch axis.
fn drop_channels(
    x: &TracedTensor,
    rank: usize,
    apply: impl Fn(&TracedTensor) -> TracedTensor,
) -> TracedTensor {
    match x.rank() == rank {
        true => apply(x),
        false => apply(&x.unsqueeze(0)).squeeze_dim(0),
    }
}
