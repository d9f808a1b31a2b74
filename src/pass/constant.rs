//! Values known at compile time, for the passes that fold constants.

use crate::error::{Error, Result};
use crate::interp;
use crate::ir::rewrite::Replay;
use crate::ir::{
    Argument, Builder, Definition, Graph, Node, Op, Primitive, Value, ValueId, Weights,
};
use crate::op::Full;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// Number or size that a value consists of, if a `full` defines the value in a graph under construction.
pub(super) fn splat(builder: &Builder, id: ValueId) -> Option<Argument> {
    fill_value(&builder.node_of(id)?)
}

/// The argument's number, or the number that fills its value, in a graph under construction.
pub(super) fn known_number_in(builder: &Builder, argument: &Argument) -> Option<Scalar> {
    let argument = match argument {
        Argument::Value(id) => &splat(builder, *id)?,
        other => other,
    };
    match argument {
        Argument::Number(number) => Some(*number),
        _ => None,
    }
}

/// Inlines the taken branch of an `if` whose condition is known and returns its results.
pub(super) fn inline_taken_branch<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    then: &Graph,
    otherwise: &Graph,
) -> Result<Option<Vec<Value<'g>>>> {
    let arguments = replay.arguments(node);
    let Some((condition, inputs)) = arguments.split_first() else {
        return Ok(None);
    };
    match known_number_in(replay.builder, condition) {
        Some(known) if known.to_f64() == 0.0 => replay.inline(otherwise, inputs).map(Some),
        Some(_) => replay.inline(then, inputs).map(Some),
        None => Ok(None),
    }
}

/// The argument's number, or the number that fills its value.
pub(crate) fn known_number(graph: &Graph, argument: &Argument) -> Option<Scalar> {
    let argument = match argument {
        Argument::Value(id) => match graph.value(*id).definition {
            Definition::Node(node, _) => &fill_value(graph.nodes.get(node)?)?,
            _ => return None,
        },
        other => other,
    };
    match argument {
        Argument::Number(number) => Some(*number),
        _ => None,
    }
}

/// Number or size that a `full` repeats.
fn fill_value(node: &Node) -> Option<Argument> {
    let Op::Primitive(Primitive::Full(Full { dtype, .. })) = node.op else {
        return None;
    };
    match node.arguments.first()? {
        Argument::Number(number) => Some(Argument::Number(number.cast(dtype))),
        size @ Argument::Size(_) => Some(size.clone()),
        _ => None,
    }
}

/// Number that all elements of a tensor equal, bit for bit; `None` for an empty tensor.
pub(super) fn uniform(tensor: &Tensor) -> Option<Scalar> {
    let mut elements = tensor.bytes().chunks_exact(tensor.dtype().size());
    let first = elements.next()?;
    elements.all(|element| element == first).then_some(())?;
    if tensor.dtype().is_float() {
        let number = tensor.to_f64().first().copied()?;
        Some(Scalar::Float(number))
    } else {
        let number = tensor.to_i64().first().copied()?;
        Some(Scalar::Int(number).cast(tensor.dtype()))
    }
}

/// Computes a primitive on tensors. `value` returns the tensor of each value among the arguments.
pub(super) fn evaluate(
    primitive: &Primitive,
    arguments: &[Argument],
    value: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Result<Vec<Tensor>> {
    let builder = Builder::new("constant");
    let mut tensors = Vec::new();
    let mut operands = Vec::new();
    for argument in arguments {
        operands.push(match argument {
            Argument::Value(id) => {
                let tensor =
                    value(*id).ok_or_else(|| Error::internal("an operand is not constant"))?;
                let input = builder.input("x", tensor.tensor_type());
                tensors.push(tensor);
                input.into()
            }
            other => other.clone(),
        });
    }
    let results = builder.try_apply(primitive.clone(), operands)?;
    let results: Vec<ValueId> = results.into_iter().map(|result| result.id()).collect();
    let graph = builder.finish(&results, Vec::new(), None)?;
    interp::run(&graph, &Weights::new(), &tensors)
}
