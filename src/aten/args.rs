//! Typed access to the arguments of an operator's call.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, ArithmeticOperand, Builder, Value};
use crate::scalar::Scalar;
use crate::shape::Shape;

use super::Operator;

/// The arguments of a call, read by the parameter names of the schema. An absent argument has its default.
///
/// Reading an argument as a type that the schema does not declare is a bug in the operator's row. The builder remembers
/// the error like any other, so bodies need not handle it.
pub struct Args<'g> {
    builder: &'g Builder,
    operator: &'static Operator,
    arguments: Vec<Argument>,
}

impl<'g> Args<'g> {
    /// Arguments in schema order; missing ones at the end are defaults.
    pub fn new(
        builder: &'g Builder,
        operator: &'static Operator,
        arguments: &[Argument],
    ) -> Args<'g> {
        Args {
            builder,
            operator,
            arguments: arguments.to_vec(),
        }
    }

    /// The graph that the body is written into.
    pub fn builder(&self) -> &'g Builder {
        self.builder
    }

    /// The overload that was called: `Tensor`, `Scalar`, or empty.
    pub fn overload(&self) -> &str {
        &self.operator.schema.overload
    }

    /// Whether the called overload has the parameter.
    pub fn has(&self, name: &str) -> bool {
        self.operator.schema.position(name).is_some()
    }

    /// True if the argument is absent, `None`, or no parameter of the called overload.
    pub fn is_none(&self, name: &str) -> bool {
        !self.has(name) || matches!(self.get(name), Argument::None)
    }

    /// Fails with an error for a value that the operator does not support.
    pub fn reject<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::unsupported(message))
    }

    /// The argument without conversion; `None` if the overload lacks it.
    pub fn get(&self, name: &str) -> Argument {
        let Some(position) = self.operator.schema.position(name) else {
            return Argument::None;
        };
        let argument = self.arguments.get(position).cloned();
        argument
            .or_else(|| {
                self.operator
                    .schema
                    .parameters
                    .get(position)?
                    .default
                    .clone()
            })
            .unwrap_or(Argument::None)
    }

    /// Reports an argument that is not of the `wanted` type to the builder, and returns `fallback` for the body to go
    /// on with.
    fn type_error<T>(&self, name: &str, wanted: &str, fallback: T) -> T {
        self.builder.fail(Error::operator(format!(
            "argument {name} is {:?}, not {wanted}",
            self.get(name)
        )));
        fallback
    }

    /// A tensor. A number becomes a scalar tensor.
    pub fn tensor(&self, name: &str) -> Value<'g> {
        match self.get(name) {
            Argument::Value(id) => self.builder.value(id),
            Argument::Number(scalar) => self.builder.full(scalar.dtype(), Shape::new(), scalar),
            Argument::Size(dim) => self.builder.full(DType::I64, Shape::new(), dim),
            _ => self.type_error(
                name,
                "a tensor",
                self.builder.full(DType::F32, Shape::new(), 0.0),
            ),
        }
    }

    /// A tensor, unless it is absent.
    pub fn optional_tensor(&self, name: &str) -> Option<Value<'g>> {
        (!self.is_none(name)).then(|| self.tensor(name))
    }

    /// A list of tensors.
    pub fn tensors(&self, name: &str) -> Vec<Value<'g>> {
        self.optional_tensors(name).into_iter().flatten().collect()
    }

    /// A list of tensors, some of which may be absent.
    pub fn optional_tensors(&self, name: &str) -> Vec<Option<Value<'g>>> {
        let Argument::List(items) = self.get(name) else {
            return self.type_error(name, "a list of tensors", Vec::new());
        };
        items
            .into_iter()
            .map(|item| match item {
                Argument::Value(id) => Some(self.builder.value(id)),
                _ => None,
            })
            .collect()
    }

    /// A tensor or a number, as an operand of arithmetic.
    pub fn number(&self, name: &str) -> ArithmeticOperand<'g> {
        match self.get(name) {
            Argument::Value(id) => self.builder.value(id).into(),
            Argument::Number(scalar) => scalar.into(),
            Argument::Size(dim) => dim.into(),
            _ => self.type_error(name, "a number", Scalar::Int(0).into()),
        }
    }

    /// A tensor or a number, unless it is absent.
    pub fn optional_number(&self, name: &str) -> Option<ArithmeticOperand<'g>> {
        (!self.is_none(name)).then(|| self.number(name))
    }

    /// A number, possibly the element of a tensor, converted to a dtype.
    pub fn number_as(&self, name: &str, dtype: DType) -> ArithmeticOperand<'g> {
        match self.number(name) {
            ArithmeticOperand::Value(value) => value.reshape(Shape::new()).to(dtype).into(),
            ArithmeticOperand::Scalar(scalar) => scalar.cast(dtype).into(),
            size => size,
        }
    }

    /// True for a number that is known and equal to `wanted`.
    pub fn is_number(&self, name: &str, wanted: f64) -> bool {
        matches!(self.get(name), Argument::Number(scalar) if scalar.to_f64() == wanted)
    }

    /// A number that must be known when the graph is made; a symbolic size is specialised to its example.
    pub fn scalar(&self, name: &str) -> Scalar {
        match self.get(name) {
            Argument::Number(scalar) => scalar,
            Argument::Size(dim) => Scalar::Int(self.specialize(&dim)),
            Argument::Value(_) => {
                let message = format!("the number {name} depends on tensors");
                let help = "it must be known before the graph runs: pass a number, or compute it from tensor sizes";
                self.builder.fail(Error::unsupported(message).help(help));
                Scalar::Int(0)
            }
            _ => self.type_error(name, "a number", Scalar::Int(0)),
        }
    }

    /// A number that must be known, unless it is absent.
    pub fn optional_scalar(&self, name: &str) -> Option<Scalar> {
        (!self.is_none(name)).then(|| self.scalar(name))
    }

    /// An `int` that must be known when the graph is made, such as a dimension.
    pub fn int(&self, name: &str) -> i64 {
        self.scalar(name).to_i64()
    }

    /// An `int` that must be known, unless it is absent.
    pub fn optional_int(&self, name: &str) -> Option<i64> {
        self.optional_scalar(name).map(Scalar::to_i64)
    }

    /// A list of `int`s that must be known. A single number becomes a list of one; an absent list is empty.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        self.sizes(name)
            .iter()
            .map(|dim| self.specialize(dim))
            .collect()
    }

    /// A list of `int`s, unless it is absent.
    pub fn optional_ints(&self, name: &str) -> Option<Vec<i64>> {
        (!self.is_none(name)).then(|| self.ints(name))
    }

    /// `N` `int`s; a single one is repeated. An empty list is `None`.
    pub fn int_array<const N: usize>(&self, name: &str) -> Option<[i64; N]> {
        match self.ints(name).as_slice() {
            [] => None,
            [single] => Some([*single; N]),
            several => Some(
                several
                    .try_into()
                    .unwrap_or_else(|_| self.type_error(name, &format!("{N} ints"), [1; N])),
            ),
        }
    }

    /// A size, possibly symbolic.
    pub fn size(&self, name: &str) -> Dim {
        self.sizes(name).first().cloned().unwrap_or(Dim::ZERO)
    }

    /// A size, unless it is absent.
    pub fn optional_size(&self, name: &str) -> Option<Dim> {
        (!self.is_none(name)).then(|| self.size(name))
    }

    /// A list of sizes, possibly symbolic. A single size becomes a list of one; an absent list is empty.
    pub fn sizes(&self, name: &str) -> Vec<Dim> {
        let size = |argument: &Argument| match argument {
            Argument::Number(scalar) => Dim::from(scalar.to_i64()),
            Argument::Size(dim) => dim.clone(),
            _ => self.type_error(name, "sizes", Dim::ZERO),
        };
        match self.get(name) {
            Argument::None => Vec::new(),
            Argument::List(items) => items.iter().map(size).collect(),
            single => vec![size(&single)],
        }
    }

    /// A `float`.
    pub fn float(&self, name: &str) -> f64 {
        self.scalar(name).to_f64()
    }

    /// A `float`, unless it is absent.
    pub fn optional_float(&self, name: &str) -> Option<f64> {
        self.optional_scalar(name).map(Scalar::to_f64)
    }

    /// A list of `float`s; absent is `None`.
    pub fn optional_floats(&self, name: &str) -> Option<Vec<f64>> {
        match self.get(name) {
            Argument::List(items) => Some(
                items
                    .iter()
                    .map(|item| match item {
                        Argument::Number(scalar) => scalar.to_f64(),
                        _ => self.type_error(name, "numbers", 0.0),
                    })
                    .collect(),
            ),
            Argument::Number(scalar) => Some(vec![scalar.to_f64()]),
            _ => None,
        }
    }

    /// A `bool`; absent is false.
    pub fn bool(&self, name: &str) -> bool {
        !self.is_none(name) && self.scalar(name).to_f64() != 0.0
    }

    /// A string; absent is empty.
    pub fn str(&self, name: &str) -> String {
        match self.get(name) {
            Argument::Str(text) => text,
            Argument::None => String::new(),
            _ => self.type_error(name, "a string", String::new()),
        }
    }

    /// A dtype, unless it is absent.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        let code = self.optional_int(name)?;
        DType::from_torch_code(code)
            .map_err(|error| self.builder.fail(error))
            .ok()
    }

    /// The example's value of a size, whose symbols are fixed to their example values.
    fn specialize(&self, dim: &Dim) -> i64 {
        self.builder
            .symbols()
            .specialize(dim)
            .unwrap_or_else(|error| {
                self.builder.fail(error);
                0
            })
    }
}
