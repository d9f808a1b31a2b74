use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Argument, Graph, Op, Primitive};

/// Replaces each optimization barrier by its operand.
pub fn remove_barriers(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| {
            let is_barrier = matches!(node.op, Op::Primitive(Primitive::OptimizationBarrier(_)));
            match node.arguments.as_slice() {
                [Argument::Value(operand)] if is_barrier => Ok(vec![replay.value(*operand)]),
                _ => replay.copy(node),
            }
        })
    })
}
