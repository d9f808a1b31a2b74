//! Elementwise functions and softmax.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, rank_error};
use super::{Spot, init};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, Parameter, TracedTensor, Training};

/// Defines modules without parameters by constructor arguments, settings with defaults, and a formula.
macro_rules! activations {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $taken:ty),*)
        { $($(#[$about:meta])* $setting:ident: $type:ty = $default:expr),* }
        |$self:ident, $x:ident| $result:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            $($argument: $taken,)*
            $($setting: $type,)*
            spot: Spot,
        }

        impl $name {
            #[doc = concat!("A new `", stringify!($name), "`.")]
            #[allow(clippy::new_without_default, reason = "some have arguments")]
            pub fn new($($argument: $taken),*) -> $name {
                $name { $($argument,)* $($setting: $default,)* spot: Spot::default() }
            }

            $(
                $(#[$about])*
                #[must_use]
                pub fn $setting(mut self, $setting: $type) -> $name {
                    self.$setting = $setting;
                    self
                }
            )*
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                let ($self, $x) = (self, x.borrow());
                let _ = &$self.spot;
                $result
            }
        }
    )*};
}

activations! {
    /// `torch.nn.ReLU`
    ReLU() {} |m, x| x.relu();
    /// `torch.nn.ReLU6`
    ReLU6() {} |m, x| x.hardtanh_with(kw!(min_val = 0.0, max_val = 6.0));
    /// `torch.nn.Sigmoid`
    Sigmoid() {} |m, x| x.sigmoid();
    /// `torch.nn.Tanh`
    Tanh() {} |m, x| x.tanh();
    /// `torch.nn.SiLU`
    SiLU() {} |m, x| x.silu();
    /// `torch.nn.Mish`
    Mish() {} |m, x| x.mish();
    /// `torch.nn.SELU`
    SELU() {} |m, x| x.selu();
    /// `torch.nn.Hardswish`
    Hardswish() {} |m, x| x.hardswish();
    /// `torch.nn.Hardsigmoid`
    Hardsigmoid() {} |m, x| x.hardsigmoid();
    /// `torch.nn.LogSigmoid`
    LogSigmoid() {} |m, x| x.log_sigmoid();
    /// `torch.nn.Softsign`
    Softsign() {} |m, x| x / (x.abs() + 1);
    /// `torch.nn.Softmax` over an axis.
    Softmax(dim: i64) {} |m, x| x.softmax(m.dim);
    /// `torch.nn.LogSoftmax` over an axis.
    LogSoftmax(dim: i64) {} |m, x| x.log_softmax(m.dim);
    /// `torch.nn.Softmin` over an axis.
    Softmin(dim: i64) {} |m, x| (-x).softmax(m.dim);
    /// `torch.nn.Softmax2d`: softmax over the channels of an image.
    Softmax2d() {} |m, x| rank_error("Softmax2d", x, &[3, 4]).unwrap_or_else(|| x.softmax(-3));
    /// `torch.nn.Tanhshrink`
    Tanhshrink() {} |m, x| x - x.tanh();
    /// `torch.nn.Threshold`: elements that are not above `threshold` become `value`.
    Threshold(threshold: f64, value: f64) {} |m, x| x.threshold(m.threshold, m.value);
    /// `torch.nn.Hardshrink`
    Hardshrink() {
        /// Elements of at most this magnitude become zero; 0.5 by default.
        lambd: f64 = 0.5
    } |m, x| x.hardshrink_with(kw!(lambd = m.lambd));
    /// `torch.nn.Softshrink`
    Softshrink() {
        /// Elements are moved towards zero by this much; 0.5 by default.
        lambd: f64 = 0.5
    } |m, x| x.softshrink_with(kw!(lambd = m.lambd));
    /// `torch.nn.GELU`
    GELU() {
        /// `"none"`, the default, or `"tanh"`.
        approximate: &'static str = "none"
    } |m, x| x.gelu_with(kw!(approximate = m.approximate));
    /// `torch.nn.Hardtanh`
    Hardtanh() {
        /// The lowest result; -1 by default.
        min_val: f64 = -1.0,
        /// The highest result; 1 by default.
        max_val: f64 = 1.0
    } |m, x| x.hardtanh_with(kw!(min_val = m.min_val, max_val = m.max_val));
    /// `torch.nn.LeakyReLU`
    LeakyReLU() {
        /// Slope below zero; 0.01 by default.
        negative_slope: f64 = 0.01
    } |m, x| x.leaky_relu_with(kw!(negative_slope = m.negative_slope));
    /// `torch.nn.ELU`
    ELU() {
        /// Negated limit below zero; 1 by default.
        alpha: f64 = 1.0
    } |m, x| x.elu_with(kw!(alpha = m.alpha));
    /// `torch.nn.CELU`
    CELU() {
        /// Negated limit below zero; 1 by default.
        alpha: f64 = 1.0
    } |m, x| x.celu_with(kw!(alpha = m.alpha));
    /// `torch.nn.Softplus`
    Softplus() {
        /// Sharpness of the bend; 1 by default.
        beta: f64 = 1.0,
        /// The result is the input where `beta` times the input exceeds this; 20 by default.
        threshold: f64 = 20.0
    } |m, x| x.softplus_with(kw!(beta = m.beta, threshold = m.threshold));
    /// `torch.nn.GLU`
    GLU() {
        /// The axis that is halved; the last one by default.
        dim: i64 = -1
    } |m, x| x.glu_with(kw!(dim = m.dim));
}

/// `torch.nn.PReLU`
#[derive(Clone, Debug, Module)]
pub struct PReLU {
    weight: Parameter,
}

impl PReLU {
    /// One slope below zero for each channel, or a single one for all; initially 0.25.
    pub fn new(parameters: usize) -> PReLU {
        PReLU {
            weight: Parameter::new([parameters], init::constant(0.25)),
        }
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for PReLU {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        x.borrow().prelu(&self.weight)
    }
}

/// `torch.nn.RReLU`: a slope below zero, which is random in training mode and the mean of the bounds otherwise.
#[derive(Clone, Debug, Module)]
pub struct RReLU {
    lower: f64,
    upper: f64,
    training: Training,
    check: ArgumentCheck,
}

impl Default for RReLU {
    fn default() -> RReLU {
        RReLU::new()
    }
}

impl RReLU {
    /// A slope between 1/8 and 1/3.
    pub fn new() -> RReLU {
        RReLU {
            lower: 1.0 / 8.0,
            upper: 1.0 / 3.0,
            training: Training::default(),
            check: ArgumentCheck::default(),
        }
    }

    /// The bounds of the slope.
    #[must_use]
    #[track_caller]
    pub fn bounds(mut self, lower: f64, upper: f64) -> RReLU {
        self.check.require(lower <= upper, || {
            format!("lower bound should be less than or equal to the upper bound, but got {lower} and {upper}")
        });
        (self.lower, self.upper) = (lower, upper);
        self
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for RReLU {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let training = self.training.is_on();
        let call = || {
            x.borrow().rrelu_with(kw!(
                lower = self.lower,
                upper = self.upper,
                training = training
            ))
        };
        self.check.failed().unwrap_or_else(call)
    }
}
