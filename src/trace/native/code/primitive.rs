//! Source for primitives with a PyTorch operator. Importers add them among calls.

use crate::aten;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Argument, Node};
use crate::op::{BinaryFunction, Iota, Primitive, Slice};
use crate::trace::native::methods::{Binding, bindings};

use super::SourceWriter;
use super::literal::{dtype, operand_source, sizes_source};

/// The sizes in the source of a primitive: its shape, or start and length.
pub(super) fn source_sizes(primitive: &Primitive) -> Vec<Dim> {
    match primitive {
        Primitive::Full(full) => full.shape.clone(),
        Primitive::Iota(iota) => iota.shape.clone(),
        Primitive::Reshape(reshape) => reshape.shape.clone(),
        Primitive::Expand(expand) => expand.shape.clone(),
        Primitive::Slice(slice) => vec![slice.start.clone(), slice.length.clone()],
        _ => Vec::new(),
    }
}

impl SourceWriter<'_> {
    /// A primitive as a call of the equivalent operator.
    pub(super) fn primitive(&self, primitive: &Primitive, node: &Node) -> Result<String> {
        let operand = |index: usize| node.arguments.get(index).unwrap_or(&Argument::None);
        let x = operand(0);
        let shape = sizes_source(&source_sizes(primitive));
        Ok(match primitive {
            Primitive::Full(full) => {
                let (value, dtype) = (operand_source(x), dtype(full.dtype));
                format!("ops::full_with({shape}, {value}, kw!(dtype = {dtype}))")
            }
            Primitive::Iota(iota) => iota_source(iota)?,
            Primitive::Slice(slice) => format!("{}.{}", self.receiver(x)?, slice_call(slice)?),
            Primitive::Reshape(_) => format!("{}.reshape({shape})", self.receiver(x)?),
            Primitive::Expand(_) => format!("{}.expand({shape})", self.receiver(x)?),
            Primitive::Permute(permute) => {
                format!("{}.permute({:?})", self.receiver(x)?, permute.axes)
            }
            Primitive::Cast(cast) => format!("{}.to({})", self.receiver(x)?, dtype(cast.dtype)),
            Primitive::Select(_) => {
                let (a, b) = (self.operand(operand(1))?, self.operand(operand(2))?);
                format!("{}.where_({a}, {b})", self.receiver(x)?)
            }
            Primitive::Unary(unary) => {
                let method = method(unary.function.name(), 0)?;
                format!("{}.{}()", self.receiver(x)?, method.name)
            }
            Primitive::Binary(binary) => self.binary(binary.function, x, operand(1))?,
            _ => return Err(no_operator()),
        })
    }

    /// A binary primitive as a method call. A number becomes a tensor if it is the left operand or the method takes
    /// tensors only.
    fn binary(&self, function: BinaryFunction, x: &Argument, y: &Argument) -> Result<String> {
        let method = method(function.name(), 1)?;
        let right = match y {
            Argument::Value(_) => self.operand(y)?,
            number if takes_number(method) => self.operand(number)?,
            number => format!("&{}", self.scalar_tensor(number, x)?),
        };
        let left = match x {
            Argument::Value(_) => self.receiver(x)?,
            number => self.scalar_tensor(number, y)?,
        };
        Ok(format!("{left}.{}({right})", method.name))
    }

    /// The receiver of a method call.
    fn receiver(&self, argument: &Argument) -> Result<String> {
        match argument {
            Argument::Value(id) => Ok(self.tensor_expr(*id)?.text),
            _ => Err(no_operator()),
        }
    }

    /// An operand in an argument position: a reference to a tensor, or a number.
    fn operand(&self, argument: &Argument) -> Result<String> {
        match argument {
            Argument::Value(id) => self.borrowed(*id),
            other => Ok(operand_source(other)),
        }
    }

    /// A number as a tensor with the element type of the operand `like`.
    fn scalar_tensor(&self, value: &Argument, like: &Argument) -> Result<String> {
        let Argument::Value(id) = like else {
            return Err(no_operator());
        };
        let (value, dtype) = (operand_source(value), dtype(self.graph.ty(*id).dtype));
        Ok(format!(
            "ops::scalar_tensor_with({value}, kw!(dtype = {dtype}))"
        ))
    }
}

/// Source for consecutive numbers along one axis, broadcast along the others.
fn iota_source(iota: &Iota) -> Result<String> {
    let size = iota.shape.get(iota.axis).ok_or_else(no_operator)?;
    let mut unbroadcast_shape = vec![Dim::ONE; iota.shape.len()];
    if let Some(axis_size) = unbroadcast_shape.get_mut(iota.axis) {
        *axis_size = size.clone();
    }
    let numbers = format!(
        "ops::arange_with({}, kw!(dtype = {}))",
        size.rust_expression(),
        dtype(iota.dtype)
    );
    Ok(match iota.shape.len() {
        1 => numbers,
        _ => format!(
            "{numbers}.reshape({}).expand({})",
            sizes_source(&unbroadcast_shape),
            sizes_source(&iota.shape)
        ),
    })
}

/// Method call for a slice with a positive step.
fn slice_call(slice: &Slice) -> Result<String> {
    let (axis, start, length) = (
        slice.axis,
        slice.start.rust_expression(),
        slice.length.rust_expression(),
    );
    match slice.step {
        1 => Ok(format!("narrow({axis}, {start}, {length})")),
        step @ 2.. => {
            let end = (&slice.start + &(&slice.length * &Dim::from(step))).rust_expression();
            let named = format!("dim = {axis}, start = {start}, end = {end}, step = {step}");
            Ok(format!("slice_with(kw!({named}))"))
        }
        _ => Err(no_operator()),
    }
}

/// The error for a primitive without an equivalent operator.
fn no_operator() -> Error {
    let error = Error::unsupported("this step has no PyTorch operator");
    error.help("call `code` on the graph before it goes through passes")
}

/// The method of this name; an error unless it takes this number of required arguments.
fn method(name: &str, required: usize) -> Result<&'static Binding> {
    let is_method = |binding: &&Binding| binding.on_tensor && binding.name == name;
    let method = bindings().iter().find(is_method).ok_or_else(no_operator)?;
    match required == method.required {
        true => Ok(method),
        false => Err(no_operator()),
    }
}

/// True if the second operand of a method may be a number.
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
