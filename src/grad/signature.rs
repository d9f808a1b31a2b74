//! The signature of a graph with gradients.

use super::Target;
use crate::ir::{Definition, Graph, NamedTree, TreeSpec};

/// Sets the structure of a graph's result: that of `original`, and a dictionary of the targets' gradients, which follow the
/// outputs of the original's result. Outputs of states come last.
pub(super) fn with_gradients(mut graph: Graph, original: &Graph, targets: &[Target]) -> Graph {
    let first = original.result_count();
    let names = targets.iter().map(|target| match target {
        Target::Input(index) => original
            .inputs
            .get(*index)
            .map(|id| original.value(*id).name.clone())
            .unwrap_or_default(),
        Target::Weight(name, _) => name.clone(),
    });
    let gradients = names.zip(first..);
    let gradients = gradients.map(|(name, index)| (name, TreeSpec::Tensor(index)));
    let result = original.output_tree.clone();
    let result = result.unwrap_or_else(|| match first {
        1 => TreeSpec::Tensor(0),
        count => TreeSpec::Tuple((0..count).map(TreeSpec::Tensor).collect()),
    });
    graph.output_tree = Some(TreeSpec::Tuple(vec![
        result,
        TreeSpec::Dict(gradients.collect()),
    ]));
    let count = targets.len();
    let shifted = original.writes.iter().map(|state| NamedTree {
        name: state.name.clone(),
        tree: state
            .tree
            .map_tensors(&|index| TreeSpec::Tensor(index + count)),
    });
    graph.writes = shifted.collect();
    add_input_trees(&mut graph, original);
    graph
}

/// Makes the last inputs of a graph, which the original does not have, the last arguments. The inputs of states follow them.
pub(crate) fn add_input_trees(graph: &mut Graph, original: &Graph) {
    let added = graph.inputs.len() - original.inputs.len();
    if added == 0 {
        return;
    }
    let first = original.argument_count();
    let behind = graph.inputs.get_mut(first..).unwrap_or_default();
    behind.rotate_right(added);
    for (index, id) in graph.inputs.iter().enumerate() {
        if let Some(info) = graph.values.get_mut(id.index()) {
            info.definition = Definition::Input(index);
        }
    }
    for read in &mut graph.reads {
        read.tree = read
            .tree
            .map_tensors(&|index| TreeSpec::Tensor(index + added));
    }
    if original.has_default_inputs() {
        graph.input_trees = graph.default_inputs();
        return;
    }
    let gradients = graph.inputs.iter().enumerate().skip(first).take(added);
    let gradients = gradients.map(|(index, id)| NamedTree {
        name: graph.value(*id).name.clone(),
        tree: TreeSpec::Tensor(index),
    });
    let gradients: Vec<NamedTree> = gradients.collect();
    graph.input_trees.extend(gradients);
}
