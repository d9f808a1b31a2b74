//! Distances and similarities of vectors. Norms of half precision compute in `f32`.

use super::pointwise::{float_operands, round_to};
use super::positions::{above_diagonal, where_true};
use super::{Args, Composite};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::Value;
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor",
        ],
        |a| {
            Ok(pairwise_distance(
                a.tensor("x1"),
                a.tensor("x2"),
                a.float("p"),
                a.float("eps"),
                a.bool("keepdim"),
            ))
        },
        &[
            "f32[B, 3], f32[B, 3]",
            "f32[2, 3], f32[3], 1, 1e-06, True",
            "f16[3], f16[3], 5",
        ],
    ),
    Composite::one(
        &[
            "aten::cdist(Tensor x1, Tensor x2, float p=2.0, int? compute_mode=None) -> Tensor",
            "aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor",
        ],
        all_pairs,
        &[
            "f32[B, 2, 3], f32[4, 3]",
            "f32[2, 3], f32[4, 3], 1.5",
            "f32[2, 3], f32[4, 3], inf",
            "f32[2, 3], f32[4, 3], 2, 1",
            "f32[B, 2, 3], f32[40, 3]",
            "f32[2, 3], f32[40, 3], 2, 2",
            "_euclidean_dist: f32[2, 3], f32[4, 3]",
        ],
    ),
    Composite::one(
        &[
            "aten::pdist(Tensor self, float p=2.0) -> Tensor",
            "aten::_pdist_forward(Tensor self, float p=2.0) -> Tensor",
        ],
        pairwise_within,
        &["f32[4, 3]", "f32[4, 3], 1"],
    ),
    Composite::one(
        &["aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor"],
        cosine_similarity,
        &[
            "f32[B, 3], f32[B, 3]",
            "f16[2, 3], f16[3], -1",
            "f32[3], f64[], 0",
        ],
    ),
];

/// The norm of order `p` of the vectors along an axis, in the compute type.
fn norm<'g>(x: Value<'g>, p: f64, dim: i64, keepdim: bool) -> Value<'g> {
    let x = x.to_compute();
    let magnitude = x.abs();
    let sum = |x: Value<'g>| x.sum(&[dim], keepdim);
    if p == 0.0 {
        sum(magnitude.ne(0.0).to(x.dtype()))
    } else if p == 1.0 {
        sum(magnitude)
    } else if p == 2.0 {
        sum(x * x).sqrt()
    } else if p == f64::INFINITY {
        magnitude.amax(&[dim], keepdim)
    } else if p == f64::NEG_INFINITY {
        magnitude.amin(&[dim], keepdim)
    } else {
        sum(magnitude.pow(p)).pow(1.0 / p)
    }
}

/// `‖x - y + eps‖` along the last axis.
pub(super) fn pairwise_distance<'g>(
    x: Value<'g>,
    y: Value<'g>,
    p: f64,
    eps: f64,
    keepdim: bool,
) -> Value<'g> {
    let difference = x - y + eps;
    norm(difference, p, -1, keepdim).to(difference.dtype())
}

/// Distances between the rows of one matrix and the rows of another (`torch.cdist`).
fn all_pairs<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, y]) = float_operands(a, ["x1", "x2"]);
    let p = if a.has("p") { a.float("p") } else { 2.0 };
    let distances = if p == 2.0 && uses_products(a, [x, y]) {
        distances_by_products(x, y)
    } else {
        norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1, false)
    };
    Ok(round_to(dtype, distances))
}

/// PyTorch uses products for matrices with more rows than this, unless `compute_mode` says otherwise.
const PRODUCT_MIN_ROWS: i64 = 25;

/// Whether distances are computed by products, by the rule of PyTorch's `Distance.cpp` for `compute_mode`: 1 always, 2
/// never, otherwise by the number of rows. The example answers for a symbolic number of rows; no guard records the
/// answer, since both methods work for any number.
fn uses_products<'g>(a: &Args<'g>, operands: [Value<'g>; 2]) -> bool {
    let mode = match a.has("p") {
        true => a.optional_scalar("compute_mode").map_or(0, Scalar::to_i64),
        false => 1,
    };
    let rows = |value: &Value<'g>| a.builder().symbols().hint(&value.size(-2)).unwrap_or(0);
    match mode {
        0 => operands.iter().any(|value| rows(value) > PRODUCT_MIN_ROWS),
        mode => mode == 1,
    }
}

/// `√max(‖x‖² + ‖y‖² - 2 x yᵀ, 0)`. Loses most significant digits for vectors that nearly agree.
fn distances_by_products<'g>(x: Value<'g>, y: Value<'g>) -> Value<'g> {
    let squared_norm = |x: Value<'g>| (x * x).sum(&[-1], true);
    let products = (x * -2.0).matmul(y.transpose(-2, -1));
    let squared_distances = products + squared_norm(x) + squared_norm(y).transpose(-2, -1);
    squared_distances.maximum(0.0).sqrt()
}

/// Distances between the rows of a matrix, each pair once (`torch.pdist`).
fn pairwise_within<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x]) = float_operands(a, ["self"]);
    let [rows, _] = x.sizes()?;
    let distances = norm(x.unsqueeze(1) - x.unsqueeze(0), a.float("p"), -1, false);
    let is_above = above_diagonal(a.builder(), &rows, &rows)
        .gt(0)
        .flatten(0, -1);
    let pair_count = (&rows * &(&rows - 1)).floor_div(&Dim::from(2));
    let pair_distances = distances
        .flatten(0, -1)
        .index_select(0, where_true(is_above, pair_count));
    Ok(round_to(dtype, pair_distances))
}

/// Computes `torch.cosine_similarity`. Norms are clamped to at least `eps`.
fn cosine_similarity<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    // Tensors without dimensions take part in promotion like others here.
    let [x, y] = [a.tensor("x1"), a.tensor("x2")];
    let dtype = x.dtype().promote(y.dtype()).to_float();
    let [x, y] = [x.to(dtype), y.to(dtype)];
    let shape = a
        .builder()
        .symbols()
        .broadcast_shapes(&[x.shape(), y.shape()])?;
    let dim = a.int("dim");
    let unit = |x: Value<'g>| {
        let x = x.expand(shape.clone());
        x / norm(x, 2.0, dim, true)
            .to(x.dtype())
            .maximum(a.float("eps"))
    };
    Ok((unit(x) * unit(y)).sum(&[dim], false))
}
