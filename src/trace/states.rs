//! Weights that some graph of a module writes: inputs of all that read them.

use crate::ir::{Graph, Input, State, Tree};

/// Makes inputs of the weights that are states, and returns their names.
pub(in crate::trace) fn read_states(
    graph: &mut Graph,
    is_state: impl Fn(&str) -> bool,
) -> Vec<String> {
    let weights = graph.weights_read().into_iter();
    let states = weights.filter(|(name, _)| is_state(name));
    let states: Vec<_> = states.map(|(name, id)| (name.to_string(), id)).collect();
    for (name, id) in &states {
        graph.make_input(*id);
        graph.reads.push(Input {
            name: name.clone(),
            tree: Tree::Tensor(graph.inputs.len() - 1),
        });
    }
    states.into_iter().map(|(name, _)| name).collect()
}

/// A weight as a state of its own name.
pub(in crate::trace) fn of_weight(name: &str) -> State {
    State {
        name: name.to_string(),
        initial: Tree::Tensor(0),
        weights: vec![name.to_string()],
    }
}
