use crate::error::Result;
use crate::ir::rewrite::{Replay, everywhere, replay};
use crate::ir::{Argument, Graph, Node, Op, Region, Value};
use crate::scalar::Scalar;

use super::constant::{known, known_in};

/// Loops of more rounds stay loops.
const MOST_ROUNDS: i64 = 16;
/// Loops that would become more nodes stay loops.
const MOST_NODES: usize = 512;

/// Writes out loops whose length is a small number and whose condition is always true, and those that never run.
pub fn unroll(graph: &Graph) -> Result<Graph> {
    everywhere(graph, &mut |graph| {
        replay(graph, |replay, node| {
            if let Op::Region(region) = &node.op
                && let Region::Loop { body, carried } = &**region
                && let Some(rounds) = rounds(replay, node, body)
            {
                return repeat(replay, node, body, *carried, rounds);
            }
            replay.copy(node)
        })
    })
}

/// How often a loop runs, if that is known and little.
fn rounds(replay: &mut Replay, node: &Node, body: &Graph) -> Option<i64> {
    let arguments = replay.arguments(node);
    let number = |argument: &Argument| known_in(replay.builder, argument);
    let trips = arguments.first().and_then(number).map(Scalar::to_i64);
    let first = arguments.get(1).and_then(number).map(is_true);
    if trips.is_some_and(|trips| trips <= 0) || first == Some(false) {
        return Some(0);
    }
    let again = known(body, &Argument::Value(*body.outputs.first()?)).map(is_true);
    let rounds = match (first?, again?) {
        (true, true) => trips?,
        (true, false) => trips.unwrap_or(1).min(1),
        (false, _) => 0,
    };
    let nodes = usize::try_from(rounds).ok()?.checked_mul(size(body))?;
    (rounds <= MOST_ROUNDS && nodes <= MOST_NODES).then_some(rounds)
}

fn is_true(number: Scalar) -> bool {
    number.to_f64() != 0.0
}

/// Nodes of a graph and of the bodies in it.
fn size(graph: &Graph) -> usize {
    let nested = graph.nodes.iter().flat_map(Node::bodies);
    graph.nodes.len() + nested.map(size).sum::<usize>()
}

fn repeat<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    body: &Graph,
    carried: usize,
    rounds: i64,
) -> Result<Vec<Value<'g>>> {
    let mut arguments = replay.arguments(node).split_off(2);
    for round in 0..rounds {
        let count = Argument::Number(Scalar::Int(round));
        let given = [std::slice::from_ref(&count), &arguments].concat();
        let results = replay.inline(body, &given)?;
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
