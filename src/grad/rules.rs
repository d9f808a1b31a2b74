//! A rule for each primitive: the gradients of its arguments from those of its results.

mod contraction;
mod custom;
mod indexing;
mod loops;
mod pointwise;
mod recurrent;
mod reduction;
mod region;
mod row_loop;
mod scan;
mod shape;

pub(super) use region::of_region;

use super::backward::{ArgumentGradients, NodeGradient};
use crate::error::Result;
use crate::op::Primitive;

/// Gradients of a primitive's arguments.
pub(super) fn of_primitive<'g>(
    primitive: &Primitive,
    node: &NodeGradient<'_, 'g>,
) -> Result<ArgumentGradients<'g>> {
    match primitive {
        Primitive::Full(_) | Primitive::Iota(_) | Primitive::ArgReduce(_) => Ok(Vec::new()),
        Primitive::Reshape(_) => shape::reshape(node),
        Primitive::Permute(permute) => shape::permute(permute, node),
        Primitive::Expand(_) => shape::expand(node),
        Primitive::Slice(slice) => shape::slice(slice, node),
        Primitive::Pad(pad) => shape::pad(pad, node),
        Primitive::Concat(concat) => shape::concat(concat, node),
        Primitive::Unfold(unfold) => shape::unfold(unfold, node),
        Primitive::Unary(unary) => pointwise::unary(unary.function, node),
        Primitive::Binary(binary) => pointwise::binary(binary.function, node),
        Primitive::Select(_) => pointwise::select(node),
        Primitive::Cast(_) => pointwise::cast(node),
        Primitive::OptimizationBarrier(_) => Ok(vec![Some(node.gradient(0)?)]),
        Primitive::Check(_) => Ok(vec![Some(node.gradient(0)?)]),
        Primitive::Reduce(reduce) => reduction::reduce(reduce, node),
        Primitive::Dot(_) => contraction::dot(node),
        Primitive::Conv(conv) => contraction::conv(conv, node),
        Primitive::Gather(gather) => indexing::gather(gather, node),
        Primitive::Scatter(scatter) => indexing::scatter(scatter, node),
        Primitive::Sort(sort) => indexing::sort(sort, node),
        Primitive::Scan(scan) => scan::scan(scan, node),
        Primitive::Recurrent(layer) => recurrent::recurrent(layer, node),
        Primitive::Custom(custom) => custom::custom(custom, node),
    }
}
