use std::sync::{Arc, Mutex, PoisonError};

use super::{Device, Model, no_fit};
use crate::error::{Kind, Result};
use crate::interp;
use crate::ir::{Graph, Module, Weights};
use crate::item::{Item, flatten};
use crate::pass;
use crate::tensor::Tensor;

/// How a model is compiled.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The entry graph: `forward`, or another method's name.
    pub entry: String,
    /// Import an archive again when a call's sizes break the guards of the graphs so far, so that one session serves all
    /// sizes that PyTorch's trace serves. Without it such a call is an error.
    pub respecialize: bool,
    /// Each value keeps memory of its own, so that all can be read after a run: for finding the first wrong one.
    pub keep_all: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            entry: "forward".to_string(),
            respecialize: true,
            keep_all: false,
        }
    }
}

/// A model on a device. `Send` and `Sync`; calls from several threads take turns where the device wants it.
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
    engine: Engine,
}

enum Engine {
    Host { graph: Box<Graph>, weights: Weights },
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
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        let variant = self.variant_for(&arguments, |variant| variant.accepts(inputs))?;
        variant.run(inputs)
    }

    /// Calls the model as Python would: arguments and result may be tuples, lists and dictionaries.
    pub fn call(&self, arguments: &[Item]) -> Result<Item> {
        let variant = self.variant_for(arguments, |variant| {
            variant.accepts(&variant.flatten(arguments)?)
        })?;
        variant.call(arguments)
    }

    /// The variant that serves a call; made if there is none yet.
    pub fn variant(&self, arguments: &[Item]) -> Result<Arc<Variant>> {
        self.variant_for(arguments, |variant| {
            variant.accepts(&variant.flatten(arguments)?)
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
        let engine = match device {
            Device::Host => Engine::Host {
                graph: Box::new(pass::decompose(&graph)?),
                weights: module.weights.clone(),
            },
        };
        Ok(Variant { graph, engine })
    }

    /// The tensors of a call in the order of the graph's inputs.
    pub fn flatten(&self, arguments: &[Item]) -> Result<Vec<Tensor>> {
        flatten(&self.graph.input_trees, arguments)
    }

    /// Whether the graph holds for these inputs: dtypes, ranks, sizes and guards.
    pub fn accepts(&self, inputs: &[Tensor]) -> Result<()> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        self.graph.bind(&shapes)?;
        self.graph.check_dtypes(inputs)
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match &self.engine {
            Engine::Host { graph, weights } => interp::run(graph, weights, inputs),
        }
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let inputs = self.flatten(arguments)?;
        let outputs = self.run(&inputs)?;
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let bindings = self.graph.bind(&shapes)?;
        match &self.graph.output_tree {
            Some(tree) => Item::build(tree, &outputs, &bindings),
            None => Ok(Item::Tuple(outputs.into_iter().map(Item::Tensor).collect())),
        }
    }
}
