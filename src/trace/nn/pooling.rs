//! Maximum and average pooling.

use std::borrow::Borrow;

use super::{PerAxis, call_one, rank_error};
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, TracedTensor};

/// `torch.nn.MaxPool1d`
pub type MaxPool1d = MaxPool<1>;
/// `torch.nn.MaxPool2d`
pub type MaxPool2d = MaxPool<2>;
/// `torch.nn.MaxPool3d`
pub type MaxPool3d = MaxPool<3>;
/// `torch.nn.AvgPool1d`
pub type AvgPool1d = AvgPool<1>;
/// `torch.nn.AvgPool2d`
pub type AvgPool2d = AvgPool<2>;
/// `torch.nn.AvgPool3d`
pub type AvgPool3d = AvgPool<3>;
/// `torch.nn.AdaptiveAvgPool1d`
pub type AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
/// `torch.nn.AdaptiveAvgPool2d`
pub type AdaptiveAvgPool2d = AdaptiveAvgPool<2>;
/// `torch.nn.AdaptiveAvgPool3d`
pub type AdaptiveAvgPool3d = AdaptiveAvgPool<3>;

/// Maximum pooling over `N` axes.
#[derive(Debug, Module)]
pub struct MaxPool<const N: usize> {
    kernel_size: [i64; N],
    stride: [i64; N],
    padding: [i64; N],
    dilation: [i64; N],
    ceil_mode: bool,
}

/// Average pooling over `N` axes.
#[derive(Debug, Module)]
pub struct AvgPool<const N: usize> {
    kernel_size: [i64; N],
    stride: [i64; N],
    padding: [i64; N],
    ceil_mode: bool,
    count_include_pad: bool,
}

/// Defines the options of both kinds of pooling.
macro_rules! options {
    ($name:ident) => {
        impl<const N: usize> $name<N> {
            /// Stride of the windows; the window size by default.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> $name<N> {
                self.stride = stride.into().0;
                self
            }

            /// Padding at both edges of each axis; 0 by default.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<PerAxis<N>>) -> $name<N> {
                self.padding = padding.into().0;
                self
            }

            /// Whether the last window may be incomplete; false by default.
            #[must_use]
            pub fn ceil_mode(mut self, ceil_mode: bool) -> $name<N> {
                self.ceil_mode = ceil_mode;
                self
            }
        }
    };
}

options!(MaxPool);
options!(AvgPool);

impl<const N: usize> MaxPool<N> {
    /// Pooling with windows of this size.
    pub fn new(kernel_size: impl Into<PerAxis<N>>) -> MaxPool<N> {
        let kernel_size = kernel_size.into().0;
        MaxPool {
            kernel_size,
            stride: kernel_size,
            padding: [0; N],
            dilation: [1; N],
            ceil_mode: false,
        }
    }

    /// Spacing of a window's elements; 1 by default.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Into<PerAxis<N>>) -> MaxPool<N> {
        self.dilation = dilation.into().0;
        self
    }
}

impl<const N: usize> AvgPool<N> {
    /// Pooling with windows of this size.
    pub fn new(kernel_size: impl Into<PerAxis<N>>) -> AvgPool<N> {
        let kernel_size = kernel_size.into().0;
        AvgPool {
            kernel_size,
            stride: kernel_size,
            padding: [0; N],
            ceil_mode: false,
            count_include_pad: true,
        }
    }

    /// Whether the mean counts padding; true by default.
    #[must_use]
    pub fn count_include_pad(mut self, count: bool) -> AvgPool<N> {
        self.count_include_pad = count;
        self
    }
}

/// Calls the operator `{name}{N}d`.
fn call_pooling<const N: usize>(name: &str, x: &TracedTensor, arguments: Vec<Arg>) -> TracedTensor {
    let name = format!("{name}{N}d");
    let refused = rank_error(&name, x, &[N + 1, N + 2]);
    refused.unwrap_or_else(|| call_one(&name, [vec![x.into()], arguments].concat()))
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for MaxPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let sizes = [self.kernel_size, self.stride, self.padding, self.dilation];
        let mut arguments = Vec::from(sizes.map(Arg::from));
        arguments.push(self.ceil_mode.into());
        call_pooling::<N>("max_pool", x.borrow(), arguments)
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for AvgPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let sizes = [self.kernel_size, self.stride, self.padding];
        let mut arguments = Vec::from(sizes.map(Arg::from));
        arguments.extend([self.ceil_mode.into(), self.count_include_pad.into()]);
        call_pooling::<N>("avg_pool", x.borrow(), arguments)
    }
}

/// Adaptive average pooling over `N` axes: the mean of one window for each element of the result.
#[derive(Debug, Module)]
pub struct AdaptiveAvgPool<const N: usize> {
    output_size: [i64; N],
}

impl<const N: usize> AdaptiveAvgPool<N> {
    /// Pooling to this result size.
    pub fn new(output_size: impl Into<PerAxis<N>>) -> AdaptiveAvgPool<N> {
        AdaptiveAvgPool {
            output_size: output_size.into().0,
        }
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for AdaptiveAvgPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        call_pooling::<N>(
            "adaptive_avg_pool",
            x.borrow(),
            vec![self.output_size.into()],
        )
    }
}
