use crate::error::Result;
use crate::shape::TensorType;

use super::builder::Builder;
use super::graph::Argument;

/// The interface by which the IR queries the operator dictionary, which depends on the IR ([`crate::aten`]).
pub trait Dictionary {
    /// The parameters of an operator in the order of a call's arguments; `None` if there is no such operator.
    fn parameters(&self, name: &str) -> Option<Vec<CallParameter<'_>>>;

    /// Result types of a call whose arguments are values of `builder`.
    fn infer(
        &self,
        name: &str,
        builder: &Builder,
        arguments: &[Argument],
    ) -> Result<Vec<TensorType>>;
}

/// A parameter, as the text and JSON forms of a call need it.
#[derive(Clone, Copy, Debug)]
pub struct CallParameter<'a> {
    /// Name of the parameter.
    pub name: &'a str,
    /// Default of an absent argument; `None` if the argument is required.
    pub default: Option<&'a Argument>,
    /// Written form of its argument.
    pub style: ArgumentStyle,
}

/// The written form of an argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentStyle {
    /// By position: tensors and lists of tensors.
    Positional,
    /// `name=value`
    Named,
    /// `name=f32`: an element type, which a call stores as PyTorch's integer code.
    DType,
}
