//! Sums, means and extremes of the embeddings in a bag.

use super::advanced::index_put;
use super::bounds_checks::{self as check, NegativeIndices};
use super::index::rows_of;
use super::norm::vector_norm;
use super::scatter::scatter_reduce;
use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::embedding_renorm(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor",
        ],
        |a| {
            let (x, indices) = (a.tensor("self"), a.tensor("indices").flatten(0, -1));
            let indices = check::checked_index(x, 0, indices, NegativeIndices::Rejected);
            let norm = vector_norm(x.to_compute(), a.float("norm_type"), &[1], true)?;
            let used = a.builder().full(DType::Bool, vec![x.size(0)], false);
            let yes = a.builder().full(DType::Bool, indices.shape(), true);
            let used = index_put(used, &[Some(indices)], yes, false)?.unsqueeze(1);
            let limit = a.float("max_norm");
            // The small number keeps rounding from leaving a scaled row above the limit.
            let scaled = (x * (norm + 1e-7).rdiv(limit)).to(x.dtype());
            Ok(used.logical_and(norm.gt(limit)).where_(scaled, x))
        },
        &["f32[10, 4], i64[3], 1.0, 2.0"],
    ),
    Composite::many(
        &[
            "aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)",
            "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
            "aten::_embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)",
            "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)",
        ],
        embedding_bag,
        &[
            "f32[10, 4], i64[6], i64[2]",
            "f32[10, 4], i64[6], i64[2], mode=1",
            "f32[10, 4], i64[6], i64[2], mode=2",
        ],
    ),
];

/// The embeddings of the bags, then the results that PyTorch keeps for the backward pass: the bag of each index and the
/// sizes of the bags.
fn embedding_bag<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let (weight, indices, offsets) = (a.tensor("weight"), a.tensor("indices"), a.tensor("offsets"));
    let [_, width] = weight.sizes()?;
    let message = "index {value} of a bag is not in the valid range [0, {size})";
    let indices = indices.flatten(0, -1);
    let indices =
        check::checked_index_with_message(weight, 0, indices, NegativeIndices::Rejected, message);
    let bags = if a.bool("include_last_offset") {
        &offsets.numel() - 1
    } else {
        offsets.numel()
    };
    let starts = offsets.narrow(0, 0, bags.clone());
    let place = a
        .builder()
        .iota(DType::I64, vec![indices.numel(), Dim::ONE], 0);
    let bag = starts.unsqueeze(0).le(place).sum(&[1], false) - 1;
    let counted = match a.optional_int("padding_idx") {
        Some(padding) if padding >= 0 || a.overload() == "padding_idx" => {
            let rows = weight.size(0);
            let padding = if padding < 0 {
                &rows + padding
            } else {
                Dim::from(padding)
            };
            indices.ne(&padding)
        }
        _ => a.builder().full(DType::Bool, indices.shape(), true),
    };
    // Padding goes into an extra bag, which is dropped.
    let slot = counted.where_(bag, &bags);
    let rows = rows_of(weight, indices).to_compute();
    let rows = match a.optional_tensor("per_sample_weights") {
        Some(weights) => rows * weights.flatten(0, -1).to(rows.dtype()).unsqueeze(1),
        None => rows,
    };
    let all_bags = &bags + 1;
    let reduce = match a.int("mode") {
        0 => "sum",
        1 => "mean",
        2 => "amax",
        mode => return a.reject(format!("mode = {mode}")),
    };
    let empty = a
        .builder()
        .full(rows.dtype(), vec![all_bags.clone(), width], 0);
    let wide = slot.unsqueeze(1).expand(rows.shape());
    let reduced = scatter_reduce(empty, 0, wide, rows, reduce, false)?;
    let sizes = a.builder().full(DType::I64, vec![all_bags], 0);
    let ones = a.builder().full(DType::I64, slot.shape(), 1);
    let sizes = scatter_reduce(sizes, 0, slot, ones, "sum", true)?.narrow(0, 0, bags.clone());
    let result = reduced.narrow(0, 0, bags).to(weight.dtype());
    Ok(vec![result, bag, sizes, sizes])
}
