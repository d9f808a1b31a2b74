//! The canonical form of a graph: a line for each step, in which names, places and, if wanted, shapes don't count.

use crate::error::Place;
use crate::ir::{Definition, Graph, Node, Tree};
use crate::shape::Shape;

/// Whether shapes of values count. Sizes that are arguments or attributes always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Two values of different shapes are different.
    Kept,
    /// Element types only.
    Erased,
}

/// A step of a graph: its signature, a node, or the result; those of nested graphs follow the node that holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The canonical line: steps of two graphs do the same if these are equal, and those of all steps before them.
    pub key: String,
    /// The canonical line without names: what kind of step it is, whatever it is applied to.
    pub form: String,
    /// The line as the graph prints it.
    pub text: String,
    /// `aten.add.Tensor`; empty for signatures and results.
    pub op: String,
    /// Where in the user's model.
    pub place: Place,
    /// Name of the node's first result, behind those of the regions that it stands in.
    pub value: Option<String>,
    /// How many graphs it is nested in.
    pub depth: usize,
}

/// The steps of a graph in order, those of nested graphs included.
pub fn steps(graph: &Graph, shapes: Shapes) -> Vec<Step> {
    let mut steps = Vec::new();
    walk(graph, shapes, &[], &mut steps);
    steps
}

fn walk(graph: &Graph, shapes: Shapes, regions: &[String], steps: &mut Vec<Step>) {
    let depth = regions.len();
    let numbered = renamed(graph, shapes, |index| format!("v{index}"));
    let nameless = renamed(graph, shapes, |_| "_".into());
    steps.push(signature(graph, &numbered, depth));
    for node in &graph.nodes {
        let bare = without_place(node);
        steps.push(Step {
            key: numbered.node_text(&bare),
            form: nameless.node_text(&bare),
            text: graph.node_text(&bare),
            op: node.op.name().to_string(),
            place: node.place.clone(),
            value: path(regions, graph, node),
            depth,
        });
        let inner = inside(regions, graph, node);
        for body in node.bodies() {
            walk(body, shapes, &inner, steps);
        }
    }
    steps.push(result(graph, &numbered, depth));
}

fn without_place(node: &Node) -> Node {
    Node {
        place: Place::default(),
        ..node.clone()
    }
}

/// A node's line without its place.
pub fn line(graph: &Graph, node: &Node) -> String {
    graph.node_text(&without_place(node))
}

/// The name of a node's first result.
pub fn first_result(graph: &Graph, node: &Node) -> Option<String> {
    let first = node.results.first()?;
    Some(graph.value(*first).name.clone())
}

/// The name of a node's first result behind those of the regions that it stands in: `steps/x`.
pub fn path(regions: &[String], graph: &Graph, node: &Node) -> Option<String> {
    let name = first_result(graph, node)?;
    Some([regions, &[name]].concat().join("/"))
}

/// The regions that the bodies of a node stand in.
pub fn inside(regions: &[String], graph: &Graph, node: &Node) -> Vec<String> {
    [regions, &[first_result(graph, node).unwrap_or_default()]].concat()
}

/// The graph with other names for inputs and results, numbered in order of their definition. Weights keep theirs.
fn renamed(graph: &Graph, shapes: Shapes, name: impl Fn(usize) -> String) -> Graph {
    let mut values = graph.values.clone();
    let results = graph.nodes.iter().flat_map(|node| &node.results);
    for (index, id) in graph.inputs.iter().chain(results).enumerate() {
        if let Some(info) = values.get_mut(id.index()) {
            info.name = name(index);
        }
    }
    if shapes == Shapes::Erased {
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

fn signature(graph: &Graph, canonical: &Graph, depth: usize) -> Step {
    let list = |graph: &Graph| -> String {
        let input = |id| {
            let info = graph.value(id);
            format!("{}: {}", info.name, info.ty)
        };
        let inputs: Vec<String> = graph.inputs.iter().map(|id| input(*id)).collect();
        inputs.join(", ")
    };
    let trees: Vec<&Tree> = graph.input_trees.iter().map(|input| &input.tree).collect();
    let trees = match graph.has_plain_inputs() {
        true => String::new(),
        false => format!(" {trees:?}"),
    };
    let key = format!("inputs ({}){trees}", list(canonical));
    Step {
        form: key.clone(),
        key,
        text: format!("{}({})", graph.name, list(graph)),
        ..edge(depth)
    }
}

fn result(graph: &Graph, canonical: &Graph, depth: usize) -> Step {
    let list = |graph: &Graph| -> String {
        let name = |id| match &graph.value(id).definition {
            Definition::Weight(name) => format!("${name}"),
            _ => graph.value(id).name.clone(),
        };
        let outputs: Vec<String> = graph.outputs.iter().map(|id| name(*id)).collect();
        format!("return {}", outputs.join(", ")).trim_end().into()
    };
    let tree = match graph.has_plain_outputs() {
        true => String::new(),
        false => format!(" {:?}", graph.output_tree),
    };
    Step {
        key: list(canonical) + &tree,
        form: format!("return {}{tree}", graph.outputs.len()),
        text: list(graph),
        ..edge(depth)
    }
}

fn edge(depth: usize) -> Step {
    Step {
        key: String::new(),
        form: String::new(),
        text: String::new(),
        op: String::new(),
        place: Place::default(),
        value: None,
        depth,
    }
}

/// Calls a function for every graph: the outermost first, then those nested in its nodes.
pub fn each_graph<'a>(graph: &'a Graph, visit: &mut dyn FnMut(&'a Graph)) {
    visit(graph);
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        each_graph(body, visit);
    }
}

/// Calls a function for every node, with its graph and its [`path`]: those of nested graphs follow the node that holds them.
pub fn each_node<'a>(graph: &'a Graph, visit: &mut dyn FnMut(&'a Graph, &'a Node, Option<String>)) {
    nodes_inside(&[], graph, visit);
}

fn nodes_inside<'a>(
    regions: &[String],
    graph: &'a Graph,
    visit: &mut dyn FnMut(&'a Graph, &'a Node, Option<String>),
) {
    for node in &graph.nodes {
        visit(graph, node, path(regions, graph, node));
        let inner = inside(regions, graph, node);
        for body in node.bodies() {
            nodes_inside(&inner, body, visit);
        }
    }
}
