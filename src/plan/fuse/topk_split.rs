//! Top-k split: the top k of a long row are the top k of the candidates from its parts, which are searched in parallel.
//! For a large k, rows are sorted as a whole.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::rewrite::Replay;
use crate::ir::{Graph, Node, Op, Primitive, Value};
use crate::op::Sort;
use crate::plan::cost::example_size;
use crate::plan::sort::MAX_K;

/// Longest row that is searched without a split.
const MAX_UNSPLIT_LENGTH: usize = 64;
/// Number of rows and parts that keeps a device busy.
const BUSY_PARTS: usize = 4096;
/// Longest row of the example, if the length is symbolic, that is not sorted: see [`super::blocked`] on loops that end
/// silently.
const MAX_SYMBOLIC_LENGTH: usize = 4096;
/// Longest part, for the same reason.
const MAX_PART_LENGTH: usize = 1 << 15;

/// Method of finding the top k, other than a search of each whole row.
#[derive(Clone, Copy, Debug)]
pub enum TopKSplit {
    /// By sorting.
    Sorted,
    /// From the top k of each of `parts` parts of `length` elements, and the remainder.
    Parts { parts: i64, length: i64 },
}

impl TopKSplit {
    /// The method for a node; `None` if whole rows are searched, and for a full sort.
    pub fn of(graph: &Graph, node: &Node) -> Option<TopKSplit> {
        let (sort, k) = topk_of(node)?;
        let shape = &graph.ty(*node.operands().first()?).shape;
        let size = shape.get(sort.axis)?;
        let length = example_size(graph, size);
        if k > MAX_K || size.as_const().is_none() && length > MAX_SYMBOLIC_LENGTH {
            return Some(TopKSplit::Sorted);
        }
        let rows = example_size(graph, &Dim::product(shape)) / length.max(1);
        let parts = part_count([rows.max(1), length, k]);
        (size.as_const().is_some() && parts > 1).then(|| TopKSplit::Parts {
            parts: parts as i64,
            length: (length / parts) as i64,
        })
    }

    /// Builds the computation and returns the node's results.
    pub fn select<'g>(self, replay: &mut Replay<'_, 'g>, node: &Node) -> Vec<Value<'g>> {
        let (Some((sort, k)), [x]) = (topk_of(node), &*node.operands()) else {
            return Vec::new();
        };
        let (x, axis) = (replay.value(*x), sort.axis as i64);
        let (values, indices) = match self {
            TopKSplit::Sorted => {
                let (values, indices) = x.sort(axis, sort.descending);
                let first = |value: Value<'g>| value.narrow(axis, 0, k);
                (first(values), first(indices))
            }
            TopKSplit::Parts { parts, length } => {
                let (candidates, candidate_indices) = candidates(x, sort, k, [parts, length]);
                let (values, positions) = candidates.topk(k, axis, sort.descending);
                (values, candidate_indices.gather(axis, positions))
            }
        };
        vec![values, indices]
    }
}

/// The sort and its k, if the node selects the top k of each row.
fn topk_of(node: &Node) -> Option<(&Sort, usize)> {
    match &node.op {
        Op::Primitive(Primitive::Sort(sort)) => Some((sort, sort.k?)),
        _ => None,
    }
}

/// Number of parts of a row that minimises the search for the top `k`: it makes the number of candidates equal the
/// length of a part. It is limited so that all parts of all rows keep the device busy, and no part is too long for one
/// loop.
fn part_count([rows, length, k]: [usize; 3]) -> usize {
    if length <= MAX_UNSPLIT_LENGTH {
        return 1;
    }
    let wanted = (length / k.max(1)).isqrt().min(BUSY_PARTS / rows);
    wanted.max(length.div_ceil(MAX_PART_LENGTH))
}

/// Candidates and their indices in the row: the top k of each of `parts` parts of `length` elements, and the remainder.
/// Equal elements are in the order of their indices.
fn candidates<'g>(
    x: Value<'g>,
    sort: &Sort,
    k: usize,
    [parts, length]: [i64; 2],
) -> (Value<'g>, Value<'g>) {
    let (builder, axis, mut shape) = (x.builder(), sort.axis, x.shape());
    let (dim, split_length) = (axis as i64, parts * length);
    let rest = &shape[axis] - &Dim::from(split_length);
    shape.splice(axis..=axis, [Dim::from(parts), Dim::from(length)]);
    let in_parts = x.narrow(dim, 0, split_length).reshape(shape);
    let (values, indices) = in_parts.topk(k, dim + 1, sort.descending);
    let starts = builder.iota(DType::I64, indices.shape(), axis) * length;
    let join = |topk: Value<'g>, remainder: Value<'g>| {
        let topk = topk.flatten(dim, dim + 1);
        if rest.is(0) {
            return topk;
        }
        builder.concat(&[topk, remainder], dim)
    };
    let remainder = x.narrow(dim, split_length, rest.clone());
    let remainder_indices = builder.iota(DType::I64, remainder.shape(), axis) + split_length;
    (
        join(values, remainder),
        join(indices + starts, remainder_indices),
    )
}
