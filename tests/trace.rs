//! Tracing programs written in Rust: one test for each behaviour of PyTorch's tracer, and for what it misses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and say what they skip"
)]

mod random;
mod sample_calls;

#[path = "trace/basics.rs"]
mod basics;
#[path = "trace/control.rs"]
mod control;
#[path = "trace/methods.rs"]
mod methods;
