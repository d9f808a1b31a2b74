use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::Result;
use crate::ir::rewrite::{everywhere, replay};
use crate::ir::{Argument, Graph, Module, Node, Op, Primitive, ValueId, Weights};
use crate::tensor::Tensor;

use super::constant::evaluate;
use super::dce;

/// Results of up to this many elements may be larger than what they are made of.
const SMALL: i64 = 4096;
/// Results of more elements are computed on the device each time rather than stored.
const LARGEST: i64 = 1 << 24;

/// Computes what depends on weights alone, and makes it weights of the module; weights that no graph reads then are left
/// out. Expects decomposed graphs.
///
/// Views that a device has for nothing (reshape, expand, slice) are left in the graphs.
pub fn fold_weights(module: &Module) -> Result<Module> {
    let mut stock = Stock {
        weights: module.weights.clone(),
        formulas: HashMap::new(),
        made: HashMap::new(),
    };
    let graphs = module
        .graphs
        .iter()
        .map(|graph| {
            let folded = everywhere(graph, &mut |graph| fold_graph(graph, &mut stock))?;
            dce(&folded)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut used = BTreeSet::new();
    graphs
        .iter()
        .for_each(|graph| collect_names(graph, &mut used));
    used.extend(module.states.iter().flat_map(|state| state.weights.clone()));
    stock.weights.retain(|name, _| used.contains(name.as_str()));
    Ok(Module {
        graphs,
        weights: stock.weights,
        states: module.states.clone(),
    })
}

fn collect_names(graph: &Graph, names: &mut BTreeSet<String>) {
    names.extend(graph.weights().map(|(name, _)| name.to_string()));
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        collect_names(body, names);
    }
}

/// The module's weights, and what was made of them.
struct Stock {
    weights: Weights,
    /// Formulas of weights by their text, numbered; operands of a formula are numbers of others.
    formulas: HashMap<String, usize>,
    /// Names of the weights that hold the value of a formula.
    made: HashMap<usize, String>,
}

impl Stock {
    fn formula(&mut self, text: String) -> usize {
        let next = self.formulas.len();
        *self.formulas.entry(text).or_insert(next)
    }

    /// Makes the value of a formula a weight; another graph may have done so already.
    fn store(&mut self, constant: &Constant, tensor: &Tensor) -> String {
        if let Some(name) = self.made.get(&constant.formula) {
            return name.clone();
        }
        let base = format!("{}.folded", constant.weight.unwrap_or("constant"));
        let numbered = (2..).map(|number| format!("{base}_{number}"));
        let name = std::iter::once(base.clone())
            .chain(numbered)
            .find(|name| !self.weights.contains_key(name))
            .unwrap_or(base);
        self.weights.insert(name.clone(), tensor.clone());
        self.made.insert(constant.formula, name.clone());
        name
    }
}

/// A value that depends on weights and numbers alone.
struct Constant<'a> {
    /// Absent for a weight.
    node: Option<&'a Node>,
    formula: usize,
    /// The first weight that it depends on.
    weight: Option<&'a str>,
}

/// Such values of one graph.
struct Constants<'a> {
    graph: &'a Graph,
    known: HashMap<ValueId, Constant<'a>>,
}

fn fold_graph(graph: &Graph, stock: &mut Stock) -> Result<Graph> {
    let constants = Constants::of(graph, stock);
    let wanted = constants.wanted();
    let tensors = constants.compute(&wanted, &stock.weights);
    let mut names: HashMap<ValueId, String> = HashMap::new();
    for id in wanted {
        // What can't be computed here is left to fail when the graph runs.
        if let (Some(tensor), Some(constant)) = (tensors.get(&id), constants.known.get(&id)) {
            names.insert(id, stock.store(constant, tensor));
        }
    }
    replay(graph, |replay, node| {
        let [result] = node.results.as_slice() else {
            return replay.copy(node);
        };
        match names.get(result) {
            Some(name) => Ok(vec![replay.builder.weight(name, graph.ty(*result).clone())]),
            None => replay.copy(node),
        }
    })
}

impl<'a> Constants<'a> {
    fn of(graph: &'a Graph, stock: &mut Stock) -> Constants<'a> {
        let mut constants = Constants {
            graph,
            known: HashMap::new(),
        };
        for (name, id) in graph.weights() {
            if stock.weights.contains_key(name) {
                let constant = Constant {
                    node: None,
                    formula: stock.formula(format!("${name:?}")),
                    weight: Some(name),
                };
                constants.known.insert(id, constant);
            }
        }
        for node in &graph.nodes {
            constants.learn(node, stock);
        }
        constants
    }

    fn learn(&mut self, node: &'a Node, stock: &mut Stock) -> Option<()> {
        let (Op::Primitive(primitive), [result]) = (&node.op, node.results.as_slice()) else {
            return None;
        };
        let numel = |id: ValueId| self.graph.ty(id).numel().as_const();
        let read: i64 = node
            .operands()
            .into_iter()
            .map(numel)
            .sum::<Option<i64>>()?;
        let made = numel(*result)?;
        (made <= LARGEST && made <= read.max(SMALL)).then_some(())?;
        let operand = |argument: &Argument| match argument {
            Argument::Value(id) => Some(format!("#{}", self.known.get(id)?.formula)),
            other => Some(format!("{other:?}")),
        };
        let operands: Vec<String> = node.arguments.iter().map(operand).collect::<Option<_>>()?;
        let weight = |id: ValueId| self.known.get(&id)?.weight;
        let constant = Constant {
            node: Some(node),
            formula: stock.formula(format!("{primitive:?}({})", operands.join(", "))),
            weight: node.operands().into_iter().find_map(weight),
        };
        self.known.insert(*result, constant);
        Some(())
    }

    /// What to store: constants that something else than a constant reads, behind views and generators.
    fn wanted(&self) -> Vec<ValueId> {
        let is_known = |id: &ValueId| self.known.contains_key(id);
        let others = self
            .graph
            .nodes
            .iter()
            .filter(|node| !node.results.iter().any(is_known));
        let mut frontier: Vec<ValueId> = others
            .flat_map(Node::operands)
            .chain(self.graph.outputs.iter().copied())
            .filter(is_known)
            .collect();
        let mut seen = HashSet::new();
        let mut wanted = Vec::new();
        while let Some(id) = frontier.pop() {
            let node = self.known.get(&id).and_then(|constant| constant.node);
            let (Some(node), true) = (node, seen.insert(id)) else {
                continue;
            };
            match &node.op {
                Op::Primitive(
                    Primitive::Reshape(_) | Primitive::Expand(_) | Primitive::Slice(_),
                ) => frontier.extend(node.operands()),
                Op::Primitive(Primitive::Full(_) | Primitive::Iota(_)) => {}
                _ => wanted.push(id),
            }
        }
        wanted.sort_unstable();
        wanted
    }

    /// Values of the wanted constants and of all that they are made of.
    fn compute(&self, wanted: &[ValueId], weights: &Weights) -> HashMap<ValueId, Tensor> {
        let mut needed: HashSet<ValueId> = wanted.iter().copied().collect();
        for node in self.graph.nodes.iter().rev() {
            if node.results.iter().any(|result| needed.contains(result)) {
                needed.extend(node.operands());
            }
        }
        let mut tensors: HashMap<ValueId, Tensor> = HashMap::new();
        for (name, id) in self.graph.weights() {
            if let Some(tensor) = weights.get(name) {
                tensors.insert(id, tensor.clone());
            }
        }
        for node in &self.graph.nodes {
            if let (Op::Primitive(primitive), [result]) = (&node.op, node.results.as_slice())
                && needed.contains(result)
                && let Ok(computed) =
                    evaluate(primitive, &node.arguments, &|id| tensors.get(&id).cloned())
            {
                tensors.extend(computed.into_iter().map(|tensor| (*result, tensor)));
            }
        }
        tensors
    }
}
