//! Gradients of primitives that take positions from indices. PyTorch's formulas are in
//! `torch/csrc/autograd/FunctionsManual.cpp` (`scatter_reduce_backward`, `value_selecting_reduction_backward`).

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::error::Result;
use crate::ir::Value;
use crate::op::{Gather, Scatter, ScatterFunction, Sort};

pub(super) fn gather<'g>(
    gather: &Gather,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let (x, index, gradient) = (node.operand(0)?, node.operand(1)?, node.gradient(0)?);
    Ok(vec![Some(placed(x, gather.axis, index, gradient))])
}

pub(super) fn sort<'g>(sort: &Sort, node: &NodeGradient<'_, 'g>) -> Result<ArgumentGradients<'g>> {
    let (x, index, gradient) = (node.operand(0)?, node.result(1)?, node.gradient(0)?);
    Ok(vec![Some(placed(x, sort.axis, index, gradient))])
}

/// Zeros in the shape of `x`, to which the elements of `gradient` are added at `index`.
fn placed<'g>(x: Value<'g>, axis: usize, index: Value<'g>, gradient: Value<'g>) -> Value<'g> {
    let zeros = x.builder().full(x.dtype(), x.shape(), 0.0);
    zeros.scatter(axis as i64, index, gradient, ScatterFunction::Add)
}

pub(super) fn scatter<'g>(
    scatter: &Scatter,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let [x, index, source] = [node.operand(0)?, node.operand(1)?, node.operand(2)?];
    let (result, gradient) = (node.result(0)?, node.gradient(0)?);
    let axis = scatter.axis as i64;
    let taken = |value: Value<'g>| value.gather(axis, index);
    let put = |value: Value<'g>, function| {
        let zeros = x.builder().full(x.dtype(), x.shape(), 0.0);
        zeros.scatter(axis, index, value, function)
    };
    let (of_x, of_source) = match scatter.function {
        ScatterFunction::Set => {
            let zeros = x.builder().full(x.dtype(), index.shape(), 0.0);
            let kept = gradient.scatter(axis, index, zeros, ScatterFunction::Set);
            (kept, taken(gradient))
        }
        ScatterFunction::Add => (gradient, taken(gradient)),
        ScatterFunction::Mul => {
            let factor = taken(gradient * result);
            (gradient * result / x, factor / source)
        }
        // Equal extreme elements share the gradient.
        ScatterFunction::Max | ScatterFunction::Min => {
            let is_extreme = x.eq(result).to(x.dtype());
            let is_source_extreme = source.eq(taken(result)).to(x.dtype());
            let count = is_extreme + put(is_source_extreme, ScatterFunction::Add);
            let share = gradient / count;
            (is_extreme * share, is_source_extreme * taken(share))
        }
    };
    Ok(vec![Some(of_x), None, Some(of_source)])
}
