//! Weight folding: values that depend only on weights become weights, each with a formula that is evaluated on demand.

mod affine;
mod formula;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Argument, Graph, GraphModule, Node, Op, Primitive, ValueId, Weights};
use crate::shape::TensorType;
use crate::tensor::Tensor;

use self::formula::{Formula, FormulaSource, Formulas, missing_weight};
use super::dce;

/// Largest number of elements of a folded weight that is larger than its operands together.
const LARGEST_GROWN: i64 = 4096;
/// [`LARGEST_GROWN`] for gathers, such as biases by relative position. Unfolded, each read of an element needs two
/// lookups.
const LARGEST_GATHER: i64 = 1 << 20;
/// Largest number of elements of a folded weight. Larger results are recomputed on the device in each run.
const LARGEST_FOLDED: i64 = 1 << 24;

/// Computes values that depend only on weights and makes them weights of the module. Removes weights that no graph reads
/// afterwards. Expects decomposed graphs.
///
/// Views that cost nothing on a device (reshape, expand, slice) stay in the graphs, unless they are filters. A permutation
/// of a weight stays too if a graph also reads the weight unpermuted, such as the table of an embedding that is the last
/// layer as well: otherwise a device would store both.
pub fn fold_weights(module: &GraphModule) -> Result<GraphModule> {
    let folded = FoldedModule::of(module)?;
    Ok(GraphModule {
        weights: folded.weights()?,
        graphs: folded.graphs,
        parameters: module.parameters.clone(),
        states: module.states.clone(),
    })
}

/// Graphs whose weight-only values are folded to weights. Elements are computed on demand.
pub struct FoldedModule {
    /// The graphs.
    pub graphs: Vec<Graph>,
    /// Weights of the module that formulas and graphs read.
    weights: Weights,
    /// Formulas of all weights that graphs read or may derive.
    formulas: Formulas,
    /// Names of the weights that graphs read or states hold, each with the number of its formula.
    named: BTreeMap<String, usize>,
}

impl FoldedModule {
    /// Folds the graphs of a module. Computes only weights whose computation may fail.
    pub fn of(module: &GraphModule) -> Result<FoldedModule> {
        let mut derived = DerivedWeights {
            weights: &module.weights,
            formulas: Formulas::default(),
            derived: BTreeMap::new(),
            names: HashMap::new(),
            next_numbers: HashMap::new(),
        };
        let fold = |graph: &Graph| {
            let folded = apply_to_all_graphs(graph, &mut |graph| fold_graph(graph, &mut derived))?;
            dce(&folded)
        };
        let graphs = module.graphs.iter().map(fold).collect::<Result<Vec<_>>>()?;
        let mut used: BTreeSet<String> = BTreeSet::new();
        graphs
            .iter()
            .for_each(|graph| collect_names(graph, &mut used));
        used.extend(module.states.iter().flat_map(|state| state.weights.clone()));
        Ok(derived.finish(graphs, &used))
    }

    /// Names of all weights.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Type of a weight; `None` if there is no such weight.
    pub fn ty(&self, name: &str) -> Option<&TensorType> {
        let number = self.named.get(name)?;
        Some(&self.formulas.all.get(*number)?.ty)
    }

    /// Returns a weight, computing it if a formula derives it from others.
    ///
    /// # Errors
    /// Fails if there is no such weight.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.formulas.compute(self.number(name)?, &self.weights)
    }

    /// True if a weight is computed from others.
    pub fn is_derived(&self, name: &str) -> bool {
        let number = self.named.get(name).copied();
        let formula = number.and_then(|number| self.formulas.all.get(number));
        formula.is_some_and(|formula| matches!(formula.source, FormulaSource::Node(..)))
    }

    /// Weight of the module that a weight permutes, and the axes of the permutation; `None` if the weight is not a
    /// permutation of a weight of the module.
    pub fn permuted(&self, name: &str) -> Option<(Tensor, Vec<usize>)> {
        let formula = self.formulas.all.get(*self.named.get(name)?)?;
        let FormulaSource::Node(Primitive::Permute(permute), _) = &formula.source else {
            return None;
        };
        let operand = self.formulas.all.get(formula.operands().next()?)?;
        match &operand.source {
            FormulaSource::Weight(name) => {
                Some((self.weights.get(name)?.clone(), permute.axes.clone()))
            }
            FormulaSource::Node(..) => None,
        }
    }

    /// Number of a weight's formula.
    fn number(&self, name: &str) -> Result<usize> {
        let number = self.named.get(name).copied();
        number.ok_or_else(|| Error::input(format!("the module has no weight {name}")))
    }

    /// Identifies a weight by its formula and the module's weights in it, without computing the weight. A formula with a
    /// user-defined function is computed, since the function's name does not identify what it computes.
    ///
    /// # Errors
    /// Fails if there is no such weight.
    pub fn digest(&self, name: &str) -> Result<Digest> {
        let number = self.number(name)?;
        let dependencies = self.formulas.dependencies(number);
        let is_custom = |dependency: &usize| {
            self.formulas
                .all
                .get(*dependency)
                .is_some_and(Formula::is_custom)
        };
        if dependencies.iter().any(is_custom) {
            return Digest::of_tensor(&self.tensor(name)?);
        }
        let mut known: HashMap<usize, Digest> = HashMap::new();
        for dependency in dependencies {
            let formula = self.formulas.all.get(dependency);
            let digest = formula.map(|formula| formula.digest(&self.weights, &known));
            known.extend(digest.transpose()?.map(|digest| (dependency, digest)));
        }
        known.remove(&number).ok_or_else(missing_weight)
    }

    /// The module's weights from which a weight is computed, in memory. They need not be read again as long as the result lives.
    ///
    /// # Errors
    /// A file of weights cannot be read.
    pub fn loaded(&self, name: &str) -> Result<Vec<Tensor>> {
        let number = self.named.get(name);
        let dependencies = number.map(|number| self.formulas.dependencies(*number));
        let formulas = dependencies.unwrap_or_default().into_iter();
        let formulas = formulas.filter_map(|dependency| self.formulas.all.get(dependency));
        let weights = formulas.filter_map(|formula| match &formula.source {
            FormulaSource::Weight(name) => self.weights.get(name),
            FormulaSource::Node(..) => None,
        });
        weights.map(Tensor::load).collect()
    }

    /// All weights.
    pub fn weights(&self) -> Result<Weights> {
        let weight = |name: &str| Ok((name.to_string(), self.tensor(name)?));
        self.names().map(weight).collect()
    }
}

/// Adds the names of the weights that a graph and its nested bodies read.
fn collect_names(graph: &Graph, names: &mut BTreeSet<String>) {
    names.extend(graph.weights().map(|(name, _)| name.to_string()));
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        collect_names(body, names);
    }
}

/// Weights of the module and the weights derived from them so far.
struct DerivedWeights<'m> {
    /// Weights of the module.
    weights: &'m Weights,
    formulas: Formulas,
    /// Names of the derived weights with the numbers of their formulas.
    derived: BTreeMap<String, usize>,
    /// Names of the derived weights by the numbers of their formulas.
    names: HashMap<usize, String>,
    /// The first number that may be free after a name.
    next_numbers: HashMap<String, usize>,
}

impl DerivedWeights<'_> {
    /// True if the value of a formula can be computed here. Failures, such as an index out of range, are left for the run
    /// of the graph to report.
    fn can_compute(&self, constant: &ConstantValue) -> bool {
        let formulas = self.formulas.dependencies(constant.formula);
        let mut formulas = formulas
            .iter()
            .filter_map(|number| self.formulas.all.get(*number));
        formulas.all(Formula::is_total)
            || self
                .formulas
                .compute(constant.formula, self.weights)
                .is_ok()
    }

    /// Makes the value of a formula a derived weight, unless it is one already. Returns the name.
    fn store(&mut self, constant: &ConstantValue) -> String {
        if let Some(name) = self.names.get(&constant.formula) {
            return name.clone();
        }
        let name = self.free_name(format!("{}.folded", constant.weight.unwrap_or("constant")));
        self.derived.insert(name.clone(), constant.formula);
        self.names.insert(constant.formula, name.clone());
        name
    }

    /// A name that no weight has, with a number if need be.
    fn free_name(&mut self, base: String) -> String {
        let mut number = self.next_numbers.get(&base).copied().unwrap_or(1);
        loop {
            let name = match number {
                1 => base.clone(),
                _ => format!("{base}_{number}"),
            };
            number += 1;
            if !self.weights.contains_key(&name) && !self.derived.contains_key(&name) {
                self.next_numbers.insert(base, number);
                return name;
            }
        }
    }

    /// The folded module, without weights that nothing reads. `used` has the names of the others.
    fn finish(mut self, graphs: Vec<Graph>, used: &BTreeSet<String>) -> FoldedModule {
        let mut named = self.derived;
        for name in used {
            if let (false, Some(tensor)) = (named.contains_key(name), self.weights.get(name)) {
                let source = FormulaSource::Weight(name.clone());
                let number = self.formulas.number(&tensor.tensor_type(), source);
                named.insert(name.clone(), number);
            }
        }
        named.retain(|name, _| used.contains(name));
        let dependencies = named
            .values()
            .flat_map(|number| self.formulas.dependencies(*number));
        let sources =
            dependencies.filter_map(|number| match &self.formulas.all.get(number)?.source {
                FormulaSource::Weight(name) => {
                    Some((name.clone(), self.weights.get(name)?.clone()))
                }
                FormulaSource::Node(..) => None,
            });
        FoldedModule {
            graphs,
            weights: sources.collect(),
            formulas: self.formulas,
            named,
        }
    }
}

/// True for a view, which costs nothing on a device, and for a check, which returns its first operand: this pass
/// evaluates checks of weights once.
fn is_view(primitive: &Primitive) -> bool {
    matches!(
        primitive,
        Primitive::Reshape(_) | Primitive::Expand(_) | Primitive::Slice(_) | Primitive::Check(_)
    )
}

/// A value that depends only on weights and numbers.
struct ConstantValue<'a> {
    /// The node that defines the value; `None` for a weight.
    node: Option<&'a Node>,
    /// Number of the formula.
    formula: usize,
    /// The first weight that the value depends on.
    weight: Option<&'a str>,
}

/// All constant values of one graph.
struct ConstantValues<'a> {
    graph: &'a Graph,
    known: HashMap<ValueId, ConstantValue<'a>>,
    /// Filters of convolutions. Devices need them as weights, since they repack them.
    filters: HashSet<ValueId>,
}

/// Replaces the values to store by weights, and the checks of constants that can be computed by their operands.
fn fold_graph(graph: &Graph, derived: &mut DerivedWeights<'_>) -> Result<Graph> {
    let constants = ConstantValues::of(graph, derived);
    let mut names: HashMap<ValueId, String> = HashMap::new();
    for id in constants.stored_values() {
        if let Some(constant) = constants.known.get(&id)
            && derived.can_compute(constant)
        {
            names.insert(id, derived.store(constant));
        }
    }
    replay(graph, |replay, node| {
        let [result] = node.results.as_slice() else {
            return replay.copy(node);
        };
        let constant = constants.known.get(result);
        if let (Op::Primitive(Primitive::Check(_)), Some(constant), [Argument::Value(checked), ..]) =
            (&node.op, constant, node.arguments.as_slice())
            && derived.can_compute(constant)
        {
            return Ok(vec![replay.value(*checked)]);
        }
        match names.get(result) {
            Some(name) => Ok(vec![replay.builder.weight(name, graph.ty(*result).clone())]),
            None => replay.copy(node),
        }
    })
}

impl<'a> ConstantValues<'a> {
    /// Collects the constant values of a graph and adds their formulas to `derived`.
    fn of(graph: &'a Graph, derived: &mut DerivedWeights<'_>) -> ConstantValues<'a> {
        let mut constants = ConstantValues {
            graph,
            known: HashMap::new(),
            filters: filters(graph),
        };
        for (name, id) in graph.weights() {
            if derived.weights.contains_key(name) {
                let source = FormulaSource::Weight(name.to_string());
                let constant = ConstantValue {
                    node: None,
                    formula: derived.formulas.number(graph.ty(id), source),
                    weight: Some(name),
                };
                constants.known.insert(id, constant);
            }
        }
        for node in &graph.nodes {
            constants.add_node(node, derived);
        }
        constants
    }

    /// Adds the result of a node, if it is constant and small enough to fold; otherwise returns `None`.
    fn add_node(&mut self, node: &'a Node, derived: &mut DerivedWeights<'_>) -> Option<()> {
        let (Op::Primitive(primitive), [result]) = (&node.op, node.results.as_slice()) else {
            return None;
        };
        let numel = |id: ValueId| self.graph.ty(id).numel().as_const();
        let operands = node.operands().into_iter();
        let operand_numel =
            operands.map(|id| Some(numel(id)?.min(numel(self.look_through_views(id))?)));
        let operand_numel: i64 = operand_numel.sum::<Option<i64>>()?;
        let result_numel = numel(*result)?;
        let max_grown_numel = match primitive {
            _ if is_view(primitive) => LARGEST_FOLDED,
            Primitive::Gather(_) => LARGEST_GATHER,
            _ => LARGEST_GROWN,
        };
        let is_small =
            result_numel <= operand_numel.max(max_grown_numel) || self.filters.contains(result);
        (result_numel <= LARGEST_FOLDED && is_small).then_some(())?;
        let operand = |argument: &Argument| match argument {
            Argument::Value(id) => Some(Argument::Value(self.known.get(id)?.formula.into())),
            other => Some(other.clone()),
        };
        let operands = node.arguments.iter().map(operand).collect::<Option<_>>()?;
        let weight = |id: ValueId| self.known.get(&id)?.weight;
        let source = FormulaSource::Node(primitive.clone(), operands);
        let constant = ConstantValue {
            node: Some(node),
            formula: derived.formulas.number(self.graph.ty(*result), source),
            weight: node.operands().into_iter().find_map(weight),
        };
        self.known.insert(*result, constant);
        Some(())
    }

    /// The value that a device has to store for a constant: the constant without the views around it.
    fn look_through_views(&self, mut id: ValueId) -> ValueId {
        let node = |id: ValueId| self.known.get(&id)?.node;
        while let Some(Op::Primitive(primitive)) = node(id).map(|node| &node.op)
            && is_view(primitive)
            && let Some(operand) = node(id).and_then(|node| node.operands().first().copied())
        {
            id = operand;
        }
        id
    }

    /// Constants to store as weights: those that other nodes or graph outputs read. Behind a view it is the view's
    /// operand; `full`, `iota` and small integers computed from them are not stored.
    fn stored_values(&self) -> Vec<ValueId> {
        let is_known = |id: &ValueId| self.known.contains_key(id);
        let non_constant = self
            .graph
            .nodes
            .iter()
            .filter(|node| !node.results.iter().any(is_known));
        let mut frontier: Vec<ValueId> = non_constant
            .flat_map(Node::operands)
            .chain(self.graph.outputs.iter().copied())
            .filter(is_known)
            .collect();
        let mut read_values = HashSet::new();
        let mut stored = Vec::new();
        while let Some(id) = frontier.pop() {
            let node = self.known.get(&id).and_then(|constant| constant.node);
            let (Some(node), true) = (node, read_values.insert(id)) else {
                continue;
            };
            match &node.op {
                _ if self.filters.contains(&id) => stored.push(id),
                Op::Primitive(primitive) if is_view(primitive) => frontier.extend(node.operands()),
                Op::Primitive(Primitive::Full(_) | Primitive::Iota(_)) => {}
                _ if affine::is_affine(self, id) => {}
                _ => stored.push(id),
            }
        }
        stored.retain(|id| !self.permutes_read_weight(*id, &read_values));
        stored.sort_unstable();
        stored
    }

    /// True for a permutation of a weight that is itself in `read`.
    fn permutes_read_weight(&self, id: ValueId, read: &HashSet<ValueId>) -> bool {
        let constant = |id: &ValueId| self.known.get(id);
        let node = constant(&id).and_then(|constant| constant.node);
        let Some((Op::Primitive(Primitive::Permute(_)), operands)) =
            node.map(|node| (&node.op, node.operands()))
        else {
            return false;
        };
        let is_weight = |id: &ValueId| constant(id).is_some_and(|constant| constant.node.is_none());
        operands.iter().all(|id| is_weight(id) && read.contains(id))
    }
}

/// Filters of a graph's convolutions.
fn filters(graph: &Graph) -> HashSet<ValueId> {
    let is_convolution = |node: &&Node| matches!(node.op, Op::Primitive(Primitive::Conv(_)));
    let convolutions = graph.nodes.iter().filter(is_convolution);
    let filter = |node: &Node| node.operands().get(1).copied();
    convolutions.filter_map(filter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;

    fn weights(first: f32) -> Weights {
        let numbers = vec![first, 2.0, 3.0, 4.0, 5.0, 6.0];
        let tensor = Tensor::from_vec([2, 3], numbers).unwrap();
        [("w".to_string(), tensor)].into()
    }

    /// Digest of the sum of a number and a transposed weight, with `before` other folded weights in front of it.
    fn digest(number: f64, weights: Weights, before: usize) -> Digest {
        let builder = Builder::new("forward");
        let ty: TensorType = "f32[2, 3]".parse().unwrap();
        let mut outputs = Vec::new();
        for _ in 0..before {
            outputs.push((builder.weight("w", ty.clone()).permute([1, 0]) * 7.0).id());
        }
        let sum = builder.weight("w", ty).permute([1, 0]) + number;
        outputs.push(sum.id());
        let graph = builder.finish(&outputs, Vec::new(), None).unwrap();
        let folded = FoldedModule::of(&GraphModule {
            graphs: vec![graph],
            weights,
            ..GraphModule::default()
        });
        let folded = folded.unwrap();
        let graph = &folded.graphs[0];
        let last = graph.outputs[outputs.len() - 1];
        let (name, _) = graph.weights().find(|(_, id)| *id == last).unwrap();
        let tensor = folded.tensor(name).unwrap();
        assert_eq!(folded.ty(name), Some(&tensor.tensor_type()));
        assert_eq!(tensor.to_f64()[1], 4.0 + number);
        folded.digest(name).unwrap()
    }

    #[test]
    fn digests_tell_formulas_and_elements_apart() {
        let known = digest(1.0, weights(1.0), 0);
        assert_eq!(digest(1.0, weights(1.0), 0), known);
        assert_eq!(
            digest(1.0, weights(1.0), 1),
            known,
            "as another formula's number"
        );
        assert_ne!(digest(2.0, weights(1.0), 0), known);
        assert_ne!(digest(1.0, weights(9.0), 0), known);
    }
}
