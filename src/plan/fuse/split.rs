//! Splits nodes with too little parallelism. Products with few elements, each the sum of many terms, occupy too few
//! cores of a GPU: each sum is split into parts that are computed as separate products and added up by a second kernel,
//! in a fixed order. Reductions, scans, scatters and top-k selections are split likewise. Inputs of some convolutions
//! are padded with zeros first, so that kernels need no bounds tests per step.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Graph, Node, Op, Primitive, Value};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::VariantOverrides;
use crate::op::{Conv, ConvAxis};
use crate::plan::fuse::blocked::BlockedLoop;
use crate::plan::fuse::split_deviations::SplitDeviations;
use crate::plan::fuse::split_reduction::{PartialResults, SplitReduction};
use crate::plan::fuse::topk_split::TopKSplit;
use crate::plan::variant::rewrite::{PlanRewrite, plan_rewrite};
use crate::shape::Shape;

/// A rewrite of a node.
enum NodeSplit {
    /// A reduction.
    Reduction(SplitReduction),
    /// A sum of squared deviations.
    Deviations(SplitDeviations),
    /// A loop that runs in blocks.
    Blocked(BlockedLoop),
    /// A top-k.
    TopK(TopKSplit),
    /// A product or a convolution.
    Product(PlanRewrite),
}

impl NodeSplit {
    /// The rewrite of a node; `None` if the node stays.
    fn of(
        graph: &Graph,
        capabilities: &Capabilities,
        node: &Node,
        overrides: &VariantOverrides,
    ) -> Result<Option<NodeSplit>> {
        let deviations =
            || SplitDeviations::of(graph, capabilities, node).map(NodeSplit::Deviations);
        let reduction = || SplitReduction::of(graph, capabilities, node).map(NodeSplit::Reduction);
        let blocked = || BlockedLoop::of(graph, node).map(NodeSplit::Blocked);
        let topk = || TopKSplit::of(graph, node).map(NodeSplit::TopK);
        let product = || {
            let rewrite = plan_rewrite(graph, capabilities, node, overrides)?;
            Ok(rewrite.map(NodeSplit::Product))
        };
        match deviations()
            .or_else(reduction)
            .or_else(blocked)
            .or_else(topk)
        {
            None => product(),
            split => Ok(split),
        }
    }

    /// Builds the computation that replaces the node and returns the node's results.
    fn build<'g>(
        self,
        replay: &mut Replay<'_, 'g>,
        node: &Node,
        partial_results: &mut PartialResults,
    ) -> Result<Vec<Value<'g>>> {
        Ok(match (self, &node.op) {
            (NodeSplit::Reduction(reduction), _) => {
                let results = reduction.reduce(replay, node);
                partial_results.record(node, results)
            }
            (NodeSplit::Deviations(deviations), _) => {
                let results = deviations.reduce(replay, node, partial_results);
                partial_results.record(node, results)
            }
            (NodeSplit::Blocked(blocked), _) => blocked.split(replay, node),
            (NodeSplit::TopK(topk), _) => topk.select(replay, node),
            (NodeSplit::Product(PlanRewrite::Parts(parts)), Op::Primitive(Primitive::Dot(_))) => {
                split_product(replay, node, parts)
            }
            (
                NodeSplit::Product(PlanRewrite::Parts(parts)),
                Op::Primitive(Primitive::Conv(conv)),
            ) => split_convolution(replay, node, conv, parts),
            (NodeSplit::Product(PlanRewrite::Padding), Op::Primitive(Primitive::Conv(conv))) => {
                pad_convolution(replay, node, conv)
            }
            (NodeSplit::Product(_), _) => return replay.copy(node),
        })
    }
}

/// Replaces products by sums of several products, and loops over long rows by several loops over parts. `overrides` are
/// requested kernel variants.
pub fn split(
    graph: &Graph,
    capabilities: &Capabilities,
    overrides: &VariantOverrides,
) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        let split = |node: &Node| NodeSplit::of(graph, capabilities, node, overrides);
        let splits: Vec<Option<NodeSplit>> =
            graph.nodes.iter().map(split).collect::<Result<_>>()?;
        if splits.iter().all(Option::is_none) {
            return Ok(graph.clone());
        }
        let (mut splits, mut partial_results) = (splits.into_iter(), PartialResults::default());
        replay(graph, |replay, node| match splits.next().flatten() {
            Some(split) => split.build(replay, node, &mut partial_results),
            None => replay.copy(node),
        })
    })
}

/// Operands of a node in the rewritten graph.
fn operands<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> Vec<Value<'g>> {
    let operands = node.operands().into_iter();
    operands.map(|id| replay.value(id)).collect()
}

/// Operands in single precision, the precision of partial sums, and their original dtype.
fn in_single_precision<'g>(replay: &mut Replay<'_, 'g>, node: &Node) -> (Vec<Value<'g>>, DType) {
    let values = operands(replay, node);
    let dtype = values.first().map_or(DType::F32, |value| value.dtype());
    let single = values.into_iter().map(|value| value.to(DType::F32));
    (single.collect(), dtype)
}

/// A matrix product with an additional batch axis of parts.
fn split_product<'g>(replay: &mut Replay<'_, 'g>, node: &Node, parts: i64) -> Vec<Value<'g>> {
    let (operands, dtype) = in_single_precision(replay, node);
    let [a, b] = operands.as_slice() else {
        return Vec::new();
    };
    let batch_rank = a.rank() - 2;
    let a =
        split_axis(*a, batch_rank + 1, parts).move_axis(batch_rank as i64 + 1, batch_rank as i64);
    let b = split_axis(*b, batch_rank, parts);
    vec![a.dot(b).sum(&[batch_rank as i64], false).to(dtype)]
}

/// A convolution whose channels are split into additional groups, each of which computes all output channels.
fn split_convolution<'g>(
    replay: &mut Replay<'_, 'g>,
    node: &Node,
    conv: &Conv,
    parts: i64,
) -> Vec<Value<'g>> {
    let (operands, dtype) = in_single_precision(replay, node);
    let [x, filter] = operands.as_slice() else {
        return Vec::new();
    };
    let groups = conv.groups;
    // Axes: group, output channel, part, channel and taps. Parts move in front of output channels.
    let filter = split_axis(split_axis(*filter, 0, groups), 2, parts).move_axis(2, 1);
    let filter = filter.flatten(0, 2);
    let y = x.conv(filter, conv.axes.clone(), groups * parts);
    let y = split_axis(split_axis(y, 1, groups * parts), 1, groups);
    vec![y.sum(&[2], false).flatten(1, 2).to(dtype)]
}

/// A convolution whose input is padded with zeros explicitly.
fn pad_convolution<'g>(replay: &mut Replay<'_, 'g>, node: &Node, conv: &Conv) -> Vec<Value<'g>> {
    let operands = operands(replay, node);
    let [x, filter] = operands.as_slice() else {
        return Vec::new();
    };
    let padding = |side: fn(&ConvAxis) -> i64| {
        let spatial = conv.axes.iter().map(side).map(Dim::from);
        [Dim::ZERO, Dim::ZERO].into_iter().chain(spatial)
    };
    let [low, high]: [Shape; 2] =
        [padding(|axis| axis.low), padding(|axis| axis.high)].map(Iterator::collect);
    let unpadded = |axis: &ConvAxis| ConvAxis {
        low: 0,
        high: 0,
        ..axis.clone()
    };
    let axes = conv.axes.iter().map(unpadded).collect();
    vec![x.pad(&low, &high, 0).conv(*filter, axes, conv.groups)]
}

/// Splits an axis into an axis of parts and one within them.
fn split_axis(value: Value<'_>, axis: usize, parts: i64) -> Value<'_> {
    let mut shape: Shape = value.shape();
    let part_size = shape[axis].floor_div(&Dim::from(parts));
    shape.splice(axis..=axis, [Dim::from(parts), part_size]);
    value.reshape(shape)
}
