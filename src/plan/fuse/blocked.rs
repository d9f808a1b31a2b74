//! Blocked scans, scatters and matrix products: long loops of one invocation become several shorter ones. Mesa's
//! rasteriser (22.3, not 25.0) ends loops silently after 65,535 iterations of an invocation, counted over all of its
//! loops.
//!
//! The blocks of a scan are scanned in parallel, and the total of all earlier blocks is combined with each element of a
//! block. A scatter processes its indices in chunks, one after the other. A product with a large K is the sum of
//! products with smaller ones.

use crate::dim::Dim;
use crate::ir::rewrite::Replay;
use crate::ir::{Graph, Node, Op, Primitive, Value};
use crate::op::{Scan, ScanFunction, Scatter, ScatterFunction};
use crate::plan::cost::example_size;

/// Longest row that is scanned as a whole.
const MAX_SCAN_LENGTH: usize = 4096;
/// Elements of a block.
const SCAN_BLOCK: i64 = 1024;
/// Largest number of indices that one scatter processes.
const MAX_SCATTER_INDICES: i64 = 1 << 14;

/// Largest K of a product that is not split, and K of the products that replace it: short sums are more exact.
const MAX_K: i64 = 1 << 15;
const SPLIT_K: i64 = 1 << 12;

/// A loop that is split.
#[derive(Clone, Copy, Debug)]
pub enum BlockedLoop {
    /// A scan, split into blocks.
    Scan { axis: i64, running: ScanFunction },
    /// A scatter of `count` indices, split into chunks.
    Scatter {
        axis: i64,
        count: i64,
        function: ScatterFunction,
    },
    /// A product whose K is `count`, split into products with smaller K.
    Matmul { count: i64 },
}

impl BlockedLoop {
    /// The split of a node; `None` if the node is not split.
    pub fn of(graph: &Graph, node: &Node) -> Option<BlockedLoop> {
        let operands = node.operands();
        match (&node.op, operands.as_slice()) {
            (Op::Primitive(Primitive::Scan(Scan { function, axis })), [x]) => {
                let is_long = example_size(graph, graph.ty(*x).shape.get(*axis)?) > MAX_SCAN_LENGTH;
                let (axis, running) = (*axis as i64, *function);
                is_long.then_some(BlockedLoop::Scan { axis, running })
            }
            (Op::Primitive(Primitive::Scatter(scatter)), [_, indices, _]) => {
                let Scatter { function, axis } = *scatter;
                let count = graph.ty(*indices).shape.get(axis)?.as_const()?;
                (count > MAX_SCATTER_INDICES).then_some(BlockedLoop::Scatter {
                    axis: axis as i64,
                    count,
                    function,
                })
            }
            (Op::Primitive(Primitive::Dot(_)), [a, _]) => {
                let count = graph.ty(*a).shape.last()?.as_const()?;
                (count > MAX_K).then_some(BlockedLoop::Matmul { count })
            }
            _ => None,
        }
    }

    /// Builds the split computation and returns the node's result.
    pub fn split<'g>(self, replay: &mut Replay<'_, 'g>, node: &Node) -> Vec<Value<'g>> {
        let operands = node.operands().into_iter().map(|id| replay.value(id));
        let operands: Vec<Value> = operands.collect();
        match (self, operands.as_slice()) {
            (BlockedLoop::Scan { axis, running }, [x]) => vec![blocked_scan(*x, axis, running)],
            (
                BlockedLoop::Scatter {
                    axis,
                    count,
                    function,
                },
                [x, indices, source],
            ) => {
                let starts = (0..count).step_by(MAX_SCATTER_INDICES as usize);
                let scattered = starts.fold(*x, |x, start| {
                    let length = (count - start).min(MAX_SCATTER_INDICES);
                    let chunk = |value: &Value<'g>| value.narrow(axis, start, length);
                    x.scatter(axis, chunk(indices), chunk(source), function)
                });
                vec![scattered]
            }
            (BlockedLoop::Matmul { count }, [a, b]) => vec![matmul_over_k_parts([*a, *b], count)],
            _ => Vec::new(),
        }
    }
}

/// A matrix product as the sum of products over parts of K.
fn matmul_over_k_parts<'g>(factors: [Value<'g>; 2], count: i64) -> Value<'g> {
    let [a, b] = factors.map(Value::to_compute);
    let starts = (0..count).step_by(SPLIT_K as usize);
    let products = starts.map(|start| {
        let length = (count - start).min(SPLIT_K);
        a.narrow(-1, start, length).dot(b.narrow(-2, start, length))
    });
    let sum = products.reduce(|sum, product| sum + product);
    sum.unwrap_or(a).to(factors[0].dtype())
}

/// A scan as the scans of blocks and a scan of the blocks' totals.
fn blocked_scan<'g>(original: Value<'g>, axis: i64, running: ScanFunction) -> Value<'g> {
    let x = original.to_compute();
    let (size, length) = (x.size(axis), Dim::from(SCAN_BLOCK));
    let count = size.ceil_div(&length);
    let scanned_blocks = into_blocks(x, axis, [&count, &length]).scan(running, axis + 1);
    let totals = scanned_blocks
        .select(axis + 1, SCAN_BLOCK - 1)
        .scan(running, axis);
    // No block precedes the first.
    let (first, others) = (scanned_blocks.narrow(axis, 0, 1), &count - 1);
    let rest = scanned_blocks.narrow(axis, 1, others.clone());
    let preceding = totals.narrow(axis, 0, others).unsqueeze(axis + 1);
    let preceding = preceding.expand(rest.shape());
    let rest = match running {
        ScanFunction::Sum => preceding + rest,
        ScanFunction::Prod => preceding * rest,
        ScanFunction::Max => preceding.maximum(rest),
        ScanFunction::Min => preceding.minimum(rest),
        ScanFunction::LogSumExp => {
            let pair = x.builder().stack(&[preceding, rest], 0);
            pair.scan(running, 0).select(0, 1)
        }
    };
    let joined = x.builder().concat(&[first, rest], axis);
    let joined = joined.flatten(axis, axis + 1).narrow(axis, 0, size);
    joined.to(original.dtype())
}

/// Splits an axis into an axis of blocks and one within them, with zero padding after the last element.
fn into_blocks<'g>(x: Value<'g>, axis: i64, [count, length]: [&Dim; 2]) -> Value<'g> {
    let (mut shape, axis) = (x.shape(), axis as usize);
    let before = vec![Dim::ZERO; shape.len()];
    let mut after = before.clone();
    after[axis] = &(count * length) - &shape[axis];
    shape.splice(axis..=axis, [count.clone(), length.clone()]);
    x.pad(&before, &after, 0).reshape(shape)
}
