//! Modules that resize.

use std::borrow::Borrow;

use super::checks::{rank_error, refuse};
use super::{PerAxis, call_one};
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, TracedTensor};

/// `torch.nn.Upsample`
#[derive(Clone, Debug, Module)]
pub struct Upsample {
    #[module(skip)]
    target: UpsampleTarget,
    mode: &'static str,
    align_corners: bool,
}

/// The size of the result of [`Upsample`].
#[derive(Clone, Debug)]
enum UpsampleTarget {
    /// The size of each spatial axis.
    Size(Vec<i64>),
    /// The factor of every spatial axis.
    Factor(f64),
}

impl Upsample {
    /// Resizes by a factor along each spatial axis.
    pub fn by(factor: f64) -> Upsample {
        Upsample::new(UpsampleTarget::Factor(factor))
    }

    /// Resizes to a size.
    pub fn to(size: impl Into<Vec<i64>>) -> Upsample {
        Upsample::new(UpsampleTarget::Size(size.into()))
    }

    fn new(target: UpsampleTarget) -> Upsample {
        Upsample {
            target,
            mode: "nearest",
            align_corners: false,
        }
    }

    /// `"nearest"`, the default, or `"nearest-exact"`, `"linear"`, `"bilinear"`, `"bicubic"`, `"trilinear"`.
    #[must_use]
    pub fn mode(mut self, mode: &'static str) -> Upsample {
        self.mode = mode;
        self
    }

    /// Whether the corners of input and result coincide; false by default.
    #[must_use]
    pub fn align_corners(mut self, align: bool) -> Upsample {
        self.align_corners = align;
        self
    }
}

impl Upsample {
    /// Returns an error if PyTorch refuses the input, the mode or the number of sizes.
    fn refused(&self, x: &TracedTensor) -> Option<TracedTensor> {
        let ranks: &[usize] = match self.mode {
            "nearest" | "nearest-exact" => &[3, 4, 5],
            "linear" => &[3],
            "bilinear" | "bicubic" => &[4],
            "trilinear" => &[5],
            mode => return Some(refuse(format!("Upsample has no mode {mode:?}"))),
        };
        let what = format!("Upsample with mode {:?}", self.mode);
        rank_error(&what, x, ranks).or_else(|| {
            let UpsampleTarget::Size(size) = &self.target else {
                return None;
            };
            let (axes, found) = (x.rank().saturating_sub(2), size.len());
            let message = format!(
                "Upsample expects {axes} sizes for {}D input, got {found}",
                axes + 2
            );
            (x.error().is_none() && axes != found).then(|| refuse(message))
        })
    }

    /// Calls the operator of the mode.
    fn resize(&self, x: &TracedTensor) -> TracedTensor {
        let axes = x.rank().saturating_sub(2);
        let (size, factors) = match &self.target {
            UpsampleTarget::Size(size) => (Arg::from(size.as_slice()), Arg::None),
            UpsampleTarget::Factor(factor) => (Arg::None, vec![*factor; axes].into()),
        };
        let operator = match self.mode {
            "nearest-exact" => "_upsample_nearest_exact".to_string(),
            mode => format!("upsample_{mode}"),
        };
        let is_nearest = self.mode.starts_with("nearest");
        let align = (!is_nearest).then(|| Arg::from(self.align_corners));
        let arguments = [x.into(), size].into_iter().chain(align).chain([factors]);
        call_one(&format!("{operator}{axes}d"), arguments.collect())
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Upsample {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let x = x.borrow();
        self.refused(x).unwrap_or_else(|| self.resize(x))
    }
}

/// Defines modules that upsample images by one mode.
macro_rules! upsamplings {
    ($($(#[$doc:meta])* $name:ident $mode:literal $align:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            #[module(skip)]
            upsample: Upsample,
        }

        impl $name {
            /// Resizes by a factor along both axes.
            pub fn by(factor: f64) -> $name {
                $name { upsample: Upsample::by(factor).mode($mode).align_corners($align) }
            }

            /// Resizes to a size. One number is for both axes.
            pub fn to(size: impl Into<PerAxis<2>>) -> $name {
                let size = size.into().0;
                $name { upsample: Upsample::to(size).mode($mode).align_corners($align) }
            }
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                self.upsample.forward(x)
            }
        }
    )*};
}

upsamplings! {
    /// `torch.nn.UpsamplingNearest2d`
    UpsamplingNearest2d "nearest" false;
    /// `torch.nn.UpsamplingBilinear2d`: corners of input and result coincide.
    UpsamplingBilinear2d "bilinear" true;
}
