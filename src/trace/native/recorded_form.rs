//! The operators that `torch.jit.trace` records in place of others.

use crate::aten::{self, Operator};
use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, Value};
use crate::scalar::Scalar;

/// Adds the nodes of a call to a graph. A conversion of the element type is the primitive `cast`, as in imported graphs,
/// and no node if nothing changes. Every other call is one node.
pub(super) fn add_call<'g>(
    operator: &'static Operator,
    builder: &'g Builder,
    arguments: Vec<Argument>,
) -> Result<Vec<Value<'g>>> {
    match operator.schema.name.as_str() {
        "to" | "_to_copy" | "type_as" => operator.expand(builder, &arguments),
        _ => operator.call(builder, arguments),
    }
}

/// The operator that PyTorch records for a functional convolution (`aten::conv2d`) of an input with `rank` axes, with its
/// arguments: `aten::_convolution`, or `aten::_convolution_mode` if the padding is a word. `None` for every other call.
pub(super) fn recorded_convolution(
    operator: &Operator,
    arguments: &[Argument],
    rank: usize,
) -> Result<Option<(&'static Operator, Vec<Argument>)>> {
    let Some((axes, transposed)) = convolution(&operator.schema.name) else {
        return Ok(None);
    };
    if rank != axes + 2 {
        return Ok(None);
    }
    let given = |name: &str| {
        let position = operator.schema.position(name);
        let found = position.and_then(|position| arguments.get(position));
        let missing = || Error::internal(format!("{} has no argument {name}", operator.name));
        found.cloned().ok_or_else(missing)
    };
    let per_axis = |name: &str| given(name).map(|argument| repeated(argument, axes));
    let (input, weight, bias) = (given("input")?, given("weight")?, given("bias")?);
    let (stride, dilation, groups) = (per_axis("stride")?, per_axis("dilation")?, given("groups")?);
    let padding = per_axis("padding")?;
    if let Argument::Str(_) = padding {
        let arguments = vec![input, weight, bias, stride, padding, dilation, groups];
        return Ok(Some((aten::operator("aten._convolution_mode")?, arguments)));
    }
    let output_padding = match transposed {
        true => per_axis("output_padding")?,
        false => Argument::List(vec![Scalar::Int(0).into(); axes]),
    };
    let flag = |on| Argument::Number(Scalar::Bool(on));
    let mut arguments = vec![input, weight, bias, stride, padding, dilation];
    arguments.extend([flag(transposed), output_padding, groups]);
    // PyTorch's backends: benchmark, deterministic, cudnn_enabled, allow_tf32.
    arguments.extend([false, false, true, true].map(flag));
    Ok(Some((aten::operator("aten._convolution")?, arguments)))
}

/// The number of spatial axes of a functional convolution, and whether it is transposed.
fn convolution(name: &str) -> Option<(usize, bool)> {
    match name {
        "conv1d" => Some((1, false)),
        "conv2d" => Some((2, false)),
        "conv3d" => Some((3, false)),
        "conv_transpose1d" => Some((1, true)),
        "conv_transpose2d" => Some((2, true)),
        "conv_transpose3d" => Some((3, true)),
        _ => None,
    }
}

/// A list of one element, repeated for all axes. Other arguments stay as they are.
fn repeated(argument: Argument, axes: usize) -> Argument {
    match argument {
        Argument::List(items) if items.len() == 1 => {
            let items = items.into_iter().cycle().take(axes);
            Argument::List(items.collect())
        }
        other => other,
    }
}
