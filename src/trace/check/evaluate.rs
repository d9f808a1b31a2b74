//! Runs a graph on the host with arguments in the structure of its signature.

use crate::error::{Error, Result};
use crate::interp;
use crate::ir::{Graph, GraphModule, NamedTree, ValueId};
use crate::item::{Item, flatten_arguments, flatten_states, initial_state};
use crate::tensor::Tensor;

/// The structure of the user's arguments in terms of the graph's inputs.
pub fn signature(graph: &Graph) -> Vec<NamedTree> {
    if graph.input_trees.is_empty() {
        graph.default_inputs()
    } else {
        graph.input_trees.clone()
    }
}

/// The graph inputs that belong to the user's arguments. The inputs after them belong to states.
pub fn argument_inputs(graph: &Graph) -> &[ValueId] {
    graph
        .inputs
        .get(..graph.argument_count())
        .unwrap_or_default()
}

/// Returns all inputs of a graph for a first call: the arguments' tensors, then the initial states.
///
/// # Errors
/// The arguments do not fit the signature, or the module lacks a state.
pub fn inputs(graph: &Graph, module: &GraphModule, arguments: &[Item]) -> Result<Vec<Tensor>> {
    let mut inputs = flatten_arguments(&signature(graph), arguments)?;
    let initial = |read: &NamedTree| {
        let state = module.states.iter().find(|state| state.name == read.name);
        let state =
            state.ok_or_else(|| Error::input(format!("there is no state {}", read.name)))?;
        initial_state(state, &module.weights)
    };
    let states: Vec<Item> = graph.reads.iter().map(initial).collect::<Result<_>>()?;
    inputs.extend(flatten_states(&graph.reads, &states)?);
    Ok(inputs)
}

/// Runs a graph of a module on the host as a first call, with the initial states.
///
/// # Errors
/// The arguments do not fit the signature or break a guard, or a node fails.
pub fn evaluate(graph: &Graph, module: &GraphModule, arguments: &[Item]) -> Result<Item> {
    let inputs = inputs(graph, module, arguments)?;
    let outputs = interp::run(graph, &module.weights, &inputs)?;
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let default_tree = graph.default_outputs();
    let tree = graph.output_tree.as_ref().unwrap_or(&default_tree);
    Item::build(tree, &outputs, &graph.bind(&shapes)?)
}
