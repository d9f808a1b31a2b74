//! Names that a network in Rust and its run need: `use onionskin::prelude::*;`.
//!
//! ```
//! use onionskin::prelude::*;
//!
//! #[derive(Clone, Module)]
//! struct Mlp {
//!     hidden: nn::Linear,
//!     scale: Parameter,
//!     out: nn::Linear,
//! }
//!
//! impl Forward<&TracedTensor> for Mlp {
//!     type Output = TracedTensor;
//!
//!     fn forward(&self, x: &TracedTensor) -> TracedTensor {
//!         let hidden = self.hidden.call(x).relu() * &self.scale;
//!         self.out.call(hidden).softmax(-1)
//!     }
//! }
//!
//! # fn main() -> onionskin::Result<()> {
//! let scale = Parameter::new([8], init::ones());
//! let mlp = Mlp { hidden: nn::Linear::new(4, 8), scale, out: nn::Linear::new(8, 2) };
//! let traced = trace(&mlp, TracedTensor::from([[1f32, 2.0, 3.0, 4.0]]))?;
//! let session = Model::from_module(traced.module).compile(&Device::Host, &CompileOptions::default())?;
//! let outputs = session.run(&[Tensor::from([[0.5f32; 4]; 3])])?;
//! assert_eq!(outputs[0].shape(), [3, 2]);
//! # Ok(())
//! # }
//! ```
//!
//! It has no `Result`, which would hide that of the standard library.

pub use crate::dtype::DType;
pub use crate::kw;
pub use crate::model::{CompileOptions, Device, Model, Session};
pub use crate::tensor::Tensor;
pub use crate::trace::nn;
pub use crate::trace::{
    Buffer, Ellipsis, Forward, Method, Module, NewAxis, Parameter, Size, Steps, TracedTensor,
    Training, Tree, cond, init, load_state_dict, manual_seed, ops, scan, state_dict, trace,
    trace_checked, trace_fn, trace_fn_checked, trace_module, unpack, while_loop,
};
