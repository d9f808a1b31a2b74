//! Models with a backward pass.

use super::Model;
use crate::error::{Error, ErrorContext, Result};
use crate::grad::{GradientOptions, Loss};
use crate::ir::{Graph, GraphModule, ValueId};

/// Options for a backward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackwardOptions {
    /// The number whose gradients are computed. Without one it is the sum of the only float output.
    pub loss: Option<Loss>,
    /// Modules whose values are computed again.
    pub gradient: GradientOptions,
}

impl Model {
    /// A model with only the graph `entry`, which also computes the gradients of a loss with respect to all parameters that it
    /// reads; of a graph without known parameters, to all its float weights, or else inputs. See
    /// [`Graph::gradient`](crate::ir::Graph::gradient).
    ///
    /// # Errors
    /// The model cannot be imported, there is no loss and the graph has several float outputs, and as
    /// [`Graph::gradient_with`](crate::ir::Graph::gradient_with).
    pub fn with_backward(&self, entry: &str, options: &BackwardOptions) -> Result<Model> {
        let module = self.import_method(entry, None)?;
        let module = with_parameter_gradients(module, entry, options)?;
        Ok(Model::from_module(module).with_limits(self.limits()))
    }
}

/// [`Model::with_backward`] of an imported module.
pub(crate) fn with_parameter_gradients(
    module: GraphModule,
    entry: &str,
    options: &BackwardOptions,
) -> Result<GraphModule> {
    let parameters = module.parameters.clone();
    with_gradients(module, entry, options, &|graph| {
        let weights = graph.weights_read().into_iter();
        let floats = weights.filter(|(_, id)| graph.ty(*id).dtype.is_float());
        let floats: Vec<(&str, ValueId)> = floats.collect();
        let of_parameters = floats.iter().filter(|(name, _)| parameters.contains(*name));
        let ids = |(_, id): &(&str, ValueId)| *id;
        match (of_parameters.clone().next(), floats.is_empty()) {
            (Some(_), _) => of_parameters.map(ids).collect(),
            (None, false) => floats.iter().map(ids).collect(),
            (None, true) => graph.differentiable_values(),
        }
    })
}

/// The module with only the entry graph, which also computes the gradients of a loss with respect to all its float inputs
/// and weights.
pub(super) fn with_all_gradients(
    module: GraphModule,
    entry: &str,
    options: &BackwardOptions,
) -> Result<GraphModule> {
    with_gradients(module, entry, options, &Graph::differentiable_values)
}

fn with_gradients(
    module: GraphModule,
    entry: &str,
    options: &BackwardOptions,
    wanted: &dyn Fn(&Graph) -> Vec<ValueId>,
) -> Result<GraphModule> {
    let mut graph = module.graph(entry)?.clone();
    let in_entry = || entry.to_string();
    let loss = match &options.loss {
        Some(loss) => loss.clone(),
        None => sum_of_only_output(&graph).at(in_entry)?,
    };
    graph.pass_weights();
    let gradient = graph.gradient_with(&loss, &wanted(&graph), &options.gradient);
    Ok(GraphModule {
        graphs: vec![gradient.at(in_entry)?],
        ..module
    })
}

fn sum_of_only_output(graph: &Graph) -> Result<Loss> {
    let outputs = graph.differentiable_outputs();
    let names: Vec<&str> = outputs.values().map(String::as_str).collect();
    match names.as_slice() {
        [_] => Ok(Loss::Sum),
        [] => Err(Error::usage(format!(
            "{} has no output of floats, so it has no gradients",
            graph.name
        ))),
        [first, ..] => {
            let message = format!(
                "{} has {} outputs of floats: {}",
                graph.name,
                names.len(),
                names.join(", ")
            );
            Err(Error::usage(message).help(format!(
                "choose a loss: sum or mean of all of them, or one number of them, as in output:{first}"
            )))
        }
    }
}
