use crate::aten;
use crate::dim::{Bindings, Dim};
use crate::error::Result;
use crate::interp;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Graph, Node, Op, Region, Value, ValueId};
use crate::op::Primitive;
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::constant::{evaluate, inline_taken_branch, known_number_in, uniform};

/// Largest number of elements of a value that this pass computes.
const LARGEST_FOLDED: i64 = 4096;

/// Folds operators on uniform values if their results are uniform too, and replaces conditions that are known by the taken
/// branch. Unlike `fold`, it keeps calls as calls.
pub fn specialize(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| {
            if let Op::Region(region) = &node.op
                && let Region::If { then, otherwise } = &**region
            {
                return match inline_taken_branch(replay, node, then, otherwise)? {
                    Some(results) => Ok(results),
                    None => replay.copy(node),
                };
            }
            match fold_to_fulls(replay, node) {
                Some(results) => Ok(results),
                None => replay.copy(node),
            }
        })
    })
}

/// The results of a node as `full`s, if all are uniform.
fn fold_to_fulls<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> Option<Vec<Value<'g>>> {
    let types: Vec<&TensorType> = node.results.iter().map(|id| replay.graph.ty(*id)).collect();
    if !types.iter().all(|ty| is_small(ty)) {
        return None;
    }
    let builder = replay.builder;
    let arguments = replay.arguments(node);
    let operand = |id: ValueId| {
        let ty = builder.ty(id);
        let number = known_number_in(builder, &Argument::Value(id))?;
        let shape = is_small(&ty).then(|| ty.sizes(&Bindings::new()))?.ok()?;
        let numel = shape.iter().product();
        match ty.dtype.is_float() {
            true => Tensor::from_f64(ty.dtype, shape, vec![number.to_f64(); numel]).ok(),
            false => Tensor::from_i64(ty.dtype, shape, vec![number.to_i64(); numel]).ok(),
        }
    };
    let results = match &node.op {
        Op::Primitive(Primitive::Full(_) | Primitive::Custom(_)) | Op::Region(_) => return None,
        Op::Primitive(primitive) => evaluate(primitive, &arguments, &operand).ok()?,
        Op::Call(name) => call_operator(name, &arguments, &operand)?,
    };
    let numbers: Option<Vec<_>> = results.iter().map(uniform).collect();
    let pairs = types.into_iter().zip(numbers?);
    let full = |(ty, number): (&TensorType, _)| builder.full(ty.dtype, ty.shape.clone(), number);
    Some(pairs.map(full).collect())
}

/// True if a value of this type is small enough to compute.
fn is_small(ty: &TensorType) -> bool {
    let numel = ty.numel().as_const();
    numel.is_some_and(|numel| numel <= LARGEST_FOLDED)
}

/// Computes a call of an operator; `None` if an operand is unknown or the operator fails. `operand` returns the tensor
/// of a value.
fn call_operator(
    name: &str,
    arguments: &[Argument],
    operand: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Option<Vec<Tensor>> {
    let mut values: Vec<ValueId> = arguments.iter().flat_map(Argument::values).collect();
    values.sort();
    values.dedup();
    let tensors: Vec<Tensor> = values
        .iter()
        .map(|id| operand(*id))
        .collect::<Option<_>>()?;
    let renumbered = arguments.iter().map(|argument| {
        let mut tensor_index =
            |id: ValueId| ValueId::from(values.binary_search(&id).unwrap_or(usize::MAX));
        argument.map(&mut tensor_index, &mut Dim::clone)
    });
    let arguments: Vec<Argument> = renumbered.collect();
    interp::call(
        aten::operator(name).ok()?,
        &arguments,
        &tensors,
        &Bindings::new(),
    )
    .ok()
}
