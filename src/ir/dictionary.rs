use crate::error::Result;
use crate::shape::TensorType;

use super::builder::Builder;
use super::graph::Argument;

/// What the IR asks of the dictionary of operators, which stands above it ([`crate::aten`]).
pub trait Dictionary {
    /// The parameters of an operator in the order of a call's arguments; `None` if there is no such operator.
    fn parameters(&self, name: &str) -> Option<Vec<Parameter<'_>>>;

    /// Result types of a call whose arguments are values of `builder`.
    fn infer(
        &self,
        name: &str,
        builder: &Builder,
        arguments: &[Argument],
    ) -> Result<Vec<TensorType>>;
}

/// A parameter as the written forms of a call need it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Its name.
    pub name: &'a str,
    /// What an absent argument is; `None` if it must be given.
    pub default: Option<&'a Argument>,
    /// How its argument is written.
    pub style: Style,
}

/// How an argument of a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Without its name: tensors and lists of tensors.
    Positional,
    /// `name=value`
    Named,
    /// `name=f32`: an element type, of which a call holds PyTorch's integer code.
    DType,
}
