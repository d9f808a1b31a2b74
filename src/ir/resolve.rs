//! What has been learnt about symbols, written down in a graph.

use std::convert::Infallible;

use crate::symbols::Symbols;

use super::graph::{Graph, Node};
use super::tree::{Constant, Tree};

/// Writes down in a graph what has been learnt about its symbols.
pub(super) fn resolve(graph: &mut Graph, symbols: &Symbols) {
    resolve_sizes(graph, symbols);
    let trees = graph.writes.iter_mut().map(|state| &mut state.tree);
    for tree in graph.output_tree.iter_mut().chain(trees) {
        *tree = resolve_tree(tree, symbols);
    }
    graph.hints = symbols.hints();
    graph.guards = symbols.guards();
}

/// Replaces the symbols that were found to equal something, in the bodies of regions too.
fn resolve_sizes(graph: &mut Graph, symbols: &Symbols) {
    graph.map_sizes(&mut |dim| symbols.resolve(dim));
    for body in graph.nodes.iter_mut().flat_map(Node::bodies_mut) {
        resolve_sizes(body, symbols);
    }
}

fn resolve_tree(tree: &Tree, symbols: &Symbols) -> Tree {
    let Ok(resolved) = tree.map_sizes::<Infallible>(&mut |dim| {
        let dim = symbols.resolve(dim);
        let number = dim.as_const().map(|number| Constant::Number(number.into()));
        Ok(number.map_or(Tree::Size(dim), Tree::Constant))
    });
    resolved
}
