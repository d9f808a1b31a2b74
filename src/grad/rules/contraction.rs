//! Gradients of matrix products and convolutions.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::aten::{conv_filter_gradient, conv_input_gradient};
use crate::error::Result;
use crate::ir::{Op, Value};
use crate::op::{Conv, Permute, Primitive};

/// Gradients of the factors of a matrix product. That of a transposed factor is a transposition itself, and both cancel: a
/// product computes the gradient of a linear layer's weight as it is stored.
pub(super) fn dot<'g>(node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let (left, right, gradient) = (node.operand(0)?, node.operand(1)?, node.gradient(0)?);
    let transposed = |value: Value<'g>| value.transpose(-1, -2);
    let of_left = node.wants(0).then(|| match is_transposition(left) {
        true => transposed(right.dot(transposed(gradient))),
        false => gradient.dot(transposed(right)),
    });
    let of_right = node.wants(1).then(|| match is_transposition(right) {
        true => transposed(transposed(gradient).dot(left)),
        false => transposed(left).dot(gradient),
    });
    Ok(vec![of_left, of_right])
}

/// True for a view that exchanges the last two axes.
fn is_transposition(value: Value) -> bool {
    let Some(node) = value.builder().node_of(value.id()) else {
        return false;
    };
    let Op::Primitive(Primitive::Permute(Permute { axes })) = &node.op else {
        return false;
    };
    let Some((others, [last, next_to_last])) = axes.split_last_chunk::<2>() else {
        return false;
    };
    let keeps_others = others.iter().copied().eq(0..others.len());
    keeps_others && last > next_to_last
}

pub(super) fn conv<'g>(conv: &Conv, node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let (input, filter, gradient) = (node.operand(0)?, node.operand(1)?, node.gradient(0)?);
    let of_input = match node.wants(0) {
        true => Some(conv_input_gradient(conv, gradient, input, filter)?),
        false => None,
    };
    let of_filter = match node.wants(1) {
        true => Some(conv_filter_gradient(conv, gradient, input, filter)?),
        false => None,
    };
    Ok(vec![of_input, of_filter])
}
