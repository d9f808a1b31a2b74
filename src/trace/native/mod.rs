//! Traces networks written in Rust, with the semantics of `torch.jit.trace`.
//!
//! A [`TracedTensor`] has a value, and an active trace records its operations: a program computes as it would without a
//! trace, and the trace gives a graph.
//!
//! Operators are methods with PyTorch's names and defaults (`x.softmax(1)`) or functions of [`ops`] (`ops::cat(&[x, y])`).
//! The `_with` variants take parameters with defaults by name: `x.sum_dim_with(0, kw!(keepdim = true))`. Operators
//! such as `add_` write to the tensor, and to all tensors that share its memory.
//!
//! Sizes are symbolic expressions ([`Size`]), structures of tensors are [`Tree`]s, networks are [`Module`]s.
//!
//! ```
//! use onionskin::trace::{TracedTensor, trace_fn};
//!
//! # fn main() -> onionskin::Result<()> {
//! let x = TracedTensor::from_vec([2, 3], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! let traced = trace_fn(x, |x| (&x * 2.0 + 1.0).relu())?;
//! assert_eq!(traced.graph("forward")?.inputs.len(), 1);
//! let y: TracedTensor = traced.call(TracedTensor::from_vec([1, 3], vec![0f32, 1.0, 2.0]))?;
//! assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 5.0]);
//! # Ok(())
//! # }
//! ```

mod argument;
mod argument_errors;
mod arithmetic;
mod call;
mod call_site;
mod code;
mod control;
mod custom;
#[doc(hidden)]
pub mod derived;
mod host_views;
mod in_place;
mod indexing;
pub mod init;
mod methods;
mod module;
mod module_containers;
mod module_trace;
mod named_call;
mod parameter;
mod placement;
mod random;
mod recorded_bodies;
mod recorded_form;
mod recorder;
mod size;
mod state;
mod storage;
mod storage_values;
mod subject;
mod tensor;
mod trace_entry;
mod trace_names;
mod tree;
mod undo_log;

pub use argument::Arg;
pub use call::call;
pub(in crate::trace) use call::failed;
pub use control::{cond, scan, while_loop};
pub use custom::{CustomOperator, leaf};
pub use indexing::{AxisIndex, Ellipsis, Indices, NewAxis, Steps};
pub use methods::{Binding, bindings, ops, options, unpack};
pub(in crate::trace) use module::example_sizes;
pub use module::{Forward, Module, Training, Visitor};
pub use module_trace::{InputsOf, NetworkInputs, NetworkOutputs, trace, trace_checked, trace_with};
pub use parameter::{Buffer, Parameter};
pub use random::manual_seed;
pub use recorder::{allow, is_tracing};
pub use size::{Size, freeze};
pub use state::{
    Unmatched, load_matching, load_state_dict, named_buffers, named_parameters, state, state_dict,
};
pub use subject::{TracedFunction, arguments, trace_fn_checked, trace_method_checked};
pub use tensor::TracedTensor;
pub use trace_entry::{Method, TraceOptions, trace_fn, trace_fn_with, trace_module};
pub use tree::{Tree, mismatch};
