//! Weights among the operands of a node.

use crate::ir::{Definition, Graph, Node, ValueId};
use crate::shape::TensorType;

/// The name of a weight; `None` for other values.
pub(super) fn weight_name(graph: &Graph, id: ValueId) -> Option<&str> {
    match &graph.value(id).definition {
        Definition::Weight(name) => Some(name),
        _ => None,
    }
}

/// The weights that a node reads, each with the parameter's name and the type: `("bias", "fc.bias", f32[10])`.
pub(super) fn weights_read<'a>(
    graph: &'a Graph,
    node: &Node,
) -> Vec<(String, &'a str, &'a TensorType)> {
    let operands = node.describe().operands.into_iter();
    let weights = operands.filter_map(|(role, id)| {
        let name = weight_name(graph, id)?;
        Some((role, name, graph.ty(id)))
    });
    weights.collect()
}
