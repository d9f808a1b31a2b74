use std::collections::{BTreeMap, HashSet};

use serde_json::Value as Json;

use crate::dtype::DType;
use crate::error::SourcePlace;
use crate::scalar::Scalar;
use crate::shape::TensorType;

use super::quote::{json_string, quoted, size};
use super::tree::print_tree;
use super::{KEYWORDS, is_plain, is_plain_path};
use crate::ir::assembler::{attributes, split_call};
use crate::ir::dictionary::{ArgumentStyle, CallParameter, Dictionary};
use crate::ir::graph::{
    Argument, Definition, Graph, GraphModule, ModuleState, Node, Op, Region, ValueId,
};
use crate::ir::tree::{NamedTree, TreeSpec};

/// The text form of a module: the types of its weights, then its graphs.
pub fn print_module(module: &GraphModule, dictionary: &dyn Dictionary) -> String {
    let mut weights: BTreeMap<&str, TensorType> = module
        .weights
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor.tensor_type()))
        .collect();
    for graph in &module.graphs {
        collect_weights(graph, &mut weights);
    }
    let graphs = module.graphs.iter().map(|graph| entry(graph, dictionary));
    let states = module.states.iter().map(state_line).collect();
    [weight_lines(&weights), states]
        .into_iter()
        .chain(graphs)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The text form of a graph, with the types of its weights in front.
pub fn print_graph(graph: &Graph, dictionary: &dyn Dictionary) -> String {
    let mut weights = BTreeMap::new();
    collect_weights(graph, &mut weights);
    let mut text = weight_lines(&weights);
    if !text.is_empty() {
        text.push('\n');
    }
    text + &entry(graph, dictionary)
}

/// One node as a line of the text form, without nested graphs.
pub fn print_node(graph: &Graph, node: &Node, dictionary: &dyn Dictionary) -> String {
    Printer::new(graph, dictionary, String::new()).node_line(node)
}

fn entry(graph: &Graph, dictionary: &dyn Dictionary) -> String {
    Printer::new(graph, dictionary, String::new()).graph(true)
}

fn collect_weights<'a>(graph: &'a Graph, weights: &mut BTreeMap<&'a str, TensorType>) {
    for (name, id) in graph.weights_read() {
        weights.insert(name, graph.ty(id).clone());
    }
    for body in graph.nodes.iter().flat_map(Node::bodies) {
        collect_weights(body, weights);
    }
}

fn weight_lines(weights: &BTreeMap<&str, TensorType>) -> String {
    let line = |(name, ty): (&&str, &TensorType)| format!("weight {}: {ty}\n", quoted(name));
    weights.iter().map(line).collect()
}

fn state_line(state: &ModuleState) -> String {
    let weights = state
        .weights
        .iter()
        .map(|name| format!("${}", quoted(name)));
    let weights: Vec<String> = weights.collect();
    let of = match weights.as_slice() {
        [] => String::new(),
        weights => format!(" of {}", weights.join(", ")),
    };
    format!("state {}{of}\n", named_tree(&state.name, &state.initial))
}

fn named_tree(name: &str, tree: &TreeSpec) -> String {
    format!("{} = {}", quoted(name), print_tree(tree))
}

/// Prints one graph; nested graphs have printers of their own.
struct Printer<'a> {
    graph: &'a Graph,
    dictionary: &'a dyn Dictionary,
    indent: String,
    /// Names of values: a size with one of these names needs a marker.
    names: HashSet<&'a str>,
}

impl<'a> Printer<'a> {
    fn new(graph: &'a Graph, dictionary: &'a dyn Dictionary, indent: String) -> Printer<'a> {
        let names = graph.values.iter().map(|info| info.name.as_str());
        Printer {
            graph,
            dictionary,
            indent,
            names: names.collect(),
        }
    }

    /// The default signature of an entry graph is omitted; a nested graph has no signature.
    fn graph(&self, is_entry: bool) -> String {
        let graph = self.graph;
        let inputs: Vec<String> = graph.inputs.iter().map(|id| self.definition(*id)).collect();
        let outputs: Vec<String> = graph
            .outputs
            .iter()
            .map(|id| graph.ty(*id).to_string())
            .collect();
        let outputs = match outputs.as_slice() {
            [single] => single.clone(),
            several => format!("({})", several.join(", ")),
        };
        let head = format!(
            "graph {}({}) -> {outputs} {{\n",
            quoted(&graph.name),
            inputs.join(", ")
        );
        let mut lines = self.properties(is_entry);
        for node in &graph.nodes {
            lines.push(self.node(node));
        }
        let returned: Vec<String> = graph.outputs.iter().map(|id| self.value(*id)).collect();
        lines.push(format!("return {}", returned.join(", ")).trim_end().into());
        let indent = &self.indent;
        let body: String = lines
            .into_iter()
            .map(|line| format!("{indent}  {line}\n"))
            .collect();
        format!("{indent}{head}{body}{indent}}}\n")
    }

    /// The lines in front of the nodes: sizes, guards, signature.
    fn properties(&self, is_entry: bool) -> Vec<String> {
        let graph = self.graph;
        let sizes = graph
            .hints
            .iter()
            .map(|(name, hint)| format!("size {name} = {hint}"));
        let guards = graph
            .guards
            .iter()
            .map(|guard| format!("guard {guard}{}", place(&guard.place)));
        let of_each = |word: &'static str, trees: &'a [NamedTree]| {
            let trees = trees.iter();
            trees.map(move |input| format!("{word} {}", named_tree(&input.name, &input.tree)))
        };
        let mut lines: Vec<String> = sizes.chain(guards).collect();
        if !(is_entry && graph.has_default_inputs()) {
            lines.extend(of_each("argument", &graph.input_trees));
        }
        lines.extend(of_each("reads", &graph.reads));
        if let Some(output) = &graph.output_tree
            && !(is_entry && graph.has_default_outputs())
        {
            lines.push(format!("result {}", print_tree(output)));
        }
        lines.extend(of_each("writes", &graph.writes));
        lines
    }

    fn node(&self, node: &Node) -> String {
        let mut text = self.node_line(node);
        if let Op::Region(_) = node.op {
            text.push_str(" {\n");
            for body in node.bodies() {
                let indent = format!("{}    ", self.indent);
                text += &Printer::new(body, self.dictionary, indent).graph(false);
            }
            text += &format!("{}  }}", self.indent);
        }
        text
    }

    fn node_line(&self, node: &Node) -> String {
        let results: Vec<String> = node
            .results
            .iter()
            .map(|result| self.definition(*result))
            .collect();
        let mut parts: Vec<String> = Vec::new();
        match &node.op {
            Op::Primitive(primitive) => {
                parts.extend(
                    node.arguments
                        .iter()
                        .map(|argument| self.argument(argument)),
                );
                let fields = attributes(primitive);
                let fields = fields.iter();
                parts.extend(fields.map(|(key, value)| format!("{key}={}", attribute(value))));
            }
            Op::Call(name) => parts.extend(self.call(name, &node.arguments)),
            Op::Region(region) => {
                parts.extend(
                    node.arguments
                        .iter()
                        .map(|argument| self.argument(argument)),
                );
                if let Region::Loop { carried, .. } = &**region {
                    parts.push(format!("carried={carried}"));
                }
            }
        }
        let line = format!(
            "{} = {} {}",
            results.join(", "),
            quoted(node.op.name()),
            parts.join(", ")
        );
        format!("{}{}", line.trim_end(), place(&node.place))
    }

    fn call(&self, name: &str, arguments: &[Argument]) -> Vec<String> {
        let parameters = self.dictionary.parameters(name).unwrap_or_default();
        let (positional, named) = split_call(&parameters, arguments);
        let positional = positional
            .into_iter()
            .map(|argument| self.argument(argument));
        let named = named.into_iter().map(|(parameter, argument)| {
            format!(
                "{}={}",
                parameter.name,
                self.call_argument(parameter, argument)
            )
        });
        positional.chain(named).collect()
    }

    fn call_argument(&self, parameter: &CallParameter, argument: &Argument) -> String {
        match argument {
            Argument::Number(Scalar::Int(code)) if parameter.style == ArgumentStyle::DType => {
                DType::from_torch_code(*code)
                    .map_or_else(|_| code.to_string(), |dtype| dtype.to_string())
            }
            _ => self.argument(argument),
        }
    }

    fn argument(&self, argument: &Argument) -> String {
        match argument {
            Argument::Value(id) => self.value(*id),
            Argument::Number(number) => number.to_string(),
            Argument::Size(dim) => size(dim, &|name| self.names.contains(name)),
            Argument::Str(text) => json_string(text),
            Argument::List(items) => {
                let items: Vec<String> = items.iter().map(|item| self.argument(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Argument::None => "none".into(),
        }
    }

    fn definition(&self, id: ValueId) -> String {
        let ty = self.graph.values.get(id.index()).map(|info| &info.ty);
        let ty = ty.map_or("?".to_string(), ToString::to_string);
        format!("{}: {ty}", self.value(id))
    }

    fn value(&self, id: ValueId) -> String {
        match self.graph.values.get(id.index()) {
            None => format!("%{}", json_string(&id.index().to_string())),
            Some(info) => match &info.definition {
                Definition::Weight(name) => format!("${}", quoted(name)),
                _ if KEYWORDS.contains(&info.name.as_str()) || !is_plain(&info.name) => {
                    format!("%{}", quoted(&info.name))
                }
                _ => info.name.clone(),
            },
        }
    }
}

/// Characters that end unquoted text.
const SEPARATORS: [char; 9] = [',', '[', ']', '{', '}', '@', '"', '\n', '\\'];

/// An attribute of a primitive as text.
pub(in crate::ir) fn attribute(value: &Json) -> String {
    match value {
        Json::String(text) if text.contains(SEPARATORS) || needs_quotes(text) => json_string(text),
        Json::String(text) => text.clone(),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(attribute).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{key}={}", attribute(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// True for text that would be parsed as a number, a boolean or other text if it were not quoted.
fn needs_quotes(text: &str) -> bool {
    let is_number = text.parse::<i64>().is_ok() || matches!(text, "true" | "false");
    let is_cut_short = text.contains("//") || leaves_parenthesis_open(text);
    is_number || text.is_empty() || text.trim() != text || is_cut_short
}

/// True for text whose end is not seen, since separators in parentheses do not count.
fn leaves_parenthesis_open(text: &str) -> bool {
    let depth = text.chars().fold(0usize, |depth, c| match c {
        '(' => depth + 1,
        ')' => depth.saturating_sub(1),
        _ => depth,
    });
    depth != 0
}

/// `  @ file:line (module)`, or nothing.
fn place(place: &SourcePlace) -> String {
    let path = |path: &str| {
        if is_plain_path(path) {
            path.to_string()
        } else {
            json_string(path)
        }
    };
    let mut text = String::new();
    if let Some(location) = &place.location {
        text += &format!(" {}:{}", path(&location.file), location.line);
    }
    if !place.module.is_empty() {
        text += &format!(" ({})", path(&place.module));
    }
    if text.is_empty() {
        text
    } else {
        format!("  @{text}")
    }
}
