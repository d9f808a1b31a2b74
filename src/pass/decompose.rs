use crate::aten;
use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Graph, Op};

/// Replaces every call of a dictionary row by its body, so that only primitives and regions remain.
pub fn decompose(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| match &node.op {
            Op::Call(name) => {
                let arguments = replay.arguments(node);
                aten::operator(name)?.expand(replay.builder, &arguments)
            }
            _ => replay.copy(node),
        })
    })
}
