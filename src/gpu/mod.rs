//! Executes a [`Plan`](crate::kernel::plan::Plan) with wgpu. This module does not depend on graphs, and no other module
//! depends on wgpu.
//!
//! A [`GpuDevice`] is opened once. A [`Program`] is a plan on a device: its pipelines are compiled and its weights
//! uploaded. A [`Run`] is one execution of a program. Its results are read back or stay on the device.
//!
//! ```no_run
//! # fn example(plan: onionskin::kernel::plan::Plan, x: onionskin::tensor::Tensor) -> onionskin::Result<()> {
//! use onionskin::gpu::{DeviceChoice, GpuDevice, Program, ProgramOptions};
//!
//! let device = GpuDevice::open(DeviceChoice::Auto)?;
//! let program = Program::new(&device, plan, &Default::default(), ProgramOptions::default())?;
//! let outputs = program.run(&[x])?;
//! # Ok(())
//! # }
//! ```
//!
//! These properties hold for every run:
//!
//! - All dispatches are recorded in one pass and submitted once. The host reads a number back during the run only where
//!   conditions and loops depend on tensors. [`Statistics`] counts these reads and [`Profile`] says where they occur.
//! - Everything that depends on the symbolic sizes (memory offsets, bind groups, sizes passed to kernels) is cached
//!   for the most recent sizes. A run with cached sizes creates no buffer, no bind group and no pipeline.
//! - Concurrent runs of one program each have their own memory and take no lock while they execute.
//! - Kernels are compiled while the program is made, on several processors and while weights are uploaded. This
//!   holds also for drivers that compile a kernel at its first dispatch; see `warm_up`.
//! - A device error is an [`Error`](crate::error::Error) of kind `Device`, never a panic.

mod adapter;
mod adapter_details;
mod arena;
mod capture;
mod ceiling;
mod check;
mod convert;
mod device;
mod device_options;
mod device_tensor;
mod error_scope;
mod execute;
mod lower_limits;
mod memory;
mod pack;
mod parallel;
mod pipeline;
mod pipeline_cache;
mod pool;
mod profile;
mod program;
mod recording;
mod run_context;
mod schedule;
mod selftest;
mod silence;
mod sizing;
mod staging;
mod statistics;
mod suballocator;
mod subgroup_probe;
mod transfer;
#[cfg(feature = "translate")]
mod translate;
mod trusted;
mod upload;
mod vector_width;
mod warm_up;
mod weights;

pub use adapter::{
    AdapterKind, AdapterReport, DeviceChoice, adapter_index, adapters, check_choice, portable,
};
pub use adapter_details::{AdapterDetails, LimitShortfall, adapter_details};
pub use ceiling::{Ceilings, CopyRate};
pub use device::GpuDevice;
pub use device_options::{DeviceOptions, FeatureLevel};
pub use device_tensor::{DeviceTensor, RunInput};
pub(crate) use device_tensor::{FreeBuffers, is_lost};
pub use execute::Run;
pub use lower_limits::LowerLimits;
pub use profile::{Clock, Profile, Readback, Span, SpanKind, StepTime};
pub use program::{Keep, Program, ProgramOptions, Progress};
pub use recording::{BufferRange, RecordedBinding, RecordedCommand, Recording};
pub use selftest::SelfTest;
pub use silence::silence_mesa;
pub use sizing::{Footprint, MemoryMap, SlotAllocation};
pub use statistics::Statistics;
pub use subgroup_probe::SubgroupSizes;
#[cfg(feature = "translate")]
pub use translate::TranslatedKernel;
pub use vector_width::{VectorWidth, widen_vectors};
pub use weights::{CacheableWeight, PackedWeights, SharedWeights, TensorMap, WeightSource};
