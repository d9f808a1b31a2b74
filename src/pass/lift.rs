use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result, Trail};
use crate::ir::{Argument, Definition, Graph, Input, Module, Tree, ValueId, Weights, legal_name};
use crate::shape::TensorType;

/// Marks arguments that are weights; no argument of a user's begins so.
const WEIGHT: char = '$';
/// Marks arguments that are states.
const STATE: char = '@';
/// The structure of a result with states behind it.
const RESULT: &str = "onionskin.Lifted";

/// Makes inputs of everything that a graph reads: behind the user's arguments stand those for states (`@hidden`) and weights
/// (`$fc.weight`), and behind the result what is left in states. So graphs are exported to formats that know functions only.
///
/// Weights and first values of states stay in the module, for whoever calls the graphs and for [`unlift`]; nested graphs get
/// the weights that they read as arguments.
pub fn lift(module: &Module) -> Module {
    let mut lifted = module.clone();
    lifted.graphs.iter_mut().for_each(lift_graph);
    lifted
}

/// Makes weights and states of the inputs that [`lift`] made of them.
///
/// # Errors
/// The module lacks a weight, or other inputs stand behind those that are weights.
pub fn unlift(module: &Module) -> Result<Module> {
    let mut unlifted = module.clone();
    for graph in &mut unlifted.graphs {
        let name = graph.name.clone();
        unlift_graph(graph, &module.weights).at(|| format!("graph {name}"))?;
    }
    Ok(unlifted)
}

fn lift_graph(graph: &mut Graph) {
    pass_weights(graph);
    let mut arguments = match graph.has_plain_inputs() {
        true => graph.plain_inputs(),
        false => std::mem::take(&mut graph.input_trees),
    };
    arguments.extend(graph.reads.drain(..).map(|read| marked(STATE, read)));
    for (name, ty) in weight_types(graph) {
        let tree = Tree::Tensor(graph.inputs.len());
        take_weight(graph, &name, &ty);
        arguments.push(marked(WEIGHT, Input { name, tree }));
    }
    graph.input_trees = arguments;
    if !graph.writes.is_empty() {
        let result = graph.output_tree.take().unwrap_or(Tree::Tuple(Vec::new()));
        let written = graph.writes.drain(..);
        let written = written.map(|state| (state.name, state.tree));
        let fields = std::iter::once(("result".to_string(), result)).chain(written);
        graph.output_tree = Some(Tree::NamedTuple(RESULT.into(), fields.collect()));
    }
}

fn marked(mark: char, input: Input) -> Input {
    let name = format!("{mark}{}", input.name);
    Input { name, ..input }
}

fn weight_types(graph: &Graph) -> BTreeMap<String, TensorType> {
    let weights = graph.weights();
    weights
        .map(|(name, id)| (name.to_string(), graph.ty(id).clone()))
        .collect()
}

/// Passes weights that nested graphs read as arguments.
fn pass_weights(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let mut read = BTreeMap::new();
        for body in graph.nodes[index].bodies_mut() {
            pass_weights(body);
            read.extend(weight_types(body));
        }
        for (name, ty) in read {
            for body in graph.nodes[index].bodies_mut() {
                take_weight(body, &name, &ty);
            }
            let outer = graph.weight_value(&name, &ty);
            graph.nodes[index].arguments.push(Argument::Value(outer));
        }
    }
}

/// Makes the last input of a weight.
fn take_weight(graph: &mut Graph, name: &str, ty: &TensorType) {
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

fn unlift_graph(graph: &mut Graph, weights: &Weights) -> Result<()> {
    let mut lifted = Vec::new();
    for input in std::mem::take(&mut graph.input_trees) {
        if let Some(name) = input.name.strip_prefix(WEIGHT) {
            lifted.push((name.to_string(), input.tree));
        } else if let Some(name) = input.name.strip_prefix(STATE) {
            let (name, tree) = (name.to_string(), input.tree);
            graph.reads.push(Input { name, tree });
        } else {
            graph.input_trees.push(input);
        }
    }
    for (name, tree) in lifted.into_iter().rev() {
        if !weights.contains_key(&name) {
            return Err(Error::input(format!("there is no weight {name}")));
        }
        let id = last_input(graph, &tree).ok_or_else(|| {
            let message = format!("an input stands behind the weight {name}");
            Error::input(message)
        })?;
        let info = &mut graph.values[id.index()];
        info.name = format!("${name}");
        info.definition = Definition::Weight(name);
    }
    if let Some(Tree::NamedTuple(_, fields)) = graph.output_tree.take_if(is_lifted) {
        let mut fields = fields.into_iter();
        let result = fields.next().map(|(_, tree)| tree);
        graph.output_tree = result.filter(|tree| *tree != Tree::Tuple(Vec::new()));
        graph.writes = fields.map(|(name, tree)| Input { name, tree }).collect();
    }
    Ok(())
}

/// Takes the last input away, if that is what the argument is.
fn last_input(graph: &mut Graph, tree: &Tree) -> Option<ValueId> {
    let last = graph.inputs.len().checked_sub(1)?;
    (*tree == Tree::Tensor(last)).then(|| graph.inputs.pop())?
}

fn is_lifted(tree: &mut Tree) -> bool {
    matches!(tree, Tree::NamedTuple(name, _) if name == RESULT)
}
