//! The graph of a training step: loss, gradients, and new values of parameters and of the optimizer's buffers.
//!
//! Parameters, buffers and the numbers of the optimizer are states of the step, after those of the model.

use std::collections::BTreeMap;

use super::{TrainOptions, TrainingLoss, random};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::grad::Loss;
use crate::ir::rewrite::{Replay, replay_with_outputs};
use crate::ir::{Graph, GraphModule, ModuleState, NamedTree, TreeSpec, Value};
use crate::pass;
use crate::shape::{Shape, TensorType};
use crate::tensor::Tensor;
use crate::train::optimizer::{ParameterUpdate, StepSettings};
use crate::train::parameters::{output_index, selected_parameters};

/// A graph of a training step.
pub(super) struct StepGraph {
    /// The step, with the initial values of its states.
    pub(super) module: GraphModule,
    /// Names of the trained parameters, in order.
    pub(super) parameters: Vec<String>,
}

/// The name of the state that holds a number of the optimizer.
pub(super) fn number_state(name: &str) -> String {
    format!("optimizer.{name}")
}

fn buffer_state(buffer: &str, parameter: &str) -> String {
    format!("optimizer.{buffer}.{parameter}")
}

impl StepGraph {
    pub(super) fn of(module: &GraphModule, options: &TrainOptions) -> Result<StepGraph> {
        let mut graph = module.graph(&options.entry)?.clone();
        graph.pass_weights();
        let (mut graph, loss) = match &options.loss {
            TrainingLoss::Output(name) => (graph, name.clone()),
            TrainingLoss::Function(function) => (function.append(&graph)?, "output".to_string()),
        };
        let counted = random::with_counter(&graph)?;
        let is_random = counted.is_some();
        graph = counted.unwrap_or(graph);
        let parameters = selected_parameters(module, &graph, &loss, options)?;
        for name in &parameters {
            let tree = TreeSpec::Tensor(graph.inputs.len());
            let weight = graph.weights().find(|(known, _)| known == name);
            let Some(ty) = weight.map(|(_, id)| graph.ty(id).clone()) else {
                continue;
            };
            pass::weight_to_input(&mut graph, name, &ty);
            graph.reads.push(NamedTree {
                name: name.clone(),
                tree,
            });
        }
        let first = graph.inputs.len() - parameters.len();
        let wanted = graph.inputs.get(first..).unwrap_or_default().to_vec();
        let loss_output = Loss::Output(loss.clone());
        let gradient = graph.gradient_with(&loss_output, &wanted, &options.gradient)?;
        let step = StepBuilder {
            original: &graph,
            gradient: &gradient,
            parameters: &parameters,
            loss: output_index(&graph, &loss)?,
            is_random,
            options,
        };
        Ok(StepGraph {
            module: step.module(module)?,
            parameters,
        })
    }
}

/// Adds the update of parameters to a graph with gradients.
struct StepBuilder<'a> {
    /// The graph without gradients, whose last inputs are the parameters.
    original: &'a Graph,
    gradient: &'a Graph,
    parameters: &'a [String],
    /// Index of the loss among the outputs.
    loss: usize,
    /// True if the step counts its random calls.
    is_random: bool,
    options: &'a TrainOptions,
}

impl StepBuilder<'_> {
    /// The module of the step; its weights are those of the model, and zeros for the buffers.
    fn module(&self, module: &GraphModule) -> Result<GraphModule> {
        let mut norm = false;
        let mut graph = replay_with_outputs(
            self.gradient,
            |replay, node| replay.copy(node),
            |replay| self.outputs(replay, &mut norm),
        )?;
        let mut states = module.states.clone();
        let mut weights = module.weights.clone();
        if self.is_random {
            weights.insert(
                random::COUNTER.to_string(),
                Tensor::full(DType::I64, [], 0.0)?,
            );
            states.push(tensor_state(random::COUNTER, random::COUNTER));
        }
        for name in self.parameters {
            states.push(tensor_state(name, name));
        }
        for (name, number) in self.options.optimizer.numbers(StepSettings::default(), 1) {
            let name = number_state(name);
            weights.insert(name.clone(), Tensor::full(DType::F32, [], number)?);
            states.push(tensor_state(&name, &name));
        }
        for (name, parameter) in self.buffer_names() {
            let missing = || Error::input(format!("there is no weight {parameter}"));
            let of = module.weights.get(parameter).ok_or_else(missing)?;
            weights.insert(name.clone(), Tensor::full(of.dtype(), of.shape(), 0.0)?);
            states.push(tensor_state(&name, &name));
        }
        self.set_signature(&mut graph, norm);
        let step = GraphModule {
            graphs: vec![graph],
            weights,
            parameters: module.parameters.clone(),
            states,
        };
        step.verify()?;
        Ok(step)
    }

    /// Names of the buffers' states, each with its parameter: all of the first buffer, then of the next.
    fn buffer_names(&self) -> Vec<(String, &String)> {
        let buffers = self.options.optimizer.buffers().iter();
        let names = buffers.flat_map(|buffer| {
            let parameters = self.parameters.iter();
            parameters.map(move |parameter| (buffer_state(buffer, parameter), parameter))
        });
        names.collect()
    }

    /// The outputs of the step: the loss, the norm of the gradients if it is computed, new parameters, new buffers, and
    /// the states of the model.
    fn outputs<'g>(
        &self,
        replay: &mut Replay<'_, 'g>,
        has_norm: &mut bool,
    ) -> Result<Vec<Value<'g>>> {
        let (results, count) = (self.original.result_count(), self.parameters.len());
        let outputs = self.gradient.outputs.iter().map(|id| replay.value(*id));
        let outputs: Vec<Value> = outputs.collect();
        let part = |from: usize, to: usize| outputs.get(from..to).unwrap_or_default().to_vec();
        let gradients = part(results, results + count);
        let (gradients, norm) = match self.options.clipping {
            Some(clipping) => clipping.apply(&gradients)?,
            None => (gradients, None),
        };
        *has_norm = norm.is_some();
        let (parameters, buffers) = self.updates(replay, &gradients)?;
        let mut all = part(self.loss, self.loss + 1);
        all.extend(norm);
        all.extend(parameters);
        all.extend(buffers);
        all.extend(part(results + count, outputs.len()));
        Ok(all)
    }

    /// New parameters, and new buffers in the order of their names.
    fn updates<'g>(
        &self,
        replay: &mut Replay<'_, 'g>,
        gradients: &[Value<'g>],
    ) -> Result<(Vec<Value<'g>>, Vec<Value<'g>>)> {
        let (builder, optimizer) = (replay.builder, &self.options.optimizer);
        let first = self.gradient.inputs.len() - self.parameters.len();
        let inputs = self.gradient.inputs.get(first..).unwrap_or_default();
        let inputs: Vec<Value> = inputs.iter().map(|id| replay.value(*id)).collect();
        let scalar = TensorType {
            dtype: DType::F32,
            shape: Shape::new(),
        };
        let numbers = optimizer.numbers(StepSettings::default(), 1).into_iter();
        let numbers = numbers.map(|(name, _)| (name, builder.input(name, scalar.clone())));
        // Inputs are in the order in which the optimizer lists the numbers.
        let numbers: Vec<(&'static str, Value)> = numbers.collect();
        let numbers: BTreeMap<&'static str, Value> = numbers.into_iter().collect();
        let buffers: Vec<Vec<Value>> = optimizer
            .buffers()
            .iter()
            .map(|name| inputs.iter().map(|x| builder.input(name, x.ty())).collect())
            .collect();
        let mut parameters = Vec::new();
        let mut updated: Vec<Vec<Value>> = vec![Vec::new(); buffers.len()];
        for (index, (parameter, gradient)) in inputs.iter().zip(gradients).enumerate() {
            let own = buffers
                .iter()
                .filter_map(|of_name| of_name.get(index).copied());
            let (parameter, own) = optimizer.update(&ParameterUpdate {
                parameter: *parameter,
                gradient: *gradient,
                buffers: own.collect(),
                numbers: &numbers,
            })?;
            parameters.push(parameter);
            for (all, buffer) in updated.iter_mut().zip(own) {
                all.push(buffer);
            }
        }
        Ok((parameters, updated.concat()))
    }

    /// Sets the structure of the step's result and of its states.
    fn set_signature(&self, graph: &mut Graph, has_norm: bool) {
        let mut result = vec![("loss".to_string(), TreeSpec::Tensor(0))];
        if has_norm {
            result.push(("gradient_norm".to_string(), TreeSpec::Tensor(1)));
        }
        let results = result.len();
        graph.output_tree = Some(TreeSpec::Dict(result));
        let tensor = |(name, index): (String, usize)| NamedTree {
            name,
            tree: TreeSpec::Tensor(index),
        };
        let buffers: Vec<String> = self
            .buffer_names()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let written = self.parameters.iter().cloned().chain(buffers.clone());
        let writes = written.zip(results..).map(tensor);
        let first = self.original.result_count();
        let moved = results + self.parameters.len() + buffers.len();
        let of_model = self.original.writes.iter().map(|state| NamedTree {
            name: state.name.clone(),
            tree: (state.tree).map_tensors(&|index| TreeSpec::Tensor(index - first + moved)),
        });
        graph.writes = writes.chain(of_model).collect();
        let numbers = self
            .options
            .optimizer
            .numbers(StepSettings::default(), 1)
            .into_iter();
        let numbers = numbers.map(|(name, _)| number_state(name));
        let added = numbers.chain(buffers).zip(self.gradient.inputs.len()..);
        graph.reads = self.gradient.reads.clone();
        graph.reads.extend(added.map(tensor));
        graph.input_trees = self.gradient.input_trees.clone();
    }
}

/// A state that is one tensor and begins as a weight.
fn tensor_state(name: &str, weight: &str) -> ModuleState {
    ModuleState {
        name: name.to_string(),
        initial: TreeSpec::Tensor(0),
        weights: vec![weight.to_string()],
    }
}
