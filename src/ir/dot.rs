use std::fmt::Write;

use super::graph::{Argument, Definition, Graph, Node, Op, ValueId};

/// The graph in Graphviz's language: a box for each node, grouped by the user's modules, and edges with types.
pub fn to_dot(graph: &Graph) -> String {
    let mut drawing = Drawing {
        text: String::new(),
        clusters: 0,
    };
    drawing.line(0, "digraph {");
    drawing.line(
        1,
        "node [shape=box, style=rounded, fontname=\"sans-serif\"]",
    );
    drawing.line(1, "edge [fontname=\"monospace\", fontsize=10]");
    drawing.graph(graph, "", 1);
    drawing.line(0, "}");
    drawing.text
}

struct Drawing {
    text: String,
    clusters: usize,
}

impl Drawing {
    fn line(&mut self, depth: usize, line: &str) {
        let indent = "  ".repeat(depth);
        // Writing to a string never fails.
        let _ = writeln!(self.text, "{indent}{line}");
    }

    fn open_cluster(&mut self, depth: usize, label: &str) {
        self.clusters += 1;
        self.line(depth, &format!("subgraph cluster_{} {{", self.clusters));
        self.line(depth + 1, &format!("label={}", quoted(label)));
    }

    /// Draws a graph; the names of its nodes begin with a prefix.
    fn graph(&mut self, graph: &Graph, prefix: &str, depth: usize) {
        self.open_cluster(depth, &graph.name);
        for (index, info) in graph.values.iter().enumerate() {
            let (label, color) = match &info.definition {
                Definition::Input(_) => (format!("{}\n{}", info.name, info.ty), "lightblue"),
                Definition::Weight(_) => (format!("{}\n{}", info.name, info.ty), "lightgrey"),
                Definition::Node(..) => continue,
            };
            let name = quoted(&format!("{prefix}v{index}"));
            let style = format!("style=\"filled,rounded\", fillcolor={color}");
            self.line(
                depth + 1,
                &format!("{name} [label={}, {style}]", quoted(&label)),
            );
        }
        let mut module = "";
        for (index, node) in graph.nodes.iter().enumerate() {
            if module != node.place.module {
                if !module.is_empty() {
                    self.line(depth + 1, "}");
                }
                module = &node.place.module;
                if !module.is_empty() {
                    self.open_cluster(depth + 1, module);
                }
            }
            let inner = depth + 1 + usize::from(!module.is_empty());
            self.node(node, &format!("{prefix}n{index}"), inner);
        }
        if !module.is_empty() {
            self.line(depth + 1, "}");
        }
        self.line(depth, "}");
        self.edges(graph, prefix, depth);
    }

    fn node(&mut self, node: &Node, name: &str, depth: usize) {
        let mut label = node.op.name().to_string();
        if let Op::Primitive(primitive) = &node.op {
            for (key, value) in super::assembler::attributes(primitive) {
                let _ = write!(label, "\n{key} = {}", value.to_string().replace('"', ""));
            }
        }
        for number in node.arguments.iter().filter_map(constant) {
            let _ = write!(label, "\n{number}");
        }
        self.line(
            depth,
            &format!("{} [label={}]", quoted(name), quoted(&label)),
        );
        for (index, body) in node.bodies().into_iter().enumerate() {
            self.graph(body, &format!("{name}.{index}."), depth);
        }
    }

    fn edges(&mut self, graph: &Graph, prefix: &str, depth: usize) {
        let source = |id: ValueId| match graph.value(id).definition {
            Definition::Node(node, _) => format!("{prefix}n{node}"),
            _ => format!("{prefix}v{}", id.index()),
        };
        let mut edge = |id: ValueId, target: String| {
            let info = graph.value(id);
            let label = match info.definition {
                Definition::Node(..) => format!(" [label={}]", quoted(&info.ty.to_string())),
                _ => String::new(),
            };
            let (from, to) = (quoted(&source(id)), quoted(&target));
            self.line(depth, &format!("{from} -> {to}{label}"));
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            for operand in node.operands() {
                edge(operand, format!("{prefix}n{index}"));
            }
        }
        for (index, output) in graph.outputs.iter().enumerate() {
            edge(*output, format!("{prefix}output {index}"));
        }
    }
}

/// Numbers and sizes among the arguments; only the text form shows lists and strings.
fn constant(argument: &Argument) -> Option<String> {
    match argument {
        Argument::Number(number) => Some(number.to_string()),
        Argument::Size(dim) => Some(dim.to_string()),
        _ => None,
    }
}

fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}
