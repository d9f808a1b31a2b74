use std::sync::{Arc, Mutex, PoisonError};

use super::{Device, Model, no_fit};
use crate::dim::Bindings;
use crate::error::{Error, Kind, Result};
use crate::gpu::{Input, Keep, Program, ProgramOptions, Progress, Run};
use crate::interp;
use crate::ir::{Graph, Module, Weights};
use crate::item::{Item, flatten};
use crate::pass;
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

impl Session {
    pub(super) fn new(model: Model, device: Device, options: CompileOptions) -> Result<Session> {
        let session = Session {
            model,
            device,
            options,
            variants: Mutex::default(),
        };
        match session.model.import() {
            Ok(module) => {
                session.add(&module)?;
            }
            // An archive without example inputs is imported for the first call's.
            Err(error) if session.model.can_reimport() && error.kind() == Kind::Input => {}
            Err(error) => return Err(error),
        }
        Ok(session)
    }

    /// The device that runs the model.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs on tensors in the order of the graph's inputs and returns the tensors of its outputs.
    ///
    /// # Errors
    /// The inputs fit no graph of the model, or the device failed.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        let variant = self.variant_for(&arguments, |variant| variant.bind(inputs).map(drop))?;
        variant.run(inputs)
    }

    /// Like [`Session::run`], without blocking the thread while a GPU works; the host works at once.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_async(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        let variant = self.variant_for(&arguments, |variant| variant.bind(inputs).map(drop))?;
        match &variant.program {
            Some(program) => {
                let hosted: Vec<Input> = inputs.iter().map(Input::Host).collect();
                program
                    .launch_with(&variant.bind(inputs)?, &hosted)?
                    .read_async()
                    .await
            }
            None => variant.run(inputs),
        }
    }

    /// Submits a run on a GPU whose outputs stay in its buffers, for an application that goes on with them there. Inputs
    /// come from the host or from buffers of the same device.
    ///
    /// # Errors
    /// The session runs on the host, or as [`Session::run`]. A graph is not made anew for inputs on the device.
    pub fn launch(&self, inputs: &[Input]) -> Result<Run> {
        let mut refusal = None;
        for variant in self.variants() {
            let Some(program) = &variant.program else {
                return Err(Error::usage("the host has no buffers to share")
                    .help("open a GPU, or use Session::run"));
            };
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
        self.variant(arguments)?.call(arguments)
    }

    /// The variant that serves a call; made if there is none yet.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn variant(&self, arguments: &[Item]) -> Result<Arc<Variant>> {
        self.variant_for(arguments, |variant| {
            variant.bind(&variant.flatten(arguments)?).map(drop)
        })
    }

    /// The variants made so far.
    pub fn variants(&self) -> Vec<Arc<Variant>> {
        self.variants
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn variant_for(
        &self,
        arguments: &[Item],
        accepts: impl Fn(&Variant) -> Result<()>,
    ) -> Result<Arc<Variant>> {
        let mut refusal = None;
        for variant in self.variants() {
            match accepts(&variant) {
                Ok(()) => return Ok(variant),
                Err(error) => refusal = Some(error),
            }
        }
        let first = refusal.is_none();
        if !self.model.can_reimport() || !(self.options.respecialize || first) {
            return Err(no_fit(refusal));
        }
        let variant = self.add(&self.model.import_for(arguments)?)?;
        accepts(&variant)?;
        Ok(variant)
    }

    fn add(&self, module: &Module) -> Result<Arc<Variant>> {
        let variant = Arc::new(Variant::new(module, &self.device, &self.options)?);
        self.variants
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(variant.clone());
        Ok(variant)
    }
}

impl Variant {
    fn new(module: &Module, device: &Device, options: &CompileOptions) -> Result<Variant> {
        let graph = module.graph(&options.entry)?.clone();
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
        };
        let Module {
            mut graphs,
            weights,
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

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let inputs = self.flatten(arguments)?;
        let outputs = self.run(&inputs)?;
        match &self.graph.output_tree {
            Some(tree) => Item::build(tree, &outputs, &self.bind(&inputs)?),
            None => Ok(Item::Tuple(outputs.into_iter().map(Item::Tensor).collect())),
        }
    }
}
