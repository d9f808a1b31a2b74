//! Primitives for which PyTorch has an operator, which importers write among calls.

use crate::aten;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Argument, Node};
use crate::op::{BinaryFunction, Primitive};
use crate::trace::native::methods::{Binding, bindings};

use super::Writer;
use super::literal::{dtype, number, sizes};

/// The sizes in a primitive that is written.
pub(super) fn shape(primitive: &Primitive) -> &[Dim] {
    match primitive {
        Primitive::Full(full) => &full.shape,
        Primitive::Reshape(reshape) => &reshape.shape,
        Primitive::Expand(expand) => &expand.shape,
        _ => &[],
    }
}

impl Writer<'_> {
    /// A primitive as a call of the operator that computes the same.
    pub(super) fn primitive(&self, primitive: &Primitive, node: &Node) -> Result<String> {
        let operand = |index: usize| {
            let argument = node.arguments.get(index);
            argument.ok_or_else(|| Error::internal("a primitive without operands"))
        };
        let x = operand(0)?;
        let shape = sizes(shape(primitive));
        Ok(match primitive {
            Primitive::Full(full) => {
                let (value, dtype) = (number(x), dtype(full.dtype));
                format!("ops::full_with({shape}, {value}, kw!(dtype = {dtype}))")
            }
            Primitive::Reshape(_) => format!("{}.reshape({shape})", self.text(x)?),
            Primitive::Expand(_) => format!("{}.expand({shape})", self.text(x)?),
            Primitive::Permute(permute) => {
                format!("{}.permute({:?})", self.text(x)?, permute.axes)
            }
            Primitive::Cast(cast) => format!("{}.to({})", self.text(x)?, dtype(cast.dtype)),
            Primitive::Select(_) => {
                let (a, b) = (self.operand(operand(1)?)?, self.operand(operand(2)?)?);
                format!("{}.where_({a}, {b})", self.text(x)?)
            }
            Primitive::Unary(unary) => {
                let method = method(unary.function.name(), 0)?;
                format!("{}.{}()", self.text(x)?, method.name)
            }
            Primitive::Binary(binary) => self.binary(binary.function, x, operand(1)?)?,
            _ => return Err(nameless()),
        })
    }

    fn binary(&self, function: BinaryFunction, x: &Argument, y: &Argument) -> Result<String> {
        let method = method(function.name(), 1)?;
        let right = match y {
            Argument::Value(_) => self.operand(y)?,
            number if takes_number(method) => self.operand(number)?,
            number => format!("&{}", self.filled(number, x)?),
        };
        let left = match x {
            Argument::Value(_) => self.text(x)?,
            number => self.filled(number, y)?,
        };
        Ok(format!("{left}.{}({right})", method.name))
    }

    /// The tensor that a method is called on.
    fn text(&self, argument: &Argument) -> Result<String> {
        match argument {
            Argument::Value(id) => Ok(self.place(*id)?.text),
            _ => Err(nameless()),
        }
    }

    fn operand(&self, argument: &Argument) -> Result<String> {
        match argument {
            Argument::Value(id) => self.borrowed(*id),
            other => Ok(number(other)),
        }
    }

    /// A number as a tensor of another operand's type.
    fn filled(&self, value: &Argument, like: &Argument) -> Result<String> {
        let Argument::Value(id) = like else {
            return Err(nameless());
        };
        let (value, dtype) = (number(value), dtype(self.graph.ty(*id).dtype));
        Ok(format!(
            "ops::scalar_tensor_with({value}, kw!(dtype = {dtype}))"
        ))
    }
}

fn nameless() -> Error {
    let error = Error::unsupported("no operator of PyTorch stands for this step");
    error.help("write the code of a graph before passes")
}

fn method(name: &str, required: usize) -> Result<&'static Binding> {
    let fits = |binding: &&Binding| binding.on_tensor && binding.name == name;
    let found = bindings().iter().find(fits).ok_or_else(nameless)?;
    match required == found.required {
        true => Ok(found),
        false => Err(nameless()),
    }
}

fn takes_number(binding: &Binding) -> bool {
    let number = Argument::Number(crate::scalar::Scalar::Float(0.0));
    let mut operators = binding
        .operators
        .iter()
        .filter_map(|name| aten::operator(name).ok());
    operators.any(|operator| {
        let second = operator.schema.parameters.get(1);
        second.is_some_and(|parameter| parameter.ty.accepts(&number))
    })
}
