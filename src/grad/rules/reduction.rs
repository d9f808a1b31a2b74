//! Gradients of reductions.

use super::super::backward::{ArgumentGradients, NodeGradient};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{Permute, Reduce, ReduceFunction, ScanFunction};

pub(super) fn reduce<'g>(
    reduce: &Reduce,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    let x = node.operand(0)?;
    let restored = |reduced: Value<'g>| {
        let reduced = reduced.restore_axes(x.shape(), &reduce.axes);
        reduced.expand(x.shape())
    };
    let gradient = restored(node.gradient(0)?);
    let gradient = match reduce.function {
        ReduceFunction::Sum => gradient,
        ReduceFunction::Prod => gradient * product_of_others(x, &reduce.axes),
        // Equal extreme elements share the gradient.
        ReduceFunction::Max | ReduceFunction::Min => {
            let is_extreme = x.eq(restored(node.result(0)?)).to(x.dtype());
            let axes: Vec<i64> = reduce.axes.iter().map(|axis| *axis as i64).collect();
            gradient * is_extreme / is_extreme.sum(&axes, true)
        }
    };
    Ok(vec![Some(gradient)])
}

/// For each element, the product of the other elements along the axes. Exact if some are zero.
fn product_of_others<'g>(x: Value<'g>, axes: &[usize]) -> Value<'g> {
    let kept = (0..x.rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let sorted = x.permute(order.clone());
    let outer = sorted.shape();
    let (outer, inner) = outer.split_at(outer.len().saturating_sub(axes.len()));
    let rows = sorted.reshape([outer, &[Dim::product(inner)]].concat());
    let products = product_of_earlier(rows) * product_of_earlier(rows.flip(&[-1])).flip(&[-1]);
    let inverse = Permute { axes: order }.inverse();
    products.reshape(sorted.shape()).permute(inverse)
}

/// For each element of the last axis, the product of those before it.
fn product_of_earlier(rows: Value) -> Value {
    let count = rows.size(-1);
    let mut low = vec![Dim::ZERO; rows.rank()];
    if let Some(last) = low.last_mut() {
        *last = Dim::ONE;
    }
    let high = vec![Dim::ZERO; rows.rank()];
    let shifted = rows.pad(&low, &high, 1.0).narrow(-1, 0, count);
    shifted.scan(ScanFunction::Prod, -1)
}
