//! Convolutions over one, two or three axes.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, dtype_error, rank_error, size_error};
use super::{PerAxis, Weighted, init};
use crate::kw;
use crate::tensor::Tensor;
use crate::trace::native::{Forward, Module, Parameter, TracedTensor, Visitor};

/// `torch.nn.Conv1d`
pub type Conv1d = ConvNd<1>;
/// `torch.nn.Conv2d`
pub type Conv2d = ConvNd<2>;
/// `torch.nn.Conv3d`
pub type Conv3d = ConvNd<3>;
/// `torch.nn.ConvTranspose1d`
pub type ConvTranspose1d = ConvTranspose<1>;
/// `torch.nn.ConvTranspose2d`
pub type ConvTranspose2d = ConvTranspose<2>;
/// `torch.nn.ConvTranspose3d`
pub type ConvTranspose3d = ConvTranspose<3>;

/// Weights and parameters of a convolution.
#[derive(Clone, Debug)]
struct Filter<const N: usize> {
    weight: Parameter,
    bias: Option<Parameter>,
    /// Number of input channels.
    inputs: usize,
    /// Number of output channels.
    outputs: usize,
    kernel_size: [i64; N],
    stride: [i64; N],
    padding: [i64; N],
    output_padding: [i64; N],
    dilation: [i64; N],
    groups: usize,
    transposed: bool,
    check: ArgumentCheck,
}

impl<const N: usize> Filter<N> {
    fn new(inputs: usize, outputs: usize, kernel_size: [i64; N], transposed: bool) -> Filter<N> {
        let filter = Filter {
            weight: Parameter::from(Tensor::from(0f32)),
            bias: None,
            inputs,
            outputs,
            kernel_size,
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            dilation: [1; N],
            groups: 1,
            transposed,
            check: ArgumentCheck::default(),
        };
        filter.with_new_weights(true)
    }

    /// Sets the number of groups.
    #[track_caller]
    fn set_groups(&mut self, groups: usize) {
        let check = &mut self.check;
        check.require(groups > 0, || "groups must be a positive integer".into());
        let sides = [("in_channels", self.inputs), ("out_channels", self.outputs)];
        for (side, channels) in sides {
            check.require(channels.is_multiple_of(groups), || {
                format!("{side} ({channels}) must be divisible by groups ({groups})")
            });
        }
        self.groups = groups;
    }

    /// Draws new weights for the current number of groups.
    fn with_new_weights(mut self, bias: bool) -> Filter<N> {
        let groups = self.groups.max(1);
        let (rows, columns) = match self.transposed {
            true => (self.inputs, self.outputs / groups),
            false => (self.outputs, self.inputs / groups),
        };
        let kernel = self
            .kernel_size
            .map(|size| usize::try_from(size).unwrap_or(0));
        let fan_in = columns * kernel.iter().product::<usize>();
        let shape: Vec<usize> = [rows, columns].into_iter().chain(kernel).collect();
        self.weight = init::by_fan_in(&shape, fan_in);
        self.bias = bias.then(|| init::by_fan_in(&[self.outputs], fan_in));
        self
    }

    /// Returns an error if PyTorch refuses the arguments or the input.
    fn refused(&self, x: &TracedTensor) -> Option<TracedTensor> {
        let kind = if self.transposed {
            "ConvTranspose"
        } else {
            "Conv"
        };
        let name = format!("{kind}{N}d");
        self.check
            .failed()
            .or_else(|| rank_error(&name, x, &[N + 1, N + 2]))
            .or_else(|| dtype_error(&name, x, &self.weight))
            .or_else(|| size_error(x, -1 - N as i64, self.inputs, "channels"))
    }

    /// Calls the operator that PyTorch records for every convolution, with the flags of its backends.
    fn apply(&self, x: &TracedTensor, padding: &[i64; N]) -> TracedTensor {
        x._convolution(
            &self.weight,
            self.bias.as_deref(),
            self.stride,
            padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
            false,
            false,
            true,
            true,
        )
    }
}

/// Padding values of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingMode {
    /// Zeros.
    Zeros,
    /// The element at an equal distance inside of the edge.
    Reflect,
    /// The outermost element.
    Replicate,
    /// The elements at the opposite edge.
    Circular,
}

/// A convolution over `N` axes, such as `torch.nn.Conv2d`.
#[derive(Clone, Debug)]
pub struct ConvNd<const N: usize> {
    filter: Filter<N>,
    /// Pads to keep the input's size.
    same: bool,
    /// Values of the padding.
    mode: PaddingMode,
}

/// A transposed convolution over `N` axes, such as `torch.nn.ConvTranspose2d`.
#[derive(Clone, Debug)]
pub struct ConvTranspose<const N: usize> {
    filter: Filter<N>,
}

/// Defines the options of both kinds of convolution.
macro_rules! options {
    ($name:ident) => {
        impl<const N: usize> $name<N> {
            /// Padding at both edges of each axis (removed by a transposed convolution); 0 by default.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<PerAxis<N>>) -> $name<N> {
                self.filter.padding = padding.into().0;
                self
            }

            /// Spacing of the filter's elements; 1 by default.
            #[must_use]
            pub fn dilation(mut self, dilation: impl Into<PerAxis<N>>) -> $name<N> {
                self.filter.dilation = dilation.into().0;
                self
            }

            /// Number of independent groups of channels; 1 by default. Draws new weights.
            #[must_use]
            #[track_caller]
            pub fn groups(mut self, groups: usize) -> $name<N> {
                let bias = self.filter.bias.is_some();
                self.filter.set_groups(groups);
                self.filter = self.filter.with_new_weights(bias);
                self
            }

            /// Whether to add a bias; true by default.
            #[must_use]
            pub fn bias(mut self, bias: bool) -> $name<N> {
                self.filter.bias = self.filter.bias.filter(|_| bias);
                self
            }

            /// The weight: `[outputs, inputs / groups, kernel…]`, or `[inputs, outputs / groups, kernel…]` of a
            /// transposed convolution.
            pub fn weight(&self) -> &Parameter {
                &self.filter.weight
            }
        }

        impl<const N: usize> Module for $name<N> {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.module(self);
                visitor.field("weight", &self.filter.weight);
                visitor.field("bias", &self.filter.bias);
            }
        }
    };
}

options!(ConvNd);
options!(ConvTranspose);

impl<const N: usize> ConvNd<N> {
    /// A convolution from `inputs` to `outputs` channels.
    pub fn new(inputs: usize, outputs: usize, kernel_size: impl Into<PerAxis<N>>) -> ConvNd<N> {
        ConvNd {
            filter: Filter::new(inputs, outputs, kernel_size.into().0, false),
            same: false,
            mode: PaddingMode::Zeros,
        }
    }

    /// Stride of the filter; 1 by default.
    #[must_use]
    #[track_caller]
    pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> ConvNd<N> {
        self.filter.stride = stride.into().0;
        self.check_stride();
        self
    }

    /// Pads to keep the input's size, as `padding="same"` does.
    #[must_use]
    #[track_caller]
    pub fn same(mut self) -> ConvNd<N> {
        self.same = true;
        self.check_stride();
        self
    }

    /// Checks that the stride is 1 if the padding keeps the input's size.
    #[track_caller]
    fn check_stride(&mut self) {
        let is_refused = self.same && self.filter.stride != [1; N];
        let message = || "padding='same' is not supported for strided convolutions".into();
        self.filter.check.require(!is_refused, message);
    }

    /// Padding values; zeros by default.
    #[must_use]
    pub fn padding_mode(mut self, mode: PaddingMode) -> ConvNd<N> {
        self.mode = mode;
        self
    }

    /// Pad widths in the order of PyTorch's `pad`: the last axis first, both edges of each axis.
    fn pad_widths(&self) -> Vec<i64> {
        let filter = &self.filter;
        let axes = (0..N).rev().flat_map(|axis| match self.same {
            true => {
                let total = filter.dilation[axis] * (filter.kernel_size[axis] - 1);
                [total / 2, total - total / 2]
            }
            false => [filter.padding[axis]; 2],
        });
        axes.collect()
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for ConvNd<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (x, filter) = (x.borrow(), &self.filter);
        if let Some(refused) = filter.refused(x) {
            return refused;
        }
        let mode = match self.mode {
            PaddingMode::Zeros if self.same => {
                let bias = filter.bias.as_deref();
                let (stride, dilation) = (&filter.stride, &filter.dilation);
                return x._convolution_mode(
                    &filter.weight,
                    bias,
                    stride,
                    "same",
                    dilation,
                    filter.groups,
                );
            }
            PaddingMode::Zeros => return filter.apply(x, &filter.padding),
            PaddingMode::Reflect => "reflect",
            PaddingMode::Replicate => "replicate",
            PaddingMode::Circular => "circular",
        };
        filter.apply(&x.pad_with(self.pad_widths(), kw!(mode = mode)), &[0; N])
    }
}

/// Implements [`Weighted`] by the fields besides the weight.
macro_rules! weighted {
    ($name:ident, $module:ident => $result:expr) => {
        impl<const N: usize> Weighted for $name<N> {
            fn weight(&self) -> &Parameter {
                &self.filter.weight
            }

            fn bias(&self) -> Option<&Parameter> {
                self.filter.bias.as_ref()
            }

            fn with_weight(&self, weight: TracedTensor) -> $name<N> {
                let ($module, mut filter) = (self, self.filter.clone());
                filter.weight = Parameter::computed(weight);
                filter.bias = $module.filter.bias.as_ref().map(Parameter::share);
                $result(filter)
            }
        }
    };
}

weighted!(ConvNd, module => |filter| ConvNd { filter, same: module.same, mode: module.mode });
weighted!(ConvTranspose, _module => |filter| ConvTranspose { filter });

impl<const N: usize> ConvTranspose<N> {
    /// A convolution from `inputs` to `outputs` channels.
    pub fn new(
        inputs: usize,
        outputs: usize,
        kernel_size: impl Into<PerAxis<N>>,
    ) -> ConvTranspose<N> {
        ConvTranspose {
            filter: Filter::new(inputs, outputs, kernel_size.into().0, true),
        }
    }

    /// Stride of the filter; 1 by default.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis<N>>) -> ConvTranspose<N> {
        self.filter.stride = stride.into().0;
        self
    }

    /// Additional size at one edge of the result; 0 by default.
    #[must_use]
    pub fn output_padding(mut self, padding: impl Into<PerAxis<N>>) -> ConvTranspose<N> {
        self.filter.output_padding = padding.into().0;
        self
    }
}

impl<const N: usize, X: Borrow<TracedTensor>> Forward<X> for ConvTranspose<N> {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (x, filter) = (x.borrow(), &self.filter);
        let refused = filter.refused(x);
        refused.unwrap_or_else(|| filter.apply(x, &filter.padding))
    }
}
