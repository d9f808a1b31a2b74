//! The canonical form of a graph: one line for each step, independent of names and places and, if wanted, of shapes.

use crate::error::SourcePlace;
use crate::ir::{Definition, Graph, Node, TreeSpec};
use crate::shape::Shape;

/// Treatment of value shapes in a comparison. Sizes in arguments and attributes are always compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeMode {
    /// Shapes are compared.
    Compared,
    /// Shapes are ignored; element types are compared.
    Ignored,
}

/// A step of a graph: its signature, a node, or the result. Steps of nested graphs follow the node that holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct CanonicalStep {
    /// The canonical line. Steps of two graphs are equivalent if their keys and the keys of all steps before them are equal.
    pub key: String,
    /// The canonical line without value names: the operation, independent of its operands.
    pub nameless_key: String,
    /// The line as the graph prints it.
    pub text: String,
    /// `aten.add.Tensor`; empty for signatures and results.
    pub op: String,
    /// Place in the user's model.
    pub place: SourcePlace,
    /// Name of the node's first result, prefixed by the names of the enclosing regions.
    pub value: Option<String>,
    /// Nesting depth: number of enclosing graphs.
    pub depth: usize,
}

/// Returns the steps of a graph in order, nested graphs included.
pub fn steps(graph: &Graph, shapes: ShapeMode) -> Vec<CanonicalStep> {
    let mut steps = Vec::new();
    collect_steps(graph, shapes, &[], &mut steps);
    steps
}

/// Appends the steps of a graph and its nested graphs. `regions` are the names of the enclosing regions.
fn collect_steps(
    graph: &Graph,
    shapes: ShapeMode,
    regions: &[String],
    steps: &mut Vec<CanonicalStep>,
) {
    let depth = regions.len();
    let numbered = with_value_names(graph, shapes, |index| format!("v{index}"));
    let nameless = with_value_names(graph, shapes, |_| "_".into());
    steps.push(signature_step(graph, &numbered, depth));
    for node in &graph.nodes {
        let unplaced = without_place(node);
        steps.push(CanonicalStep {
            key: numbered.node_text(&unplaced),
            nameless_key: nameless.node_text(&unplaced),
            text: graph.node_text(&unplaced),
            op: node.op.name().to_string(),
            place: node.place.clone(),
            value: value_path(regions, graph, node),
            depth,
        });
        let inner = enclosing_regions(regions, graph, node);
        for body in node.bodies() {
            collect_steps(body, shapes, &inner, steps);
        }
    }
    steps.push(result_step(graph, &numbered, depth));
}

/// A copy of a node without its source place.
fn without_place(node: &Node) -> Node {
    Node {
        place: SourcePlace::default(),
        ..node.clone()
    }
}

/// A node's line without its place.
pub fn node_line(graph: &Graph, node: &Node) -> String {
    graph.node_text(&without_place(node))
}

/// The name of a node's first result.
pub fn first_result(graph: &Graph, node: &Node) -> Option<String> {
    let first = node.results.first()?;
    Some(graph.value(*first).name.clone())
}

/// Name of a node's first result, prefixed by the names of the enclosing regions: `steps/x`.
pub fn value_path(regions: &[String], graph: &Graph, node: &Node) -> Option<String> {
    let name = first_result(graph, node)?;
    Some([regions, &[name]].concat().join("/"))
}

/// Names of the regions that enclose the bodies of a node.
pub fn enclosing_regions(regions: &[String], graph: &Graph, node: &Node) -> Vec<String> {
    [regions, &[first_result(graph, node).unwrap_or_default()]].concat()
}

/// A copy of the graph's values with new names for inputs and results, numbered in order of definition. Weights keep their
/// names.
fn with_value_names(graph: &Graph, shapes: ShapeMode, name: impl Fn(usize) -> String) -> Graph {
    let mut values = graph.values.clone();
    let results = graph.nodes.iter().flat_map(|node| &node.results);
    for (index, id) in graph.inputs.iter().chain(results).enumerate() {
        if let Some(info) = values.get_mut(id.index()) {
            info.name = name(index);
        }
    }
    if shapes == ShapeMode::Ignored {
        values
            .iter_mut()
            .for_each(|info| info.ty.shape = Shape::new());
    }
    Graph {
        values,
        nodes: Vec::new(),
        hints: Default::default(),
        guards: Vec::new(),
        ..graph.clone()
    }
}

/// The first step of a graph: its name and inputs. `canonical` is the graph with canonical value names.
fn signature_step(graph: &Graph, canonical: &Graph, depth: usize) -> CanonicalStep {
    let list = |graph: &Graph| -> String {
        let input = |id| {
            let info = graph.value(id);
            format!("{}: {}", info.name, info.ty)
        };
        let inputs: Vec<String> = graph.inputs.iter().map(|id| input(*id)).collect();
        inputs.join(", ")
    };
    let trees: Vec<&TreeSpec> = graph.input_trees.iter().map(|input| &input.tree).collect();
    let trees = match graph.has_default_inputs() {
        true => String::new(),
        false => format!(" {trees:?}"),
    };
    let key = format!("inputs ({}){trees}", list(canonical));
    CanonicalStep {
        nameless_key: key.clone(),
        key,
        text: format!("{}({})", graph.name, list(graph)),
        ..empty_step(depth)
    }
}

/// The last step of a graph: its outputs.
fn result_step(graph: &Graph, canonical: &Graph, depth: usize) -> CanonicalStep {
    let list = |graph: &Graph| -> String {
        let name = |id| match &graph.value(id).definition {
            Definition::Weight(name) => format!("${name}"),
            _ => graph.value(id).name.clone(),
        };
        let outputs: Vec<String> = graph.outputs.iter().map(|id| name(*id)).collect();
        format!("return {}", outputs.join(", ")).trim_end().into()
    };
    let tree = match graph.has_default_outputs() {
        true => String::new(),
        false => format!(" {:?}", graph.output_tree),
    };
    CanonicalStep {
        key: list(canonical) + &tree,
        nameless_key: format!("return {}{tree}", graph.outputs.len()),
        text: list(graph),
        ..empty_step(depth)
    }
}

/// A step without texts.
fn empty_step(depth: usize) -> CanonicalStep {
    CanonicalStep {
        key: String::new(),
        nameless_key: String::new(),
        text: String::new(),
        op: String::new(),
        place: SourcePlace::default(),
        value: None,
        depth,
    }
}

/// Visits a graph, then the graphs nested in its nodes.
pub fn each_graph<'a>(graph: &'a Graph, visit: &mut dyn FnMut(&'a Graph)) {
    visit(graph);
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        each_graph(body, visit);
    }
}

/// Visits every node with its graph and its [`value_path`]. Nodes of nested graphs follow the node that holds them.
pub fn each_node<'a>(graph: &'a Graph, visit: &mut dyn FnMut(&'a Graph, &'a Node, Option<String>)) {
    each_node_inside(&[], graph, visit);
}

fn each_node_inside<'a>(
    regions: &[String],
    graph: &'a Graph,
    visit: &mut dyn FnMut(&'a Graph, &'a Node, Option<String>),
) {
    for node in &graph.nodes {
        visit(graph, node, value_path(regions, graph, node));
        let inner = enclosing_regions(regions, graph, node);
        for body in node.bodies() {
            each_node_inside(&inner, body, visit);
        }
    }
}
