//! The tracing front end: programs that others recorded, and programs that record themselves.

pub mod check;
pub mod torchscript;
