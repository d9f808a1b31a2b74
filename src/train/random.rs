//! Random numbers of a step: each step draws others, where a run of a graph draws equal ones.

use crate::aten;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::rewrite::{Replay, replay_with_outputs};
use crate::ir::{Argument, Graph, NamedTree, Node, Op, TreeSpec, Value, ValueId};
use crate::pass;
use crate::shape::{Shape, TensorType};

/// The state that counts the random calls of all steps so far.
pub(super) const COUNTER: &str = "random_counter";

/// The graph whose random calls count from a state; `None` if no node outside of the bodies of regions draws random numbers.
pub(super) fn with_counter(graph: &Graph) -> Result<Option<Graph>> {
    let calls = graph.nodes.iter().filter_map(first_counter);
    let Some(last) = calls.max() else {
        return Ok(None);
    };
    let mut graph = graph.clone();
    let input = TreeSpec::Tensor(graph.inputs.len());
    let scalar = TensorType {
        dtype: DType::I64,
        shape: Shape::new(),
    };
    pass::weight_to_input(&mut graph, COUNTER, &scalar);
    graph.reads.push(state(input));
    graph
        .writes
        .push(state(TreeSpec::Tensor(graph.outputs.len())));
    let Some(counter) = graph.inputs.last().copied() else {
        return Ok(None);
    };
    let mut counted = replay_with_outputs(
        &graph,
        |replay, node| count(replay, node, counter),
        |replay| {
            let outputs = graph.outputs.iter().map(|id| replay.value(*id));
            let mut outputs: Vec<Value> = outputs.collect();
            outputs.push(replay.value(counter) + (last + 1));
            Ok(outputs)
        },
    )?;
    counted.output_tree = graph.output_tree.clone();
    counted.writes = graph.writes.clone();
    counted.reads = graph.reads.clone();
    Ok(Some(counted))
}

fn state(tree: TreeSpec) -> NamedTree {
    NamedTree {
        name: COUNTER.to_string(),
        tree,
    }
}

/// The counter of a call that draws random numbers.
fn first_counter(node: &Node) -> Option<i64> {
    let Op::Call(name) = &node.op else {
        return None;
    };
    let position = aten::operator(name)
        .ok()?
        .random_position(&node.arguments)?;
    Some(position.counter.cast_signed())
}

/// Adds a node. A call that draws random numbers takes its counter from the state.
fn count<'g>(replay: &mut Replay<'_, 'g>, node: &Node, counter: ValueId) -> Result<Vec<Value<'g>>> {
    let (Op::Call(name), Some(first)) = (&node.op, first_counter(node)) else {
        return replay.copy(node);
    };
    let counter = replay.value(counter) + first;
    let mut arguments = replay.arguments(node);
    aten::operator(name)?.set_counter(&mut arguments, Argument::from(counter));
    let types = node.results.iter().map(|id| replay.graph.ty(*id).clone());
    Ok(replay.builder.call(name, arguments, types.collect()))
}
