//! Maximum and average pooling.

use std::borrow::Borrow;

use super::checks::rank_error;
use super::{PerAxis, call_many, call_one};
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, TracedTensor, Visitor};

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
/// `torch.nn.AdaptiveMaxPool1d`
pub type AdaptiveMaxPool1d = AdaptiveMaxPool<1>;
/// `torch.nn.AdaptiveMaxPool2d`
pub type AdaptiveMaxPool2d = AdaptiveMaxPool<2>;
/// `torch.nn.AdaptiveMaxPool3d`
pub type AdaptiveMaxPool3d = AdaptiveMaxPool<3>;
/// `torch.nn.LPPool1d`
pub type LPPool1d = LPPool<1>;
/// `torch.nn.LPPool2d`
pub type LPPool2d = LPPool<2>;
/// `torch.nn.LPPool3d`
pub type LPPool3d = LPPool<3>;

/// Maximum pooling over `N` axes.
#[derive(Clone, Debug, Module)]
pub struct MaxPool<const N: usize> {
    kernel_size: [i64; N],
    stride: [i64; N],
    padding: [i64; N],
    dilation: [i64; N],
    ceil_mode: bool,
}

/// Average pooling over `N` axes.
#[derive(Clone, Debug, Module)]
pub struct AvgPool<const N: usize> {
    kernel_size: [i64; N],
    stride: [i64; N],
    padding: [i64; N],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Option<i64>,
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

    /// Returns the indices of the maxima too, which [`MaxUnpool`](super::MaxUnpool) takes.
    #[must_use]
    pub fn return_indices(self) -> WithIndices<MaxPool<N>> {
        WithIndices::new(self)
    }

    /// The operator's arguments after the input.
    fn arguments(&self) -> Vec<Arg> {
        let sizes = [self.kernel_size, self.stride, self.padding, self.dilation];
        let mut arguments = Vec::from(sizes.map(Arg::from));
        arguments.push(self.ceil_mode.into());
        arguments
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
            divisor_override: None,
        }
    }

    /// Whether the mean counts padding; true by default.
    #[must_use]
    pub fn count_include_pad(mut self, count: bool) -> AvgPool<N> {
        self.count_include_pad = count;
        self
    }
}

/// Defines an option that average pooling over one axis lacks.
macro_rules! divisor {
    ($($axes:literal)*) => {$(
        impl AvgPool<$axes> {
            /// The number to divide sums by; by default the number of elements of a window.
            #[must_use]
            pub fn divisor_override(mut self, divisor: i64) -> AvgPool<$axes> {
                self.divisor_override = Some(divisor);
                self
            }
        }
    )*};
}

divisor!(2 3);

/// Calls the operator `{name}{N}d`.
fn call_pooling<const N: usize>(name: &str, x: &TracedTensor, arguments: Vec<Arg>) -> TracedTensor {
    let name = format!("{name}{N}d");
    let refused = rank_error(&name, x, &[N + 1, N + 2]);
    refused.unwrap_or_else(|| call_one(&name, [vec![x.into()], arguments].concat()))
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for MaxPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        call_pooling::<N>("max_pool", x.borrow(), self.arguments())
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for AvgPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let sizes = [self.kernel_size, self.stride, self.padding];
        let mut arguments = Vec::from(sizes.map(Arg::from));
        arguments.extend([self.ceil_mode.into(), self.count_include_pad.into()]);
        arguments.extend(self.divisor_override.map(Arg::from));
        call_pooling::<N>("avg_pool", x.borrow(), arguments)
    }
}

/// Adaptive average pooling over `N` axes: the mean of one window for each element of the result.
#[derive(Clone, Debug, Module)]
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

/// Adaptive maximum pooling over `N` axes: the maximum of one window for each element of the result.
#[derive(Clone, Debug, Module)]
pub struct AdaptiveMaxPool<const N: usize> {
    output_size: [i64; N],
}

impl<const N: usize> AdaptiveMaxPool<N> {
    /// Pooling to this result size.
    pub fn new(output_size: impl Into<PerAxis<N>>) -> AdaptiveMaxPool<N> {
        AdaptiveMaxPool {
            output_size: output_size.into().0,
        }
    }

    /// Returns the indices of the maxima too.
    #[must_use]
    pub fn return_indices(self) -> WithIndices<AdaptiveMaxPool<N>> {
        WithIndices::new(self)
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for AdaptiveMaxPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        self.with_indices(x.borrow()).0
    }
}

/// Maximum pooling that returns the maxima and their indices.
#[derive(Clone, Debug)]
pub struct WithIndices<P> {
    pool: P,
}

/// The state is that of the pooling.
impl<P: Module> Module for WithIndices<P> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self);
        self.pool.visit(visitor);
    }
}

impl<P> WithIndices<P> {
    /// Pooling that returns indices.
    pub(super) fn new(pool: P) -> WithIndices<P> {
        WithIndices { pool }
    }
}

/// Maximum pooling by an operator that returns indices too.
pub trait PoolWithIndices {
    /// The maxima and their indices.
    fn with_indices(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor);
}

impl<const N: usize> PoolWithIndices for MaxPool<N> {
    fn with_indices(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let name = format!("max_pool{N}d_with_indices");
        call_pooling_with_indices::<N>(&name, x, self.arguments())
    }
}

impl<const N: usize> PoolWithIndices for AdaptiveMaxPool<N> {
    fn with_indices(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let name = format!("adaptive_max_pool{N}d");
        call_pooling_with_indices::<N>(&name, x, vec![self.output_size.into()])
    }
}

/// Calls an operator that returns maxima and their indices.
fn call_pooling_with_indices<const N: usize>(
    name: &str,
    x: &TracedTensor,
    arguments: Vec<Arg>,
) -> (TracedTensor, TracedTensor) {
    match rank_error(name, x, &[N + 1, N + 2]) {
        Some(refused) => (refused.clone(), refused),
        None => call_many(name, [vec![x.into()], arguments].concat()).into(),
    }
}

impl<P: PoolWithIndices + Module, X: Borrow<TracedTensor>> Forward<X> for WithIndices<P> {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, x: X) -> Self::Output {
        self.pool.with_indices(x.borrow())
    }
}

/// Power-average pooling over `N` axes: the p-norm of each window.
#[derive(Clone, Debug, Module)]
pub struct LPPool<const N: usize> {
    norm_type: f64,
    kernel_size: [i64; N],
    stride: Option<[i64; N]>,
    ceil_mode: bool,
}

impl<const N: usize> LPPool<N> {
    /// Pooling by the norm of this degree, with windows of this size.
    pub fn new(norm_type: f64, kernel_size: impl Into<PerAxis<N>>) -> LPPool<N> {
        LPPool {
            norm_type,
            kernel_size: kernel_size.into().0,
            stride: None,
            ceil_mode: false,
        }
    }

    /// Stride of the windows; the window size by default.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> LPPool<N> {
        self.stride = Some(stride.into().0);
        self
    }

    /// Whether the last window may be incomplete; false by default.
    #[must_use]
    pub fn ceil_mode(mut self, ceil_mode: bool) -> LPPool<N> {
        self.ceil_mode = ceil_mode;
        self
    }

    /// Maximum pooling of absolute values, which is the norm of infinite degree.
    fn maximum(&self, x: &TracedTensor) -> TracedTensor {
        let mut arguments = vec![self.kernel_size.into(), self.strides()];
        arguments.extend([[0; N].into(), [1; N].into(), self.ceil_mode.into()]);
        call_pooling::<N>("max_pool", x, arguments)
    }

    /// The operators' argument for the stride; a missing one is an empty list.
    fn strides(&self) -> Arg {
        self.stride.map_or_else(|| Arg::List(Vec::new()), Arg::from)
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for LPPool<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let x = x.borrow();
        if self.norm_type == f64::INFINITY {
            return self.maximum(&x.abs());
        }
        if self.norm_type == f64::NEG_INFINITY {
            return -self.maximum(&-x.abs());
        }
        let arguments = vec![
            self.kernel_size.into(),
            self.strides(),
            [0; N].into(),
            self.ceil_mode.into(),
        ];
        let mean = call_pooling::<N>("avg_pool", &x.pow(self.norm_type), arguments);
        let count: i64 = self.kernel_size.iter().product();
        let sum = (mean.sign() * mean.abs().relu()) * count;
        sum.pow(1.0 / self.norm_type)
    }
}
