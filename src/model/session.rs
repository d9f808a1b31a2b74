//! Sessions: a model compiled for a device, with graphs that are imported and compiled when a call needs them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::background::in_background;
use super::compile_options::CompileOptions;
use super::compiled_graph::{
    CallTensors, CompiledGraph, SessionDevice, WeightCache, accept_inputs,
};
use super::packed::{PackedFile, PackedWeightsReport};
use super::session_states::SessionStates;
use super::{Device, Model, no_matching_graph};
use crate::error::{Error, ErrorContext, ErrorKind, Result};
use crate::gpu::{Progress, Run, RunInput};
use crate::interrupt::{self, RunOptions};
use crate::ir::{Graph, GraphModule, TensorSpec};
use crate::item::{Item, flatten_arguments};
use crate::kernel::materialization::Precision;
use crate::tensor::Tensor;
use crate::trace::program::{Signature, arguments_of};

/// A model compiled for a device. `Send` and `Sync`: threads may share it. Clones share the compiled graphs and the
/// states.
#[derive(Clone)]
pub struct Session {
    model: Model,
    device: Arc<Mutex<SessionDevice>>,
    options: CompileOptions,
    /// The compiled graphs of all methods, oldest first.
    compiled_graphs: Arc<Mutex<Vec<Arc<CompiledGraph>>>>,
    /// Graphs that are compiled only for the example's sizes so far: the method, and the module with the graph as
    /// imported.
    example_sized: Arc<Mutex<Vec<(String, GraphModule)>>>,
    states: Arc<Mutex<SessionStates>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.model)
            .field("device", &self.device())
            .field("options", &self.options)
            .field("compiled_graphs", &lock(&self.compiled_graphs).len())
            .finish_non_exhaustive()
    }
}

/// The graph that serves a call and the result of the query about it. Else the reason why the last graph does not serve
/// the call; `Err(None)` if there is no graph.
type ServingGraph<T> = Result<(Arc<CompiledGraph>, T), Option<Error>>;

/// Maximum number of compiled graphs that a session keeps. Without the limit, states whose numbers change in each run
/// would compile one graph per run.
const MAX_COMPILED_GRAPHS: usize = 64;

/// Time between two tries to lock a mutex under limits.
const TIME_BETWEEN_TRIES: Duration = Duration::from_millis(1);

impl Session {
    pub(super) fn new(model: Model, device: Device, options: CompileOptions) -> Result<Session> {
        if matches!(device, Device::Host) && options.precision == Precision::Half {
            let message = "the host cannot store f32 values as f16";
            let help = "choose an adapter (see `onionskin devices`), or omit f16";
            return Err(Error::usage(message).help(help));
        }
        let packed = options.packed.as_deref();
        let packed = packed.filter(|_| matches!(device, Device::Gpu(_)));
        let weight_cache = WeightCache {
            packed: packed.map(|path| Arc::new(PackedFile::open(path))),
            ..WeightCache::default()
        };
        let session = Session {
            model,
            device: Arc::new(Mutex::new(SessionDevice {
                device,
                weight_cache,
            })),
            options,
            compiled_graphs: Arc::default(),
            example_sized: Arc::default(),
            states: Arc::default(),
        };
        let mut states = SessionStates::default();
        let method = session.options.entry.as_str();
        match session.model.import_entry(method, None, &states, &[]) {
            Ok(module) => {
                session.add(method, module, &mut states)?;
            }
            // An archive without example inputs is imported for the inputs of the first call.
            Err(error)
                if session.model.program().can_reimport() && error.kind() == ErrorKind::Input => {}
            Err(error) => return Err(error),
        }
        *lock(&session.states) = states;
        Ok(session)
    }

    /// The device that runs the model. If the device is lost, the next run opens it again, compiles the kernels and uploads the
    /// weights; [`GpuDevice::replaces`](crate::gpu::GpuDevice::replaces) of the new device tells why. States are kept. A
    /// second loss, or the loss of an application's device, is an error of each further run.
    pub fn device(&self) -> Device {
        lock(&self.device).device.clone()
    }

    /// Replaces a lost device, and drops the graphs that were compiled for it.
    fn replace_lost_device(&self) -> Result<()> {
        let is_replaced = lock(&self.device).replace_lost()?;
        if let (true, Some(progress)) = (is_replaced, &self.options.progress) {
            progress(Progress::DeviceReplaced);
        }
        lock(&self.compiled_graphs).retain(|compiled_graph| !compiled_graph.is_lost());
        Ok(())
    }

    /// Storage precision of `f32` values.
    pub fn precision(&self) -> Precision {
        self.options.precision
    }

    /// Runs on tensors in the order of the graph's inputs and returns its output tensors, without states.
    ///
    /// # Errors
    /// Fails if the inputs fit no graph of the model, the model raised an error ([`ErrorKind::Raised`]), or the device
    /// failed.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        self.run_tensors(&arguments, &|_| Ok(inputs.to_vec()))
    }

    /// Like [`Session::run`], with a time limit, or a token that ends the run from another thread. The limits also hold for
    /// an import and a compilation that the call needs, and for the wait for other calls of a model with states.
    ///
    /// # Errors
    /// As [`Session::run`]. [`ErrorKind::Interrupted`] if a limit is exceeded; the states are then those before the call.
    pub fn run_with(&self, inputs: &[Tensor], options: &RunOptions) -> Result<Vec<Tensor>> {
        options.scope(|| self.run(inputs))
    }

    /// Runs on tensors by name, in any order, and returns the output tensors. [`Session::signature`] lists the names:
    /// those of the parameters, and `batch.input_ids` or `pair.0` within dictionaries, tuples and lists.
    ///
    /// ```no_run
    /// # fn main() -> onionskin::Result<()> {
    /// use onionskin::{CompileOptions, Device, Model, Tensor};
    ///
    /// let session = Model::open("bert.pt")?.compile(&Device::auto()?, &CompileOptions::default())?;
    /// let mask = Tensor::from_vec([1, 4], vec![1i64, 1, 1, 0])?;
    /// let ids = Tensor::from_vec([1, 4], vec![101i64, 7592, 102, 0])?;
    /// let outputs = session.run_named(&[("attention_mask", mask), ("input_ids", ids)])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Lists the names that are missing, unknown or given twice. Otherwise as [`Session::run`].
    pub fn run_named(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<Tensor>> {
        let named = inputs
            .iter()
            .map(|(name, tensor)| (name.to_string(), tensor.clone()));
        let named: Vec<(String, Tensor)> = named.collect();
        let arguments = self.signature()?.arguments(&named)?;
        self.run_tensors(&arguments, &|graph| {
            flatten_arguments(&arguments_of(graph), &arguments)
        })
    }

    /// The inputs of the entry graph by name.
    ///
    /// # Errors
    /// Fails if the archive is damaged.
    pub fn signature(&self) -> Result<Signature> {
        self.model.signature(&self.options.entry)
    }

    /// The inputs of the entry graph: names as [`Session::run_named`] takes them, element types, and shapes with
    /// symbolic sizes.
    ///
    /// ```no_run
    /// # fn main() -> onionskin::Result<()> {
    /// # use onionskin::{CompileOptions, Device, Model};
    /// let session = Model::open("bert.pt")?.compile(&Device::auto()?, &CompileOptions::default())?;
    /// for input in session.inputs()? {
    ///     println!("{input}"); // input_ids: i64[B, T]
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the archive holds no example inputs and the session has not run yet, since then the types are unknown.
    pub fn inputs(&self) -> Result<Vec<TensorSpec>> {
        self.with_entry(Graph::input_specs)
    }

    /// The outputs of the entry graph in the order of [`Session::run`]: `output`, `output.0` within a tuple or a list,
    /// and the key of a dictionary or the field of a named tuple; element types, and shapes with symbolic sizes.
    ///
    /// # Errors
    /// As [`Session::inputs`].
    pub fn outputs(&self) -> Result<Vec<TensorSpec>> {
        self.with_entry(Graph::output_specs)
    }

    /// Queries the entry graph, as imported if that is available.
    fn with_entry<T>(&self, query: impl Fn(&Graph) -> T) -> Result<T> {
        let entry = &self.options.entry;
        let example_sized = lock(&self.example_sized);
        if let Some((_, module)) = example_sized.iter().find(|(method, _)| method == entry) {
            return module.graph(entry).map(query);
        }
        drop(example_sized);
        // The last compiled graph serves the most sizes.
        let compiled = self.compiled_graphs_of(entry).last();
        compiled
            .map(|compiled_graph| query(&compiled_graph.graph))
            .ok_or_else(|| {
                Error::input(format!("the types of {entry}'s inputs are not known yet"))
                    .help("the archive holds no example inputs: run the session once first")
            })
    }

    /// Runs the entry graph and returns its output tensors, without states.
    fn run_tensors(&self, arguments: &[Item], call_tensors: CallTensors) -> Result<Vec<Tensor>> {
        let entry = &self.options.entry;
        self.run_with_states(entry, arguments, call_tensors, |compiled_graph, inputs| {
            let outputs = compiled_graph.run(inputs)?;
            let count = compiled_graph.graph.result_count();
            Ok((outputs.iter().take(count).cloned().collect(), outputs))
        })
    }

    /// Like [`Session::run`], without blocking the calling thread. The future awaits the GPU's work. An import, a
    /// compilation, a run on the host and a run of a model with states take place on a separate thread, and continue if
    /// the future is dropped.
    ///
    /// # Errors
    /// As [`Session::run`]. Fails as well if no thread can be started.
    pub async fn run_async(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match self.launch_ready(inputs)? {
            Some(run) => run.read_async().await,
            None => {
                let (session, inputs) = (self.clone(), inputs.to_vec());
                in_background("onionskin-run", move || session.run(&inputs)).await
            }
        }
    }

    /// Like [`Session::run_with`], on a separate thread. Dropping the future does not end the run; cancel the token.
    ///
    /// # Errors
    /// As [`Session::run_with`]. Fails as well if no thread can be started.
    pub async fn run_async_with(
        &self,
        inputs: &[Tensor],
        options: &RunOptions,
    ) -> Result<Vec<Tensor>> {
        let (session, inputs, options) = (self.clone(), inputs.to_vec(), options.clone());
        let run = move || session.run_with(&inputs, &options);
        in_background("onionskin-run", run).await
    }

    /// Submits a run if a graph without states is compiled for a GPU and serves the inputs.
    fn launch_ready(&self, inputs: &[Tensor]) -> Result<Option<Run>> {
        self.replace_lost_device()?;
        let ready = self.find_stateless(&self.options.entry, &|_| Ok(inputs.to_vec()));
        let Some((compiled_graph, inputs)) = ready else {
            return Ok(None);
        };
        let Some(program) = &compiled_graph.program else {
            return Ok(None);
        };
        let host_inputs: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        program
            .launch_with(&compiled_graph.bind(&inputs)?, &host_inputs)
            .map(Some)
    }

    /// Submits a run on a GPU whose outputs stay in its buffers, for further use by the application. Inputs come from
    /// the host or from buffers of the same device. [`Run::check`] reports whether a check of the model failed.
    ///
    /// # Errors
    /// Fails if the session runs on the host, if the model has states, or as [`Session::run`]. A graph is not imported
    /// again for inputs on the device.
    pub fn launch(&self, inputs: &[RunInput]) -> Result<Run> {
        if matches!(self.device(), Device::Host) {
            return Err(Error::usage("the host has no buffers to share")
                .help("open a GPU, or use Session::run"));
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(RunInput::shape).collect();
        self.replace_lost_device()?;
        let fits = |graph: &Graph| {
            if graph.has_states() {
                return Err(Error::usage("launch does not support models with states")
                    .help("use Session::run, which stores the states"));
            }
            graph.bind(&shapes)
        };
        let (compiled_graph, bindings) = match self.find_serving(&self.options.entry, &fits)? {
            Ok(found) => found,
            Err(refusal) => return Err(no_matching_graph(refusal)),
        };
        match &compiled_graph.program {
            Some(program) => program.launch_with(&bindings, inputs),
            None => Err(Error::internal("a graph on a GPU has no program")),
        }
    }

    /// Calls the model like Python: arguments and result may be tuples, lists and dictionaries.
    ///
    /// # Errors
    /// As [`Session::run`]. The message names the argument that does not fit the signature.
    pub fn call(&self, arguments: &[Item]) -> Result<Item> {
        self.call_method(&self.options.entry, arguments)
    }

    /// Like [`Session::call`], with limits as in [`Session::run_with`].
    ///
    /// # Errors
    /// As [`Session::call`] and [`Session::run_with`].
    pub fn call_with(&self, arguments: &[Item], options: &RunOptions) -> Result<Item> {
        options.scope(|| self.call(arguments))
    }

    /// Calls a method of the model, or an entry graph of this name. All methods share the states.
    ///
    /// # Errors
    /// As [`Session::call`]. Fails as well if the model has no such method.
    pub fn call_method(&self, method: &str, arguments: &[Item]) -> Result<Item> {
        let call_tensors = |graph: &Graph| flatten_arguments(&graph.input_trees, arguments);
        self.run_with_states(
            method,
            arguments,
            &call_tensors,
            |compiled_graph, inputs| {
                let outputs = compiled_graph.run(inputs)?;
                Ok((compiled_graph.result(inputs, &outputs)?, outputs))
            },
        )
    }

    /// Current value of a state; `None` if there is no such state.
    pub fn state(&self, name: &str) -> Option<Item> {
        lock(&self.states).get(name).ok()
    }

    /// Resets every state to its initial value.
    pub fn reset(&self) {
        lock(&self.states).reset();
    }

    /// The compiled graph that serves a call, compiled if necessary, and the call's tensors in the order of the graph's
    /// inputs.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn compile_for(&self, arguments: &[Item]) -> Result<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let call_tensors = |graph: &Graph| flatten_arguments(&graph.input_trees, arguments);
        self.replace_lost_device()?;
        let mut states = lock_under_limits(&self.states)?;
        self.compiled_graph_for(&self.options.entry, arguments, &call_tensors, &mut states)
    }

    /// Report on the file of packed weights so far; `None` if the options name no file, or the host runs the model.
    pub fn packed(&self) -> Option<PackedWeightsReport> {
        let device = lock(&self.device);
        let packed = device.weight_cache.packed.as_ref();
        packed.map(|packed| packed.report())
    }

    /// The graphs compiled so far.
    pub fn compiled_graphs(&self) -> Vec<Arc<CompiledGraph>> {
        lock(&self.compiled_graphs).clone()
    }

    /// The compiled graphs of a method, oldest first.
    fn compiled_graphs_of(&self, method: &str) -> impl Iterator<Item = Arc<CompiledGraph>> {
        let compiled_graphs = self.compiled_graphs().into_iter();
        compiled_graphs.filter(move |compiled_graph| compiled_graph.graph.name == method)
    }

    /// Runs a call with `run` and stores the new values of states. `run` returns the result and all outputs of the
    /// graph. Calls with states run one after the other.
    fn run_with_states<T>(
        &self,
        method: &str,
        arguments: &[Item],
        call_tensors: CallTensors,
        run: impl Fn(&CompiledGraph, &[Tensor]) -> Result<(T, Vec<Tensor>)>,
    ) -> Result<T> {
        self.replace_lost_device()?;
        if let Some((compiled_graph, inputs)) = self.find_stateless(method, call_tensors) {
            return Ok(run(&compiled_graph, &inputs)?.0);
        }
        let mut states = lock_under_limits(&self.states)?;
        let (compiled_graph, inputs) =
            self.compiled_graph_for(method, arguments, call_tensors, &mut states)?;
        if !compiled_graph.graph.has_states() {
            drop(states);
            return Ok(run(&compiled_graph, &inputs)?.0);
        }
        let (value, outputs) = run(&compiled_graph, &inputs)?;
        states.set(compiled_graph.new_states(&inputs, &outputs)?);
        Ok(value)
    }

    /// A compiled graph without states that serves a call, and its inputs. Calls of such graphs do not wait for each
    /// other.
    fn find_stateless(
        &self,
        method: &str,
        call_tensors: CallTensors,
    ) -> Option<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let mut stateless = self
            .compiled_graphs_of(method)
            .filter(|compiled_graph| !compiled_graph.graph.has_states());
        stateless.find_map(|compiled_graph| {
            let inputs = accept_inputs(
                &compiled_graph.graph,
                call_tensors,
                &SessionStates::default(),
            )
            .ok()?;
            Some((compiled_graph, inputs))
        })
    }

    /// The compiled graph that serves a call, and its inputs. If no graph does, imports and compiles one.
    fn compiled_graph_for(
        &self,
        method: &str,
        arguments: &[Item],
        call_tensors: CallTensors,
        states: &mut SessionStates,
    ) -> Result<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let fits = |graph: &Graph| accept_inputs(graph, call_tensors, states);
        let refusal = match self.find_serving(method, &fits)? {
            Ok(found) => return Ok(found),
            Err(refusal) => refusal,
        };
        let is_first_graph = refusal.is_none();
        let may_import =
            self.model.program().can_reimport() && (self.options.respecialize || is_first_graph);
        if !may_import && !is_first_graph {
            return Err(no_matching_graph(refusal));
        }
        let module = self.import(method, arguments, states)?;
        self.add(method, module, states)?;
        self.find_serving(method, &|graph| accept_inputs(graph, call_tensors, states))?
            .map_err(no_matching_graph)
    }

    /// The first graph of a method that serves a call, with the result of `fits`, or the reason why the last one does
    /// not. A graph compiled only for the example's sizes is compiled for all sizes if the call has others.
    fn find_serving<T>(
        &self,
        method: &str,
        fits: &dyn Fn(&Graph) -> Result<T>,
    ) -> Result<ServingGraph<T>> {
        let mut refusal = None;
        for compiled_graph in self.compiled_graphs_of(method) {
            match fits(&compiled_graph.graph) {
                Ok(found) => return Ok(Ok((compiled_graph, found))),
                Err(error) => refusal = Some(error),
            }
        }
        let mut example_sized = lock_under_limits(&self.example_sized)?;
        for index in 0..example_sized.len() {
            let (name, module) = &example_sized[index];
            if name != method {
                continue;
            }
            let graph = module.graph(name)?;
            match fits(graph) {
                Ok(found) => {
                    let compiled_graph = self.compile(graph.clone(), module)?;
                    example_sized.remove(index);
                    return Ok(Ok((compiled_graph, found)));
                }
                Err(error) => refusal = Some(error),
            }
        }
        Ok(Err(refusal))
    }

    /// Imports a method for a call. Numbers in states that vary between calls become inputs, unless the graph then
    /// needs more conditions and loops than a graph for one number.
    fn import(
        &self,
        method: &str,
        arguments: &[Item],
        states: &SessionStates,
    ) -> Result<GraphModule> {
        let compiled_graphs: Vec<Arc<CompiledGraph>> = self.compiled_graphs_of(method).collect();
        let varying = states.varying_numbers(&compiled_graphs);
        let count_regions = |graph: &Graph| {
            let nodes = graph.nodes.iter();
            nodes.filter(|node| !node.bodies().is_empty()).count()
        };
        let max_regions = compiled_graphs
            .iter()
            .map(|compiled_graph| count_regions(&compiled_graph.graph))
            .max();
        if !varying.is_empty()
            && let Ok(module) = self
                .model
                .import_entry(method, Some(arguments), states, &varying)
            && Some(count_regions(module.graph(method)?)) <= max_regions
        {
            return Ok(module);
        }
        self.model
            .import_entry(method, Some(arguments), states, &[])
    }

    /// Compiles an imported graph, for the example's sizes first if the options ask for it.
    fn add(&self, method: &str, module: GraphModule, states: &mut SessionStates) -> Result<()> {
        let new_states = states.add_states(&module)?;
        let graph = module.graph(method)?;
        let for_example_sizes = self.options.static_shapes
            && matches!(self.device(), Device::Gpu(_))
            && !graph.hints.is_empty();
        let graph = if for_example_sizes {
            graph.with_sizes(&graph.hints)
        } else {
            graph.clone()
        };
        // A weight of earlier graphs may be a state that this method writes.
        let outdated = |graph: &Graph| {
            let mut weights = graph.weights();
            weights.any(|(name, _)| new_states.iter().any(|state| state == name))
        };
        lock(&self.compiled_graphs).retain(|known| !outdated(&known.graph));
        lock(&self.example_sized)
            .retain(|(method, known)| !known.graph(method).is_ok_and(outdated));
        self.compile(graph, &module)?;
        if for_example_sizes {
            lock(&self.example_sized).push((method.to_string(), module));
        }
        Ok(())
    }

    /// Compiles a graph and keeps it. Drops the oldest compiled graph if there are too many.
    fn compile(&self, graph: Graph, module: &GraphModule) -> Result<Arc<CompiledGraph>> {
        let SessionDevice {
            device,
            weight_cache,
        } = lock(&self.device).clone();
        let (weights, options) = (&module.weights, &self.options);
        let compiled = CompiledGraph::new(graph, weights, &device, options, &weight_cache)?;
        let compiled_graph = Arc::new(compiled);
        let mut compiled_graphs = lock(&self.compiled_graphs);
        if compiled_graphs.len() >= MAX_COMPILED_GRAPHS {
            compiled_graphs.remove(0);
        }
        compiled_graphs.push(compiled_graph.clone());
        Ok(compiled_graph)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex that other calls may hold for long.
///
/// # Errors
/// [`ErrorKind::Interrupted`] if a limit of this thread is exceeded before the mutex is free.
fn lock_under_limits<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    while interrupt::can_interrupt() {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                interrupt::check().at(|| "waiting for another call of the session".into())?;
                std::thread::sleep(TIME_BETWEEN_TRIES);
            }
        }
    }
    Ok(lock(mutex))
}
