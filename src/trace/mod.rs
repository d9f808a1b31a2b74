//! The tracing front end: programs that others recorded, and programs that record themselves.

mod bodies;
pub mod check;
mod scopes;
mod sizes;
pub mod torchscript;

pub use sizes::Sizes;
