//! Arguments of operator calls in Rust programs.

use crate::aten::ArgumentType;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Argument, ValueId};
use crate::scalar::Scalar;

use super::size::Size;
use super::tensor::TracedTensor;

/// An argument of an operator. Every Rust value that corresponds to an argument in PyTorch converts into it.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A tensor.
    Tensor(TracedTensor),
    /// A number.
    Number(Scalar),
    /// A size, possibly symbolic.
    Size(Size),
    /// An element type.
    DType(DType),
    /// A string: `"mean"`.
    Str(String),
    /// A list.
    List(Vec<Arg>),
    /// PyTorch's `None`.
    None,
}

impl Arg {
    /// A list of the sizes of a shape in the active trace.
    ///
    /// # Errors
    /// A size has symbols that the active trace does not have.
    pub(super) fn of_shape(shape: &[Dim]) -> Result<Arg> {
        let sizes = shape.iter().map(|size| Size::of_shape(size).map(Arg::Size));
        Ok(Arg::List(sizes.collect::<Result<_>>()?))
    }

    /// Converts to a graph argument. A tensor is appended to `tensors`, unless it is there, and becomes a value with its
    /// index.
    ///
    /// # Errors
    /// A size belongs to another trace, or there is no such size.
    pub(super) fn to_graph_argument(&self, tensors: &mut Vec<TracedTensor>) -> Result<Argument> {
        Ok(match self {
            Arg::Tensor(tensor) => {
                let known = tensors.iter().position(|known| known.is(tensor));
                let index = known.unwrap_or_else(|| {
                    tensors.push(tensor.clone());
                    tensors.len() - 1
                });
                Argument::Value(ValueId(u32::try_from(index).unwrap_or(u32::MAX)))
            }
            Arg::Number(number) => Argument::Number(*number),
            Arg::Size(size) => size.expression()?.into(),
            Arg::DType(dtype) => Argument::Number(Scalar::Int(dtype.torch_code())),
            Arg::Str(text) => Argument::Str(text.clone()),
            Arg::List(items) => {
                let items = items.iter().map(|item| item.to_graph_argument(tensors));
                Argument::List(items.collect::<Result<_>>()?)
            }
            Arg::None => Argument::None,
        })
    }
}

impl From<&TracedTensor> for Arg {
    fn from(tensor: &TracedTensor) -> Arg {
        Arg::Tensor(tensor.clone())
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Arg {
        Arg::Str(text.to_string())
    }
}

impl<T: Into<Arg>> From<Option<T>> for Arg {
    fn from(argument: Option<T>) -> Arg {
        argument.map_or(Arg::None, Into::into)
    }
}

impl<T: Into<Arg>> From<Vec<T>> for Arg {
    fn from(items: Vec<T>) -> Arg {
        Arg::List(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Clone + Into<Arg>> From<&[T]> for Arg {
    fn from(items: &[T]) -> Arg {
        Arg::List(items.iter().cloned().map(Into::into).collect())
    }
}

impl<T: Clone + Into<Arg>> From<&Vec<T>> for Arg {
    fn from(items: &Vec<T>) -> Arg {
        items.as_slice().into()
    }
}

impl<T: Clone + Into<Arg>, const N: usize> From<&[T; N]> for Arg {
    fn from(items: &[T; N]) -> Arg {
        items.as_slice().into()
    }
}

impl<T: Into<Arg>, const N: usize> From<[T; N]> for Arg {
    fn from(items: [T; N]) -> Arg {
        Arg::List(items.into_iter().map(Into::into).collect())
    }
}

/// An argument of a call as a graph has it.
#[derive(Clone)]
pub(super) struct GivenArgument {
    /// The argument. An element type is its number.
    pub value: Argument,
    /// True for an element type, which no number stands for.
    pub is_dtype: bool,
}

impl GivenArgument {
    /// Converts an argument. See [`Arg::to_graph_argument`].
    pub fn new(argument: &Arg, tensors: &mut Vec<TracedTensor>) -> Result<GivenArgument> {
        Ok(GivenArgument {
            value: argument.to_graph_argument(tensors)?,
            is_dtype: matches!(argument, Arg::DType(_)),
        })
    }

    /// True if a parameter of this type takes the argument.
    pub fn fits(&self, ty: &ArgumentType) -> bool {
        let inner = match ty {
            ArgumentType::Optional(inner) if self.value != Argument::None => inner,
            ty => ty,
        };
        match inner {
            ArgumentType::Ignored => true,
            ArgumentType::DType => self.is_dtype,
            _ => !self.is_dtype && inner.accepts(&self.value),
        }
    }

    /// The argument as a list of one, if it is an integer: Python's `x.reshape(6)`.
    pub fn as_list(&self) -> GivenArgument {
        match ArgumentType::Int.accepts(&self.value) && !self.is_dtype {
            true => GivenArgument {
                value: Argument::List(vec![self.value.clone()]),
                is_dtype: false,
            },
            false => self.clone(),
        }
    }
}

macro_rules! arguments {
    ($($type:ty, $value:ident => $argument:expr;)*) => {$(
        impl From<$type> for Arg {
            fn from($value: $type) -> Arg {
                $argument
            }
        }
    )*};
}

arguments! {
    TracedTensor, tensor => Arg::Tensor(tensor);
    Scalar, number => Arg::Number(number);
    bool, value => Arg::Number(Scalar::Bool(value));
    i32, value => Arg::Number(Scalar::Int(i64::from(value)));
    i64, value => Arg::Number(Scalar::Int(value));
    usize, value => Size::from(value).into();
    f32, value => Arg::Number(Scalar::Float(f64::from(value)));
    f64, value => Arg::Number(Scalar::Float(value));
    Size, size => Arg::Size(size);
    &Size, size => Arg::Size(size.clone());
    DType, dtype => Arg::DType(dtype);
    String, text => Arg::Str(text);
}

/// Tuples are lists whose items may have different types: `x.view((x.dim(0), 4, -1))`.
macro_rules! tuples {
    ($($($name:ident $index:tt),*;)*) => {$(
        impl<$($name: Into<Arg>),*> From<($($name,)*)> for Arg {
            fn from(items: ($($name,)*)) -> Arg {
                Arg::List(vec![$(items.$index.into()),*])
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}
