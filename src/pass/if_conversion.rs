use crate::dim::Dim;
use crate::error::Result;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Graph, Node, Op, Region, Value};

use super::constant::inline_taken_branch;

/// Most elements that both-branch evaluation may waste: reading a condition back costs about as much.
const MAX_ELEMENTS: i64 = 1 << 20;

/// Replaces conditions by selects where both branches are cheap: pointwise work and views on few elements that cannot
/// fail. An `if` whose condition is known is replaced by the taken branch.
pub fn if_conversion(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| {
            let Op::Region(region) = &node.op else {
                return replay.copy(node);
            };
            match &**region {
                Region::If { then, otherwise } => convert(replay, node, then, otherwise),
                _ => replay.copy(node),
            }
        })
    })
}

/// Adds an `if` to the new graph: its taken branch, selects between the results of both branches, or the `if` itself.
fn convert<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    then: &Graph,
    otherwise: &Graph,
) -> Result<Vec<Value<'g>>> {
    if let Some(results) = inline_taken_branch(replay, node, then, otherwise)? {
        return Ok(results);
    }
    let arguments = replay.arguments(node);
    match arguments.split_first() {
        Some((Argument::Value(id), inputs)) if is_cheap(then) && is_cheap(otherwise) => {
            let condition = replay.builder.value(*id);
            let yes = replay.inline(then, inputs)?;
            let no = replay.inline(otherwise, inputs)?;
            let pairs = yes.into_iter().zip(no);
            Ok(pairs
                .map(|(yes, no)| condition.expand(yes.shape()).where_(yes, no))
                .collect())
        }
        _ => replay.copy(node),
    }
}

/// True if a branch has few elements and consists of primitives that cannot fail.
fn is_cheap(branch: &Graph) -> bool {
    let results = branch.nodes.iter().flat_map(|node| &node.results);
    let elements = results
        .map(|id| Dim::product(&branch.ty(*id).shape).eval(&branch.hints).ok())
        .try_fold(0i64, |sum, numel| sum.checked_add(numel?));
    let is_total = branch.nodes.iter().all(|node| match &node.op {
        Op::Primitive(primitive) => {
            let mut results = node.results.iter();
            results.all(|id| primitive.is_infallible(branch.ty(*id).dtype))
        }
        _ => false,
    });
    is_total && elements.is_some_and(|elements| elements <= MAX_ELEMENTS)
}
