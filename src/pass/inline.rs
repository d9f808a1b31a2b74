use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Graph, Op, Region};

/// Replaces every call of a nested graph by the nodes of its body.
pub fn inline(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| match &node.op {
            Op::Region(region) => match &**region {
                Region::Call { body } => {
                    let arguments = replay.arguments(node);
                    replay.inline(body, &arguments)
                }
                _ => replay.copy(node),
            },
            _ => replay.copy(node),
        })
    })
}
