//! Onionskin: trace a neural network once, lay it over any GPU.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod aten;
pub mod cases;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod dim;
pub mod dtype;
pub mod error;
pub mod gpu;
pub mod interp;
pub mod ir;
pub mod item;
pub mod kernel;
pub mod mapping;
pub mod model;
pub mod op;
pub mod pass;
pub mod scalar;
pub mod shape;
pub mod symbols;
pub mod tensor;
pub mod tensor_file;
pub mod trace;

pub use model::{CompileOptions, Device, Model, Session};
pub use tensor::Tensor;
