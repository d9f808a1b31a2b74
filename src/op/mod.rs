//! The closed language: some twenty primitives, each in its own file.
//!
//! A primitive defines its result type ([`Primitive::infer`], the only shape and dtype rule, symbolic sizes included), its
//! result on the host ([`Primitive::eval`], the oracle), and its implementation on a device (a view, a pointwise expression,
//! or a kernel). Everything else, PyTorch's operators included, is written in terms of primitives.
//!
//! Operands of pointwise primitives have equal shapes: broadcasting is an explicit [`Expand`], promotion an explicit
//! [`Cast`]. The builder's methods ([`crate::ir::Value`]) insert both.

use serde::{Deserialize, Serialize};

use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

mod bessel;
mod binary;
mod cast;
mod check;
mod concat;
mod conv;
mod custom;
mod derivative;
mod dot;
mod expand;
mod full;
mod gather;
mod iota;
mod optimization_barrier;
mod pad;
mod permute;
mod polynomial;
mod recurrent;
mod reduce;
mod reshape;
mod scan;
mod scatter;
mod select;
mod slice;
mod sort;
mod special;
mod strided;
mod table;
mod unary;
mod unfold;
mod workspace;

pub use binary::{Binary, BinaryFunction};
pub use cast::Cast;
pub use check::{Check, Requirement};
pub use concat::Concat;
pub use conv::{Conv, ConvAxis};
pub use custom::{Custom, Shader, register};
pub(crate) use custom::{CustomRules, register_rules, rules_of};
pub use derivative::Derivative;
pub use dot::Dot;
pub use expand::Expand;
pub use full::Full;
pub use gather::Gather;
pub use iota::Iota;
pub use optimization_barrier::OptimizationBarrier;
pub use pad::Pad;
pub use permute::Permute;
pub use recurrent::{Recurrent, RecurrentCell};
pub use reduce::{ArgReduce, ArgReduceFunction, Reduce, ReduceFunction};
pub use reshape::Reshape;
pub use scan::{Scan, ScanFunction};
pub use scatter::{Scatter, ScatterFunction};
pub use select::Select;
pub use slice::Slice;
pub use sort::Sort;
pub use unary::{Unary, UnaryFunction};
pub use unfold::Unfold;
pub(crate) use workspace::HostType;

/// An operand, as the shape rule sees it.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A value of this type.
    Value(&'a TensorType),
    /// A number written in place.
    Number(Scalar),
    /// A symbolic size.
    Size(&'a Dim),
}

impl<'a> Operand<'a> {
    fn value(self) -> Option<&'a TensorType> {
        match self {
            Operand::Value(tensor_type) => Some(tensor_type),
            _ => None,
        }
    }
}

/// The rules of one primitive.
trait Rules {
    /// Infers the result types; an error says which operands do not match.
    fn infer(&self, symbols: &Symbols, operands: &[Operand]) -> Result<Vec<TensorType>>;

    /// Computes the results on the host. Numbers and sizes arrive as scalars of the dtype that the operator computes in.
    fn eval(&self, operands: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>>;

    /// True if the result of [`Rules::eval`] is the first operand in memory.
    fn shares_operand(&self) -> bool {
        false
    }

    /// Bytes that [`Rules::eval`] takes besides operands and results, at most. Most primitives compute in numbers of 64 bits.
    fn workspace(&self, operands: &[HostType], results: &[HostType]) -> u64 {
        workspace::numbers(operands.iter().chain(results))
    }
}

/// Declares the primitives: the enum, its names, and dispatch to the rules of each.
macro_rules! primitives {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A primitive with its attributes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "op")]
        pub enum Primitive {
            $(
                #[doc = concat!("See [`", stringify!($variant), "`].")]
                #[serde(rename = $name)]
                $variant($variant),
            )*
        }

        impl Primitive {
            /// Names of the primitives, in the order of their declaration.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            fn kind(&self) -> &'static str {
                match self { $(Primitive::$variant(_) => $name,)* }
            }

            fn rules(&self) -> &dyn Rules {
                match self { $(Primitive::$variant(primitive) => primitive,)* }
            }
        }

        $(
            impl From<$variant> for Primitive {
                fn from(primitive: $variant) -> Primitive { Primitive::$variant(primitive) }
            }
        )*
    };
}

primitives! {
    Full = "full",
    Iota = "iota",
    Reshape = "reshape",
    Permute = "permute",
    Expand = "expand",
    Slice = "slice",
    Pad = "pad",
    Concat = "concat",
    Unfold = "unfold",
    Unary = "unary",
    Binary = "binary",
    Select = "select",
    Cast = "cast",
    Check = "check",
    Reduce = "reduce",
    ArgReduce = "arg_reduce",
    Dot = "dot",
    Conv = "conv",
    Gather = "gather",
    Scatter = "scatter",
    Scan = "scan",
    Sort = "sort",
    Recurrent = "recurrent",
    OptimizationBarrier = "optimization_barrier",
    Custom = "custom",
}

impl Primitive {
    /// Name in the text form: the function's for pointwise primitives (`tanh`, `add`), else the primitive's.
    pub fn name(&self) -> &'static str {
        match self {
            Primitive::Unary(unary) => unary.function.name(),
            Primitive::Binary(binary) => binary.function.name(),
            _ => self.kind(),
        }
    }

    /// True for pointwise primitives and views that cannot fail for any operand value, if their results have `dtype`.
    pub fn is_infallible(&self, dtype: DType) -> bool {
        use BinaryFunction::{Div, FloorDivide, Fmod, Pow, Remainder, TruncDivide};
        match self {
            Primitive::Full(_)
            | Primitive::Iota(_)
            | Primitive::Reshape(_)
            | Primitive::Permute(_)
            | Primitive::Expand(_)
            | Primitive::Slice(_)
            | Primitive::Pad(_)
            | Primitive::Concat(_)
            | Primitive::Unary(_)
            | Primitive::Select(_)
            | Primitive::Cast(_)
            | Primitive::OptimizationBarrier(_) => true,
            // Integers cannot be divided by zero or raised to negative powers.
            Primitive::Binary(Binary {
                function: Div | FloorDivide | TruncDivide | Remainder | Fmod | Pow,
            }) => dtype.is_float(),
            Primitive::Binary(_) => true,
            _ => false,
        }
    }

    /// Infers the result types; an error says which operands do not match. `symbols` answers questions about symbolic sizes
    /// and records the answers.
    pub fn infer(&self, symbols: &Symbols, operands: &[Operand]) -> Result<Vec<TensorType>> {
        self.rules()
            .infer(symbols, operands)
            .map_err(|error| error.at(self.name()))
    }

    /// Replaces the sizes in the attributes.
    pub fn map_sizes(&mut self, map: &mut impl FnMut(&Dim) -> Dim) {
        let mut all = |dims: &mut Vec<Dim>| dims.iter_mut().for_each(|dim| *dim = map(dim));
        match self {
            Primitive::Full(Full { shape, .. }) | Primitive::Iota(Iota { shape, .. }) => all(shape),
            Primitive::Reshape(Reshape { shape }) | Primitive::Expand(Expand { shape }) => {
                all(shape)
            }
            Primitive::Pad(Pad { low, high }) => {
                all(low);
                all(high);
            }
            Primitive::Slice(Slice { start, length, .. }) => {
                *start = map(start);
                *length = map(length);
            }
            Primitive::Custom(custom) => custom.map_sizes(map),
            _ => {}
        }
    }

    /// Computes the results on the host, for operands that [`Primitive::infer`] accepts. Numbers and sizes arrive as
    /// scalars.
    pub fn eval(&self, operands: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        self.rules()
            .eval(operands, bindings)
            .map_err(|error| error.at(self.name()))
    }

    /// True if the result of [`Primitive::eval`] is the first operand in memory.
    pub(crate) fn shares_operand(&self) -> bool {
        self.rules().shares_operand()
    }

    /// Bytes that [`Primitive::eval`] takes besides operands and results, at most.
    pub(crate) fn workspace(&self, operands: &[HostType], results: &[HostType]) -> u64 {
        self.rules().workspace(operands, results)
    }
}

/// Requires exactly `N` operands.
fn operands<T, const N: usize>(found: &[T]) -> Result<&[T; N]> {
    found
        .try_into()
        .map_err(|_| Error::operator(format!("takes {N} operands, not {}", found.len())))
}

/// Requires exactly `N` operands, all of them values.
fn values<'a, const N: usize>(found: &[Operand<'a>]) -> Result<[&'a TensorType; N]> {
    let types: Option<Vec<&TensorType>> = found.iter().map(|operand| operand.value()).collect();
    let types = types.ok_or_else(|| Error::operator("takes values, not numbers"))?;
    types
        .try_into()
        .map_err(|_| Error::operator(format!("takes {N} operands, not {}", found.len())))
}

/// Requires an axis within the rank.
fn check_axis(axis: usize, rank: usize) -> Result<()> {
    if axis < rank {
        Ok(())
    } else {
        Err(Error::operator(format!(
            "axis {axis} is out of range for rank {rank}"
        )))
    }
}
