//! The tracing front end: programs that others recorded, and programs that record themselves.

mod bodies;
pub mod check;
pub mod native;
mod scopes;
mod sizes;
pub mod torchscript;

pub use native::{
    Arg, Forward, Method, Module, Tensor, TraceOptions, Tree, allow, call, freeze, is_tracing,
    load_state_dict, state, trace, trace_module, trace_with,
};
pub use sizes::Sizes;
