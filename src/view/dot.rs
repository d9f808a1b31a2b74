//! Graphs in Graphviz's language.

use std::fmt::Write;

use super::hierarchy::{BoxKind, GraphBox, Hierarchy};
use super::operands::weights_read;
use crate::ir::Graph;

/// Backgrounds of nodes.
const INPUT: &str = ", style=\"filled,rounded\", fillcolor=lightblue";
const OUTPUT: &str = ", style=\"filled,rounded\", fillcolor=honeydew";
const REGION: &str = ", style=\"filled,rounded\", fillcolor=lightyellow";
/// Longest line of a label, in characters. Graphviz refuses pictures whose nodes are too wide.
const MAX_LINE: usize = 120;

/// The graph in Graphviz's language: a node for each input, operator and output, a cluster for each module, and edges with
/// types. Operators list their attributes by name and the weights that they read.
pub fn to_dot(graph: &Graph) -> String {
    let hierarchy = Hierarchy::of([graph]);
    let mut drawing = Drawing {
        hierarchy: &hierarchy,
        text: String::new(),
    };
    drawing.line(0, "digraph {");
    drawing.line(
        1,
        "node [shape=box, style=rounded, fontname=\"sans-serif\"]",
    );
    drawing.line(1, "edge [fontname=\"monospace\", fontsize=10]");
    drawing.line(
        1,
        "graph [fontname=\"sans-serif\", style=rounded, color=grey]",
    );
    drawing.boxes();
    drawing.edges();
    drawing.line(0, "}");
    drawing.text
}

struct Drawing<'a> {
    hierarchy: &'a Hierarchy<'a>,
    text: String,
}

impl Drawing<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        let indent = "  ".repeat(depth);
        // Writing to a string never fails.
        let _ = writeln!(self.text, "{indent}{line}");
    }

    /// Draws all boxes. They are in preorder: a cluster ends before the first box outside of it.
    fn boxes(&mut self) {
        let mut open: Vec<usize> = Vec::new();
        for (index, own) in self.hierarchy.boxes.iter().enumerate() {
            while open.last().is_some_and(|last| own.parent != Some(*last)) {
                open.pop();
                self.line(open.len() + 1, "}");
            }
            self.start_box(index, own, open.len() + 1);
            if own.is_container() {
                open.push(index);
            }
        }
        while open.pop().is_some() {
            self.line(open.len() + 1, "}");
        }
    }

    /// Draws a node, or opens a cluster.
    fn start_box(&mut self, index: usize, own: &GraphBox, depth: usize) {
        if own.is_container() {
            self.line(depth, &format!("subgraph cluster_{index} {{"));
            self.line(depth + 1, &format!("label={}", quoted(&own.label)));
        }
        let graph = self.hierarchy.graphs[own.graph];
        let (label, style) = match own.kind {
            BoxKind::Graph | BoxKind::Module | BoxKind::Body => return,
            BoxKind::Input(input) => {
                let ty = graph.ty(graph.inputs[input]);
                (format!("{}\n{ty}", own.label), INPUT)
            }
            BoxKind::Output(output) => {
                let ty = graph.ty(graph.outputs[output]);
                (format!("{}\n{ty}", own.label), OUTPUT)
            }
            BoxKind::Region(_) => (self.node_label(index), REGION),
            BoxKind::Operator(_) => (self.node_label(index), ""),
        };
        let inside = depth + usize::from(own.is_container());
        self.line(
            inside,
            &format!("b{index} [label={}{style}]", quoted(&label)),
        );
    }

    /// The operator with its module if that has no cluster, attributes and weights, a line each.
    fn node_label(&self, index: usize) -> String {
        let own = &self.hierarchy.boxes[index];
        let Some(node) = self.hierarchy.node(index) else {
            return own.label.clone();
        };
        let name = node.op.short_name();
        let mut label = match own.label == name {
            true => name.to_string(),
            false => format!("{}: {name}", own.label),
        };
        for (name, value) in node.describe().attributes {
            let _ = write!(label, "\n{name}: {value}");
        }
        for (role, weight, ty) in weights_read(self.hierarchy.graphs[own.graph], node) {
            let _ = write!(label, "\n{role}: {weight} {ty}");
        }
        label
    }

    fn edges(&mut self) {
        for read in &self.hierarchy.reads {
            let ty = self.hierarchy.graphs[read.graph].ty(read.value).to_string();
            let (source, target) = (read.source, read.target);
            self.line(
                1,
                &format!("b{source} -> b{target} [label={}]", quoted(&ty)),
            );
        }
    }
}

/// A label in quotes, with long lines shortened.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(shortened_line).collect();
    let escaped = lines
        .join("\n")
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn shortened_line(line: &str) -> String {
    match line.chars().count() > MAX_LINE {
        true => line.chars().take(MAX_LINE - 1).chain(['…']).collect(),
        false => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn labels_are_escaped_and_no_wider_than_graphviz_draws() {
        assert_eq!(quoted("a\"\\\nb"), r#""a\"\\\nb""#);
        let wide = quoted(&format!("{}\nb", "é".repeat(10_000)));
        assert!(wide.ends_with("é…\\nb\""), "{wide}");
        assert_eq!(wide.chars().count(), 120 + 5);
    }
}
