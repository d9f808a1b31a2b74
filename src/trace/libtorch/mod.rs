//! PyTorch as a front end and as the reference of all other results (feature `libtorch`). Functions and modules of the crate
//! `tch` are traced and checked; libtorch runs archives.
//!
//! ```no_run
//! use onionskin::trace::libtorch::trace;
//! use onionskin::{Model, Tensor};
//!
//! # fn main() -> onionskin::Result<()> {
//! let x = Tensor::from_vec([2, 3], vec![0.5f32; 6])?;
//! let traced = trace(&[x], |inputs| vec![inputs[0].softmax(-1, None)])?;
//! let model = Model::from_module(traced.module);
//! # Ok(())
//! # }
//! ```

mod convert;
mod function;
mod program;

pub use convert::{from_libtorch, to_libtorch};
pub use function::{LibtorchFunction, trace};
pub use program::LibtorchProgram;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result, panic_message};

/// Converts an error of the crate `tch`.
fn tch_error(error: &tch::TchError) -> Error {
    libtorch_error(&error.to_string())
}

/// Makes an error from a message of libtorch. Its first lines describe the failure; the C++ stack trace follows.
fn libtorch_error(message: &str) -> Error {
    let lines = message.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("Exception raised from"));
    let message: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let message = message.join(" ");
    let error = Error::device(format!("libtorch: {message}"));
    if message.contains("requires grad") {
        return error.help("freeze the variables before tracing: `VarStore::freeze`");
    }
    error
}

/// Runs a closure without gradients. Turns a panic into an error, since `tch` panics where libtorch fails.
fn catch_panic<T>(closure: impl FnOnce() -> T) -> Result<T> {
    let result = catch_unwind(AssertUnwindSafe(|| tch::no_grad(closure)));
    result.map_err(|panic| libtorch_error(panic_message(&*panic)))
}
