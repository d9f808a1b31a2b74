use std::collections::HashMap;

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Builder, Graph, Node, Op, Primitive, Value, ValueId};
use crate::op::Full;
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::constant::{evaluate, splat, uniform};

/// Largest number of elements of a value that this pass computes.
const LARGEST_FOLDED: i64 = 4096;

/// Computes values that depend on neither inputs nor weights, and replaces uniform operands by numbers.
///
/// A value whose elements are all equal becomes a `full`, a view of a `full` is a `full`, and a `full` operand of
/// pointwise arithmetic becomes a number. The sign and payload of NaN are not kept.
pub fn fold(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        let mut constants = HashMap::new();
        replay(graph, |replay, node| match &node.op {
            Op::Primitive(primitive) => fold_node(replay, node, primitive, &mut constants),
            _ => replay.copy(node),
        })
    })
}

/// Adds a primitive to the new graph, folded if possible. `constants` has the tensors of the values computed so far.
fn fold_node<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    primitive: &Primitive,
    constants: &mut HashMap<ValueId, Tensor>,
) -> Result<Vec<Value<'g>>> {
    let builder = replay.builder;
    let arguments = replay.arguments(node);
    let types: Vec<TensorType> = node
        .results
        .iter()
        .map(|result| replay.graph.ty(*result).clone())
        .collect();
    if let Some(result) = fold_uniform(builder, primitive, &arguments, &types) {
        return Ok(vec![result]);
    }
    let computed = compute(primitive, &arguments, &types, constants);
    if let (Primitive::Check(_), Some(Argument::Value(checked)), false) =
        (primitive, arguments.first(), computed.is_empty())
    {
        return Ok(vec![builder.value(*checked)]);
    }
    let results = match computed.iter().map(uniform).collect::<Option<Vec<_>>>() {
        Some(numbers) if !numbers.is_empty() && !matches!(primitive, Primitive::Full(_)) => types
            .into_iter()
            .zip(numbers)
            .map(|(ty, number)| builder.full(ty.dtype, ty.shape, number))
            .collect(),
        _ => builder.try_apply(
            primitive.clone(),
            with_uniform_as_numbers(builder, primitive, arguments),
        )?,
    };
    constants.extend(results.iter().copied().map(Value::id).zip(computed));
    Ok(results)
}

/// Folds a pointwise function or a view of uniform values to a `full`. Sizes may be symbolic.
fn fold_uniform<'g>(
    builder: &'g Builder,
    primitive: &Primitive,
    arguments: &[Argument],
    types: &[TensorType],
) -> Option<Value<'g>> {
    let [ty] = types else { return None };
    let number = match primitive {
        Primitive::Reshape(_)
        | Primitive::Permute(_)
        | Primitive::Expand(_)
        | Primitive::Slice(_)
        | Primitive::Unfold(_) => splat(builder, one_value(arguments)?)?,
        Primitive::Unary(_)
        | Primitive::Cast(_)
        | Primitive::Binary(_)
        | Primitive::Select(_)
        | Primitive::Check(_) => Argument::Number(pointwise(builder, primitive, arguments)?),
        _ => return None,
    };
    let full = Full {
        dtype: ty.dtype,
        shape: ty.shape.clone(),
    };
    Some(builder.apply(full, vec![number]))
}

/// The only argument, if it is a value.
fn one_value(arguments: &[Argument]) -> Option<ValueId> {
    match arguments {
        [Argument::Value(id)] => Some(*id),
        _ => None,
    }
}

/// The number to which a pointwise primitive folds; `None` if an argument is neither a number nor a `full` of one.
fn pointwise(builder: &Builder, primitive: &Primitive, arguments: &[Argument]) -> Option<Scalar> {
    let element = |id: ValueId| match splat(builder, id)? {
        Argument::Number(number) => scalar_tensor(builder.ty(id).dtype, number),
        _ => None,
    };
    let known = |argument: &Argument| match argument {
        Argument::Value(id) => element(*id).is_some(),
        Argument::Number(_) => true,
        _ => false,
    };
    if !arguments.iter().all(known) {
        return None;
    }
    let results = evaluate(primitive, arguments, &element).ok()?;
    uniform(results.first()?)
}

/// Scalar tensor that holds one element of a `full`.
fn scalar_tensor(dtype: DType, number: Scalar) -> Option<Tensor> {
    if dtype.is_float() {
        Tensor::from_f64(dtype, [], vec![number.to_f64()]).ok()
    } else {
        Tensor::from_i64(dtype, [], vec![number.to_i64()]).ok()
    }
}

/// Results of a node whose operands are known and small; otherwise empty.
fn compute(
    primitive: &Primitive,
    arguments: &[Argument],
    types: &[TensorType],
    constants: &HashMap<ValueId, Tensor>,
) -> Vec<Tensor> {
    let is_small = |ty: &TensorType| {
        ty.numel()
            .as_const()
            .is_some_and(|numel| numel <= LARGEST_FOLDED)
    };
    let is_known = |id: ValueId| constants.contains_key(&id);
    if !types.iter().all(is_small) || !arguments.iter().flat_map(Argument::values).all(is_known) {
        return Vec::new();
    }
    // Failures, such as an index out of range, are left for the run of the graph to report.
    evaluate(primitive, arguments, &|id| constants.get(&id).cloned()).unwrap_or_default()
}

/// Replaces uniform operands of pointwise arithmetic by numbers, as long as one operand stays a value.
fn with_uniform_as_numbers(
    builder: &Builder,
    primitive: &Primitive,
    arguments: Vec<Argument>,
) -> Vec<Argument> {
    let first = match primitive {
        Primitive::Binary(_) => 0,
        Primitive::Select(_) => 1,
        _ => return arguments,
    };
    let numbers: Vec<Argument> = arguments
        .iter()
        .enumerate()
        .map(|(index, argument)| match argument {
            Argument::Value(id) if first <= index => {
                splat(builder, *id).unwrap_or_else(|| argument.clone())
            }
            _ => argument.clone(),
        })
        .collect();
    let has_value = numbers
        .iter()
        .skip(first)
        .any(|argument| matches!(argument, Argument::Value(_)));
    if has_value { numbers } else { arguments }
}
