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

/// Lanes that are kept while no run uses them.
const IDLE_LANES: usize = 8;

/// What can be read after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The outputs; values between kernels share memory.
    #[default]
    Outputs,
    /// Every value, each in memory of its own: to find the first one that differs from what is expected.
    Everything,
}

/// What has been done of what is to do while a program is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Kernels compiled.
    Pipelines {
        /// So many.
        done: usize,
        /// Of so many.
        total: usize,
    },
    /// Bytes of weights uploaded.
    Weights {
        /// So many.
        done: u64,
        /// Of so many.
        total: u64,
    },
}

/// How to make a program.
#[derive(Clone)]
pub struct ProgramOptions {
    /// What can be read after a run.
    pub keep: Keep,
    /// Called, from several threads, while kernels compile and weights are uploaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// Weights to share with other programs on the same device.
    pub shared: SharedWeights,
    /// Weights that were packed at an earlier time.
    pub packed: Option<Arc<dyn PackedWeights>>,
    /// For how many different sizes everything that depends on them is kept.
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

/// A plan on a device, ready to run: kernels compiled, weights uploaded. Clones are the same program.
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
    /// An error lists everything that the device cannot do, every weight that is missing or of another type, and every
    /// kernel that does not compile.
    pub fn new(
        device: &Device,
        plan: Plan,
        weights: &Weights,
        options: ProgramOptions,
    ) -> Result<Program> {
        Program::from_source(device, plan, weights, options)
    }

    /// The same with weights from elsewhere.
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
    /// An error says which input does not fit its type, which condition on the sizes does not hold, or which check of the
    /// model failed.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs: Vec<Input> = inputs.iter().map(Input::Host).collect();
        Run::start(self, &self.bind(&inputs)?, &inputs, true)?.read()
    }

    /// Like [`Program::run`], without blocking the thread while the device works. The work is submitted at once, the
    /// future waits for the outputs. What control flow depends on is waited for before it is submitted.
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

    /// Submits a run whose outputs stay on the device, with inputs from the host or from the device. Blocks for as long as
    /// control flow reads numbers back; a plan without any never does. Checks of the model that fail are told by
    /// [`Run::check`] and [`Run::read`]: until then outputs may be made of indices that were kept within their range.
    pub fn launch(&self, inputs: &[Input]) -> Result<Run> {
        Run::start(self, &self.bind(inputs)?, inputs, false)
    }

    /// Like [`Program::launch`], with sizes of symbols that do not follow from the inputs that the plan uses.
    pub fn launch_with(&self, sizes: &Bindings, inputs: &[Input]) -> Result<Run> {
        Run::start(self, sizes, inputs, false)
    }

    /// The sizes of the symbols for given inputs; an error if there are not as many inputs, or dimensions of one, as the
    /// program takes.
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

    /// What has been created and done so far.
    pub fn statistics(&self) -> Statistics {
        self.inner.counters.statistics()
    }

    /// The weights that are worth keeping for a later time, out of those that the program was made with.
    pub fn packed<'a>(&'a self, source: &'a dyn WeightSource) -> Result<Vec<Packed<'a>>> {
        packed(&self.inner.plan, source, &self.inner.rules)
    }

    /// Device memory of a run with given sizes.
    pub fn footprint(&self, sizes: &Bindings) -> Result<Footprint> {
        Ok(size(&self.inner.plan, sizes, &self.inner.rules)?.footprint())
    }

    /// Frees the memory that is kept for runs to come; weights and kernels stay.
    pub fn trim(&self) {
        lock(&self.inner.idle).clear();
    }
}

impl Inner {
    /// Memory that no run uses.
    pub(super) fn check_out(&self) -> Lane {
        let idle = lock(&self.idle).pop();
        idle.unwrap_or_else(|| Lane::on(&self.rules.capabilities))
    }

    /// Gives memory back for the next run.
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
    // Compilers have used much memory, weights on their way to the device as well.
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
