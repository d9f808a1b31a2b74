use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, ErrorContext, Result};
use crate::ir::{
    Argument, Definition, Graph, GraphModule, NamedTree, TreeSpec, ValueId, Weights, legal_name,
};
use crate::shape::TensorType;

/// Prefix of arguments that are weights. No argument name of a user begins with it.
const WEIGHT: char = '$';
/// Prefix of arguments that are states.
const STATE: char = '@';
/// Type name of a result that includes states.
const RESULT: &str = "onionskin.Lifted";

/// Makes weights and states explicit: arguments for states (`@hidden`) and weights (`$fc.weight`) follow the user's
/// arguments, and new values of states follow the result. Formats that only have pure functions can then represent the
/// graph.
///
/// Weights and initial values of states stay in the module, for callers of the graphs and for [`unlift`]. Nested graphs
/// get the weights that they read as arguments.
pub fn lift(module: &GraphModule) -> GraphModule {
    let mut lifted = module.clone();
    lifted.graphs.iter_mut().for_each(lift_graph);
    lifted
}

/// Reverses [`lift`]: turns inputs for weights and states back into weights and states.
///
/// # Errors
/// Fails if the module lacks a weight, or if other inputs follow the weights.
pub fn unlift(module: &GraphModule) -> Result<GraphModule> {
    let mut unlifted = module.clone();
    for graph in &mut unlifted.graphs {
        let name = graph.name.clone();
        unlift_graph(graph, &module.weights).at(|| format!("graph {name}"))?;
    }
    Ok(unlifted)
}

/// Lifts the weights and states of one graph.
fn lift_graph(graph: &mut Graph) {
    graph.pass_weights();
    let mut arguments = match graph.has_default_inputs() {
        true => graph.default_inputs(),
        false => std::mem::take(&mut graph.input_trees),
    };
    arguments.extend(graph.reads.drain(..).map(|read| with_prefix(STATE, read)));
    for (name, ty) in weight_types(graph) {
        let tree = TreeSpec::Tensor(graph.inputs.len());
        weight_to_input(graph, &name, &ty);
        arguments.push(with_prefix(WEIGHT, NamedTree { name, tree }));
    }
    graph.input_trees = arguments;
    if !graph.writes.is_empty() {
        let result = graph
            .output_tree
            .take()
            .unwrap_or(TreeSpec::Tuple(Vec::new()));
        let written = graph.writes.drain(..);
        let written = written.map(|state| (state.name, state.tree));
        let fields = std::iter::once(("result".to_string(), result)).chain(written);
        graph.output_tree = Some(TreeSpec::NamedTuple(RESULT.into(), fields.collect()));
    }
}

fn with_prefix(mark: char, input: NamedTree) -> NamedTree {
    let name = format!("{mark}{}", input.name);
    NamedTree { name, ..input }
}

/// Names and types of the weights that a graph reads, without those of nested graphs.
fn weight_types(graph: &Graph) -> BTreeMap<String, TensorType> {
    let weights = graph.weights();
    weights
        .map(|(name, id)| (name.to_string(), graph.ty(id).clone()))
        .collect()
}

impl Graph {
    /// Turns the weights that nested graphs read into their inputs, and passes them as arguments: every weight that the
    /// graph reads is then a value of it.
    pub fn pass_weights(&mut self) {
        for index in 0..self.nodes.len() {
            let mut read = BTreeMap::new();
            for body in self.nodes[index].bodies_mut() {
                body.pass_weights();
                read.extend(weight_types(body));
            }
            for (name, ty) in read {
                for body in self.nodes[index].bodies_mut() {
                    weight_to_input(body, &name, &ty);
                }
                let outer = self.weight_value(&name, &ty);
                self.nodes[index].arguments.push(Argument::Value(outer));
            }
        }
    }
}

/// Turns a weight into the last input.
pub(crate) fn weight_to_input(graph: &mut Graph, name: &str, ty: &TensorType) {
    let id = graph.weight_value(name, ty);
    let names: BTreeSet<&str> = graph.values.iter().map(|info| info.name.as_str()).collect();
    let first = legal_name(name);
    let numbered = (1..).map(|number| format!("{first}_{number}"));
    let mut candidates = std::iter::once(first.clone()).chain(numbered);
    let unique = candidates.find(|name| !names.contains(name.as_str()));
    let info = &mut graph.values[id.index()];
    info.name = unique.unwrap_or(first);
    info.definition = Definition::Input(graph.inputs.len());
    graph.inputs.push(id);
}

/// Turns the lifted inputs and results of one graph back into weights and states.
fn unlift_graph(graph: &mut Graph, weights: &Weights) -> Result<()> {
    let mut lifted = Vec::new();
    for input in std::mem::take(&mut graph.input_trees) {
        if let Some(name) = input.name.strip_prefix(WEIGHT) {
            lifted.push((name.to_string(), input.tree));
        } else if let Some(name) = input.name.strip_prefix(STATE) {
            let (name, tree) = (name.to_string(), input.tree);
            graph.reads.push(NamedTree { name, tree });
        } else {
            graph.input_trees.push(input);
        }
    }
    for (name, tree) in lifted.into_iter().rev() {
        if !weights.contains_key(&name) {
            return Err(Error::input(format!("the module has no weight {name}")));
        }
        let id = take_last_input(graph, &tree).ok_or_else(|| {
            let message =
                format!("an input follows the weight {name}; weights must be the last inputs");
            Error::input(message)
        })?;
        let info = &mut graph.values[id.index()];
        info.name = format!("${name}");
        info.definition = Definition::Weight(name);
    }
    if let Some(TreeSpec::NamedTuple(_, fields)) = graph.output_tree.take_if(is_lifted) {
        let mut fields = fields.into_iter();
        let result = fields.next().map(|(_, tree)| tree);
        graph.output_tree = result.filter(|tree| *tree != TreeSpec::Tuple(Vec::new()));
        graph.writes = fields
            .map(|(name, tree)| NamedTree { name, tree })
            .collect();
    }
    Ok(())
}

/// Removes and returns the last input, if `tree` denotes it.
fn take_last_input(graph: &mut Graph, tree: &TreeSpec) -> Option<ValueId> {
    let last = graph.inputs.len().checked_sub(1)?;
    (*tree == TreeSpec::Tensor(last)).then(|| graph.inputs.pop())?
}

/// True for a result that includes states.
fn is_lifted(tree: &mut TreeSpec) -> bool {
    matches!(tree, TreeSpec::NamedTuple(name, _) if name == RESULT)
}
