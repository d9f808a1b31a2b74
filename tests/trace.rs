//! Tests of tracing programs written in Rust: one for each behaviour of PyTorch's tracer, and for mistakes that it misses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;
mod sample_calls;
mod samples;

#[path = "trace/archives.rs"]
mod archives;
#[path = "trace/basics.rs"]
mod basics;
#[path = "trace/bisect.rs"]
mod bisect;
#[path = "trace/checks.rs"]
mod checks;
#[path = "trace/code.rs"]
mod code;
#[path = "trace/control.rs"]
mod control;
#[path = "trace/custom.rs"]
mod custom;
#[path = "trace/in_place.rs"]
mod in_place;
#[path = "trace/indexing.rs"]
mod indexing;
#[path = "trace/messages.rs"]
mod messages;
#[path = "trace/methods.rs"]
mod methods;
#[path = "trace/models/mod.rs"]
mod models;
#[path = "trace/module_arguments.rs"]
mod module_arguments;
#[path = "trace/module_cases.rs"]
mod module_cases;
#[path = "trace/module_copies.rs"]
mod module_copies;
#[path = "trace/module_fields.rs"]
mod module_fields;
#[path = "trace/module_names.rs"]
mod module_names;
#[path = "trace/modules.rs"]
mod modules;
#[path = "trace/networks.rs"]
mod networks;
#[path = "trace/packed_sequences.rs"]
mod packed_sequences;
#[path = "trace/random.rs"]
mod random_operators;
#[path = "trace/random_programs.rs"]
mod random_programs;
#[path = "trace/recorded.rs"]
mod recorded;
#[path = "trace/recorded_modules.rs"]
mod recorded_modules;
#[path = "trace/scripts.rs"]
mod scripts;
#[path = "trace/sizes.rs"]
mod sizes;
#[path = "trace/states.rs"]
mod states;
#[path = "trace/trees.rs"]
mod trees;
#[path = "trace/values.rs"]
mod values;
