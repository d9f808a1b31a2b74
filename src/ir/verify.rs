//! The rules of the IR. In a verified graph, looking up a value never fails.
//!
//! 1. Ids are in range. A value is defined once, before it is read: by an input, as a weight, or by a node.
//! 2. Names of values in a graph, of weights, and of graphs in a module are unique and not empty.
//! 3. Operands of primitives and regions are values, numbers and sizes. A constant size is written as a number.
//! 4. Every symbol has an example value and occurs in the type of an input. The example values satisfy the guards.
//! 5. Result types are those that inference gives, without assumptions that no guard states.
//! 6. A call has one argument for each parameter of a known operator.
//! 7. Nested graphs satisfy these rules, too.
//! 8. Trees of arguments and read states contain each input once, with states last. Trees of the result and of written
//!    states contain outputs. Nested graphs have no states.
//! 9. Weights are in the module, with the type that the graph gives. So are states; their initial values are weights and
//!    constants.

use std::collections::{BTreeSet, HashSet};

use crate::dim::{Dim, Symbol};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::TensorType;
use crate::symbols::{Guard, Relation};

use super::assembler::is_symbol;
use super::dictionary::Dictionary;
use super::graph::{Argument, Definition, Graph, GraphModule, Node, Op, ValueId, Weights};
use super::tree::TreeSpec;
use super::type_inference::TypeInference;

/// Maximal nesting depth of graphs.
pub(super) const MAX_DEPTH: usize = 32;

/// Checks the rules for every graph of a module and its weights; the error lists all findings.
pub fn verify_module(module: &GraphModule, dictionary: &dyn Dictionary) -> Result<()> {
    let mut findings = Vec::new();
    let mut names = HashSet::new();
    for graph in &module.graphs {
        if !names.insert(&graph.name) {
            findings.push(finding(format!("two graphs are named {:?}", graph.name)));
        }
        let of_graph = check(graph, dictionary, 0);
        if of_graph.is_empty() {
            check_weights(graph, &module.weights, &mut findings);
        }
        findings.extend(of_graph);
    }
    check_states(module, &mut findings);
    Error::all(findings).map_or(Ok(()), Err)
}

/// Checks the rules for a graph alone; the error lists all findings.
pub fn verify(graph: &Graph, dictionary: &dyn Dictionary) -> Result<()> {
    Error::all(check(graph, dictionary, 0)).map_or(Ok(()), Err)
}

fn finding(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Verify, message)
}

fn check(graph: &Graph, dictionary: &dyn Dictionary, depth: usize) -> Vec<Error> {
    if depth > MAX_DEPTH {
        return vec![finding("graphs are nested too deeply")];
    }
    let mut checker = Checker {
        graph,
        findings: Vec::new(),
    };
    if graph.name.is_empty() {
        checker.report("the graph has no name");
    }
    if depth > 0 && !(graph.reads.is_empty() && graph.writes.is_empty()) {
        checker.report("a nested graph has states");
    }
    checker.definitions();
    checker.names();
    checker.uses();
    // Type checks look up values by id, so they run only if the ids are valid.
    if checker.findings.is_empty() {
        checker.symbols();
        checker.trees();
        for body in graph.nodes.iter().flat_map(Node::bodies) {
            let nested = check(body, dictionary, depth + 1).into_iter();
            checker.findings.extend(nested);
        }
    }
    if checker.findings.is_empty() {
        checker.types(dictionary);
    }
    let findings = checker.findings.into_iter();
    findings
        .map(|error| error.at(format!("graph {}", graph.name)))
        .collect()
}

fn check_weights(graph: &Graph, weights: &Weights, findings: &mut Vec<Error>) {
    for (name, id) in graph.weights() {
        let wanted = graph.ty(id);
        match weights.get(name).map(|weight| weight.tensor_type()) {
            None => findings.push(finding(format!("there is no weight {name}"))),
            Some(found) if found != *wanted => {
                findings.push(finding(format!(
                    "the weight {name} is {found}, not {wanted}"
                )));
            }
            Some(_) => {}
        }
    }
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        check_weights(body, weights, findings);
    }
}

fn check_states(module: &GraphModule, findings: &mut Vec<Error>) {
    let mut names = HashSet::new();
    for state in &module.states {
        let name = &state.name;
        if !names.insert(name) {
            findings.push(finding(format!("two states are named {name}")));
        }
        let numbers = state.initial.tensors();
        if !numbers.into_iter().eq(0..state.weights.len()) || !state.initial.sizes().is_empty() {
            let message = format!(
                "the initial value of state {name} must use each of its weights once, in order, and no symbolic size"
            );
            findings.push(finding(message));
        }
        let mut weights = state.weights.iter();
        if let Some(weight) = weights.find(|name| !module.weights.contains_key(*name)) {
            findings.push(finding(format!("there is no weight {weight}")));
        }
    }
    for graph in &module.graphs {
        let mut used = graph.reads.iter().chain(&graph.writes);
        if let Some(state) = used.find(|state| !names.contains(&state.name)) {
            let message = format!("there is no state {}", state.name);
            findings.push(finding(message).at(format!("graph {}", graph.name)));
        }
    }
}

struct Checker<'a> {
    graph: &'a Graph,
    findings: Vec<Error>,
}

impl<'a> Checker<'a> {
    fn report(&mut self, message: impl Into<String>) {
        self.findings.push(finding(message));
    }

    fn report_at(&mut self, node: &Node, message: impl Into<String>) {
        let name = |id: &ValueId| {
            self.graph
                .values
                .get(id.index())
                .map(|info| info.name.clone())
        };
        let names: Vec<String> = node.results.iter().filter_map(name).collect();
        let frame = format!("{} = {}", names.join(", "), node.op.name());
        let finding = finding(message).at(frame).at_place(&node.place);
        self.findings.push(finding);
    }

    /// Checks that inputs, nodes and values agree on definitions.
    fn definitions(&mut self) {
        let graph = self.graph;
        let definition = |id: &ValueId| graph.values.get(id.index()).map(|info| &info.definition);
        for (index, id) in graph.inputs.iter().enumerate() {
            if definition(id) != Some(&Definition::Input(index)) {
                self.report(format!("value {} is not input {index}", id.index()));
            }
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            for (result, id) in node.results.iter().enumerate() {
                if definition(id) != Some(&Definition::Node(index, result)) {
                    let message = format!("value {} is not result {result}", id.index());
                    self.report_at(node, message);
                }
            }
        }
        for (index, info) in graph.values.iter().enumerate() {
            let defined = match info.definition {
                Definition::Weight(_) => continue,
                Definition::Input(input) => graph.inputs.get(input),
                Definition::Node(node, result) => graph
                    .nodes
                    .get(node)
                    .and_then(|node| node.results.get(result)),
            };
            if defined.is_none_or(|id| id.index() != index) {
                self.report(format!("{} is not where it says it is defined", info.name));
            }
        }
    }

    fn names(&mut self) {
        let mut names = HashSet::new();
        for info in &self.graph.values {
            let is_weight = matches!(&info.definition, Definition::Weight(name)
                if name.is_empty() || info.name != format!("${name}"));
            let is_other = !matches!(info.definition, Definition::Weight(_))
                && (info.name.is_empty() || info.name.starts_with('$'));
            if is_weight || is_other {
                self.report(format!(
                    "{:?} is not a valid name for this kind of value",
                    info.name
                ));
            }
            if !names.insert(&info.name) {
                self.report(format!("two values are named {}", info.name));
            }
        }
    }

    /// Checks that values are read after their definition, and that operands have the kind that the node accepts.
    fn uses(&mut self) {
        let graph = self.graph;
        let readable = |id: &ValueId, before: usize| {
            graph
                .values
                .get(id.index())
                .is_some_and(|info| match info.definition {
                    Definition::Node(node, _) => node < before,
                    _ => true,
                })
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            for id in node.operands() {
                if !readable(&id, index) {
                    let message = format!("value {} is not defined before it is read", id.index());
                    self.report_at(node, message);
                }
            }
            for argument in &node.arguments {
                if let Some(message) = misplaced_reason(argument, matches!(node.op, Op::Call(_)), 0)
                {
                    self.report_at(node, message);
                }
            }
        }
        for output in &graph.outputs {
            if !readable(output, graph.nodes.len()) {
                self.report(format!("output value {} is not defined", output.index()));
            }
        }
    }

    fn symbols(&mut self) {
        let graph = self.graph;
        let types = |ids: &mut dyn Iterator<Item = &TensorType>| -> BTreeSet<Symbol> {
            ids.flat_map(|ty| &ty.shape)
                .flat_map(Dim::symbols)
                .collect()
        };
        let given = types(&mut graph.inputs.iter().map(|id| graph.ty(*id)));
        let mut used = types(&mut graph.values.iter().map(|info| &info.ty));
        let guards = graph.guards.iter();
        used.extend(
            guards
                .flat_map(|guard| [&guard.left, &guard.right])
                .flat_map(Dim::symbols),
        );
        used.extend(
            graph
                .nodes
                .iter()
                .flat_map(node_sizes)
                .flat_map(|dim| dim.symbols()),
        );
        let names = graph.hints.keys();
        for name in names.filter(|name| !is_symbol(name)) {
            self.report(format!("{name:?} is not a valid name of a size"));
        }
        for name in &used {
            match graph.hints.get(name) {
                None => self.report(format!("the size {name} has no example value")),
                Some(hint) if *hint < 0 => self.report(format!("the size {name} is {hint}")),
                Some(_) if !given.contains(name) => {
                    self.report(format!("the size {name} stands in no input"));
                }
                Some(_) => {}
            }
        }
        let negative = |ty: &TensorType| {
            let mut sizes = ty.shape.iter().filter_map(Dim::as_const);
            sizes.any(|size| size < 0)
        };
        for info in graph.values.iter().filter(|info| negative(&info.ty)) {
            self.report(format!("{} has a negative size: {}", info.name, info.ty));
        }
        for guard in &graph.guards {
            if let Ok(false) = guard.holds(&graph.hints) {
                self.report(format!("the example sizes break the guard {guard}"));
            }
        }
    }

    fn trees(&mut self) {
        let graph = self.graph;
        let mut names = HashSet::new();
        for input in &graph.input_trees {
            if !names.insert(&input.name) {
                self.report(format!("two arguments are named {}", input.name));
            }
        }
        let arguments = graph.input_trees.iter().map(|input| &input.tree);
        let read = graph.reads.iter().map(|state| &state.tree);
        let mut found: Vec<usize> = arguments.clone().flat_map(TreeSpec::tensors).collect();
        found.sort_unstable();
        found.extend(read.clone().flat_map(TreeSpec::tensors));
        let says_inputs = !(graph.input_trees.is_empty() && graph.reads.is_empty());
        if says_inputs && !found.into_iter().eq(0..graph.inputs.len()) {
            self.report("arguments and states do not hold each input once");
        }
        let written = graph.writes.iter().map(|state| &state.tree);
        let left = written.clone().flat_map(TreeSpec::tensors);
        let first = graph.outputs.len().checked_sub(left.clone().count());
        if !first.is_some_and(|first| left.eq(first..graph.outputs.len())) {
            self.report("written states must use each of the last outputs exactly once, in order");
        }
        let trees = arguments.chain(read).chain(written.clone());
        let results = graph.output_tree.iter().chain(written);
        let results = results.flat_map(TreeSpec::tensors);
        for index in results.filter(|index| graph.outputs.len() <= *index) {
            self.report(format!(
                "the result refers to output {index}, which does not exist"
            ));
        }
        for tree in trees.chain(&graph.output_tree) {
            for dim in tree.sizes() {
                let unknown = |name: &Symbol| !graph.hints.contains_key(name);
                if let Some(name) = dim.symbols().into_iter().find(unknown) {
                    self.report(format!("the size {name} has no example value"));
                }
            }
        }
    }

    /// Infers the type of every result again, in execution order.
    fn types(&mut self, dictionary: &dyn Dictionary) {
        let graph = self.graph;
        let types = infer_types(graph, dictionary, &mut |node, message| {
            self.report_at(node, message);
        });
        for guard in types.new_guards(&graph.guards) {
            let message = format!("the graph requires {guard}, but no guard states it");
            self.findings.push(finding(message).at_place(&guard.place));
        }
        for (name, size) in types.new_equations(&graph.hints, &graph.guards) {
            self.report(format!(
                "the graph requires {name} == {size}, but no guard states it"
            ));
        }
    }
}

/// Infers the type of every result, in execution order. Reports nodes whose types are others.
fn infer_types(
    graph: &Graph,
    dictionary: &dyn Dictionary,
    report: &mut dyn FnMut(&Node, String),
) -> TypeInference {
    let types = TypeInference::new(graph.hints.clone(), graph.guards.clone());
    for info in &graph.values {
        types.push(&info.ty);
    }
    for node in &graph.nodes {
        if let Some(message) = type_mismatch(graph, node, &types, dictionary) {
            report(node, message);
        }
    }
    types
}

/// The reason why a node's results do not have the types that inference gives, if they do not.
fn type_mismatch(
    graph: &Graph,
    node: &Node,
    types: &TypeInference,
    dictionary: &dyn Dictionary,
) -> Option<String> {
    if let Op::Call(name) = &node.op {
        let wanted = dictionary.parameters(name)?.len();
        if wanted != node.arguments.len() {
            return Some(format!("{} arguments, not {wanted}", node.arguments.len()));
        }
    }
    let declared: Vec<&TensorType> = node.results.iter().map(|id| graph.ty(*id)).collect();
    match types.infer(&node.op, &node.arguments, dictionary) {
        Err(error) => Some(error.message().to_string()),
        Ok(inferred) if !types.types_match(&inferred, &declared) => Some(format!(
            "({}) are declared as ({})",
            list(&inferred),
            list(&declared)
        )),
        Ok(_) => None,
    }
}

/// Adds guards that require every symbolic size to be at least 1, unless its example is 0, and guards that the types require.
pub(super) fn require_positive_sizes(graph: &mut Graph, dictionary: &dyn Dictionary) {
    let bodies = graph.nodes.iter_mut().flat_map(Node::bodies_mut);
    bodies.for_each(|body| require_positive_sizes(body, dictionary));
    let sizes = graph.hints.iter().filter(|(_, example)| 0 < **example);
    let sizes = sizes.map(|(name, _)| Dim::symbol(name.clone()));
    let positive = sizes.map(|size| Guard::new(Dim::ONE, Relation::LessEqual, size));
    graph.guards.extend(positive);
    let types = infer_types(graph, dictionary, &mut |_, _| {});
    let required = types.new_guards(&graph.guards);
    graph.guards.extend(required);
}

/// The reason why an argument is not allowed, if it is not.
fn misplaced_reason(argument: &Argument, in_call: bool, depth: usize) -> Option<String> {
    match argument {
        Argument::Size(dim) if dim.as_const().is_some() => {
            Some(format!("the size {dim} is a number"))
        }
        Argument::Str(_) | Argument::List(_) | Argument::None if !in_call => {
            Some("operands are values, numbers and sizes".into())
        }
        Argument::List(_) if depth > MAX_DEPTH => Some("lists are nested too deeply".into()),
        Argument::List(items) => items
            .iter()
            .find_map(|item| misplaced_reason(item, in_call, depth + 1)),
        _ => None,
    }
}

/// The symbolic sizes in a node's arguments and attributes.
fn node_sizes(node: &Node) -> Vec<Dim> {
    let mut sizes = Vec::new();
    let mut collect = |dim: &Dim| {
        sizes.push(dim.clone());
        dim.clone()
    };
    for argument in &node.arguments {
        argument.map(&mut |id| id, &mut collect);
    }
    if let Op::Primitive(primitive) = &node.op {
        primitive.clone().map_sizes(&mut collect);
    }
    sizes
}

fn list<T: std::fmt::Display>(types: &[T]) -> String {
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    types.join(", ")
}
