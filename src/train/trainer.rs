//! A model in training on a device.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::optimizer::StepSettings;
use super::step_graph::{StepGraph, number_state};
use super::{Optimizer, TrainOptions};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::GraphModule;
use crate::item::Item;
use crate::model::{CompileOptions, Device, Model, Session};
use crate::tensor::Tensor;
use crate::tensor_file;

/// A model in training: a session that runs steps, whose states are the parameters and what the optimizer keeps.
pub struct Trainer {
    session: Session,
    step: GraphModule,
    /// The model with its values before training.
    module: GraphModule,
    parameters: Vec<String>,
    optimizer: Optimizer,
    settings: StepSettings,
    /// Steps so far.
    steps: u64,
    gradient_norm: Option<f64>,
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("parameters", &self.parameters)
            .field("optimizer", &self.optimizer)
            .field("settings", &self.settings)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl Trainer {
    /// Makes the step of a model and compiles it for a device. The parameters begin with the model's weights.
    ///
    /// # Errors
    /// The model cannot be imported, the loss is not one float, or an operator between it and a parameter has no
    /// derivative; the message lists all of these.
    pub fn new(model: &Model, device: &Device, options: TrainOptions) -> Result<Trainer> {
        let module = model.import_method(&options.entry, None)?;
        let StepGraph {
            module: step,
            parameters,
        } = StepGraph::of(&module, &options)?;
        let compile = CompileOptions {
            entry: options.entry.clone(),
            ..options.compile.clone()
        };
        let session = Model::from_module(step.clone()).compile(device, &compile)?;
        Ok(Trainer {
            session,
            step,
            module,
            parameters,
            settings: options.optimizer.settings(),
            optimizer: options.optimizer,
            steps: 0,
            gradient_norm: None,
        })
    }

    /// Runs a step on a batch: the inputs of the model, and the target if the loss is a function of one. Returns the loss
    /// before the step.
    ///
    /// # Errors
    /// As [`Session::run`]. After an error the parameters are those before the step.
    pub fn step(&mut self, inputs: &[Tensor]) -> Result<f64> {
        for (name, number) in self.optimizer.numbers(self.settings, self.steps + 1) {
            let number = Tensor::full(DType::F32, [], number)?;
            self.session.set_state(&number_state(name), number)?;
        }
        let results = self.session.run(inputs)?;
        self.steps += 1;
        let number = |index: usize| results.get(index).and_then(|x| x.to_f64().first().copied());
        self.gradient_norm = number(1);
        number(0).ok_or_else(|| Error::internal("a step has no loss"))
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The norm of all gradients of the last step before they were limited; `None` without
    /// [`GradientClipping::Norm`](super::GradientClipping::Norm).
    pub fn gradient_norm(&self) -> Option<f64> {
        self.gradient_norm
    }

    /// The learning rate of the next step.
    pub fn learning_rate(&self) -> f64 {
        self.settings.learning_rate
    }

    /// Sets the learning rate of the next step and those after it.
    pub fn set_learning_rate(&mut self, learning_rate: f64) {
        self.settings.learning_rate = learning_rate;
    }

    /// The momentum of the next step: of [`Adam`](super::Adam) and [`AdamW`](super::AdamW) the decay rate of the mean
    /// gradient.
    pub fn momentum(&self) -> f64 {
        self.settings.momentum
    }

    /// Sets the momentum of the next step and those after it, as a schedule asks for
    /// ([`LrScheduler::momentum`](super::LrScheduler::momentum)).
    ///
    /// # Errors
    /// The optimizer is [`Sgd`](super::Sgd) and began without momentum.
    pub fn set_momentum(&mut self, momentum: f64) -> Result<()> {
        if self.optimizer.buffers().is_empty() {
            let error = Error::input("the optimizer has no momentum");
            return Err(
                error.help("begin with a momentum other than 0: `Sgd { momentum: 0.9, .. }`")
            );
        }
        self.settings.momentum = momentum;
        Ok(())
    }

    /// Names of the parameters in training, in order.
    pub fn parameter_names(&self) -> &[String] {
        &self.parameters
    }

    /// The session that runs the steps. Its states are the parameters, the buffers of the optimizer
    /// (`optimizer.exp_avg.fc.weight`), and the states of the model.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The graph of a step with its initial states, to show or profile it.
    pub fn step_module(&self) -> &GraphModule {
        &self.step
    }

    /// Parameters and written buffers of the model by PyTorch's names, read back from the device.
    ///
    /// # Errors
    /// The device is lost.
    pub fn state_dict(&self) -> Result<BTreeMap<String, Tensor>> {
        let mut tensors = BTreeMap::new();
        for name in &self.parameters {
            if let Item::Tensor(tensor) = self.session.state(name)? {
                tensors.insert(name.clone(), tensor);
            }
        }
        for state in &self.module.states {
            let value = self.session.state(&state.name)?;
            let values = value.tensors().into_iter().cloned();
            tensors.extend(state.weights.iter().cloned().zip(values));
        }
        Ok(tensors)
    }

    /// Writes [`Trainer::state_dict`] to a file, `.safetensors` or `.npz`. `Session::save` of [`Trainer::session`] also
    /// writes the buffers of the optimizer.
    ///
    /// # Errors
    /// The file cannot be written, or the device is lost.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let tensors: Vec<(String, Tensor)> = self.state_dict()?.into_iter().collect();
        tensor_file::write(path.as_ref(), &tensors)
    }

    /// The module that was trained, with the current values of its weights and states.
    ///
    /// # Errors
    /// The device is lost.
    pub fn trained_module(&self) -> Result<GraphModule> {
        let mut module = self.module.clone();
        module.weights.extend(self.state_dict()?);
        Ok(module)
    }
}
