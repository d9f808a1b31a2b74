//! Products with few elements, each the sum of many terms: they are too little work for a GPU's many cores until each sum is
//! split into parts, which are computed as products of their own and added up by a second kernel, in a fixed order. And
//! reductions, running combinations, scatters and the choice of the first of rows, which are cut likewise. And convolutions
//! around whose inputs zeros are written first, so that what positions see need not be looked at for each step.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::rewrite::{Replay, everywhere, replay};
use crate::ir::{Graph, Node, Op, Primitive, Value};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::Choices;
use crate::op::{Conv, ConvAxis};
use crate::pass::plan::fuse::cut::Cut;
use crate::pass::plan::fuse::selection::Selection;
use crate::pass::plan::fuse::walk::Walk;
use crate::pass::plan::variant::{self, Rewriting};
use crate::shape::Shape;

/// What is written otherwise.
enum Split {
    Reduction(Cut),
    Walk(Walk),
    Selection(Selection),
    /// A product or a convolution.
    Product(Rewriting),
}

impl Split {
    /// How a node is written; none if it stays.
    fn of(
        graph: &Graph,
        capabilities: &Capabilities,
        node: &Node,
        given: &Choices,
    ) -> Result<Option<Split>> {
        let cut = || Cut::of(graph, capabilities, node).map(Split::Reduction);
        let walk = || Walk::of(graph, node).map(Split::Walk);
        let selection = || Selection::of(graph, node).map(Split::Selection);
        let rewriting = || {
            let found = variant::rewriting(graph, capabilities, node, given)?;
            Ok(found.map(Split::Product))
        };
        match cut().or_else(walk).or_else(selection) {
            None => rewriting(),
            split => Ok(split),
        }
    }

    fn write<'g>(self, replay: &mut Replay<'_, 'g>, node: &Node) -> Result<Vec<Value<'g>>> {
        Ok(match (self, &node.op) {
            (Split::Reduction(cut), _) => cut.reduce(replay, node),
            (Split::Walk(walk), _) => walk.cut(replay, node),
            (Split::Selection(selection), _) => selection.select(replay, node),
            (Split::Product(Rewriting::Parts(parts)), Op::Primitive(Primitive::Dot(_))) => {
                product(replay, node, parts)
            }
            (Split::Product(Rewriting::Parts(parts)), Op::Primitive(Primitive::Conv(conv))) => {
                convolution(replay, node, conv, parts)
            }
            (Split::Product(Rewriting::Padding), Op::Primitive(Primitive::Conv(conv))) => {
                padded(replay, node, conv)
            }
            (Split::Product(_), _) => return replay.copy(node),
        })
    }
}

/// Writes the products in question as sums of several products, and what goes through long rows as several that go through parts.
pub fn split(graph: &Graph, capabilities: &Capabilities, given: &Choices) -> Result<Graph> {
    everywhere(graph, &mut |graph| {
        let split = |node: &Node| Split::of(graph, capabilities, node, given);
        let splits: Vec<Option<Split>> = graph.nodes.iter().map(split).collect::<Result<_>>()?;
        if splits.iter().all(Option::is_none) {
            return Ok(graph.clone());
        }
        let mut splits = splits.into_iter();
        replay(graph, |replay, node| match splits.next().flatten() {
            Some(split) => split.write(replay, node),
            None => replay.copy(node),
        })
    })
}

fn operands<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> Vec<Value<'g>> {
    let operands = node.operands().into_iter();
    operands.map(|id| replay.value(id)).collect()
}

/// The operands in single precision, in which parts are kept, and the dtype that they have.
fn singles<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> (Vec<Value<'g>>, DType) {
    let values = operands(replay, node);
    let dtype = values.first().map_or(DType::F32, |value| value.dtype());
    let single = values.into_iter().map(|value| value.to(DType::F32));
    (single.collect(), dtype)
}

/// A contraction: what is in front gets an axis of parts.
fn product<'g>(replay: &mut Replay<'_, 'g>, node: &Node, parts: i64) -> Vec<Value<'g>> {
    let (operands, dtype) = singles(replay, node);
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
    let (operands, dtype) = singles(replay, node);
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

/// A convolution of an input with zeros around it.
fn padded<'g>(replay: &mut Replay<'_, 'g>, node: &Node, conv: &Conv) -> Vec<Value<'g>> {
    let operands = operands(replay, node);
    let [x, filter] = operands.as_slice() else {
        return Vec::new();
    };
    let zeros = |side: fn(&ConvAxis) -> i64| {
        let along = conv.axes.iter().map(side).map(Dim::from);
        [Dim::ZERO, Dim::ZERO].into_iter().chain(along)
    };
    let [low, high]: [Shape; 2] =
        [zeros(|axis| axis.low), zeros(|axis| axis.high)].map(Iterator::collect);
    let bare = |axis: &ConvAxis| ConvAxis {
        low: 0,
        high: 0,
        ..axis.clone()
    };
    let axes = conv.axes.iter().map(bare).collect();
    vec![x.pad(&low, &high, 0).conv(*filter, axes, conv.groups)]
}

/// An axis as one of parts and one within them.
fn cut(value: Value<'_>, axis: usize, parts: i64) -> Value<'_> {
    let mut shape: Shape = value.shape();
    let within = shape[axis].floor_div(&Dim::from(parts));
    shape.splice(axis..=axis, [Dim::from(parts), within]);
    value.reshape(shape)
}
