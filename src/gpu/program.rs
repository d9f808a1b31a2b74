//! A plan on a device.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::dim::Bindings;
use crate::error::{Error, ErrorContext, Result};
use crate::interrupt::{self, ActiveLimits};
use crate::kernel::plan::{Plan, SlotId};
use crate::symbols;
use crate::tensor::Tensor;

use super::check::validate;
use super::device::GpuDevice;
use super::device_tensor::RunInput;
use super::error_scope::lock;
use super::execute::Run;
use super::memory::SlotMemory;
use super::pipeline::Pipeline;
use super::run_context::RunContext;
use super::sizing::{Footprint, PlacementRules, evaluate};
use super::statistics::{Counters, Statistics, add};
use super::trusted;
use super::upload::input_mismatch;
use super::warm_up::warm_up;
use super::weights::{
    CacheableWeight, PackedWeights, SharedWeights, TensorMap, WeightSource, packable_weights,
    upload,
};

/// Time between attempts to be the only thread that compiles.
const TIME_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

/// Maximum number of idle run contexts that are kept for later runs.
const MAX_IDLE_CONTEXTS: usize = 8;

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

/// Progress of making a program, and events of its device.
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
    /// The device was lost and was opened again: kernels are compiled and weights are uploaded once more.
    DeviceReplaced,
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
    /// Gives memory that only compilation needs back to the system once the program is made: free heap, and pages of the
    /// driver's compiler. Without it, programs that are made one after the other are made faster.
    pub release_memory: bool,
}

impl Default for ProgramOptions {
    fn default() -> ProgramOptions {
        ProgramOptions {
            keep: Keep::Outputs,
            progress: None,
            shared: SharedWeights::default(),
            packed: None,
            cached_sizes: 8,
            release_memory: true,
        }
    }
}

impl fmt::Debug for ProgramOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramOptions")
            .field("keep", &self.keep)
            .field("shared", &self.shared)
            .field("cached_sizes", &self.cached_sizes)
            .field("release_memory", &self.release_memory)
            .finish_non_exhaustive()
    }
}

/// A plan on a device, ready to run: kernels are compiled and weights uploaded. Clones share the program.
#[derive(Clone)]
pub struct Program {
    pub(super) inner: Arc<ProgramInner>,
}

pub(super) struct ProgramInner {
    pub(super) device: GpuDevice,
    pub(super) plan: Plan,
    pub(super) options: ProgramOptions,
    pub(super) rules: PlacementRules,
    pub(super) pipelines: Vec<Arc<Pipeline>>,
    pub(super) weights: HashMap<SlotId, Arc<SlotMemory>>,
    pub(super) counters: Counters,
    /// Memory of finished runs, for later ones.
    idle_contexts: Mutex<Vec<RunContext>>,
}

impl Program {
    /// Compiles a plan's kernels and uploads the weights that it names.
    ///
    /// The error lists everything that the device does not support, every weight that is missing or has another type,
    /// and every kernel that does not compile.
    pub fn new(
        device: &GpuDevice,
        plan: Plan,
        weights: &TensorMap,
        options: ProgramOptions,
    ) -> Result<Program> {
        Program::from_source(device, plan, weights, options)
    }

    /// Like [`Program::new`], with weights from any source.
    pub fn from_source(
        device: &GpuDevice,
        plan: Plan,
        weights: &dyn WeightSource,
        options: ProgramOptions,
    ) -> Result<Program> {
        let rules = PlacementRules::for_device(device, options.keep);
        let uniform_limit = device.limits().max_uniform_buffer_binding_size;
        validate(&plan, device.capabilities(), uniform_limit, weights)?;
        let counters = Counters::default();
        let (pipelines, weights) = prepare(device, &plan, weights, &options, &rules, &counters)?;
        Ok(Program {
            inner: Arc::new(ProgramInner {
                device: device.clone(),
                plan,
                options,
                rules,
                pipelines,
                weights,
                counters,
                idle_contexts: Mutex::default(),
            }),
        })
    }

    /// Runs the program and reads the outputs back. An input that the plan does not use is ignored.
    ///
    /// The error names the input that does not match its type, the condition on sizes that does not hold, or the check
    /// of the model that failed.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        Run::start(self, &self.bind(&inputs)?, &inputs, true)?.read()
    }

    /// Like [`Program::run`], without blocking the thread while the device works. Submits the work at once; the future
    /// waits for the outputs. Numbers that control flow depends on are waited for before the submission.
    pub fn run_async(
        &self,
        inputs: &[Tensor],
    ) -> impl Future<Output = Result<Vec<Tensor>>> + Send + use<> {
        let inputs: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        let run = self
            .bind(&inputs)
            .and_then(|sizes| Run::start(self, &sizes, &inputs, true));
        async move { run?.read_async().await }
    }

    /// Submits a run whose outputs stay on the device, with inputs from the host or from the device. Blocks while
    /// control flow reads numbers back; a plan without control flow never blocks. [`Run::check`] and [`Run::read`]
    /// report failed checks of the model. Before one of these passes, outputs may depend on indices that were clamped
    /// to their range.
    pub fn launch(&self, inputs: &[RunInput]) -> Result<Run> {
        Run::start(self, &self.bind(inputs)?, inputs, false)
    }

    /// Like [`Program::launch`], with explicit sizes for symbols that do not follow from the inputs that the plan uses.
    pub fn launch_with(&self, sizes: &Bindings, inputs: &[RunInput]) -> Result<Run> {
        Run::start(self, sizes, inputs, false)
    }

    /// Solves for the sizes of the symbols. Fails if the number of inputs, or the rank of one, is not what the program
    /// expects.
    pub fn bind(&self, inputs: &[RunInput]) -> Result<Bindings> {
        let plan = &self.inner.plan;
        if inputs.len() != plan.inputs.len() {
            return Err(Error::input(format!(
                "{} inputs given; the program expects {}",
                inputs.len(),
                plan.inputs.len()
            )));
        }
        let used = inputs.iter().zip(&plan.inputs);
        let used = used.filter_map(|(input, slot)| slot.map(|slot| (input, &plan.slots[slot.0])));
        for (input, slot) in used.clone() {
            if input.shape().len() != slot.shape.len() {
                return Err(input_mismatch(input, slot));
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
    pub fn device(&self) -> &GpuDevice {
        &self.inner.device
    }

    /// Counts of created objects and executed work so far.
    pub fn statistics(&self) -> Statistics {
        self.inner.counters.statistics()
    }

    /// The weights whose device form is more than a copy of the model's data, so that caching it saves work.
    pub fn packed_weights<'a>(
        &'a self,
        source: &'a dyn WeightSource,
    ) -> Result<Vec<CacheableWeight<'a>>> {
        packable_weights(&self.inner.plan, source, &self.inner.rules)
    }

    /// Device memory that a run with given sizes needs.
    pub fn footprint(&self, sizes: &Bindings) -> Result<Footprint> {
        Ok(evaluate(&self.inner.plan, sizes, &self.inner.rules)?.footprint())
    }

    /// Frees the memory kept for later runs; weights and kernels stay.
    pub fn trim(&self) {
        lock(&self.inner.idle_contexts).clear();
    }
}

impl ProgramInner {
    /// Returns a context that no run uses; creates one if there is none.
    pub(super) fn acquire_context(&self) -> RunContext {
        let idle = lock(&self.idle_contexts).pop();
        idle.unwrap_or_else(|| RunContext::new(&self.rules.capabilities))
    }

    /// Keeps a context for a later run.
    pub(super) fn release_context(&self, context: RunContext) {
        let mut idle = lock(&self.idle_contexts);
        if idle.len() < MAX_IDLE_CONTEXTS {
            idle.push(context);
        }
    }
}

/// The pipeline of each kernel, and the memory of each weight.
type Prepared = (Vec<Arc<Pipeline>>, HashMap<SlotId, Arc<SlotMemory>>);

/// Waits until no other thread compiles kernels for a driver that compiles on one thread only.
fn lock_compiler() -> Result<MutexGuard<'static, ()>> {
    static COMPILER: Mutex<()> = Mutex::new(());
    loop {
        match COMPILER.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => interrupt::check()?,
        }
        std::thread::sleep(TIME_BETWEEN_ATTEMPTS);
    }
}

/// The pipelines of a plan, and how many of them had to be compiled. Calls `on_kernel` after each one.
fn compile(
    device: &GpuDevice,
    plan: &Plan,
    counters: &Counters,
    on_kernel: &(dyn Fn() + Sync),
) -> Result<(Vec<Arc<Pipeline>>, usize)> {
    let (pipelines, kernels) = (device.pipelines(), &plan.kernels);
    if !device.compiles_at_first_dispatch() {
        return pipelines.get_or_create_all(device.wgpu(), kernels, on_kernel);
    }
    let (pipelines, created) = pipelines.get_or_create_all(device.wgpu(), kernels, &|| ())?;
    let warmed_up = warm_up(device, plan, &pipelines, on_kernel);
    add(&counters.warmed_up, warmed_up as u64);
    interrupt::check().at(|| "compiling kernels".into())?;
    Ok((pipelines, created))
}

/// Compiles kernels on other threads while this thread uploads weights, or before that if the driver compiles on one
/// thread only: it also compiles when a texture is made.
fn prepare(
    device: &GpuDevice,
    plan: &Plan,
    weights: &dyn WeightSource,
    options: &ProgramOptions,
    rules: &PlacementRules,
    counters: &Counters,
) -> Result<Prepared> {
    let report = |progress: Progress| {
        if let Some(callback) = &options.progress {
            callback(progress);
        }
    };
    let (compiled, total) = (AtomicUsize::new(0), plan.kernels.len());
    let on_kernel = || {
        let done = compiled.fetch_add(1, Ordering::Relaxed) + 1;
        report(Progress::Pipelines { done, total });
    };
    let limits = ActiveLimits::current();
    let only_compiler = match device.pipelines().compiles_on_one_thread() {
        true => Some(lock_compiler()?),
        false => None,
    };
    let (pipelines, weights) = std::thread::scope(|scope| {
        let compile = || compile(device, plan, counters, &on_kernel);
        let compile = scope.spawn(move || limits.enter(compile));
        let on_bytes = |done, total| report(Progress::Weights { done, total });
        let upload = || upload(device, plan, weights, rules, options, counters, &on_bytes);
        let failed = |_| Err(Error::device("the driver failed while compiling kernels"));
        let pipelines = || compile.join().unwrap_or_else(failed);
        match only_compiler {
            Some(_) => (pipelines(), upload()),
            None => {
                let weights = upload();
                (pipelines(), weights)
            }
        }
    });
    if options.release_memory {
        // The driver's compiler and the staged weights have freed much heap memory.
        trusted::trim_heap();
    }
    device.check_alive()?;
    let (pipelines, created) = pipelines?;
    if options.release_memory && created > 0 && device.compiles_at_first_dispatch() {
        trusted::release_executable_pages();
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
