//! Runs PyTorch models on any GPU, without Python and without libtorch.
//!
//! A graph traced by PyTorch becomes a typed intermediate representation ([`ir`]). Passes rewrite it ([`pass`]), and the
//! planner lowers it to a plan of WGSL kernels ([`plan`], [`kernel`]). [`gpu`] executes the plan through wgpu on Vulkan,
//! Metal or DX12. [`interp`] runs a graph on the host and is the reference for devices. The feature `libtorch` adds PyTorch
//! as a front end and as a reference.
//!
//! ```no_run
//! # fn main() -> onionskin::Result<()> {
//! use onionskin::{CompileOptions, Device, Model, Tensor};
//!
//! let model = Model::open("resnet18.pt")?;
//! let session = model.compile(&Device::auto()?, &CompileOptions::default())?;
//! let image = Tensor::from_vec([1, 3, 224, 224], vec![0.5f32; 3 * 224 * 224])?;
//! let logits = session.run(&[image])?;
//! println!("{:?}", logits[0].shape());
//! # Ok(())
//! # }
//! ```
//!
//! Modules that this documentation lists are the public interface and follow semantic versioning. The crate has further
//! modules, which are visible for its own program, tests and benchmarks; they change without notice.
//!
//! # Architecture
//!
//! ```text
//!  .pt archive ── trace ──> ir::Graph ──┬── interp: host oracle, and the device of machines without an adapter
//!                          JSON + text  └── pass ──> plan ──> kernel::plan::Plan ──> gpu (wgpu)
//! ```
//!
//! Two vocabularies. [`op`] is a closed language of some twenty primitives, a file each: shape rule, host evaluation,
//! attributes. [`aten`] is an open dictionary of PyTorch's operators, a row each: schemas as PyTorch writes them, a body in
//! terms of other operators, sample calls. An imported graph holds calls of rows, so that it reads like the user's model; the
//! `decompose` pass replaces them by their bodies.
//!
//! Sizes are symbolic ([`dim`]). An import answers questions about them ("do these broadcast?") with the example's sizes and
//! records each answer as a guard ([`symbols`]), so that a graph says for which sizes it holds. A [`Session`] imports an
//! archive again for sizes that break the guards.
//!
//! A trace freezes everything that a graph cannot hold to the example: values and sizes that the program reads, branches,
//! constants. [`trace::check`] finds such values by calling and tracing again, with other inputs too. It sees the traced
//! function as a [`trace::check::Subject`]: a closure, a module or an archive.
//!
//! Control flow that depends on tensors is an [`ir::Region`] with closed graphs as bodies. The planner turns the regions that
//! passes leave into blocks of steps ([`kernel::plan::Flow`]); the host walks through them and reads back the numbers that
//! decide. An [`ir::ModuleState`] outlives a call: it is a further input and output of the graph, which a [`Session`] keeps.
//!
//! A model may refuse values: assertions, indices out of range, integer division by zero. Each is an [`op::Check`] in the
//! graph, which returns its operand unchanged. The host raises PyTorch's message at once. A kernel notes a failed check in a
//! word of [`kernel::plan::RuntimeChecks`], which the run reads with its outputs.
//!
//! The planner (`plan::plan`) decides which values one kernel computes (fusion), which kernel computes a product, a
//! convolution or a row (a table, which a [`model::Tuning`] overrides), how values lie in memory
//! ([`kernel::layout::Layout`]), and which layers share a kernel. Kernels are printed expressions ([`kernel::expr`],
//! [`kernel::emit`]) in templates of `shaders/`.
//!
//! Values that depend on weights alone become weights: formulas ([`pass::FoldedModule`]) that are computed when a device takes them.
//! The host keeps the model's file open. A [`digest`] of elements and formula tells which weights are equal, so that programs
//! share them.
//!
//! `docs/architecture.md` describes the stages from a model to its results, the type at each stage, the layers, and the
//! peculiarities of targets.
//!
//! | to find | look in |
//! |---|---|
//! | basic types | [`error`] [`interrupt`] [`budget`] [`dtype`] [`dim`] [`shape`] [`scalar`] [`tensor`] [`symbols`] |
//! | the language, the IR, the operators | [`op`] [`ir`] [`aten`] |
//! | ZIP files, pickles and storages of PyTorch | [`archive`] |
//! | archives and programs to graphs | [`trace`] |
//! | modules to write networks with | [`nn`], and [`prelude`] |
//! | checks of a graph against its program | [`trace::check`], `model::verify` |
//! | graphs for other tools | [`trace::prepare`] |
//! | graphs to kernels | [`pass`] [`plan`] [`kernel`], and `shaders/` |
//! | pictures of graphs | [`view`] |
//! | kernels on a device | [`gpu`] |
//! | the API and the command line | [`model`], `cli` |
//! | examination of devices | [`doctor`] |
//! | files of tensors, recorded cases, comparison | [`file_kind`] [`tensor_file`] [`cases`] [`compare`] [`item`] [`digest`] |
//!
//! # Invariants
//!
//! The tests named with each invariant check it.
//!
//! 1. A module uses only modules before it in the reading order (`tests/tidy.rs`).
//! 2. `infer` is the only shape rule: its result for symbolic sizes, evaluated for numbers, equals its result for these
//!    numbers (`tests/conformance.rs`).
//! 3. A call and its body compute the same (`tests/conformance.rs`).
//! 4. Text and JSON carry a whole graph: a printed graph parses back to an equal graph (`tests/filetests.rs`).
//! 5. A verified graph can be indexed without checks; `verify` returns every finding (`tests/filetests.rs`).
//! 6. A pass changes no result (`tests/random_graphs.rs`, `tests/traced_module_round_trips.rs`).
//! 7. Every kernel is valid WGSL and translates to SPIR-V, HLSL and, unless it computes in double precision, MSL: those of
//!    the dictionary's sample calls (`tests/conformance.rs`) and of random graphs (`tests/random_graphs.rs`), and all that a
//!    test makes on a device (`tests/samples/mod.rs`) or a replay of recorded cases (`.ci/replay`).
//! 8. A device agrees with the oracle (`tests/device.rs`), bit for bit if results are exact (`tests/random_kernels.rs`).
//! 9. In the steady state a run creates no buffer, bind group or pipeline (`tests/gpu.rs`, `tests/regions.rs`), allocates
//!    nothing on the device and keeps nothing on the host (`tests/allocations.rs`).
//! 10. No input makes the crate panic, overflow the stack or take memory without bound (`tests/torchscript_archives.rs`,
//!     `tests/hostile_archives.rs`, `tests/fuzz_corpus.rs`).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

// Derived code refers to this crate by name, also inside of it.
extern crate self as onionskin;

// Public: modules with which users write programs.
pub mod archive;
pub mod budget;
pub mod compare;
pub mod dim;
pub mod doctor;
#[cfg(doctest)]
mod documents;
pub mod dtype;
pub mod error;
pub mod gpu;
pub mod grad;
pub mod interrupt;
pub mod ir;
pub mod item;
pub mod model;
pub mod op;
pub mod prelude;
pub mod scalar;
pub mod shape;
pub mod symbols;
pub mod tensor;
pub mod tensor_file;
pub mod trace;
pub mod train;
pub mod view;

// Internal: for the crate's own program, tests and benchmarks.
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod aten;
#[doc(hidden)]
pub mod cases;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod digest;
#[doc(hidden)]
pub mod file_kind;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod files;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod geometry;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod interp;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod kernel;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod pass;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod plan;
mod random;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod storage;
mod units;
mod wildcard;

pub use error::{Error, Result};
pub use interrupt::{CancelToken, RunOptions};
pub use model::{CompileOptions, Device, Model, Session};
pub use tensor::Tensor;
pub use trace::nn;
