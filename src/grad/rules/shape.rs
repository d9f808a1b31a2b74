//! Gradients of primitives that move elements.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{Concat, Pad, Permute, ScatterFunction, Slice, Unfold};
use crate::shape::Shape;

/// Largest window whose positions are added one by one.
const MAX_ADDED_POSITIONS: i64 = 16;

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
    Ok(vec![Some(pad_axis(spread, axis, start, rest))])
}

/// Inserts zeros between the elements of an axis, so that neighbours are `step` apart. The axis has elements.
fn spread(x: Value, axis: i64, step: i64) -> Value {
    if step == 1 {
        return x;
    }
    let size = x.size(axis);
    let column = x.unsqueeze(axis + 1);
    let padded = pad_axis(column, axis + 1, Dim::ZERO, Dim::from(step - 1));
    let flat = padded.flatten(axis, axis + 1);
    flat.narrow(axis, 0, (size - 1) * step + 1)
}

/// Adds zeros at both ends of an axis.
fn pad_axis(x: Value, axis: i64, low: Dim, high: Dim) -> Value {
    let on_axis = |size: Dim| -> Shape {
        let axes = 0..x.rank() as i64;
        axes.map(|other| {
            if other == axis {
                size.clone()
            } else {
                Dim::ZERO
            }
        })
        .collect()
    };
    x.pad(&on_axis(low), &on_axis(high), 0.0)
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
    let are_adjacent = unfold.stride == unfold.size && unfold.dilation == 1;
    let sum = match unfold.size <= MAX_ADDED_POSITIONS {
        _ if are_adjacent => adjacent_windows(unfold, x, gradient),
        true => sum_of_positions(unfold, x, gradient),
        false => scattered_windows(unfold, x, gradient),
    };
    Ok(vec![Some(sum)])
}

/// Joins windows that follow each other without overlap or gap.
fn adjacent_windows<'g>(unfold: &Unfold, x: Value<'g>, gradient: Value<'g>) -> Value<'g> {
    let axis = unfold.axis as i64;
    let joined = gradient.move_axis(-1, axis + 1).flatten(axis, axis + 1);
    let rest = x.size(axis) - joined.size(axis);
    pad_axis(joined, axis, Dim::ZERO, rest)
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
        pad_axis(spread(elements, axis, unfold.stride), axis, start, rest)
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
