//! Handles for values of a graph under construction, with methods that read like PyTorch's tensors.
//!
//! The methods add broadcasting, type promotion and casts, which primitives require to be explicit.

#![deny(
    clippy::indexing_slicing,
    reason = "behind an operator that failed a value has no dimensions: a method must not rely on those that it expects"
)]

mod check;
mod contraction;
mod index;
mod pointwise;
mod reduce;
mod shape;

pub(crate) use pointwise::result_type;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::shape::{Shape, TensorType, wrap_dim};

use super::builder::Builder;
use super::graph::{Argument, ValueId};

/// A value of a graph that is being built.
#[derive(Clone, Copy)]
pub struct Value<'g> {
    builder: &'g Builder,
    id: ValueId,
}

/// An operand of arithmetic: a value, a number or a symbolic size.
#[derive(Clone, Debug)]
pub enum ArithmeticOperand<'g> {
    /// A tensor.
    Value(Value<'g>),
    /// A number written in place.
    Scalar(Scalar),
    /// A symbolic size, an `int` in type promotion.
    Size(Dim),
}

impl<'g> Value<'g> {
    pub(super) fn new(builder: &'g Builder, id: ValueId) -> Value<'g> {
        Value { builder, id }
    }

    /// The builder of the graph.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// The value's index in its graph.
    pub fn id(self) -> ValueId {
        self.id
    }

    /// Element type and shape.
    pub fn ty(self) -> TensorType {
        self.builder.ty(self.id)
    }

    /// Element type.
    pub fn dtype(self) -> DType {
        self.ty().dtype
    }

    /// Sizes.
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// Number of dimensions.
    pub fn rank(self) -> usize {
        self.ty().rank()
    }

    /// Number of elements.
    pub fn numel(self) -> Dim {
        self.ty().numel()
    }

    /// The size of a dimension, counted from the end if negative. The builder remembers an error if it is out of range.
    pub fn size(self, dim: i64) -> Dim {
        let shape = self.shape();
        self.axis(dim)
            .and_then(|axis| shape.get(axis).cloned())
            .unwrap_or(Dim::ONE)
    }

    /// All sizes of a value, which must have exactly `N` dimensions.
    pub fn sizes<const N: usize>(self) -> Result<[Dim; N]> {
        let ty = self.ty();
        self.builder.check()?;
        ty.shape
            .clone()
            .try_into()
            .map_err(|_| Error::operator(format!("expected {N} dimensions, found {ty}")))
    }

    /// Converts a dimension to an axis. The builder remembers an error if it is out of range.
    pub fn axis(self, dim: i64) -> Option<usize> {
        match wrap_dim(dim, self.rank()) {
            Ok(axis) => Some(axis),
            Err(error) => {
                self.builder.fail(error);
                None
            }
        }
    }

    fn unary(self, primitive: impl Into<crate::op::Primitive>) -> Value<'g> {
        self.builder.apply(primitive, vec![self.into()])
    }

    fn failed(self, error: Error) -> Value<'g> {
        self.builder.fail(error);
        self.builder.poison()
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}: {}", self.id.0, self.ty())
    }
}

impl From<Value<'_>> for Argument {
    fn from(value: Value<'_>) -> Argument {
        Argument::Value(value.id)
    }
}

impl From<ArithmeticOperand<'_>> for Argument {
    fn from(number: ArithmeticOperand<'_>) -> Argument {
        match number {
            ArithmeticOperand::Value(value) => value.into(),
            ArithmeticOperand::Scalar(scalar) => scalar.into(),
            ArithmeticOperand::Size(dim) => dim.into(),
        }
    }
}

impl<'g> From<Value<'g>> for ArithmeticOperand<'g> {
    fn from(value: Value<'g>) -> ArithmeticOperand<'g> {
        ArithmeticOperand::Value(value)
    }
}

impl From<Scalar> for ArithmeticOperand<'_> {
    fn from(scalar: Scalar) -> Self {
        ArithmeticOperand::Scalar(scalar)
    }
}

impl From<f64> for ArithmeticOperand<'_> {
    fn from(number: f64) -> Self {
        ArithmeticOperand::Scalar(Scalar::Float(number))
    }
}

impl From<i64> for ArithmeticOperand<'_> {
    fn from(number: i64) -> Self {
        ArithmeticOperand::Scalar(Scalar::Int(number))
    }
}

impl From<bool> for ArithmeticOperand<'_> {
    fn from(number: bool) -> Self {
        ArithmeticOperand::Scalar(Scalar::Bool(number))
    }
}

impl From<Dim> for ArithmeticOperand<'_> {
    fn from(dim: Dim) -> Self {
        dim.as_const()
            .map_or(ArithmeticOperand::Size(dim), |number| {
                ArithmeticOperand::Scalar(Scalar::Int(number))
            })
    }
}

impl From<&Dim> for ArithmeticOperand<'_> {
    fn from(dim: &Dim) -> Self {
        dim.clone().into()
    }
}
