//! Executes a [`Plan`](crate::kernel::plan::Plan) with wgpu. Nothing here knows of graphs, and nothing else of wgpu.
//!
//! A [`Device`] is opened once. A [`Program`] is a plan on a device: pipelines made, weights uploaded. A [`Run`] is one
//! execution of it, whose results are read back or left on the device.
//!
//! ```no_run
//! # fn example(plan: onionskin::kernel::plan::Plan, x: onionskin::tensor::Tensor) -> onionskin::Result<()> {
//! use onionskin::gpu::{Device, DeviceChoice, Program, ProgramOptions};
//!
//! let device = Device::open(DeviceChoice::Auto)?;
//! let program = Program::new(&device, plan, &Default::default(), ProgramOptions::default())?;
//! let outputs = program.run(&[x])?;
//! # Ok(())
//! # }
//! ```
//!
//! What holds for every run:
//!
//! - All dispatches are recorded in one pass and submitted once. Only where conditions and loops depend on tensors is a
//!   number read back in between; [`Statistics`] counts it and [`Profile`] says where.
//! - What depends on the symbolic sizes (places in memory, bind groups, numbers for kernels) is kept for the sizes used last. A run
//!   with sizes that were seen before creates no buffer, no bind group and no pipeline.
//! - Concurrent runs of one program each have their own memory and need no lock while they run.
//! - Kernels are compiled while the program is made, on several processors, and while weights are uploaded; by drivers that compile a
//!   kernel at its first dispatch too.
//! - A device error is an [`Error`](crate::error::Error) of kind `Device`, never a panic.

mod adapter;
mod arena;
mod capture;
mod ceiling;
mod check;
mod convert;
mod device;
mod disk;
mod execute;
mod fault;
mod lane;
mod memory;
mod pack;
mod parallel;
mod pipeline;
mod pool;
mod profile;
mod program;
mod rehearsal;
mod schedule;
mod selftest;
mod shelf;
mod silence;
mod sizing;
mod staging;
mod statistics;
mod transfer;
#[cfg(feature = "translate")]
mod translate;
mod trusted;
mod upload;
mod vectors;
mod weights;

pub use adapter::{AdapterKind, AdapterReport, DeviceChoice, adapters, check_choice, portable};
pub use ceiling::{Ceilings, CopyRate};
pub use device::{Device, DeviceOptions, Reach};
pub use execute::{DeviceTensor, Input, Run};
pub use profile::{Clock, Profile, Readback, Span, Spent, StepTime};
pub use program::{Keep, Program, ProgramOptions, Progress};
pub use selftest::SelfTest;
pub use silence::silence_mesa;
pub use sizing::{Footprint, MemoryMap, Placed};
pub use statistics::Statistics;
#[cfg(feature = "translate")]
pub use translate::Translated;
pub use vectors::{VectorWidth, widen_vectors};
pub use weights::{Packed, PackedWeights, SharedWeights, WeightSource, Weights};
