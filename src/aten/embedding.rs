//! Sums, means and extremes of the embeddings in a bag.

use super::advanced::index_put;
use super::bounds_checks::{self as check, NegativeIndices};
use super::index::rows_of;
use super::norm::vector_norm;
use super::scatter::scatter_reduce;
use super::{Args, Composite, detach, operator};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::embedding_renorm(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor",
        ],
        |a| {
            let (x, indices) = (a.tensor("self"), a.tensor("indices").flatten(0, -1));
            let indices = check::checked_index(x, 0, indices, NegativeIndices::Rejected);
            let norm = vector_norm(x.to_compute(), a.float("norm_type"), &[1], true)?;
            let unused = a.builder().full(DType::Bool, vec![x.size(0)], false);
            let all_true = a.builder().full(DType::Bool, indices.shape(), true);
            let is_used = index_put(unused, &[Some(indices)], all_true, false)?.unsqueeze(1);
            let limit = a.float("max_norm");
            // The small number keeps rounding from leaving a scaled row above the limit.
            let scaled = (x * (norm + 1e-7).rdiv(limit)).to(x.dtype());
            Ok(is_used.logical_and(norm.gt(limit)).where_(scaled, x))
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

/// The reduced embedding of each bag, then the results that PyTorch keeps for the backward pass: the bag of each index
/// and, twice, the sizes of the bags. PyTorch's fourth result, the indices of the maxima, is not computed.
fn embedding_bag<'g>(a: &Args<'g>) -> Result<Vec<Value<'g>>> {
    let (weight, indices, offsets) = (a.tensor("weight"), a.tensor("indices"), a.tensor("offsets"));
    let [_, width] = weight.sizes()?;
    let message = "index {value} of a bag is not in the valid range [0, {size})";
    let indices = indices.flatten(0, -1);
    let indices =
        check::checked_index_with_message(weight, 0, indices, NegativeIndices::Rejected, message);
    let bag_count = if a.bool("include_last_offset") {
        &offsets.numel() - 1
    } else {
        offsets.numel()
    };
    let starts = offsets.narrow(0, 0, bag_count.clone());
    let position = a
        .builder()
        .iota(DType::I64, vec![indices.numel(), Dim::ONE], 0);
    let bag_of_index = starts.unsqueeze(0).le(position).sum(&[1], false) - 1;
    let is_counted = match a.optional_int("padding_idx") {
        Some(padding_index) if padding_index >= 0 || a.overload() == "padding_idx" => {
            let rows = weight.size(0);
            let padding_index = if padding_index < 0 {
                &rows + padding_index
            } else {
                Dim::from(padding_index)
            };
            indices.ne(&padding_index)
        }
        _ => a.builder().full(DType::Bool, indices.shape(), true),
    };
    // Padding goes into an extra bag, which is dropped.
    let slot = is_counted.where_(bag_of_index, &bag_count);
    let rows = match a.has("scale_grad_by_freq") && a.bool("scale_grad_by_freq") {
        // The gradient of each row is divided by how often it is chosen.
        true => {
            let no_padding = Scalar::Int(-1).into();
            let scales = Scalar::Bool(true).into();
            let arguments = vec![weight.into(), indices.into(), no_padding, scales];
            operator("aten.embedding")?.call_one(a.builder(), arguments)?
        }
        false => rows_of(weight, indices),
    };
    let rows = rows.to_compute();
    let rows = match a.optional_tensor("per_sample_weights") {
        Some(weights) => rows * weights.flatten(0, -1).to(rows.dtype()).unsqueeze(1),
        None => rows,
    };
    let slot_count = &bag_count + 1;
    let reduce = match a.int("mode") {
        0 => "sum",
        1 => "mean",
        2 => "amax",
        mode => return a.reject(format!("mode = {mode}")),
    };
    let zeros = a
        .builder()
        .full(rows.dtype(), vec![slot_count.clone(), width], 0);
    let slot_of_element = slot.unsqueeze(1).expand(rows.shape());
    let reduced = scatter_reduce(zeros, 0, slot_of_element, rows, reduce, false)?;
    let reduced = match reduce {
        "amax" => first_of_equals(reduced, slot_of_element, rows)?,
        _ => reduced,
    };
    let sizes = a.builder().full(DType::I64, vec![slot_count], 0);
    let ones = a.builder().full(DType::I64, slot.shape(), 1);
    let sizes = scatter_reduce(sizes, 0, slot, ones, "sum", true)?.narrow(0, 0, bag_count.clone());
    let result = reduced.narrow(0, 0, bag_count).to(weight.dtype());
    Ok(vec![result, bag_of_index, sizes, sizes])
}

/// The largest element of each bag, as the first row that has it: this one gets the gradient.
fn first_of_equals<'g>(
    largest: Value<'g>,
    bag_of_element: Value<'g>,
    rows: Value<'g>,
) -> Result<Value<'g>> {
    let count = rows.size(0);
    let position = rows.positions(0).expand(rows.shape());
    let is_largest = rows.eq(largest.gather(0, bag_of_element));
    let position = is_largest.where_(position, &count);
    let none = rows.builder().full(DType::I64, largest.shape(), &count);
    let first = scatter_reduce(none, 0, bag_of_element, position, "amin", true)?;
    let chosen = rows.gather(0, first.minimum(&count - 1));
    // Of an empty bag, or of one with not-a-number, no row is chosen.
    Ok(first.lt(&count).where_(chosen, detach(largest)?))
}
