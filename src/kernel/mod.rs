//! Kernels (WGSL) and plans of dispatches as data, independent of a device. [`gpu`](crate::gpu) executes them.

pub mod capabilities;
pub mod choice;
pub mod emit;
pub mod expr;
mod fours;
pub mod host;
pub mod index;
pub mod layout;
pub mod literal;
pub mod plan;
pub mod series;
pub mod shader;
pub mod stored;
#[cfg(feature = "translate")]
pub mod translate;
pub mod winograd;
pub mod work;
