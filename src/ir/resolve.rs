//! Substitution of symbols that are known to equal other sizes.

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::dim::{Bindings, Dim, Symbol};
use crate::symbols::Symbols;

use super::graph::{Graph, Node};
use super::tree::{TreeConstant, TreeSpec};

/// Replaces symbols in a graph that are known to equal other sizes; updates its hints and guards.
pub(super) fn resolve(graph: &mut Graph, symbols: &Symbols) {
    resolve_sizes(graph, symbols);
    resolve_trees(graph, &|dim| symbols.resolve(dim));
    graph.hints = symbols.hints();
    graph.guards = symbols.guards();
}

/// Replaces the symbols that were found to equal another size, also in the bodies of regions.
fn resolve_sizes(graph: &mut Graph, symbols: &Symbols) {
    graph.map_sizes(&mut |dim| symbols.resolve(dim));
    for body in graph.nodes.iter_mut().flat_map(Node::bodies_mut) {
        resolve_sizes(body, symbols);
    }
}

fn resolve_trees(graph: &mut Graph, resolve: &dyn Fn(&Dim) -> Dim) {
    let trees = graph.writes.iter_mut().map(|state| &mut state.tree);
    for tree in graph.output_tree.iter_mut().chain(trees) {
        let Ok(resolved) = tree.map_sizes::<Infallible>(&mut |dim| {
            let dim = resolve(dim);
            let number = dim
                .as_const()
                .map(|number| TreeConstant::Number(number.into()));
            Ok(number.map_or(TreeSpec::Size(dim), TreeSpec::Constant))
        });
        *tree = resolved;
    }
}

impl Graph {
    /// The graph specialised to these sizes of its symbols, which must satisfy its guards.
    pub fn with_sizes(&self, sizes: &Bindings) -> Graph {
        let numbers = sizes.iter();
        let numbers: BTreeMap<Symbol, Dim> = numbers
            .map(|(name, size)| (name.clone(), Dim::from(*size)))
            .collect();
        let resolve = |dim: &Dim| dim.substitute(&numbers);
        let mut graph = self.clone();
        graph.map_sizes(&mut |dim| resolve(dim));
        resolve_trees(&mut graph, &resolve);
        graph.hints.clear();
        graph.guards.clear();
        graph
    }
}
