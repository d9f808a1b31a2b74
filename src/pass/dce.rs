use crate::error::Result;
use crate::ir::rewrite::{everywhere, replay};
use crate::ir::{Graph, Node};

/// Removes nodes of which no result is read, and weights that are not read then.
pub fn dce(graph: &Graph) -> Result<Graph> {
    everywhere(graph, &mut |graph| {
        let live = Graph {
            nodes: live_nodes(graph),
            ..graph.clone()
        };
        replay(&live, |replay, node| replay.copy(node))
    })
}

fn live_nodes(graph: &Graph) -> Vec<Node> {
    let mut is_read = vec![false; graph.values.len()];
    for output in &graph.outputs {
        is_read[output.index()] = true;
    }
    let mut live = Vec::new();
    for node in graph.nodes.iter().rev() {
        if node.results.iter().any(|result| is_read[result.index()]) {
            for operand in node.operands() {
                is_read[operand.index()] = true;
            }
            live.push(node.clone());
        }
    }
    live.reverse();
    live
}
