//! Reverse-mode differentiation: from a graph, a graph that also computes gradients.
//!
//! [`Graph::gradient`] replays a graph, replaces calls by their bodies, and then visits the nodes from the last to the
//! first. Each primitive has a rule in `rules` that returns the gradients of its operands from those of its results.
//! Conventions at kinks, ties and poles are those of PyTorch's `derivatives.yaml` (`tools/autograd`). Gradients have the
//! element type of their values, and equal gradients come from equal inputs: nothing depends on the order of threads.

mod backward;
mod recompute;
mod rules;
mod signature;

use std::cell::RefCell;
use std::ops::Range;
use std::str::FromStr;

use crate::aten;
use crate::error::{Error, Result};
use crate::ir::rewrite::{Replay, replay_with_outputs};
use crate::ir::{Definition, Graph, Node, Op, Value, ValueId};
use crate::pass;
use crate::shape::TensorType;

use backward::Backward;
pub(crate) use signature::add_input_trees;

/// The number whose gradients are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The output with this name, as in [`Graph::output_specs`]. It has one element.
    Output(String),
    /// The sum of all elements of all float outputs.
    Sum,
    /// The sum of the means of all float outputs.
    Mean,
    /// The sum of products of all elements of all float outputs with further inputs of these types, as
    /// `torch.autograd.grad` takes them as `grad_outputs`. Their names begin with `grad_`.
    GradOutputs,
}

impl FromStr for Loss {
    type Err = Error;

    /// Parses `sum`, `mean` or `output:NAME`.
    fn from_str(text: &str) -> Result<Loss> {
        match (text, text.strip_prefix("output:")) {
            ("sum", _) => Ok(Loss::Sum),
            ("mean", _) => Ok(Loss::Mean),
            (_, Some(name)) => Ok(Loss::Output(name.to_string())),
            _ => Err(Error::usage(format!(
                "{text:?} is not sum, mean or output:NAME"
            ))),
        }
    }
}

/// Options for gradients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GradientOptions {
    /// Patterns of the paths of modules, in which `*` stands for any text: `layers.*`. The values of a module that matches are not
    /// kept for the backward pass, but computed again from the module's inputs, as `torch.utils.checkpoint` does. That
    /// takes less memory and more time.
    pub recompute: Vec<String>,
}

impl Graph {
    /// A graph that also computes the gradients of a loss with respect to inputs and weights of this graph. Its result is
    /// a tuple of this graph's result and a dictionary of the gradients, by names of inputs and weights.
    ///
    /// # Errors
    /// Fails if the loss is not one float, if a value is no float or no input or weight, and if an operator between the
    /// values and the loss has no derivative; the message lists all such operators.
    pub fn gradient(&self, loss: &Loss, with_respect_to: &[ValueId]) -> Result<Graph> {
        self.gradient_with(loss, with_respect_to, &GradientOptions::default())
    }

    /// [`Graph::gradient`] with options.
    ///
    /// # Errors
    /// As [`Graph::gradient`], and if no module matches a pattern.
    pub fn gradient_with(
        &self,
        loss: &Loss,
        with_respect_to: &[ValueId],
        options: &GradientOptions,
    ) -> Result<Graph> {
        let targets: Vec<Target> = with_respect_to
            .iter()
            .map(|id| Target::of(self, *id))
            .collect::<Result<_>>()?;
        let gradient = differentiate(self, loss, &targets, self.outputs.len(), options)?;
        Ok(signature::with_gradients(gradient, self, &targets))
    }

    /// The inputs and weights of this graph that have a float element type, in order. Weights that only nested graphs read
    /// are among them after [`Graph::pass_weights`].
    pub fn differentiable_values(&self) -> Vec<ValueId> {
        let weights = self.weights_read().into_values();
        let values = self.inputs.iter().copied().chain(weights);
        values.filter(|id| self.ty(*id).dtype.is_float()).collect()
    }
}

/// An input or weight whose gradient is wanted.
enum Target {
    Input(usize),
    Weight(String, TensorType),
}

impl Target {
    fn of(graph: &Graph, id: ValueId) -> Result<Target> {
        let info = graph
            .values
            .get(id.index())
            .ok_or_else(|| Error::usage(format!("the graph has no value {}", id.index())))?;
        if !info.ty.dtype.is_float() {
            let message = format!("{}: {} has no gradient", info.name, info.ty);
            return Err(Error::usage(message).help("only floats have gradients"));
        }
        match &info.definition {
            Definition::Input(index) => Ok(Target::Input(*index)),
            Definition::Weight(name) => Ok(Target::Weight(name.clone(), info.ty.clone())),
            Definition::Node(..) => Err(Error::usage(format!(
                "{} is neither an input nor a weight",
                info.name
            ))),
        }
    }

    /// The value in a replay of a graph with equal inputs and weights.
    fn value<'g>(&self, replay: &mut Replay<'_, 'g>) -> Result<Value<'g>> {
        match self {
            Target::Weight(name, ty) => Ok(replay.builder.weight(name, ty.clone())),
            Target::Input(index) => match replay.graph.inputs.get(*index) {
                Some(id) => Ok(replay.value(*id)),
                None => Err(Error::internal(format!("there is no input {index}"))),
            },
        }
    }
}

/// The graph with the first `kept` outputs, then the gradients of the targets, then the other outputs.
fn differentiate(
    graph: &Graph,
    loss: &Loss,
    targets: &[Target],
    kept: usize,
    options: &GradientOptions,
) -> Result<Graph> {
    let mut graph = pass::inline(graph)?;
    graph.pass_weights();
    let kept = kept.min(graph.result_count());
    let expansions = RefCell::new(Vec::new());
    replay_with_outputs(
        &graph,
        |replay, node| forward(replay, node, &expansions),
        |replay| {
            let mut outputs = Vec::new();
            for id in &graph.outputs {
                outputs.push(replay.value(*id));
            }
            let states = outputs.split_off(graph.result_count());
            let wanted = targets.iter().map(|target| target.value(replay));
            let wanted: Vec<Value> = wanted.collect::<Result<_>>()?;
            let backward = Backward::of(replay.builder, &wanted, &expansions.borrow(), options)?;
            let gradients = backward.run(loss, &graph, &outputs)?;
            outputs.truncate(kept);
            Ok([outputs, gradients, states].concat())
        },
    )
}

/// A graph that takes a body's inputs and the gradients of its float outputs, and returns the gradients of some inputs.
fn input_gradients(body: &Graph, inputs: &[usize]) -> Result<Graph> {
    let targets: Vec<Target> = inputs.iter().copied().map(Target::Input).collect();
    differentiate(
        body,
        &Loss::GradOutputs,
        &targets,
        0,
        &GradientOptions::default(),
    )
}

/// Adds a node to the new graph. A call stays if its row has a rule of its own; others are replaced by their bodies, whose
/// values are added to `expansions`.
fn forward<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    expansions: &RefCell<Vec<Range<usize>>>,
) -> Result<Vec<Value<'g>>> {
    match &node.op {
        Op::Call(name) if aten::operator(name)?.row.gradient.is_none() => {
            let arguments = replay.arguments(node);
            let first = replay.builder.value_count();
            let operator = aten::operator(name)?;
            let mut results = operator.expand(replay.builder, &arguments)?;
            let expansion = first..replay.builder.value_count();
            expansions.borrow_mut().push(expansion);
            for result in results.iter_mut().skip(operator.row.differentiable_results) {
                *result = aten::detach(*result)?;
            }
            Ok(results)
        }
        _ => replay.copy(node),
    }
}
