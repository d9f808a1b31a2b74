//! Onionskin: trace a neural network once, lay it over any GPU.
//!
//! A graph traced by PyTorch becomes a typed intermediate representation ([`ir`]); passes lower it to a plan of WGSL
//! kernels ([`pass`], [`kernel`]); [`gpu`] executes the plan through wgpu on Vulkan, Metal or DX12; [`interp`] runs the same
//! graph on the host and is the oracle for all of it. No Python, no libtorch.
//! (The feature `libtorch` adds PyTorch as a front end and as a reference.)
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
//!                          JSON + text  └── pass ──> kernel::plan::Plan ──> gpu (wgpu)
//! ```
//!
//! Two vocabularies. [`op`] is a closed language of some twenty primitives, a file each: shape rule, oracle, attributes.
//! [`aten`] is an open dictionary of PyTorch's operators, a row each: schemas as PyTorch writes them, a body in terms of
//! other operators, sample calls. A graph as imported holds calls of rows, so that it reads like the user's model; the
//! `decompose` pass writes out their bodies.
//!
//! Sizes are symbolic ([`dim`]). An import answers questions about them ("do these broadcast?") by the example's sizes and
//! records each answer as a guard ([`symbols`]), so that a graph says for which sizes it holds. A [`Session`] imports an
//! archive again for sizes that break the guards.
//!
//! What a graph cannot hold is frozen to the example: values and sizes that a program reads, branches, constants.
//! [`trace::check`] finds it by calling and tracing again, with other inputs too. It knows the traced function only as a
//! [`trace::check::Subject`], which closures, modules and archives are.
//!
//! Control flow that depends on tensors is a [`ir::Region`], whose bodies are closed graphs. What passes leave of it
//! becomes blocks of steps in the same plan: one row of steps, one memory, and a [`kernel::plan::Flow`] for each that says
//! which steps run again or not at all; the host goes through them and reads back what decides. What outlives a call is an
//! [`ir::State`]: to graphs further inputs and outputs, which a [`Session`] keeps.
//!
//! A model may refuse values: assertions, indices out of range, integers divided by zero. Each is an [`op::Check`] in the
//! graph, which gives its operand as it is. The host raises PyTorch's message at once. A kernel that computes a check notes a
//! failure in a word of [`kernel::plan::Faults`], which a run reads with its outputs.
//!
//! What one kernel computes is decided by fusion (`pass::plan`'s `fuse`): loops with what is pointwise in front of them and
//! behind, rows (and columns) with all their reductions, attention from scores to values, and pointwise work that follows on other such
//! work. What is long behind a product is there for a few results of a tile only (`pass::plan`'s `kernel::turns`).
//!
//! Many kernels can compute a product, a convolution or a row. A table (`pass::plan`'s `variant`) chooses by adapter, sizes and dtype; a
//! [`model::Tuning`] overrules it by what was measured. The portable variant runs on every device and is the reference of the
//! others. Where a driver takes long to compile them, layers that differ in sizes only share kernels (`pass::plan`'s `form`):
//! of products with weights and of images by design, of all else where the kernels turn out to differ in numbers only.
//! They are compiled while a program is made, on several processors, by drivers too that would do it in its first run
//! (`gpu`'s `rehearsal`).
//! How a value lies in memory is a [`kernel::layout::Layout`] of its slot: row-major, the same with room behind each row, which
//! keeps rows that tiles read apart in the cache, four neighbours along an axis together, what workgroups keep between their
//! stages, what is sorted in runs, or a weight packed into a texture. Its [`kernel::capabilities::Storage`] is what
//! its elements are there: `f32` may be stored in half precision, where [`kernel::stored::Kept`] does not say why not. On Mesa's
//! rasteriser whatever is in no texture lies in memory that is a buffer to kernels that write it, a texture to those that read
//! it ([`kernel::plan::Access::Texels`]), and the host's own; `gpu`'s `trusted` holds all that is unsafe. The pages of its
//! compiler are given back once kernels are compiled. Its subgroups are the lanes
//! of a vector, eight or sixteen, which a program decides before it is loaded ([`gpu::widen_vectors`]); kernels that hand numbers
//! from lane to lane are made for one of these. A tile of a product is bands of four lanes (`pass::plan`'s `product::tile`), so that what
//! a lane has read of either factor is handed on by as few instructions as can be.
//!
//! Kernels are texts of expressions ([`kernel::expr`], [`kernel::emit`]). Four numbers that are computed alike become one
//! expression of vectors (`pass::plan`'s `element::fours`); the library's functions for these are made of those for one
//! (`kernel`'s `fours`).
//!
//! What a graph makes of weights alone is a weight too, told by a formula ([`pass::Folded`]) and computed when the device
//! takes it: the host keeps what the model's file has, mapped. A [`digest`] of elements and formula tells which weights are
//! equal, so that programs share them on a device and a file can keep them as they lie there.
//!
//! | to find | look in |
//! |---|---|
//! | types that everything stands on | [`error`] [`dtype`] [`dim`] [`shape`] [`scalar`] [`tensor`] [`symbols`] |
//! | the language, the IR, the operators | [`op`] [`ir`] [`aten`] |
//! | archives and programs to graphs | [`trace`] |
//! | modules to write networks with | [`nn`] |
//! | whether a graph is what the program does | [`trace::check`], `model::verify` |
//! | graphs for other tools | [`trace::prepare`] |
//! | graphs to kernels | [`pass`] [`kernel`], and `shaders/` |
//! | kernels on a device | [`gpu`] |
//! | what a user calls | [`model`], `cli` |
//! | files of tensors, recorded cases, comparison | [`file_kind`] [`tensor_file`] [`cases`] [`compare`] [`item`] [`digest`] |
//!
//! # Invariants
//!
//! Each is held by the tests named with it.
//!
//! 1. A module uses only modules before it in the reading order (`tests/tidy.rs`).
//! 2. `infer` is the only shape rule: what it says of symbolic sizes is what it says of the numbers put in
//!    (`tests/conformance.rs`).
//! 3. A call and its body compute the same (`tests/conformance.rs`).
//! 4. Text and JSON carry a whole graph: what is printed parses back to an equal graph (`tests/filetests.rs`).
//! 5. A verified graph can be indexed without checks; `verify` returns every finding (`tests/filetests.rs`).
//! 6. A pass changes no result (`tests/random_graphs.rs`, `tests/forms.rs`).
//! 7. Every kernel is valid WGSL and translates to SPIR-V, HLSL and, unless it computes in double precision, MSL: those of
//!    the dictionary's sample calls (`tests/conformance.rs`) and of random graphs (`tests/random_graphs.rs`), and all that a
//!    test makes on a device (`tests/samples/mod.rs`) or a replay of recorded cases (`.ci/replay`).
//! 8. A device agrees with the oracle (`tests/device.rs`), exactly where numbers are (`tests/random_kernels.rs`).
//! 9. In the steady state a run creates no buffer, bind group or pipeline (`tests/gpu.rs`, `tests/regions.rs`), allocates
//!    nothing on the device and keeps nothing on the host (`tests/allocations.rs`).
//! 10. Input never panics, whatever the bytes (`tests/torchscript_archives.rs`).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

// Derived code names this crate, which it is used in as well.
extern crate self as onionskin;

// Public: what a user of the crate writes programs with.
pub mod compare;
pub mod dim;
#[cfg(doctest)]
mod documents;
pub mod dtype;
pub mod error;
pub mod gpu;
pub mod ir;
pub mod item;
pub mod model;
pub mod op;
pub mod scalar;
pub mod shape;
pub mod symbols;
pub mod tensor;
pub mod tensor_file;
pub mod trace;

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
pub mod geometry;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod interp;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod kernel;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod mapping;
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod pass;

pub use error::{Error, Result};
pub use model::{CompileOptions, Device, Model, Session};
pub use tensor::Tensor;
pub use trace::nn;
