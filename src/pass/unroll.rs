use crate::error::Result;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Graph, Node, Op, Region, Value};
use crate::scalar::Scalar;

use super::constant::{known_number, known_number_in};

/// Largest trip count of a loop that is unrolled.
const MAX_TRIP_COUNT: i64 = 16;
/// Most nodes that unrolling a loop may produce.
const MAX_NODES: usize = 512;

/// Unrolls loops with a small known trip count and an always true condition. Removes loops that never run.
pub fn unroll(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| {
            if let Op::Region(region) = &node.op
                && let Region::Loop { body, carried } = &**region
                && let Some(iterations) = trip_count(replay, node, body)
            {
                return repeat(replay, node, body, *carried, iterations);
            }
            replay.copy(node)
        })
    })
}

/// Number of iterations that a loop runs, if it is known and small enough to unroll.
fn trip_count(replay: &mut Replay, node: &Node, body: &Graph) -> Option<i64> {
    let arguments = replay.arguments(node);
    let number = |argument: &Argument| known_number_in(replay.builder, argument);
    let max_trips = arguments.first().and_then(number).map(Scalar::to_i64);
    let first_condition = arguments.get(1).and_then(number).map(is_true);
    if max_trips.is_some_and(|max_trips| max_trips <= 0) || first_condition == Some(false) {
        return Some(0);
    }
    let next_condition = known_number(body, &Argument::Value(*body.outputs.first()?)).map(is_true);
    let iterations = match (first_condition?, next_condition?) {
        (true, true) => max_trips?,
        (true, false) => max_trips?.min(1),
        (false, _) => 0,
    };
    let nodes = usize::try_from(iterations).ok()?.checked_mul(size(body))?;
    (iterations <= MAX_TRIP_COUNT && nodes <= MAX_NODES).then_some(iterations)
}

fn is_true(number: Scalar) -> bool {
    number.to_f64() != 0.0
}

/// Number of nodes of a graph and its nested bodies.
fn size(graph: &Graph) -> usize {
    let nested = graph.nodes.iter().flat_map(Node::bodies);
    graph.nodes.len() + nested.map(size).sum::<usize>()
}

/// Inlines a loop body the given number of times. Returns the carried values after the last iteration.
fn repeat<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    body: &Graph,
    carried: usize,
    iterations: i64,
) -> Result<Vec<Value<'g>>> {
    let mut arguments = replay.arguments(node).split_off(2);
    for iteration in 0..iterations {
        let iteration_number = Argument::Number(Scalar::Int(iteration));
        let inputs = [std::slice::from_ref(&iteration_number), &arguments].concat();
        let results = replay.inline(body, &inputs)?;
        for (argument, result) in arguments.iter_mut().zip(results.into_iter().skip(1)) {
            *argument = result.into();
        }
    }
    arguments.truncate(carried);
    let types = node.results.iter().map(|id| replay.graph.ty(*id).dtype);
    let types: Vec<_> = types.collect();
    let values = arguments.iter().zip(types);
    Ok(values
        .map(|(argument, dtype)| replay.as_value(argument, dtype))
        .collect())
}
