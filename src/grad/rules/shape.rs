//! Gradients of primitives that move elements.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{Concat, Pad, Permute, ScatterFunction, Slice, Unfold};

/// Largest number of parts of windows that are added one by one.
const MAX_ADDED_PARTS: i64 = 16;

pub(super) fn reshape<'g>(node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let shape = node.operand(0)?.shape();
    Ok(vec![Some(node.gradient(0)?.reshape(shape))])
}

pub(super) fn permute<'g>(
    permute: &Permute,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    Ok(vec![Some(node.gradient(0)?.permute(permute.inverse()))])
}

/// The sum over the axes that were repeated.
pub(super) fn expand<'g>(node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let shape = node.operand(0)?.shape();
    Ok(vec![Some(node.gradient(0)?.sum_to(&shape))])
}

/// Places the elements at the positions from which they were taken; the others are zero.
pub(super) fn slice<'g>(
    slice: &Slice,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let axis = slice.axis as i64;
    let size = node.operand(0)?.size(axis);
    let gradient = node.gradient(0)?;
    let step = slice.step.saturating_abs().max(1);
    let last = (&slice.length - 1) * step;
    let (gradient, start) = match slice.step < 0 {
        true => (gradient.flip(&[axis]), &slice.start - &last),
        false => (gradient, slice.start.clone()),
    };
    if slice.length.is(0) {
        let x = node.operand(0)?;
        return Ok(vec![Some(x.builder().full(x.dtype(), x.shape(), 0.0))]);
    }
    let spread = spread(gradient, axis, step);
    let rest = size - &start - last - 1;
    Ok(vec![Some(spread.pad_axis(axis, start, rest))])
}

/// Inserts zeros between the elements of an axis, so that neighbours are `step` apart. The axis has elements.
fn spread(x: Value, axis: i64, step: i64) -> Value {
    if step == 1 {
        return x;
    }
    let size = x.size(axis);
    let column = x.unsqueeze(axis + 1);
    let padded = column.pad_axis(axis + 1, 0, step - 1);
    let flat = padded.flatten(axis, axis + 1);
    flat.narrow(axis, 0, (size - 1) * step + 1)
}

pub(super) fn pad<'g>(pad: &Pad, node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let shape = node.operand(0)?.shape();
    let axes = (0i64..).zip(pad.low.iter().zip(shape));
    let gradient = axes.fold(node.gradient(0)?, |gradient, (axis, (low, size))| {
        gradient.narrow(axis, low.clone(), size)
    });
    Ok(vec![Some(gradient)])
}

pub(super) fn concat<'g>(
    concat: &Concat,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let (axis, gradient) = (concat.axis as i64, node.gradient(0)?);
    let mut start = Dim::ZERO;
    let mut gradients = Vec::new();
    for index in 0..node.node.arguments.len() {
        let size = node.operand(index)?.size(axis);
        let part = node
            .wants(index)
            .then(|| gradient.narrow(axis, start.clone(), size.clone()));
        gradients.push(part);
        start = start + size;
    }
    Ok(gradients)
}

/// Adds the elements of all windows to the positions from which they were taken.
pub(super) fn unfold<'g>(
    unfold: &Unfold,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let (x, gradient) = (node.operand(0)?, node.gradient(0)?);
    let parts = match unfold.dilation {
        1 => (unfold.size - 1) / unfold.stride + 1,
        _ => unfold.size,
    };
    let sum = match unfold.dilation {
        _ if parts > MAX_ADDED_PARTS => scattered_windows(unfold, x, gradient),
        1 => sum_of_window_parts(unfold, x, gradient),
        _ => sum_of_positions(unfold, x, gradient),
    };
    Ok(vec![Some(sum)])
}

/// Cuts the windows into parts as long as the stride, so that the same part of all windows, joined, covers the axis without
/// overlap. Returns the sum of the parts.
fn sum_of_window_parts<'g>(unfold: &Unfold, x: Value<'g>, gradient: Value<'g>) -> Value<'g> {
    let (axis, stride) = (unfold.axis as i64, unfold.stride);
    let extent = (gradient.size(axis) - 1) * stride;
    let part = |start: i64| {
        let length = stride.min(unfold.size - start);
        let elements = gradient.narrow(-1, start, length);
        let padded = elements.pad_axis(-1, 0, stride - length);
        let joined = padded.move_axis(-1, axis + 1).flatten(axis, axis + 1);
        let covered = &extent + length;
        let rest = x.size(axis) - start - &covered;
        joined.narrow(axis, 0, covered).pad_axis(axis, start, rest)
    };
    let starts = (stride..unfold.size).step_by(stride as usize);
    starts.fold(part(0), |sum, start| sum + part(start))
}

/// For each position in the windows, spreads its elements over the axis. Returns the sum.
fn sum_of_positions<'g>(unfold: &Unfold, x: Value<'g>, gradient: Value<'g>) -> Value<'g> {
    let axis = unfold.axis as i64;
    let size = x.size(axis);
    let windows = gradient.size(axis);
    let extent = (&windows - 1) * unfold.stride + 1;
    let part = |position: i64| {
        let elements = gradient.select(-1, position);
        let start = Dim::from(position * unfold.dilation);
        let rest = &size - &start - &extent;
        spread(elements, axis, unfold.stride).pad_axis(axis, start, rest)
    };
    (1..unfold.size).fold(part(0), |sum, position| sum + part(position))
}

fn scattered_windows<'g>(unfold: &Unfold, x: Value<'g>, gradient: Value<'g>) -> Value<'g> {
    let (axis, builder) = (unfold.axis as i64, x.builder());
    let flat = gradient.move_axis(-1, axis + 1).flatten(axis, axis + 1);
    let grid = vec![gradient.size(axis), Dim::from(unfold.size)];
    let index = |grid_axis, step: i64| builder.iota(DType::I64, grid.clone(), grid_axis) * step;
    let indices = index(0, unfold.stride) + index(1, unfold.dilation);
    let mut lined_up = vec![Dim::ONE; flat.rank()];
    if let Some(size) = lined_up.get_mut(unfold.axis) {
        *size = flat.size(axis);
    }
    let indices = indices.reshape(lined_up).expand(flat.shape());
    let zeros = builder.full(x.dtype(), x.shape(), 0.0);
    zeros.scatter(axis, indices, flat, ScatterFunction::Add)
}
