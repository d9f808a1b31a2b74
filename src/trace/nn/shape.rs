//! Modules that rearrange elements.

use std::borrow::Borrow;

use super::{PerAxis, Spot};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// `torch.nn.Identity`
#[derive(Clone, Debug, Default, Module)]
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
#[derive(Clone, Debug, Module)]
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
        x.borrow()
            .flatten_with(kw!(start_dim = self.start_dim, end_dim = self.end_dim))
    }
}

/// `torch.nn.Unflatten`: splits an axis.
#[derive(Clone, Debug, Module)]
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
        #[derive(Clone, Debug, Module)]
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

/// `torch.nn.Unfold`: the windows of an image as columns.
#[derive(Clone, Debug, Module)]
pub struct Unfold {
    kernel_size: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
}

/// `torch.nn.Fold`: the sum of windows, which are columns, at their places in an image.
#[derive(Clone, Debug, Module)]
pub struct Fold {
    output_size: [i64; 2],
    kernel_size: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
}

/// Defines the options of both modules.
macro_rules! windows {
    ($name:ident) => {
        impl $name {
            /// Stride of the windows; 1 by default.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<PerAxis<2>>) -> $name {
                self.stride = stride.into().0;
                self
            }

            /// Padding with zeros at both edges of each axis; 0 by default.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<PerAxis<2>>) -> $name {
                self.padding = padding.into().0;
                self
            }

            /// Spacing of a window's elements; 1 by default.
            #[must_use]
            pub fn dilation(mut self, dilation: impl Into<PerAxis<2>>) -> $name {
                self.dilation = dilation.into().0;
                self
            }
        }
    };
}

windows!(Unfold);
windows!(Fold);

impl Unfold {
    /// Windows of this size.
    pub fn new(kernel_size: impl Into<PerAxis<2>>) -> Unfold {
        Unfold {
            kernel_size: kernel_size.into().0,
            dilation: [1; 2],
            padding: [0; 2],
            stride: [1; 2],
        }
    }
}

impl Fold {
    /// An image of this size from windows of this size.
    pub fn new(output_size: impl Into<PerAxis<2>>, kernel_size: impl Into<PerAxis<2>>) -> Fold {
        Fold {
            output_size: output_size.into().0,
            kernel_size: kernel_size.into().0,
            dilation: [1; 2],
            padding: [0; 2],
            stride: [1; 2],
        }
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Unfold {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let x = x.borrow();
        x.im2col(self.kernel_size, self.dilation, self.padding, self.stride)
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Fold {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (output_size, kernel_size) = (self.output_size, self.kernel_size);
        let x = x.borrow();
        x.col2im(
            output_size,
            kernel_size,
            self.dilation,
            self.padding,
            self.stride,
        )
    }
}
