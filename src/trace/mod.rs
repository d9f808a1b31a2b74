//! The tracing front end: programs that others recorded, and programs that record themselves.

mod bodies;
mod calls;
pub mod check;
pub mod native;
mod scopes;
mod sizes;
pub mod torchscript;

pub use crate::kw;
pub use native::{
    Arg, Forward, Method, Module, Tensor, TraceOptions, Tree, allow, call, cond, freeze,
    is_tracing, load_state_dict, ops, scan, state, trace, trace_module, trace_with, while_loop,
};
pub use sizes::Sizes;
