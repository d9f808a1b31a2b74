//! States: the weights that some graph of a module writes. A state is an input of every graph that reads it.

use crate::ir::{Graph, ModuleState, NamedTree, TreeSpec};

/// Turns the weights that are states into inputs of the graph. Returns their names. `is_state` takes a weight's name.
pub(in crate::trace) fn make_state_inputs(
    graph: &mut Graph,
    is_state: impl Fn(&str) -> bool,
) -> Vec<String> {
    let weights = graph.weights_read().into_iter();
    let states = weights.filter(|(name, _)| is_state(name));
    let states: Vec<_> = states.map(|(name, id)| (name.to_string(), id)).collect();
    for (name, id) in &states {
        graph.make_input(*id);
        graph.reads.push(NamedTree {
            name: name.clone(),
            tree: TreeSpec::Tensor(graph.inputs.len() - 1),
        });
    }
    states.into_iter().map(|(name, _)| name).collect()
}

/// Returns the state for the weight `name`. It has the weight's name, and the weight's value is its initial value.
pub(in crate::trace) fn weight_state(name: &str) -> ModuleState {
    ModuleState {
        name: name.to_string(),
        initial: TreeSpec::Tensor(0),
        weights: vec![name.to_string()],
    }
}
