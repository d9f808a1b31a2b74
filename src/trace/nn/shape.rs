//! Modules that rearrange, pad or resize.

use std::borrow::Borrow;

use super::{Spot, call_one};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, TracedTensor};

/// `torch.nn.Identity`
#[derive(Debug, Default, Module)]
pub struct Identity {
    spot: Spot,
}

impl Identity {
    /// A module that returns its input.
    pub fn new() -> Identity {
        Identity::default()
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Identity {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let _ = &self.spot;
        x.borrow().clone()
    }
}

/// `torch.nn.Flatten`: merges adjacent axes, by default all but the first.
#[derive(Debug, Module)]
pub struct Flatten {
    start_dim: i64,
    end_dim: i64,
}

impl Flatten {
    /// Flattens from axis 1 to the last.
    pub fn new() -> Flatten {
        Flatten::between(1, -1)
    }

    /// Flattens from one axis to another, inclusively.
    pub fn between(start_dim: i64, end_dim: i64) -> Flatten {
        Flatten { start_dim, end_dim }
    }
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten::new()
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Flatten {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let named = kw!(start_dim = self.start_dim, end_dim = self.end_dim);
        x.borrow().flatten_with(named)
    }
}

/// `torch.nn.Unflatten`: splits an axis.
#[derive(Debug, Module)]
pub struct Unflatten {
    dim: i64,
    sizes: Vec<i64>,
}

impl Unflatten {
    /// Splits an axis into axes of these sizes.
    pub fn new(dim: i64, sizes: impl Into<Vec<i64>>) -> Unflatten {
        let sizes = sizes.into();
        Unflatten { dim, sizes }
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Unflatten {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        x.borrow().unflatten(self.dim, self.sizes.as_slice())
    }
}

/// Defines modules with one number as their setting.
macro_rules! modules_with_factor {
    ($($(#[$doc:meta])* $name:ident $operator:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Module)]
        pub struct $name {
            factor: i64,
        }

        impl $name {
            /// A module with this factor, or number of groups.
            pub fn new(factor: i64) -> $name {
                $name { factor }
            }
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                x.borrow().$operator(self.factor)
            }
        }
    )*};
}

modules_with_factor! {
    /// `torch.nn.PixelShuffle`: moves channels to pixels.
    PixelShuffle pixel_shuffle;
    /// `torch.nn.PixelUnshuffle`: moves pixels to channels.
    PixelUnshuffle pixel_unshuffle;
    /// `torch.nn.ChannelShuffle`
    ChannelShuffle channel_shuffle;
}

/// Defines modules that pad an image: left, right, top, bottom.
macro_rules! pads {
    ($($(#[$doc:meta])* $name:ident $mode:literal $value:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Module)]
        pub struct $name {
            padding: [i64; 4],
        }

        impl $name {
            /// Numbers of pixels to add at the left, right, top and bottom.
            pub fn new(padding: [i64; 4]) -> $name {
                $name { padding }
            }
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                let value: Option<f64> = $value;
                x.borrow().pad_with(&self.padding, kw!(mode = $mode, value = value))
            }
        }
    )*};
}

pads! {
    /// `torch.nn.ZeroPad2d`
    ZeroPad2d "constant" Some(0.0);
    /// `torch.nn.ReflectionPad2d`
    ReflectionPad2d "reflect" None;
    /// `torch.nn.ReplicationPad2d`
    ReplicationPad2d "replicate" None;
}

/// `torch.nn.Upsample`
#[derive(Debug, Module)]
pub struct Upsample {
    #[module(skip)]
    target: UpsampleTarget,
    mode: &'static str,
    align_corners: bool,
}

/// The size of the result of [`Upsample`].
#[derive(Debug)]
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

    /// `"nearest"`, the default, or `"linear"`, `"bilinear"`, `"bicubic"`, `"trilinear"`.
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

impl<X: Borrow<TracedTensor>> Forward<X> for Upsample {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let x = x.borrow();
        let axes = x.rank().saturating_sub(2);
        let (size, factors) = match &self.target {
            UpsampleTarget::Size(size) => (Arg::from(size.as_slice()), Arg::None),
            UpsampleTarget::Factor(factor) => (Arg::None, vec![*factor; axes].into()),
        };
        let align = (self.mode != "nearest").then(|| Arg::from(self.align_corners));
        let arguments = [x.into(), size].into_iter().chain(align).chain([factors]);
        call_one(
            &format!("upsample_{}{axes}d", self.mode),
            arguments.collect(),
        )
    }
}
