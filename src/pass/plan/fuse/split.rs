//! Products with few elements, each the sum of many terms: they are too little work for a GPU's many cores until each sum is
//! split into parts, which are computed as products of their own and added up by a second kernel, in a fixed order. And
//! reductions, running combinations and scatters, which are cut likewise.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::rewrite::{Replay, everywhere, replay};
use crate::ir::{Graph, Node, Op, Primitive, Value};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::Choices;
use crate::op::Conv;
use crate::pass::plan::fuse::cut::Cut;
use crate::pass::plan::fuse::walk::Walk;
use crate::pass::plan::variant;
use crate::shape::Shape;

/// Writes the products in question as sums of several products, and what goes through long rows as several that go through parts.
pub fn split(graph: &Graph, capabilities: &Capabilities, given: &Choices) -> Result<Graph> {
    everywhere(graph, &mut |graph| {
        let parts = |node: &Node| variant::parts(graph, capabilities, node, given);
        let parts: Vec<Option<i64>> = graph.nodes.iter().map(parts).collect::<Result<_>>()?;
        let cut = |node: &Node| Cut::of(graph, capabilities, node);
        let cuts: Vec<Option<Cut>> = graph.nodes.iter().map(cut).collect();
        let walks = graph.nodes.iter().map(|node| Walk::of(graph, node));
        let walks: Vec<Option<Walk>> = walks.collect();
        let is_whole = parts.iter().all(Option::is_none) && cuts.iter().all(Option::is_none);
        if is_whole && walks.iter().all(Option::is_none) {
            return Ok(graph.clone());
        }
        let mut parts = parts.into_iter().zip(cuts).zip(walks);
        replay(graph, |replay, node| {
            let ((parts, cut), walk) = parts.next().unwrap_or_default();
            if let Some(cut) = cut {
                return Ok(cut.reduce(replay, node));
            }
            if let Some(walk) = walk {
                return Ok(walk.cut(replay, node));
            }
            match (parts, &node.op) {
                (Some(parts), Op::Primitive(Primitive::Dot(_))) => Ok(product(replay, node, parts)),
                (Some(parts), Op::Primitive(Primitive::Conv(conv))) => {
                    Ok(convolution(replay, node, conv, parts))
                }
                _ => replay.copy(node),
            }
        })
    })
}

/// The operands in single precision, in which parts are kept, and the dtype that they have.
fn operands<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> (Vec<Value<'g>>, DType) {
    let values = node.operands().into_iter().map(|id| replay.value(id));
    let values: Vec<Value> = values.collect();
    let dtype = values.first().map_or(DType::F32, |value| value.dtype());
    let single = values.into_iter().map(|value| value.to(DType::F32));
    (single.collect(), dtype)
}

/// A contraction: what is in front gets an axis of parts.
fn product<'g>(replay: &mut Replay<'_, 'g>, node: &Node, parts: i64) -> Vec<Value<'g>> {
    let (operands, dtype) = operands(replay, node);
    let [a, b] = operands.as_slice() else {
        return Vec::new();
    };
    let outer = a.rank() - 2;
    let a = cut(*a, outer + 1, parts).move_axis(outer as i64 + 1, outer as i64);
    let b = cut(*b, outer, parts);
    vec![a.dot(b).sum(&[outer as i64], false).to(dtype)]
}

/// A convolution: the channels of each group become groups of their own, with all output channels each.
fn convolution<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    conv: &Conv,
    parts: i64,
) -> Vec<Value<'g>> {
    let (operands, dtype) = operands(replay, node);
    let [x, filter] = operands.as_slice() else {
        return Vec::new();
    };
    let groups = conv.groups;
    // Group, output channel, part, channel and taps: parts stand in front of output channels.
    let filter = cut(cut(*filter, 0, groups), 2, parts).move_axis(2, 1);
    let filter = filter.flatten(0, 2);
    let y = x.conv(filter, conv.axes.clone(), groups * parts);
    let y = cut(cut(y, 1, groups * parts), 1, groups);
    vec![y.sum(&[2], false).flatten(1, 2).to(dtype)]
}

/// An axis as one of parts and one within them.
fn cut(value: Value<'_>, axis: usize, parts: i64) -> Value<'_> {
    let mut shape: Shape = value.shape();
    let within = shape[axis].floor_div(&Dim::from(parts));
    shape.splice(axis..=axis, [Dim::from(parts), within]);
    value.reshape(shape)
}
