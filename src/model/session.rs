use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::background::in_background;
use super::compiled_graph::{CallTensors, CompiledGraph, WeightCache, accept_inputs};
use super::packed::{PackedFile, PackedReport};
use super::session_states::SessionStates;
use super::signature::{Signature, arguments_of};
use super::{Device, Model, no_matching_graph};
use crate::error::{Error, ErrorKind, Result};
use crate::gpu::{Keep, Progress, Run, RunInput};
use crate::ir::{Graph, GraphModule, TensorSpec};
use crate::item::{Item, flatten_arguments};
use crate::kernel::choice::VariantOverrides;
use crate::kernel::materialization::Precision;
use crate::tensor::Tensor;

/// Options of a compilation.
#[derive(Clone)]
pub struct CompileOptions {
    /// Name of the entry graph: `forward`, or another method.
    pub entry: String,
    /// Imports an archive again when a call's sizes violate the guards of all graphs so far, so that one session serves
    /// all sizes that PyTorch's trace serves. Without it such a call is an error.
    pub respecialize: bool,
    /// On a GPU, compiles a graph with symbolic sizes for the example's sizes first: constant sizes make faster kernels.
    /// The first call with other sizes compiles it for all sizes.
    pub static_shapes: bool,
    /// Kernel variants that replace those of the planner's table; see [`crate::model::Tuning`].
    pub choices: VariantOverrides,
    /// Storage precision of `f32` values on the device, weights included. Half precision takes half the bytes and is less
    /// exact. Inputs and outputs are unchanged, and kernels compute in `f32`. The host stores `f32` only.
    pub precision: Precision,
    /// Whether a run fails where the model asserts, indexes out of range or divides integers by zero, as in PyTorch.
    /// Without checks assertions are left out, a GPU clamps indices to their range, and such quotients are arbitrary
    /// numbers.
    pub checks: bool,
    /// The values that [`Run::slot`] can read after a run.
    pub keep: Keep,
    /// A file of weights in a GPU's layout. Weights in the file are uploaded without being computed or packed; missing and
    /// damaged ones are added to it. The file need not exist, and may contain weights of other models. Other processes
    /// must not change it meanwhile. See [`Session::packed`].
    pub packed: Option<PathBuf>,
    /// Progress callback, called from several threads while kernels compile and weights are uploaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            entry: "forward".to_string(),
            respecialize: true,
            static_shapes: true,
            choices: VariantOverrides::new(),
            precision: Precision::Single,
            checks: true,
            keep: Keep::Outputs,
            packed: None,
            progress: None,
        }
    }
}

impl fmt::Debug for CompileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompileOptions")
            .field("entry", &self.entry)
            .field("respecialize", &self.respecialize)
            .field("static_shapes", &self.static_shapes)
            .field("precision", &self.precision)
            .field("checks", &self.checks)
            .field("packed", &self.packed)
            .finish_non_exhaustive()
    }
}

/// A model compiled for a device. `Send` and `Sync`: threads may share it. Clones share the compiled graphs and the
/// states.
#[derive(Clone)]
pub struct Session {
    model: Model,
    device: Device,
    options: CompileOptions,
    compiled_graphs: Arc<Mutex<Vec<Arc<CompiledGraph>>>>,
    /// Graphs compiled only for the example's sizes so far: the method, and the module with the graph as imported.
    example_sized: Arc<Mutex<Vec<(String, GraphModule)>>>,
    states: Arc<Mutex<SessionStates>>,
    weight_cache: WeightCache,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.model)
            .field("device", &self.device)
            .field("options", &self.options)
            .field("compiled_graphs", &lock(&self.compiled_graphs).len())
            .finish_non_exhaustive()
    }
}

/// The graph that serves a call and the result of the query about it, or the reason why the last graph does not serve it;
/// `None` if there is no graph.
type ServingGraph<T> = Result<(Arc<CompiledGraph>, T), Option<Error>>;

/// Most compiled graphs that a session keeps. Without the limit, states whose numbers change in each run would compile
/// one graph per run.
const MAX_COMPILED_GRAPHS: usize = 64;

impl Session {
    pub(super) fn new(model: Model, device: Device, options: CompileOptions) -> Result<Session> {
        if matches!(device, Device::Host) && options.precision == Precision::Half {
            let message = "the host cannot store f32 values as f16";
            let help = "choose an adapter (see `onionskin devices`), or omit f16";
            return Err(Error::usage(message).help(help));
        }
        let packed = options.packed.as_deref();
        let packed = packed.filter(|_| matches!(device, Device::Gpu(_)));
        let depot = WeightCache {
            packed: packed.map(|path| Arc::new(PackedFile::open(path))),
            ..WeightCache::default()
        };
        let session = Session {
            model,
            device,
            options,
            compiled_graphs: Arc::default(),
            example_sized: Arc::default(),
            states: Arc::default(),
            weight_cache: depot,
        };
        let mut states = SessionStates::default();
        let method = session.options.entry.as_str();
        match session.model.import_entry(method, None, &states, &[]) {
            Ok(module) => {
                session.add(method, module, &mut states)?;
            }
            // An archive without example inputs is imported for the inputs of the first call.
            Err(error) if session.model.can_reimport() && error.kind() == ErrorKind::Input => {}
            Err(error) => return Err(error),
        }
        *lock(&session.states) = states;
        Ok(session)
    }

    /// The device that runs the model.
    pub fn device(&self) -> &Device {
        &self.device
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

    /// The inputs of the entry graph: names as [`Session::run_named`] takes them, element types, and shapes with symbolic
    /// sizes.
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

    /// The outputs of the entry graph in the order of [`Session::run`]: `output`, `output.0` within a tuple or a list, and
    /// the key of a dictionary or the field of a named tuple; element types, and shapes with symbolic sizes.
    ///
    /// # Errors
    /// As [`Session::inputs`].
    pub fn outputs(&self) -> Result<Vec<TensorSpec>> {
        self.with_entry(Graph::output_specs)
    }

    /// Queries the entry graph, as imported if that is available.
    fn with_entry<T>(&self, ask: impl Fn(&Graph) -> T) -> Result<T> {
        let entry = &self.options.entry;
        let general = lock(&self.example_sized);
        if let Some((_, module)) = general.iter().find(|(method, _)| method == entry) {
            return module.graph(entry).map(ask);
        }
        drop(general);
        // The last compiled graph serves the most sizes.
        let compiled = self.compiled_graphs_of(entry).last();
        compiled.map(|variant| ask(&variant.graph)).ok_or_else(|| {
            Error::input(format!("the types of {entry}'s inputs are not known yet"))
                .help("the archive holds no example inputs: run the session once first")
        })
    }

    fn run_tensors(&self, arguments: &[Item], given: CallTensors) -> Result<Vec<Tensor>> {
        let entry = &self.options.entry;
        self.run_with_states(entry, arguments, given, |variant, inputs| {
            let outputs = variant.run(inputs)?;
            let count = variant.graph.result_count();
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

    /// Submits a run if a graph without states is compiled for a GPU and serves the inputs.
    fn launch_ready(&self, inputs: &[Tensor]) -> Result<Option<Run>> {
        let ready = self.find_stateless(&self.options.entry, &|_| Ok(inputs.to_vec()));
        let Some((variant, inputs)) = ready else {
            return Ok(None);
        };
        let Some(program) = &variant.program else {
            return Ok(None);
        };
        let hosted: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        program
            .launch_with(&variant.bind(&inputs)?, &hosted)
            .map(Some)
    }

    /// Submits a run on a GPU whose outputs stay in its buffers, for further use by the application. Inputs come from the
    /// host or from buffers of the same device. [`Run::check`] reports whether a check of the model failed.
    ///
    /// # Errors
    /// Fails if the session runs on the host, if the model has states, or as [`Session::run`]. A graph is not imported
    /// again for inputs on the device.
    pub fn launch(&self, inputs: &[RunInput]) -> Result<Run> {
        if matches!(self.device, Device::Host) {
            return Err(Error::usage("the host has no buffers to share")
                .help("open a GPU, or use Session::run"));
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(RunInput::shape).collect();
        let fits = |graph: &Graph| {
            if graph.has_states() {
                return Err(Error::usage("launch does not support models with states")
                    .help("use Session::run, which stores the states"));
            }
            graph.bind(&shapes)
        };
        let (variant, bindings) = match self.find_serving(&self.options.entry, &fits)? {
            Ok(found) => found,
            Err(refusal) => return Err(no_matching_graph(refusal)),
        };
        match &variant.program {
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

    /// Calls a method of the model, or an entry graph of this name. All methods share the states.
    ///
    /// # Errors
    /// As [`Session::call`]. Fails as well if the model has no such method.
    pub fn call_method(&self, method: &str, arguments: &[Item]) -> Result<Item> {
        let given = |graph: &Graph| flatten_arguments(&graph.input_trees, arguments);
        self.run_with_states(method, arguments, &given, |variant, inputs| {
            let outputs = variant.run(inputs)?;
            Ok((variant.result(inputs, &outputs)?, outputs))
        })
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
    pub fn prepare(&self, arguments: &[Item]) -> Result<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let given = |graph: &Graph| flatten_arguments(&graph.input_trees, arguments);
        let mut states = lock(&self.states);
        self.compiled_graph_for(&self.options.entry, arguments, &given, &mut states)
    }

    /// Report on the file of packed weights so far; `None` if the options name no file, or the host runs the model.
    pub fn packed(&self) -> Option<PackedReport> {
        self.weight_cache
            .packed
            .as_ref()
            .map(|packed| packed.report())
    }

    /// The graphs compiled so far.
    pub fn compiled_graphs(&self) -> Vec<Arc<CompiledGraph>> {
        lock(&self.compiled_graphs).clone()
    }

    fn compiled_graphs_of(&self, method: &str) -> impl Iterator<Item = Arc<CompiledGraph>> {
        let variants = self.compiled_graphs().into_iter();
        variants.filter(move |variant| variant.graph.name == method)
    }

    /// Runs a call and stores the new values of states. Calls with states run one after the other.
    fn run_with_states<T>(
        &self,
        method: &str,
        arguments: &[Item],
        given: CallTensors,
        run: impl Fn(&CompiledGraph, &[Tensor]) -> Result<(T, Vec<Tensor>)>,
    ) -> Result<T> {
        if let Some((variant, inputs)) = self.find_stateless(method, given) {
            return Ok(run(&variant, &inputs)?.0);
        }
        let mut states = lock(&self.states);
        let (variant, inputs) = self.compiled_graph_for(method, arguments, given, &mut states)?;
        if !variant.graph.has_states() {
            drop(states);
            return Ok(run(&variant, &inputs)?.0);
        }
        let (value, outputs) = run(&variant, &inputs)?;
        states.set(variant.new_states(&inputs, &outputs)?);
        Ok(value)
    }

    /// A graph without states that serves a call. Such calls do not wait for each other.
    fn find_stateless(
        &self,
        method: &str,
        given: CallTensors,
    ) -> Option<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let mut variants = self
            .compiled_graphs_of(method)
            .filter(|variant| !variant.graph.has_states());
        variants.find_map(|variant| {
            let inputs = accept_inputs(&variant.graph, given, &SessionStates::default()).ok()?;
            Some((variant, inputs))
        })
    }

    fn compiled_graph_for(
        &self,
        method: &str,
        arguments: &[Item],
        given: CallTensors,
        states: &mut SessionStates,
    ) -> Result<(Arc<CompiledGraph>, Vec<Tensor>)> {
        let fits = |graph: &Graph| accept_inputs(graph, given, states);
        let refusal = match self.find_serving(method, &fits)? {
            Ok(found) => return Ok(found),
            Err(refusal) => refusal,
        };
        let first = refusal.is_none();
        let imports = self.model.can_reimport() && (self.options.respecialize || first);
        if !imports && !first {
            return Err(no_matching_graph(refusal));
        }
        let module = self.import(method, arguments, states)?;
        self.add(method, module, states)?;
        self.find_serving(method, &|graph| accept_inputs(graph, given, states))?
            .map_err(no_matching_graph)
    }

    /// The first graph of a method that serves a call, with the result of `fits`, or the reason why the last one does not.
    /// A graph compiled only for the example's sizes is compiled for all sizes if the call has others.
    fn find_serving<T>(
        &self,
        method: &str,
        fits: &dyn Fn(&Graph) -> Result<T>,
    ) -> Result<ServingGraph<T>> {
        let mut refusal = None;
        for variant in self.compiled_graphs_of(method) {
            match fits(&variant.graph) {
                Ok(found) => return Ok(Ok((variant, found))),
                Err(error) => refusal = Some(error),
            }
        }
        let mut general = lock(&self.example_sized);
        for place in 0..general.len() {
            let (name, module) = &general[place];
            if name != method {
                continue;
            }
            let graph = module.graph(name)?;
            match fits(graph) {
                Ok(found) => {
                    let variant = self.compile(graph.clone(), module)?;
                    general.remove(place);
                    return Ok(Ok((variant, found)));
                }
                Err(error) => refusal = Some(error),
            }
        }
        Ok(Err(refusal))
    }

    /// Imports a method for a call. Numbers in states that vary between calls become inputs, unless the graph then needs
    /// more conditions and loops than a graph for one number.
    fn import(
        &self,
        method: &str,
        arguments: &[Item],
        states: &SessionStates,
    ) -> Result<GraphModule> {
        let known: Vec<Arc<CompiledGraph>> = self.compiled_graphs_of(method).collect();
        let varying = states.varying_numbers(&known);
        let regions = |graph: &Graph| {
            let nodes = graph.nodes.iter();
            nodes.filter(|node| !node.bodies().is_empty()).count()
        };
        let usual = known.iter().map(|variant| regions(&variant.graph)).max();
        if !varying.is_empty()
            && let Ok(module) = self
                .model
                .import_entry(method, Some(arguments), states, &varying)
            && Some(regions(module.graph(method)?)) <= usual
        {
            return Ok(module);
        }
        self.model
            .import_entry(method, Some(arguments), states, &[])
    }

    /// Compiles an imported graph, for the example's sizes first if the options ask for it.
    fn add(&self, method: &str, module: GraphModule, states: &mut SessionStates) -> Result<()> {
        let new = states.add_states(&module)?;
        let graph = module.graph(method)?;
        let exact = self.options.static_shapes
            && matches!(self.device, Device::Gpu(_))
            && !graph.hints.is_empty();
        let graph = if exact {
            graph.with_sizes(&graph.hints)
        } else {
            graph.clone()
        };
        // A weight of earlier graphs may be a state that this method writes.
        let outdated = |graph: &Graph| {
            let mut weights = graph.weights();
            weights.any(|(name, _)| new.iter().any(|state| state == name))
        };
        lock(&self.compiled_graphs).retain(|known| !outdated(&known.graph));
        lock(&self.example_sized)
            .retain(|(method, known)| !known.graph(method).is_ok_and(outdated));
        self.compile(graph, &module)?;
        if exact {
            lock(&self.example_sized).push((method.to_string(), module));
        }
        Ok(())
    }

    fn compile(&self, graph: Graph, module: &GraphModule) -> Result<Arc<CompiledGraph>> {
        let Session {
            device,
            options,
            weight_cache: depot,
            ..
        } = self;
        let made = CompiledGraph::new(graph, &module.weights, device, options, depot)?;
        let variant = Arc::new(made);
        let mut variants = lock(&self.compiled_graphs);
        if variants.len() >= MAX_COMPILED_GRAPHS {
            variants.remove(0);
        }
        variants.push(variant.clone());
        Ok(variant)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
