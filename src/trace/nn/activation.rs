//! Functions of each element, softmax, and dropout.

use std::borrow::Borrow;

use super::{Spot, init, op};
use crate::trace::Module;
use crate::trace::native::{Forward, Tensor, Training};

/// Modules without parameters: their settings with defaults, and the operator that they call.
macro_rules! activations {
    ($($name:ident { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr),* } $operator:ident($($argument:ident),*);)*) => {$(
        #[doc = concat!("`torch.nn.", stringify!($name), "`")]
        #[derive(Module)]
        pub struct $name {
            $($field: $type,)*
            spot: Spot,
        }

        impl $name {
            /// With PyTorch's defaults.
            pub fn new() -> $name {
                $name { $($field: $default,)* spot: Spot::default() }
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, $field: $type) -> $name {
                    self.$field = $field;
                    self
                }
            )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }

        impl<X: Borrow<Tensor>> Forward<X> for $name {
            type Output = Tensor;

            fn forward(&self, x: X) -> Tensor {
                let _ = &self.spot;
                op!($operator(x.borrow(), $(self.$argument),*))
            }
        }
    )*};
}

activations! {
    ReLU {} relu();
    Sigmoid {} sigmoid();
    Tanh {} tanh();
    SiLU {} silu();
    Mish {} mish();
    SELU {} selu();
    Hardswish {} hardswish();
    Hardsigmoid {} hardsigmoid();
    LogSigmoid {} log_sigmoid();
    GELU {
        /// `"none"`, the default, or `"tanh"`.
        approximate: &'static str = "none"
    } gelu(approximate);
    Hardtanh {
        /// The lowest result; -1 by default.
        min_val: f64 = -1.0,
        /// The highest result; 1 by default.
        max_val: f64 = 1.0
    } hardtanh(min_val, max_val);
    LeakyReLU {
        /// Slope below zero; 0.01 by default.
        negative_slope: f64 = 0.01
    } leaky_relu(negative_slope);
    CELU {
        /// Where it tends to below zero, negated; 1 by default.
        alpha: f64 = 1.0
    } celu(alpha);
    Softplus {
        /// Sharpness of the bend; 1 by default.
        beta: f64 = 1.0,
        /// Where it becomes the identity; 20 by default.
        threshold: f64 = 20.0
    } softplus(beta, threshold);
    GLU {
        /// The axis that is halved; the last one by default.
        dim: i64 = -1
    } glu(dim);
}

/// Modules that call what an expression says.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($field:ident: $type:ty),*) |$self:ident, $x:ident| $result:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        pub struct $name {
            $($field: $type,)*
            spot: Spot,
        }

        impl $name {
            #[doc = concat!("A new `", stringify!($name), "`.")]
            #[allow(clippy::new_without_default, reason = "some have arguments")]
            pub fn new($($field: $type),*) -> $name {
                $name { $($field,)* spot: Spot::default() }
            }
        }

        impl<X: Borrow<Tensor>> Forward<X> for $name {
            type Output = Tensor;

            fn forward(&self, x: X) -> Tensor {
                let ($self, $x) = (self, x.borrow());
                let _ = &$self.spot;
                $result
            }
        }
    )*};
}

functions! {
    /// `torch.nn.ReLU6`
    ReLU6() |m, x| op!(hardtanh(x, 0.0, 6.0));
    /// `torch.nn.Softsign`
    Softsign() |m, x| x / (op!(abs(x)) + 1i64);
    /// `torch.nn.ELU` of an `alpha`, 1 in PyTorch unless it is given.
    ELU(alpha: f64) |m, x| op!(elu(x, m.alpha, 1i64, 1i64));
    /// `torch.nn.Softmax` over an axis.
    Softmax(dim: i64) |m, x| op!(softmax(x, m.dim));
    /// `torch.nn.LogSoftmax` over an axis.
    LogSoftmax(dim: i64) |m, x| op!(log_softmax(x, m.dim));
}

/// `torch.nn.PReLU`
#[derive(Module)]
pub struct PReLU {
    weight: Tensor,
}

impl PReLU {
    /// A slope below zero for each of so many channels, or one for all; 0.25 at first.
    pub fn new(parameters: usize) -> PReLU {
        PReLU {
            weight: init::constant(&[parameters], 0.25),
        }
    }
}

impl<X: Borrow<Tensor>> Forward<X> for PReLU {
    type Output = Tensor;

    fn forward(&self, x: X) -> Tensor {
        op!(prelu(x.borrow(), &self.weight))
    }
}

/// `torch.nn.Dropout`: nothing, unless it is trained.
#[derive(Module)]
pub struct Dropout {
    p: f64,
    training: Training,
}

impl Dropout {
    /// Elements become zero with this probability in training.
    pub fn new(p: f64) -> Dropout {
        Dropout {
            p,
            training: Training::default(),
        }
    }

    /// The probability that counts now: 0 unless it is trained.
    pub(super) fn probability(&self) -> f64 {
        if self.training.is_on() { self.p } else { 0.0 }
    }
}

impl<X: Borrow<Tensor>> Forward<X> for Dropout {
    type Output = Tensor;

    fn forward(&self, x: X) -> Tensor {
        match self.training.is_on() {
            true => op!(dropout(x.borrow(), self.p, true)),
            false => x.borrow().clone(),
        }
    }
}
