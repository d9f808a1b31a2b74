//! Gradients of matrix products and convolutions.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::aten::{conv_filter_gradient, conv_input_gradient};
use crate::error::Result;
use crate::op::Conv;

pub(super) fn dot<'g>(node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let (left, right, gradient) = (node.operand(0)?, node.operand(1)?, node.gradient(0)?);
    let of_left = node.wants(0).then(|| gradient.dot(right.transpose(-1, -2)));
    let of_right = node.wants(1).then(|| left.transpose(-1, -2).dot(gradient));
    Ok(vec![of_left, of_right])
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
