//! A plan on a device.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::kernel::plan::{Plan, SlotId};
use crate::symbols;
use crate::tensor::Tensor;

use super::check::check;
use super::device::Device;
use super::execute::{Input, Run, mismatch};
use super::fault::lock;
use super::lane::Lane;
use super::memory::Memory;
use super::pipeline::Pipeline;
use super::rehearsal::rehearse;
use super::sizing::{Footprint, Rules, size};
use super::statistics::{Counters, Statistics, add};
use super::trusted;
use super::weights::{Packed, PackedWeights, SharedWeights, WeightSource, Weights, packed, upload};

/// Idle run contexts that are kept for later runs.
const IDLE_LANES: usize = 8;

/// Values that can be read after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The outputs; values between kernels share memory.
    #[default]
    Outputs,
    /// Every value, each in its own memory, for finding the first one that differs from a reference.
    Everything,
}

/// Progress of making a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Kernels compiled.
    Pipelines {
        /// Kernels compiled so far.
        done: usize,
        /// Kernels in total.
        total: usize,
    },
    /// Bytes of weights uploaded.
    Weights {
        /// Bytes uploaded so far.
        done: u64,
        /// Bytes in total.
        total: u64,
    },
}

/// Options for making a program.
#[derive(Clone)]
pub struct ProgramOptions {
    /// Values that can be read after a run.
    pub keep: Keep,
    /// Called, from several threads, while kernels compile and weights are uploaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// Weights to share with other programs on the same device.
    pub shared: SharedWeights,
    /// Cache of packed weights.
    pub packed: Option<Arc<dyn PackedWeights>>,
    /// Number of distinct size combinations for which bind groups and sizes are cached.
    pub cached_sizes: usize,
}

impl Default for ProgramOptions {
    fn default() -> ProgramOptions {
        ProgramOptions {
            keep: Keep::Outputs,
            progress: None,
            shared: SharedWeights::default(),
            packed: None,
            cached_sizes: 8,
        }
    }
}

impl fmt::Debug for ProgramOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramOptions")
            .field("keep", &self.keep)
            .field("shared", &self.shared)
            .field("cached_sizes", &self.cached_sizes)
            .finish_non_exhaustive()
    }
}

/// A plan on a device, ready to run: kernels are compiled and weights uploaded. Clones share the program.
#[derive(Clone)]
pub struct Program {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) device: Device,
    pub(super) plan: Plan,
    pub(super) options: ProgramOptions,
    pub(super) rules: Rules,
    pub(super) pipelines: Vec<Arc<Pipeline>>,
    pub(super) weights: HashMap<SlotId, Arc<Memory>>,
    pub(super) counters: Counters,
    idle: Mutex<Vec<Lane>>,
}

impl Program {
    /// Compiles a plan's kernels and uploads the weights that it names.
    ///
    /// The error lists everything that the device does not support, every weight that is missing or has another type, and
    /// every kernel that does not compile.
    pub fn new(
        device: &Device,
        plan: Plan,
        weights: &Weights,
        options: ProgramOptions,
    ) -> Result<Program> {
        Program::from_source(device, plan, weights, options)
    }

    /// Like [`Program::new`], with weights from any source.
    pub fn from_source(
        device: &Device,
        plan: Plan,
        weights: &dyn WeightSource,
        options: ProgramOptions,
    ) -> Result<Program> {
        let rules = Rules::on(device, options.keep);
        let uniform_limit = device.limits().max_uniform_buffer_binding_size;
        check(&plan, device.capabilities(), uniform_limit, weights)?;
        let counters = Counters::default();
        let (pipelines, weights) = prepare(device, &plan, weights, &options, &rules, &counters)?;
        Ok(Program {
            inner: Arc::new(Inner {
                device: device.clone(),
                plan,
                options,
                rules,
                pipelines,
                weights,
                counters,
                idle: Mutex::default(),
            }),
        })
    }

    /// Runs the program and reads the outputs back. An input that the plan does not use is ignored.
    ///
    /// The error names the input that does not match its type, the condition on sizes that does not hold, or the check of
    /// the model that failed.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs: Vec<Input> = inputs.iter().map(Input::Host).collect();
        Run::start(self, &self.bind(&inputs)?, &inputs, true)?.read()
    }

    /// Like [`Program::run`], without blocking the thread while the device works. Submits the work at once; the future waits
    /// for the outputs. Numbers that control flow depends on are waited for before the submission.
    pub fn run_async(
        &self,
        inputs: &[Tensor],
    ) -> impl Future<Output = Result<Vec<Tensor>>> + Send + use<> {
        let inputs: Vec<Input> = inputs.iter().map(Input::Host).collect();
        let run = self
            .bind(&inputs)
            .and_then(|sizes| Run::start(self, &sizes, &inputs, true));
        async move { run?.read_async().await }
    }

    /// Submits a run whose outputs stay on the device, with inputs from the host or from the device. Blocks while control
    /// flow reads numbers back; a plan without control flow never blocks. [`Run::check`] and [`Run::read`] report failed
    /// checks of the model. Before one of these passes, outputs may depend on indices that were clamped to their range.
    pub fn launch(&self, inputs: &[Input]) -> Result<Run> {
        Run::start(self, &self.bind(inputs)?, inputs, false)
    }

    /// Like [`Program::launch`], with explicit sizes for symbols that do not follow from the inputs that the plan uses.
    pub fn launch_with(&self, sizes: &Bindings, inputs: &[Input]) -> Result<Run> {
        Run::start(self, sizes, inputs, false)
    }

    /// Solves for the sizes of the symbols. Fails if the number of inputs, or the rank of one, is not what the program
    /// expects.
    pub fn bind(&self, inputs: &[Input]) -> Result<Bindings> {
        let plan = &self.inner.plan;
        if inputs.len() != plan.inputs.len() {
            return Err(Error::input(format!(
                "{} inputs given, the program takes {}",
                inputs.len(),
                plan.inputs.len()
            )));
        }
        let used = inputs.iter().zip(&plan.inputs);
        let used = used.filter_map(|(input, slot)| slot.map(|slot| (input, &plan.slots[slot.0])));
        for (input, slot) in used.clone() {
            if input.shape().len() != slot.shape.len() {
                return Err(mismatch(input, slot));
            }
        }
        let pairs =
            used.flat_map(|(input, slot)| slot.shape.iter().zip(input.shape().iter().copied()));
        Ok(symbols::solve(pairs))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Counts of created objects and executed work so far.
    pub fn statistics(&self) -> Statistics {
        self.inner.counters.statistics()
    }

    /// The weights in the form of the device that are worth storing for later.
    pub fn packed<'a>(&'a self, source: &'a dyn WeightSource) -> Result<Vec<Packed<'a>>> {
        packed(&self.inner.plan, source, &self.inner.rules)
    }

    /// Device memory that a run with given sizes needs.
    pub fn footprint(&self, sizes: &Bindings) -> Result<Footprint> {
        Ok(size(&self.inner.plan, sizes, &self.inner.rules)?.footprint())
    }

    /// Frees the memory kept for later runs; weights and kernels stay.
    pub fn trim(&self) {
        lock(&self.inner.idle).clear();
    }
}

impl Inner {
    /// Takes a context that no run uses, or creates one.
    pub(super) fn check_out(&self) -> Lane {
        let idle = lock(&self.idle).pop();
        idle.unwrap_or_else(|| Lane::on(&self.rules.capabilities))
    }

    /// Returns a context for the next run.
    pub(super) fn check_in(&self, lane: Lane) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_LANES {
            idle.push(lane);
        }
    }
}

type Prepared = (Vec<Arc<Pipeline>>, HashMap<SlotId, Arc<Memory>>);

/// Compiles kernels on other threads while this one uploads weights.
fn prepare(
    device: &Device,
    plan: &Plan,
    weights: &dyn WeightSource,
    options: &ProgramOptions,
    rules: &Rules,
    counters: &Counters,
) -> Result<Prepared> {
    let tell = |progress: Progress| {
        if let Some(callback) = &options.progress {
            callback(progress);
        }
    };
    let (compiled, total) = (AtomicUsize::new(0), plan.kernels.len());
    let made = || {
        let done = compiled.fetch_add(1, Ordering::Relaxed) + 1;
        tell(Progress::Pipelines { done, total });
    };
    let (pipelines, weights) = std::thread::scope(|scope| {
        let pipelines = device.pipelines();
        let compile = scope.spawn(|| {
            if !device.compiles_late() {
                return pipelines.get_all(device.wgpu(), &plan.kernels, &made);
            }
            let (pipelines, created) = pipelines.get_all(device.wgpu(), &plan.kernels, &|| ())?;
            let rehearsed = rehearse(device, plan, &pipelines, &made);
            add(&counters.rehearsed, rehearsed as u64);
            Ok((pipelines, created))
        });
        let sent = |done, total| tell(Progress::Weights { done, total });
        let weights = upload(device, plan, weights, rules, options, counters, &sent);
        let failed = |_| Err(Error::device("the driver failed while compiling kernels"));
        (compile.join().unwrap_or_else(failed), weights)
    });
    // Compilers and staged weights have used much memory.
    trusted::give_back_memory();
    device.alive()?;
    let (pipelines, created) = pipelines?;
    if created > 0 && device.compiles_late() {
        trusted::give_back_compiler();
    }
    add(&counters.pipelines, created as u64);
    Ok((pipelines, weights?))
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.inner.plan.steps.len();
        write!(f, "Program({steps} steps on {:?})", self.inner.device)
    }
}
