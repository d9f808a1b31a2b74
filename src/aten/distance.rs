//! Distances and similarities of vectors. Norms of half precision compute in `f32`.

use super::norm::{Ties, norm_gradient, vector_norm};
use super::pointwise::{float_operands, round_to};
use super::positions::{above_diagonal, where_true};
use super::{Args, CallGradient, Composite};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::Value;
use crate::op::ScatterFunction;
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor",
        ],
        |a| {
            pairwise_distance(
                a.tensor("x1"),
                a.tensor("x2"),
                a.float("p"),
                a.float("eps"),
                a.bool("keepdim"),
            )
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
    )
    .with_gradient(all_pairs_gradient),
    Composite::one(
        &[
            "aten::pdist(Tensor self, float p=2.0) -> Tensor",
            "aten::_pdist_forward(Tensor self, float p=2.0) -> Tensor",
        ],
        pairwise_within,
        &["f32[4, 3]", "f32[4, 3], 1"],
    )
    .with_gradient(pairwise_within_gradient),
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

/// `‖x - y + eps‖` along the last axis.
pub(super) fn pairwise_distance<'g>(
    x: Value<'g>,
    y: Value<'g>,
    p: f64,
    eps: f64,
    keepdim: bool,
) -> Result<Value<'g>> {
    let difference = x - y + eps;
    let distance = vector_norm(difference.to_compute(), p, &[-1], keepdim)?;
    Ok(distance.to(difference.dtype()))
}

/// Distances between the rows of one matrix and the rows of another (`torch.cdist`).
fn all_pairs<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (dtype, [x, y]) = float_operands(a, ["x1", "x2"]);
    let p = order(a);
    let distances = if p == 2.0 && uses_products(a, [x, y]) {
        distances_by_products(x, y)
    } else {
        vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, &[-1], false)?
    };
    Ok(round_to(dtype, distances))
}

/// The order of the norm of the differences.
fn order(a: &Args) -> f64 {
    if a.has("p") { a.float("p") } else { 2.0 }
}

fn all_pairs_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let a = call.args();
    let (_, [x, y]) = float_operands(a, ["x1", "x2"]);
    let [distances, gradient] = [call.result(0)?, call.gradient(0)?].map(Value::to_compute);
    let (of_x, of_y) = if order(a) == 2.0 && uses_products(a, [x, y]) {
        let ratio = distances.eq(0.0).where_(0.0, gradient / distances);
        let part = |ratio: Value<'g>, x: Value<'g>, y| x * ratio.sum(&[-1], true) - ratio.matmul(y);
        (part(ratio, x, y), part(ratio.transpose(-2, -1), y, x))
    } else {
        let difference = x.unsqueeze(-2) - y.unsqueeze(-3);
        let [distances, gradient] = [distances, gradient].map(|value| value.unsqueeze(-1));
        let gradient = norm_gradient(difference, order(a), distances, gradient, Ties::Repeat);
        (gradient.sum(&[-2], false), -gradient.sum(&[-3], false))
    };
    Ok([call.operand("x1", of_x), call.operand("x2", of_y)].concat())
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
    let differences = x.unsqueeze(1) - x.unsqueeze(0);
    let distances = vector_norm(differences, a.float("p"), &[-1], false)?;
    let pair_distances = distances.flatten(0, -1).index_select(0, pairs(x)?);
    Ok(round_to(dtype, pair_distances))
}

/// The index of each pair of rows in the flattened matrix of all pairs.
fn pairs(x: Value<'_>) -> Result<Value<'_>> {
    let [rows, _] = x.sizes()?;
    let is_above = above_diagonal(x.builder(), &rows, &rows).gt(0);
    let count = (&rows * &(&rows - 1)).floor_div(&Dim::from(2));
    Ok(where_true(is_above.flatten(0, -1), count))
}

fn pairwise_within_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (_, [x]) = float_operands(call.args(), ["self"]);
    let [rows, _] = x.sizes()?;
    let pairs = pairs(x)?;
    let matrix = |of_pairs: Value<'g>| {
        let zeros = x.builder().full(of_pairs.dtype(), [&rows * &rows], 0.0);
        let all = zeros.scatter(0, pairs, of_pairs, ScatterFunction::Set);
        all.reshape([rows.clone(), rows.clone(), Dim::ONE])
    };
    let of_pairs = [call.result(0)?, call.gradient(0)?].map(Value::to_compute);
    let [distances, gradient] = of_pairs.map(matrix);
    let difference = x.unsqueeze(1) - x.unsqueeze(0);
    let order = call.args().float("p");
    let gradient = norm_gradient(difference, order, distances, gradient, Ties::Repeat);
    let sum = gradient.sum(&[1], false) - gradient.sum(&[0], false);
    Ok(call.operand("self", sum))
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
    let unit = |x: Value<'g>| -> Result<Value<'g>> {
        let x = x.expand(shape.clone());
        let norm = vector_norm(x.to_compute(), 2.0, &[dim], true)?;
        Ok(x / norm.to(x.dtype()).maximum(a.float("eps")))
    };
    Ok((unit(x)? * unit(y)?).sum(&[dim], false))
}
