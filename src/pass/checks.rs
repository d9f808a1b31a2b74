use std::collections::HashMap;

use super::range::{IntegerRange, result_range};
use crate::error::Result;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Graph, Node, Op, Primitive, Value, ValueId};
use crate::shape::TensorType;

/// Removes checks of integers that hold for all inputs: of indices that count along an axis, are remainders, or passed a
/// check before.
pub fn proven_checks(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        let mut ranges = HashMap::new();
        replay(graph, |replay, node| match &node.op {
            Op::Primitive(primitive) => prove(replay, node, primitive, &mut ranges),
            _ => replay.copy(node),
        })
    })
}

/// Removes all checks. Failures that they would report go unnoticed.
pub fn without_checks(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| match checked_value(node) {
            Some(value) => Ok(vec![replay.value(value)]),
            None => replay.copy(node),
        })
    })
}

/// Value that a node checks, if the node is a check.
fn checked_value(node: &Node) -> Option<ValueId> {
    match (&node.op, node.arguments.first()?) {
        (Op::Primitive(Primitive::Check(_)), Argument::Value(value)) => Some(*value),
        _ => None,
    }
}

/// Adds a primitive to the new graph, unless it is a check that holds. Records the ranges of its results in `ranges`.
fn prove<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    primitive: &Primitive,
    ranges: &mut HashMap<ValueId, IntegerRange>,
) -> Result<Vec<Value<'g>>> {
    let operands: Vec<(Option<TensorType>, IntegerRange)> = replay
        .arguments(node)
        .iter()
        .map(|argument| match argument {
            Argument::Value(id) => {
                let ty = replay.builder.ty(*id);
                (Some(ty), ranges.get(id).cloned().unwrap_or_default())
            }
            number => (None, IntegerRange::of_number(number)),
        })
        .collect();
    if let (Primitive::Check(check), Some(value), [(_, range), bounds @ ..]) =
        (primitive, checked_value(node), operands.as_slice())
    {
        let bounds: Vec<IntegerRange> = bounds.iter().map(|(_, range)| range.clone()).collect();
        if range.satisfies(check, &bounds) {
            return Ok(vec![replay.value(value)]);
        }
    }
    let results = replay.copy(node)?;
    for (index, result) in results.iter().enumerate() {
        if result.dtype().is_integer() {
            ranges.insert(result.id(), result_range(primitive, index, &operands));
        }
    }
    Ok(results)
}
