//! Sessions: a model compiled for a device, with graphs that are imported and compiled when a call needs them.

mod graphs;
mod states;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::background::in_background;
use super::compile_options::CompileOptions;
use super::compiled_graph::{CallTensors, CompiledGraph, FinishedRun, SessionDevice, WeightCache};
use super::packed::{PackedFile, PackedWeightsReport};
use super::session_states::SessionStates;
use super::{Device, Model, no_matching_graph};
use crate::error::{Error, ErrorContext, ErrorKind, Result};
use crate::gpu::{Run, RunInput};
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
    /// weights; [`GpuDevice::replaces`](crate::gpu::GpuDevice::replaces) of the new device tells why. States on the lost device
    /// have no values any more: runs are errors until they are reset or set. A second loss, or the loss of an application's device, is an error of each further run.
    pub fn device(&self) -> Device {
        lock(&self.device).device.clone()
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
        self.run_with_states(
            entry,
            arguments,
            call_tensors,
            CompiledGraph::result_tensors,
        )
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
        self.run_with_states(method, arguments, &call_tensors, CompiledGraph::result)
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
        states.check_alive()?;
        let (compiled_graph, inputs) =
            self.compiled_graph_for(&self.options.entry, arguments, &call_tensors, &mut states)?;
        let inputs = inputs.iter().map(Tensor::load);
        Ok((compiled_graph, inputs.collect::<Result<_>>()?))
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

    /// Runs a call, stores the new values of states, and returns `result` of the run. Calls with states run one after the
    /// other.
    fn run_with_states<T>(
        &self,
        method: &str,
        arguments: &[Item],
        call_tensors: CallTensors,
        result: impl Fn(&CompiledGraph, &FinishedRun) -> Result<T>,
    ) -> Result<T> {
        self.replace_lost_device()?;
        if let Some((compiled_graph, inputs)) = self.find_stateless(method, call_tensors) {
            return result(&compiled_graph, &compiled_graph.run(&inputs)?);
        }
        let mut states = lock_under_limits(&self.states)?;
        states.check_alive()?;
        let (compiled_graph, inputs) =
            self.compiled_graph_for(method, arguments, call_tensors, &mut states)?;
        if !compiled_graph.graph.has_states() {
            drop(states);
            return result(&compiled_graph, &compiled_graph.run(&inputs)?);
        }
        let run = compiled_graph.run(&inputs)?;
        let value = result(&compiled_graph, &run)?;
        // States that nothing else holds are written in place.
        drop(inputs);
        let free = states.buffers_of(&compiled_graph.graph.writes);
        states.set(compiled_graph.new_states(&run, free)?);
        Ok(value)
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
