//! Front ends that make graphs: an importer of TorchScript archives, and a tracer of Rust programs. [`program`] says what
//! those that read files have in common.

pub mod check;
pub mod export;
#[cfg(feature = "libtorch")]
pub mod libtorch;
mod module_calls;
pub mod native;
pub mod nn;
pub mod prepare;
pub mod program;
mod region_bodies;
mod rng_counters;
mod scope_stack;
pub mod script;
mod symbolic_sizes;
pub mod torchscript;
mod views;
mod weight_states;

pub use crate::kw;
#[doc(hidden)]
pub use native::derived;
pub use native::{
    Arg, AxisIndex, Buffer, CustomOperator, Ellipsis, Forward, Indices, InputsOf, Method, Module,
    NetworkInputs, NetworkOutputs, NewAxis, Parameter, Size, Steps, TraceOptions, TracedFunction,
    TracedTensor, Training, Tree, Unmatched, Visitor, allow, arguments, call, cond, freeze, init,
    is_tracing, leaf, load_matching, load_state_dict, manual_seed, named_buffers, named_parameters,
    ops, options, scan, state, state_dict, trace, trace_checked, trace_fn, trace_fn_checked,
    trace_fn_with, trace_method_checked, trace_module, trace_with, unpack, while_loop,
};
pub use onionskin_derive::{Module, Tree};
pub use symbolic_sizes::SymbolicSizes;
