use std::collections::HashSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Definition, Graph, Node, Op, Region, Value, ValueId};
use crate::op::{Binary, BinaryFunction, Reshape};
use crate::scalar::Scalar;
use crate::shape::TensorType;

/// Makes explicit as nodes the work that regions leave to their executor, so that it is planned like everything else.
///
/// Numbers passed to bodies become values. A loop whose body reads the iteration number carries that number. Each result
/// of a body is the result of its own node, except a value that a loop carries unchanged.
pub fn explicit_regions(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        if graph.nodes.iter().all(|node| node.bodies().is_empty()) {
            return Ok(graph.clone());
        }
        replay(graph, |replay, node| match &node.op {
            Op::Region(region) => explicit(replay, node, (**region).clone()),
            _ => replay.copy(node),
        })
    })
}

/// Adds a node with a region to the new graph, its implicit work made explicit.
fn explicit<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    mut region: Region,
) -> Result<Vec<Value<'g>>> {
    let mut arguments = replay.arguments(node);
    let results = node.results.iter();
    let mut types: Vec<TensorType> = results.map(|id| replay.graph.ty(*id).clone()).collect();
    let mut added_results = 0;
    if let Region::Loop { body, carried } = &mut region
        && let Some(iteration) = body.inputs.first().copied()
        && body
            .uses()
            .get(iteration.index())
            .is_some_and(|uses| *uses > 0)
    {
        carry_iteration(body, iteration);
        *carried += 1;
        arguments.insert(2, Argument::Number(Scalar::Int(0)));
        types.insert(0, body.ty(iteration).clone());
        added_results = 1;
    }
    match &mut region {
        Region::If { then, otherwise } => {
            give_results_nodes(then, &[]);
            give_results_nodes(otherwise, &[]);
        }
        Region::Call { body } => give_results_nodes(body, &[]),
        Region::Loop { body, .. } => {
            let inputs = body.inputs.clone();
            give_results_nodes(body, inputs.get(1..).unwrap_or_default());
        }
    }
    // A branch of an `if` takes the arguments after the condition, a loop body those after trip count and condition, a
    // call all of them.
    let (leading, body, inputs) = match &region {
        Region::If { then, .. } => (1, then, then.inputs.as_slice()),
        Region::Call { body } => (0, body, body.inputs.as_slice()),
        Region::Loop { body, .. } => (2, body, body.inputs.get(1..).unwrap_or_default()),
    };
    for (argument, input) in arguments.iter_mut().skip(leading).zip(inputs) {
        *argument = replay.as_value(argument, body.ty(*input).dtype).into();
    }
    if let (Region::If { .. }, Some(condition)) = (&region, arguments.first_mut()) {
        *condition = replay.as_value(condition, DType::Bool).into();
    }
    let results = replay.builder.region(region, arguments, types);
    Ok(results.into_iter().skip(added_results).collect())
}

/// Makes the iteration number, the input `iteration` of a loop body, the loop's first carried value, which the body
/// increments. A new input that nothing reads takes its place as the iteration number.
fn carry_iteration(body: &mut Graph, iteration: ValueId) {
    let ty = body.ty(iteration).clone();
    body.insert_input(0, "unread", ty.clone());
    let function = BinaryFunction::Add;
    let arguments = vec![Argument::Value(iteration), Argument::Number(Scalar::Int(1))];
    let next = body.push_node("next_round", Binary { function }, arguments, ty);
    body.outputs.insert(1, next);
}

/// Gives each output of a body its own node, unless it is the loop input that the output is carried to. `carried` has
/// the inputs of a loop body after the iteration number; the outputs carried to them follow the condition.
fn give_results_nodes(body: &mut Graph, carried: &[ValueId]) {
    let mut known = HashSet::new();
    for index in 0..body.outputs.len() {
        let id = body.outputs[index];
        let is_result = matches!(body.value(id).definition, Definition::Node(..));
        let is_unchanged = 0 < index && carried.get(index - 1) == Some(&id);
        if is_unchanged || is_result && known.insert(id) {
            continue;
        }
        let ty = body.ty(id).clone();
        let shape = ty.shape.clone();
        let arguments = vec![Argument::Value(id)];
        body.outputs[index] = body.push_node("result", Reshape { shape }, arguments, ty);
    }
}
