use crate::aten;
use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Graph, Op};

/// Replaces every call of a dictionary row by its body, so that only primitives and regions remain. A body may call other
/// rows.
pub fn decompose(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        let mut graph = expand_calls(graph)?;
        while graph
            .nodes
            .iter()
            .any(|node| matches!(node.op, Op::Call(_)))
        {
            graph = expand_calls(&graph)?;
        }
        Ok(graph)
    })
}

/// Replaces the calls of a graph by their bodies.
fn expand_calls(graph: &Graph) -> Result<Graph> {
    replay(graph, |replay, node| match &node.op {
        Op::Call(name) => {
            let arguments = replay.arguments(node);
            aten::operator(name)?.expand(replay.builder, &arguments)
        }
        _ => replay.copy(node),
    })
}
