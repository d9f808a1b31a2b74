//! A graph compiled for a device.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::{CompileOptions, Device};
use crate::digest::Digest;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{
    FreeBuffers, PackedWeights, Program, ProgramOptions, Run, SharedWeights, WeightSource,
};
use crate::interp;
use crate::ir::{Graph, GraphModule, TreeConstant, TreeSpec, Weights};
use crate::item::{Item, flatten_states};
use crate::pass::{self, FoldedModule};
use crate::plan::{self, PlanOptions};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::packed::PackedFile;
use super::session_states::SessionStates;

/// Function that returns the tensors of a call in the order of a graph's inputs, without states.
pub(super) type CallTensors<'a> = &'a dyn Fn(&Graph) -> Result<Vec<Tensor>>;

/// A compiled graph, valid for the sizes that its guards allow.
pub struct CompiledGraph {
    /// The graph as imported.
    pub graph: Graph,
    /// The executed graph: after all passes on a GPU, only primitives on the host.
    pub lowered: Graph,
    /// Weights of the executed graph.
    weights: HostWeights,
    /// The program on a GPU; `None` on the host.
    pub program: Option<Program>,
}

impl fmt::Debug for CompiledGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGraph")
            .field("graph", &self.graph)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// The device of a session, with the weights on it.
#[derive(Clone)]
pub(super) struct SessionDevice {
    pub(super) device: Device,
    pub(super) weight_cache: WeightCache,
}

impl SessionDevice {
    /// Replaces a lost device by the same adapter, opened again; its weights are uploaded again later. Returns whether it did.
    ///
    /// # Errors
    /// Fails if the device is lost and cannot be replaced.
    pub(super) fn replace_lost(&mut self) -> Result<bool> {
        let Device::Gpu(gpu) = &self.device else {
            return Ok(false);
        };
        // A poll notices a loss. Its error is that loss.
        let _ = gpu.poll(None);
        if !gpu.is_lost() {
            return Ok(false);
        }
        self.device = Device::Gpu(gpu.replacement()?);
        self.weight_cache.shared = SharedWeights::default();
        Ok(true)
    }
}

/// Cache of device weights that all compiled graphs of a session share.
#[derive(Clone, Default)]
pub(super) struct WeightCache {
    /// Weights on the device.
    pub(super) shared: SharedWeights,
    /// Weights in a file.
    pub(super) packed: Option<Arc<PackedFile>>,
}

/// Weights of the executed graph on the host.
enum HostWeights {
    /// All weights, for a run on the host.
    All(Weights),
    /// Derived weights exist only on the device and are recomputed on demand.
    Folded(FoldedModule),
}

impl WeightSource for FoldedModule {
    fn ty(&self, name: &str) -> Option<TensorType> {
        FoldedModule::ty(self, name).cloned()
    }

    fn tensor(&self, name: &str) -> Result<Tensor> {
        FoldedModule::tensor(self, name)
    }

    fn is_derived(&self, name: &str) -> bool {
        FoldedModule::is_derived(self, name)
    }

    fn as_permutation(&self, name: &str) -> Option<(Tensor, Vec<usize>)> {
        FoldedModule::permuted(self, name)
    }

    fn digest(&self, name: &str) -> Result<Digest> {
        FoldedModule::digest(self, name)
    }

    fn loaded(&self, name: &str) -> Result<Vec<Tensor>> {
        FoldedModule::loaded(self, name)
    }
}

/// The weights that a graph reads, in memory.
fn loaded_weights(graph: &Graph, weights: &Weights) -> Result<Weights> {
    let read = graph
        .weights()
        .filter_map(|(name, _)| weights.get_key_value(name));
    read.map(|(name, tensor)| Ok((name.clone(), tensor.load()?)))
        .collect()
}

impl CompiledGraph {
    /// Compiles a graph for a device; `weight_cache` provides weights that are on the device or in a file already.
    pub(super) fn new(
        graph: Graph,
        weights: &Weights,
        device: &Device,
        options: &CompileOptions,
        weight_cache: &WeightCache,
    ) -> Result<CompiledGraph> {
        let Device::Gpu(gpu) = device else {
            let lowered = apply_check_option(pass::decompose(&graph)?, options)?;
            let weights = loaded_weights(&graph, weights)?;
            return Ok(CompiledGraph {
                graph,
                lowered,
                weights: HostWeights::All(weights),
                program: None,
            });
        };
        let entry = GraphModule {
            graphs: vec![graph.clone()],
            weights: weights.clone(),
            ..GraphModule::default()
        };
        let mut folded = pass::optimize_lazily(&entry)?;
        let lowered = folded.graphs.pop();
        let lowered = lowered.ok_or_else(|| Error::internal("the passes lost the graph"))?;
        let lowered = apply_check_option(lowered, options)?;
        let plan_options = PlanOptions {
            variant_overrides: options.variant_overrides.clone(),
            precision: options.precision,
        };
        let plan = plan::plan_with_options(&lowered, gpu.capabilities(), &plan_options)?;
        let program_options = ProgramOptions {
            keep: options.keep,
            progress: options.progress.clone(),
            shared: weight_cache.shared.clone(),
            packed: weight_cache
                .packed
                .clone()
                .map(|packed| packed as Arc<dyn PackedWeights>),
            release_memory: options.release_memory,
            ..ProgramOptions::default()
        };
        let program = Program::from_source(gpu, plan, &folded, program_options)?;
        if let Some(packed) = &weight_cache.packed {
            packed.write_missing(&program, &folded);
        }
        Ok(CompiledGraph {
            graph,
            lowered,
            weights: HostWeights::Folded(folded),
            program: Some(program),
        })
    }

    /// True if the graph was compiled for a device that is lost.
    pub(super) fn is_lost(&self) -> bool {
        let program = self.program.as_ref();
        program.is_some_and(|program| program.device().is_lost())
    }

    /// The weights of the executed graph. Derived weights are recomputed.
    ///
    /// # Errors
    /// Fails if a weight can no longer be computed.
    pub fn weights(&self) -> Result<Cow<'_, Weights>> {
        match &self.weights {
            HostWeights::All(weights) => Ok(Cow::Borrowed(weights)),
            HostWeights::Folded(folded) => folded.weights().map(Cow::Owned),
        }
    }

    /// Values of the symbols, if the graph accepts the inputs: dtypes, ranks, sizes and guards.
    ///
    /// # Errors
    /// Fails if the graph does not accept the inputs.
    pub fn bind(&self, inputs: &[Tensor]) -> Result<Bindings> {
        bind(&self.graph, inputs)
    }

    /// Runs the graph. Results are on the host; tensors of states stay on the device.
    pub(super) fn run(&self, inputs: &[Tensor]) -> Result<FinishedRun> {
        let Some(program) = &self.program else {
            let outputs = interp::run(&self.lowered, self.weights()?.as_ref(), inputs)?;
            return Ok(FinishedRun {
                sizes: self.bind(inputs)?,
                on_host: outputs.into_iter().enumerate().collect(),
                on_device: None,
            });
        };
        let sizes = self.bind(inputs)?;
        let run = program.launch_tensors(&sizes, inputs)?;
        let read = self.outputs_to_read(&run);
        let tensors = run.read_some(&read)?;
        Ok(FinishedRun {
            sizes,
            on_host: read.into_iter().zip(tensors).collect(),
            on_device: self.graph.has_states().then_some(run),
        })
    }

    /// The outputs that the host reads: those of the result, Python numbers, and what cannot stay on the device.
    fn outputs_to_read(&self, run: &Run) -> Vec<usize> {
        let graph = &self.graph;
        let results = graph.output_tree.iter().flat_map(TreeSpec::tensors);
        let numbers = graph.writes.iter().flat_map(|state| state.tree.numbers());
        let others = (0..graph.outputs.len()).filter(|output| !run.can_keep(*output));
        let read = results.chain(numbers).chain(others);
        let read: BTreeSet<usize> = read.chain(0..graph.result_count()).collect();
        read.into_iter().collect()
    }

    /// The number that a state must equal, if the graph was imported for a constant number in that state.
    pub(super) fn required_state_number(&self, state: &str) -> Option<i64> {
        let mut reads = self.graph.reads.iter();
        match reads.find(|read| read.name == state)?.tree {
            TreeSpec::Constant(TreeConstant::Number(Scalar::Int(number))) => Some(number),
            _ => None,
        }
    }

    /// The result of a run, with the structure that the Python method returns; a tuple if that is unknown.
    pub(super) fn result(&self, run: &FinishedRun) -> Result<Item> {
        match &self.graph.output_tree {
            Some(tree) => Item::build_with(tree, &|output| run.on_host(output), &run.sizes),
            None => {
                let tensors = self.result_tensors(run)?.into_iter();
                Ok(Item::Tuple(tensors.map(Item::Tensor).collect()))
            }
        }
    }

    /// The tensors of a run's result.
    pub(super) fn result_tensors(&self, run: &FinishedRun) -> Result<Vec<Tensor>> {
        let outputs = 0..self.graph.result_count();
        outputs.map(|output| run.on_host(output)).collect()
    }

    /// New values of states after a run, by name. Tensors stay on the device, in free buffers where they fit.
    pub(super) fn new_states(
        &self,
        run: &FinishedRun,
        free: FreeBuffers,
    ) -> Result<Vec<(String, Item)>> {
        let kept = self.keep(run, free)?;
        let tensor = |output: usize| match kept.get(&output) {
            Some(tensor) => Ok(tensor.clone()),
            None => run.on_host(output),
        };
        let states = self.graph.writes.iter();
        states
            .map(|state| {
                let value = Item::build_with(&state.tree, &tensor, &run.sizes)?;
                Ok((state.name.clone(), value))
            })
            .collect()
    }

    /// Tensors of states that stay on the device, by output.
    fn keep(&self, run: &FinishedRun, free: FreeBuffers) -> Result<BTreeMap<usize, Tensor>> {
        let Some(run) = &run.on_device else {
            return Ok(BTreeMap::new());
        };
        let outputs = self.graph.writes.iter().flat_map(|state| {
            let numbers = state.tree.numbers();
            let tensors = state.tree.tensors().into_iter();
            tensors.filter(move |output| !numbers.contains(output))
        });
        let outputs: BTreeSet<usize> = outputs.filter(|output| run.can_keep(*output)).collect();
        let outputs: Vec<usize> = outputs.into_iter().collect();
        let tensors = run.keep(&outputs, free)?;
        Ok(outputs.into_iter().zip(tensors).collect())
    }
}

/// A run whose results were read.
pub(super) struct FinishedRun {
    /// Values of the symbolic sizes.
    sizes: Bindings,
    /// Outputs on the host, by index.
    on_host: BTreeMap<usize, Tensor>,
    /// The run on the device, if that holds states.
    on_device: Option<Run>,
}

impl FinishedRun {
    /// An output that was read.
    fn on_host(&self, output: usize) -> Result<Tensor> {
        let tensor = self.on_host.get(&output).cloned();
        tensor.ok_or_else(|| Error::internal(format!("output {output} was not read")))
    }
}

/// Removes the checks of a graph unless the options ask for them.
fn apply_check_option(graph: Graph, options: &CompileOptions) -> Result<Graph> {
    match options.checks {
        true => Ok(graph),
        false => pass::without_checks(&graph),
    }
}

/// The inputs of a graph for a call: the call's tensors, then the current states. Fails if the graph does not accept
/// them.
pub(super) fn accept_inputs(
    graph: &Graph,
    call_tensors: CallTensors,
    states: &SessionStates,
) -> Result<Vec<Tensor>> {
    let values = graph.reads.iter();
    let values: Vec<Item> = values
        .map(|state| states.get(&state.name))
        .collect::<Result<_>>()?;
    let mut inputs = call_tensors(graph)?;
    inputs.extend(flatten_states(&graph.reads, &values)?);
    bind(graph, &inputs)?;
    Ok(inputs)
}

/// Values of the symbols, if the graph accepts the inputs: dtypes, ranks, sizes and guards.
fn bind(graph: &Graph, inputs: &[Tensor]) -> Result<Bindings> {
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let bindings = graph.bind(&shapes)?;
    graph.check_dtypes(inputs)?;
    Ok(bindings)
}
