//! The intermediate representation, which every front end produces and every pass rewrites.
//!
//! A [`Graph`] is functional, statically typed, in static single assignment form. A node is a [`Primitive`], a call of an
//! ATen operator (a row of [`crate::aten`], kept by name until the `decompose` pass), or a [`Region`] of structured control
//! flow. An argument is a value, a number written in place, a symbolic size, or, for calls, a list, text or `none`. A
//! [`GraphModule`] is one or more graphs over one set of weights and of [`ModuleState`]s. In a graph, a state is an input,
//! an output or both, after those of the user. The caller keeps its value from call to call.

mod assembler;
mod builder;
mod constant_subgraph;
mod description;
mod dictionary;
mod effect;
mod graph;
pub mod json;
mod region;
mod resolve;
pub mod rewrite;
mod signature;
pub mod text;
mod tree;
mod type_inference;
mod value;
pub mod verify;

pub use builder::{Builder, legal_name};
pub use description::{NodeDescription, describe};
pub use dictionary::{ArgumentStyle, CallParameter, Dictionary};
pub use graph::{
    Argument, Definition, Graph, GraphModule, ModuleState, Node, Op, Region, ValueId, ValueInfo,
    Weights,
};
pub use signature::TensorSpec;
pub use tree::{NamedTree, TreeConstant, TreeSpec};
pub(crate) use value::result_type;
pub use value::{ArithmeticOperand, Value};

pub use crate::op::Primitive;
