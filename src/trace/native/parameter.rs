//! Parameters and buffers of modules.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use crate::error::Result;
use crate::tensor::Tensor;

use super::argument::Arg;
use super::call_site;
use super::init::Init;
use super::module::{Module, Visitor};
use super::storage::TracedOrigin;
use super::tensor::TracedTensor;

/// A parameter of a module, as `torch.nn.Parameter`. It is a tensor in all expressions.
///
/// ```
/// use onionskin::trace::{Forward, Module, Parameter, TracedTensor, init};
///
/// #[derive(Module)]
/// struct LayerScale {
///     gamma: Parameter,
/// }
///
/// impl LayerScale {
///     fn new(features: usize) -> LayerScale {
///         LayerScale { gamma: Parameter::new([features], init::constant(1e-6)) }
///     }
/// }
///
/// impl Forward<&TracedTensor> for LayerScale {
///     type Output = TracedTensor;
///
///     fn forward(&self, x: &TracedTensor) -> TracedTensor {
///         x * &self.gamma
///     }
/// }
/// ```
///
/// A clone is a parameter of its own with the same value, so that a clone of a module is an independent module, as
/// `copy.deepcopy` makes it in PyTorch. [`share`](Parameter::share) makes a second handle of one parameter; so does an
/// `Arc` of a module.
pub struct Parameter(TracedTensor);

/// A buffer of a module, as `torch.nn.Buffer`: a part of the state that training does not change as it changes parameters,
/// such as running statistics. [`store`](TracedTensor::store) and operators in place write to it, and the value outlives
/// the call.
///
/// ```
/// use onionskin::trace::{Buffer, init};
///
/// let count = Buffer::new([], init::zeros());
/// count.add_(1.0);
/// assert_eq!(count.to_vec::<f32>().unwrap(), [1.0]);
/// ```
///
/// A clone is a buffer of its own with the same value; [`share`](Buffer::share) makes a second handle of one buffer.
pub struct Buffer(TracedTensor);

/// Implements the common methods and traits of parameters and buffers.
macro_rules! stored {
    ($($name:ident $visit:ident $noun:literal;)*) => {$(
        impl $name {
            #[doc = concat!("A ", $noun, " of `f32` with initial values.")]
            ///
            /// It holds an error if the distribution does not fit the shape.
            #[track_caller]
            pub fn new(shape: impl AsRef<[usize]>, init: Init) -> $name {
                let (value, place) = (init.draw(shape.as_ref()), call_site::caller());
                $name::of_value(value.map_err(|error| error.at_place(&place)))
            }

            fn of_value(value: Result<Tensor>) -> $name {
                $name(TracedTensor::new(value, TracedOrigin::Parameter))
            }

            #[doc = concat!("The ", $noun, "'s value converted to an element type; see [`TracedTensor::to`].")]
            #[must_use]
            #[track_caller]
            pub fn to(&self, dtype: impl Into<Arg>) -> TracedTensor {
                self.0.to(dtype)
            }

            #[doc = concat!("Another handle of this ", $noun, ", which is stored once.")]
            #[must_use]
            pub fn share(&self) -> $name {
                $name(self.0.clone())
            }
        }

        #[doc = concat!("A ", $noun, " with a copy of the value.")]
        impl Clone for $name {
            fn clone(&self) -> $name {
                $name::of_value(self.0.value())
            }
        }

        impl Deref for $name {
            type Target = TracedTensor;

            fn deref(&self) -> &TracedTensor {
                &self.0
            }
        }

        impl Borrow<TracedTensor> for $name {
            fn borrow(&self) -> &TracedTensor {
                &self.0
            }
        }

        impl Borrow<TracedTensor> for &$name {
            fn borrow(&self) -> &TracedTensor {
                &self.0
            }
        }

        impl From<Tensor> for $name {
            fn from(value: Tensor) -> $name {
                $name::of_value(Ok(value))
            }
        }

        #[doc = concat!("A ", $noun, " with a copy of a tensor's value.")]
        impl From<TracedTensor> for $name {
            fn from(tensor: TracedTensor) -> $name {
                $name::of_value(tensor.value())
            }
        }

        impl From<&$name> for Arg {
            fn from(tensor: &$name) -> Arg {
                Arg::from(&tensor.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.$visit(&self.0);
            }
        }
    )*};
}

stored! {
    Parameter parameter "parameter";
    Buffer buffer "buffer";
}

impl Parameter {
    /// A tensor in the place of a parameter, for a module whose weight is computed.
    pub(in crate::trace) fn computed(tensor: TracedTensor) -> Parameter {
        Parameter(tensor)
    }
}
