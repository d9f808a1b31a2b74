use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::States;
use super::{Device, Model, no_fit};
use crate::dim::Bindings;
use crate::error::{Error, Kind, Result};
use crate::gpu::{Input, Keep, Program, ProgramOptions, Progress, Run};
use crate::interp;
use crate::ir::{Constant, Graph, Module, Tree, Weights};
use crate::item::{Item, flatten, flatten_states};
use crate::pass;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// How a model is compiled.
#[derive(Clone)]
pub struct CompileOptions {
    /// The entry graph: `forward`, or another method's name.
    pub entry: String,
    /// Import an archive again when a call's sizes break the guards of the graphs so far, so that one session serves all
    /// sizes that PyTorch's trace serves. Without it such a call is an error.
    pub respecialize: bool,
    /// What can be read after a run; see [`crate::model::first_divergence`].
    pub keep: Keep,
    /// Called, from several threads, while kernels compile and weights are uploaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            entry: "forward".to_string(),
            respecialize: true,
            keep: Keep::Outputs,
            progress: None,
        }
    }
}

/// A model on a device. `Send` and `Sync`: threads may share it.
pub struct Session {
    model: Model,
    device: Device,
    options: CompileOptions,
    variants: Mutex<Vec<Arc<Variant>>>,
    states: Mutex<States>,
}

/// A graph that serves some sizes, ready to run.
pub struct Variant {
    /// The graph as imported.
    pub graph: Graph,
    /// The graph that runs: after all passes on a GPU, primitives only on the host.
    pub lowered: Graph,
    /// The weights of the graph that runs.
    pub weights: Weights,
    /// The graph on a GPU; `None` on the host.
    pub program: Option<Program>,
}

/// Variants that are kept; states that take ever new numbers make ever new ones.
const MOST_VARIANTS: usize = 64;

impl Session {
    pub(super) fn new(model: Model, device: Device, options: CompileOptions) -> Result<Session> {
        let session = Session {
            model,
            device,
            options,
            variants: Mutex::default(),
            states: Mutex::default(),
        };
        let mut states = States::default();
        let method = session.options.entry.as_str();
        match session.model.import_entry(method, None, &states, &[]) {
            Ok(module) => {
                session.add(method, &module, &mut states)?;
            }
            // An archive without example inputs is imported for the first call's.
            Err(error) if session.model.can_reimport() && error.kind() == Kind::Input => {}
            Err(error) => return Err(error),
        }
        *lock(&session.states) = states;
        Ok(session)
    }

    /// The device that runs the model.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs on tensors in the order of the graph's inputs and returns the tensors of its outputs; states go without saying.
    ///
    /// # Errors
    /// The inputs fit no graph of the model, or the device failed.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        let given = |_: &Variant| Ok(inputs.to_vec());
        self.perform(
            &self.options.entry,
            &arguments,
            &given,
            |variant, inputs| {
                let outputs = variant.run(inputs)?;
                let count = variant.graph.result_count();
                Ok((outputs.iter().take(count).cloned().collect(), outputs))
            },
        )
    }

    /// Like [`Session::run`], without blocking the thread while a GPU works; the host works at once, and so do models with
    /// states.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_async(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        let given = |_: &Variant| Ok(inputs.to_vec());
        let (variant, inputs) = {
            let mut states = lock(&self.states);
            self.variant_for(&self.options.entry, &arguments, &given, &mut states)?
        };
        match &variant.program {
            Some(program) if !variant.has_states() => {
                let hosted: Vec<Input> = inputs.iter().map(Input::Host).collect();
                let run = program.launch_with(&variant.bind(&inputs)?, &hosted)?;
                run.read_async().await
            }
            _ => self.run(&inputs[..variant.graph.argument_count()]),
        }
    }

    /// Submits a run on a GPU whose outputs stay in its buffers, for an application that goes on with them there. Inputs
    /// come from the host or from buffers of the same device.
    ///
    /// # Errors
    /// The session runs on the host, the model has states, or as [`Session::run`]. A graph is not made anew for inputs on
    /// the device.
    pub fn launch(&self, inputs: &[Input]) -> Result<Run> {
        let mut refusal = None;
        for variant in self.variants_of(&self.options.entry) {
            let Some(program) = &variant.program else {
                return Err(Error::usage("the host has no buffers to share")
                    .help("open a GPU, or use Session::run"));
            };
            if variant.has_states() {
                return Err(Error::usage("a model with states cannot be launched")
                    .help("use Session::run, which keeps them"));
            }
            let shapes: Vec<&[usize]> = inputs.iter().map(Input::shape).collect();
            match variant.graph.bind(&shapes) {
                Ok(bindings) => return program.launch_with(&bindings, inputs),
                Err(error) => refusal = Some(error),
            }
        }
        Err(no_fit(refusal))
    }

    /// Calls the model as Python would: arguments and result may be tuples, lists and dictionaries.
    ///
    /// # Errors
    /// As [`Session::run`]; the message names the argument that does not fit the signature.
    pub fn call(&self, arguments: &[Item]) -> Result<Item> {
        self.call_method(&self.options.entry, arguments)
    }

    /// Calls a method of the model, or an entry graph of this name. All methods see the same states.
    ///
    /// # Errors
    /// As [`Session::call`]; the model has no such method.
    pub fn call_method(&self, method: &str, arguments: &[Item]) -> Result<Item> {
        let given = |variant: &Variant| variant.flatten(arguments);
        self.perform(method, arguments, &given, |variant, inputs| {
            let outputs = variant.run(inputs)?;
            Ok((variant.result(inputs, &outputs)?, outputs))
        })
    }

    /// What a state holds now; none if there is no such state.
    pub fn state(&self, name: &str) -> Option<Item> {
        lock(&self.states).get(name).ok()
    }

    /// Gives every state the value that it had before the first call.
    pub fn reset(&self) {
        lock(&self.states).reset();
    }

    /// The variant that serves a call, made if there is none yet, and the call's tensors in the order of its graph's inputs.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn prepare(&self, arguments: &[Item]) -> Result<(Arc<Variant>, Vec<Tensor>)> {
        let given = |variant: &Variant| variant.flatten(arguments);
        let mut states = lock(&self.states);
        self.variant_for(&self.options.entry, arguments, &given, &mut states)
    }

    /// The variants made so far.
    pub fn variants(&self) -> Vec<Arc<Variant>> {
        lock(&self.variants).clone()
    }

    fn variants_of(&self, method: &str) -> impl Iterator<Item = Arc<Variant>> {
        let variants = self.variants().into_iter();
        variants.filter(move |variant| variant.graph.name == method)
    }

    /// Runs a call, and keeps what it leaves in states. Calls that have states come one after the other.
    fn perform<T>(
        &self,
        method: &str,
        arguments: &[Item],
        given: &dyn Fn(&Variant) -> Result<Vec<Tensor>>,
        run: impl Fn(&Variant, &[Tensor]) -> Result<(T, Vec<Tensor>)>,
    ) -> Result<T> {
        if let Some((variant, inputs)) = self.stateless(method, given) {
            return Ok(run(&variant, &inputs)?.0);
        }
        let mut states = lock(&self.states);
        let (variant, inputs) = self.variant_for(method, arguments, given, &mut states)?;
        if !variant.has_states() {
            drop(states);
            return Ok(run(&variant, &inputs)?.0);
        }
        let (value, outputs) = run(&variant, &inputs)?;
        states.set(variant.written(&inputs, &outputs)?);
        Ok(value)
    }

    /// A variant that serves a call whatever the states are; such calls don't wait for each other.
    fn stateless(
        &self,
        method: &str,
        given: &dyn Fn(&Variant) -> Result<Vec<Tensor>>,
    ) -> Option<(Arc<Variant>, Vec<Tensor>)> {
        let mut variants = self
            .variants_of(method)
            .filter(|variant| !variant.has_states());
        variants.find_map(|variant| {
            let inputs = variant.accept(given, &States::default()).ok()?;
            Some((variant, inputs))
        })
    }

    fn variant_for(
        &self,
        method: &str,
        arguments: &[Item],
        given: &dyn Fn(&Variant) -> Result<Vec<Tensor>>,
        states: &mut States,
    ) -> Result<(Arc<Variant>, Vec<Tensor>)> {
        let mut refusal = None;
        for variant in self.variants_of(method) {
            match variant.accept(given, states) {
                Ok(inputs) => return Ok((variant, inputs)),
                Err(error) => refusal = Some(error),
            }
        }
        let first = refusal.is_none();
        let imports = self.model.can_reimport() && (self.options.respecialize || first);
        if !imports && !first {
            return Err(no_fit(refusal));
        }
        let module = self.import(method, arguments, states)?;
        let variant = self.add(method, &module, states)?;
        let inputs = variant.accept(given, states)?;
        Ok((variant, inputs))
    }

    /// Imports a method for a call. Numbers in states that differ from call to call become inputs, unless that made
    /// conditions and loops of what a graph for one number does without.
    fn import(&self, method: &str, arguments: &[Item], states: &States) -> Result<Module> {
        let known: Vec<Arc<Variant>> = self.variants_of(method).collect();
        let varying = states.varying(&known);
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

    fn add(&self, method: &str, module: &Module, states: &mut States) -> Result<Arc<Variant>> {
        let new = states.learn(module)?;
        let variant = Arc::new(Variant::new(method, module, &self.device, &self.options)?);
        let mut variants = lock(&self.variants);
        // What was taken for a weight until now may be a state that another method writes.
        variants.retain(|known| {
            let mut weights = known.graph.weights();
            !weights.any(|(name, _)| new.iter().any(|state| state == name))
        });
        if variants.len() >= MOST_VARIANTS {
            variants.remove(0);
        }
        variants.push(variant.clone());
        Ok(variant)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Variant {
    fn new(
        method: &str,
        module: &Module,
        device: &Device,
        options: &CompileOptions,
    ) -> Result<Variant> {
        let graph = module.graph(method)?.clone();
        let Device::Gpu(gpu) = device else {
            let lowered = pass::decompose(&graph)?;
            return Ok(Variant {
                graph,
                lowered,
                weights: module.weights.clone(),
                program: None,
            });
        };
        let entry = Module {
            graphs: vec![graph.clone()],
            weights: module.weights.clone(),
            states: Vec::new(),
        };
        let Module {
            mut graphs,
            weights,
            ..
        } = pass::optimize_module(&entry)?;
        let lowered = graphs
            .pop()
            .ok_or_else(|| Error::internal("the passes lost the graph"))?;
        let plan = pass::plan(&lowered, gpu.capabilities())?;
        let settings = ProgramOptions {
            keep: options.keep,
            progress: options.progress.clone(),
            ..ProgramOptions::default()
        };
        let program = Program::new(gpu, plan, &weights, settings)?;
        Ok(Variant {
            graph,
            lowered,
            weights,
            program: Some(program),
        })
    }

    /// The tensors of a call in the order of the graph's inputs.
    ///
    /// # Errors
    /// An argument does not fit the signature.
    pub fn flatten(&self, arguments: &[Item]) -> Result<Vec<Tensor>> {
        flatten(&self.graph.input_trees, arguments)
    }

    /// The sizes of the symbols, if the graph holds for these inputs: dtypes, ranks, sizes and guards.
    ///
    /// # Errors
    /// The graph does not hold for the inputs.
    pub fn bind(&self, inputs: &[Tensor]) -> Result<Bindings> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let bindings = self.graph.bind(&shapes)?;
        self.graph.check_dtypes(inputs)?;
        Ok(bindings)
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match &self.program {
            None => interp::run(&self.lowered, &self.weights, inputs),
            Some(program) => {
                let hosted: Vec<Input> = inputs.iter().map(Input::Host).collect();
                program.launch_with(&self.bind(inputs)?, &hosted)?.read()
            }
        }
    }

    /// The whole number that a state must hold, if it must.
    pub(super) fn fixed(&self, state: &str) -> Option<i64> {
        let mut reads = self.graph.reads.iter();
        match reads.find(|read| read.name == state)?.tree {
            Tree::Constant(Constant::Number(Scalar::Int(number))) => Some(number),
            _ => None,
        }
    }

    /// True if runs depend on earlier ones, or later ones on them.
    pub fn has_states(&self) -> bool {
        !(self.graph.reads.is_empty() && self.graph.writes.is_empty())
    }

    /// The inputs of a call, if the graph holds for them and for the states as they are.
    fn accept(
        &self,
        given: &dyn Fn(&Variant) -> Result<Vec<Tensor>>,
        states: &States,
    ) -> Result<Vec<Tensor>> {
        let read = self.graph.reads.iter();
        let read: Vec<Item> = read
            .map(|state| states.get(&state.name))
            .collect::<Result<_>>()?;
        let mut inputs = given(self)?;
        inputs.extend(flatten_states(&self.graph.reads, &read)?);
        self.bind(&inputs)?;
        Ok(inputs)
    }

    fn result(&self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Item> {
        let tensors = || outputs.iter().take(self.graph.result_count()).cloned();
        match &self.graph.output_tree {
            Some(tree) => Item::build(tree, outputs, &self.bind(inputs)?),
            None => Ok(Item::Tuple(tensors().map(Item::Tensor).collect())),
        }
    }

    /// What a run has left in states.
    fn written(&self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Vec<(String, Item)>> {
        let sizes = self.bind(inputs)?;
        let states = self.graph.writes.iter();
        states
            .map(|state| {
                Ok((
                    state.name.clone(),
                    Item::build(&state.tree, outputs, &sizes)?,
                ))
            })
            .collect()
    }
}
