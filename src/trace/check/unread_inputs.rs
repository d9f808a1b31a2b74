//! Inputs that change no output.

use super::dependence::{DependenceKind, dependence};
use super::evaluate::argument_inputs;
use super::{Finding, Id};
use crate::dim::{Dim, Symbol};
use crate::ir::{Argument, Graph, Op, ValueId};

/// Returns a finding for each input whose elements reach no output and no state, unless the graph reads a size that only
/// this input has.
pub fn unread_inputs(graph: &Graph) -> Vec<Finding> {
    let inputs = argument_inputs(graph);
    let reaches = |index: usize| {
        let only: Vec<bool> = (0..graph.inputs.len())
            .map(|other| other == index)
            .collect();
        dependence(graph, &only, DependenceKind::Elements).contains(&true)
    };
    let (read, unread): (Vec<_>, Vec<_>) = inputs
        .iter()
        .enumerate()
        .partition(|(index, _)| reaches(*index));
    // Separate findings report outputs that depend on no input.
    if read.is_empty() {
        return Vec::new();
    }
    let read: Vec<ValueId> = read.into_iter().map(|(_, id)| *id).collect();
    let is_needed_for_size = |id: &ValueId| defines_read_size(graph, *id, &read);
    let unread = unread.into_iter().map(|(_, id)| id);
    unread
        .filter(|id| !is_needed_for_size(id))
        .map(|id| finding(graph, *id))
        .collect()
}

/// A finding about an input that reaches no output.
fn finding(graph: &Graph, id: ValueId) -> Finding {
    let info = graph.value(id);
    let message = format!("{}: {} reaches no output", info.name, info.ty);
    Finding::new(Id::UnreadInput, message)
}

/// True if the graph reads a size of this input that none of the read inputs has.
fn defines_read_size(graph: &Graph, id: ValueId, read: &[ValueId]) -> bool {
    let symbols = |id: ValueId| graph.ty(id).shape.iter().flat_map(Dim::symbols);
    let known: Vec<Symbol> = read.iter().flat_map(|id| symbols(*id)).collect();
    symbols(id).any(|symbol| !known.contains(&symbol) && reads_size(graph, &symbol))
}

/// True if an argument, an attribute or an output of the graph contains the symbol.
fn reads_size(graph: &Graph, symbol: &Symbol) -> bool {
    let has_symbol = |dim: &Dim| dim.symbols().contains(symbol);
    let in_arguments = graph.nodes.iter().any(|node| {
        let mut in_node = node
            .arguments
            .iter()
            .any(|argument| argument_has_symbol(argument, symbol));
        if let Op::Primitive(primitive) = &node.op {
            primitive.clone().map_sizes(&mut |dim: &Dim| {
                in_node |= has_symbol(dim);
                dim.clone()
            });
        }
        in_node
    });
    let outputs = graph.outputs.iter();
    in_arguments || outputs.flat_map(|id| &graph.ty(*id).shape).any(has_symbol)
}

/// True if a size in an argument contains the symbol.
fn argument_has_symbol(argument: &Argument, symbol: &Symbol) -> bool {
    match argument {
        Argument::Size(dim) => dim.symbols().contains(symbol),
        Argument::List(items) => items.iter().any(|item| argument_has_symbol(item, symbol)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let graph: Graph = text.parse().unwrap();
        let found = unread_inputs(&graph);
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_input_that_defines_a_size_is_read() {
        let text = |size: &str| {
            format!(
                "graph f(x: f32[B], m: f32[B, T]) -> (f32[B], f32[T]) {{\n  size B = 2\n  size T = 3\n  \
                 a = aten.relu x\n  b = aten.zeros size=[{size}], dtype=f32\n  return a, b\n}}"
            )
        };
        assert!(messages(&text("T")).is_empty());
        let fixed = text("3").replace("f32[T])", "f32[3])");
        assert_eq!(messages(&fixed), ["m: f32[B, T] reaches no output"]);
    }

    #[test]
    fn an_input_that_only_a_condition_reads_is_read() {
        let text = "graph f(x: f32[], c: bool[], d: f32[]) -> f32[] {\n  \
            a: f32[] = if c, x {\n    graph t(p: f32[]) -> f32[] {\n      return p\n    }\n    \
            graph o(p: f32[]) -> f32[] {\n      b = neg p\n      return b\n    }\n  }\n  return a\n}";
        assert_eq!(messages(text), ["d: f32[] reaches no output"]);
    }
}
