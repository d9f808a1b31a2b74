//! Kernels (WGSL) and plans of dispatches as data, independent of a device. [`gpu`](crate::gpu) executes them.

pub mod capabilities;
pub mod choice;
pub mod dialect;
pub mod emit;
pub mod expr;
pub mod host;
pub mod index;
pub mod layout;
pub mod literal;
pub mod materialization;
pub mod names;
pub mod plan;
pub mod series;
pub mod shader;
mod slot;
mod tokens;
#[cfg(feature = "translate")]
pub mod translate;
mod vec4_functions;
pub mod winograd;
pub mod work;
pub mod workgroup_memory;
