//! Losses of two tensors of one shape. Half precision is rounded after every step, as in PyTorch.

use std::f64::consts::PI;

use super::distance::pairwise_distance;
use super::{Args, CallGradient, Composite, operator};
use crate::error::Result;
use crate::ir::Value;

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &["aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"],
        |a| elementwise(a, |_, x, y| Ok((x - y).abs())),
        &["f32[B, 3], f32[B, 3]", "f16[3], f16[3], 0"],
    ),
    Composite::elementwise(
        &["aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"],
        |a| elementwise(a, |_, x, y| Ok((x - y).pow(2))),
        &["f32[B, 3], f32[B, 3]", "f16[3], f16[3], 2"],
    ),
    Composite::elementwise(
        &[
            "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.0) -> Tensor",
        ],
        |a| elementwise(a, |a, x, y| Ok(smooth_l1((x - y).abs(), a.float("beta")))),
        &[
            "f32[B, 3], f32[B, 3]",
            "f32[3], f32[3], 0, 0.5",
            "f32[3], f32[3], 1, 0.0",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.0) -> Tensor",
        ],
        |a| elementwise(a, |a, x, y| Ok(huber(x, y, a.float("delta")))),
        &["f32[B, 3], f32[B, 3]", "f32[3], f32[3], 0, 0.5"],
    ),
    Composite::elementwise(
        &[
            "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor",
        ],
        binary_cross_entropy,
        &["f32[B, 3], f32[B, 3]", "f32[3], f32[3], f32[3], 2"],
    )
    .with_gradient(binary_cross_entropy_gradient),
    Composite::elementwise(
        &[
            "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
        ],
        binary_cross_entropy_with_logits,
        &[
            "f32[B, 3], f32[B, 3]",
            "f32[3], f32[3], f32[3], f32[3], 0",
            "f32[3], f16[3], f32[3], f64[3], 0",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor",
        ],
        |a| elementwise(a, divergence),
        &["f32[B, 3], f32[B, 3]", "f32[3], f32[3], 2, log_target=True"],
    ),
    Composite::elementwise(
        &[
            "aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
        ],
        poisson_nll,
        &[
            "f32[B, 3], f32[B, 3], True, False, 1e-08, 1",
            "f32[3], f32[3], False, True, 1e-08, 0",
        ],
    ),
    Composite::elementwise(
        &["aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"],
        |a| elementwise(a, |_, x, y| Ok((-(y * x)).exp().log1p())),
        &["f32[B, 3], f32[B, 3]"],
    ),
    Composite::elementwise(
        &[
            "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor",
        ],
        margin_ranking,
        &[
            "f32[B, 3], f32[B, 3], f32[B, 3]",
            "f32[3], f32[3], f32[3], 0.5, 0",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=1) -> Tensor",
        ],
        hinge_embedding,
        &["f32[B, 3], f32[B, 3]", "f32[3], f32[3], 0.5, 2"],
    ),
    Composite::elementwise(
        &[
            "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor",
        ],
        cosine_embedding,
        &[
            "f32[B, 3], f32[B, 3], f32[B]",
            "f32[3], f32[3], f32[], 0.5, 0",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, int reduction=1) -> Tensor",
        ],
        triplet_margin,
        &[
            "f32[B, 3], f32[B, 3], f32[B, 3]",
            "f32[2, 3], f32[2, 3], f32[2, 3], 0.5, 1.0, 1e-06, True, 0",
        ],
    ),
];

/// Applies the call's reduction: 0 keeps all elements, 1 takes their mean, 2 their sum.
pub(super) fn reduce<'g>(a: &Args<'g>, loss: Value<'g>) -> Result<Value<'g>> {
    match a.int("reduction") {
        0 => Ok(loss),
        1 => Ok(loss.mean(&[], false)),
        2 => Ok(loss.sum(&[], false)),
        other => a.reject(format!("reduction = {other}")),
    }
}

/// A loss of each element of `self` and `target`, reduced.
fn elementwise<'g>(
    a: &Args<'g>,
    loss: fn(&Args<'g>, Value<'g>, Value<'g>) -> Result<Value<'g>>,
) -> Result<Value<'g>> {
    reduce(a, loss(a, a.tensor("self"), a.tensor("target"))?)
}

/// Smooth L1 loss of a distance: quadratic below `beta`, linear above.
fn smooth_l1(distance: Value, beta: f64) -> Value {
    if beta == 0.0 {
        return distance;
    }
    let quadratic = distance * distance * 0.5 / beta;
    distance.lt(beta).where_(quadratic, distance - 0.5 * beta)
}

/// Huber loss: quadratic up to the distance `delta`, linear above. Rounds half precision once.
fn huber<'g>(x: Value<'g>, target: Value<'g>, delta: f64) -> Value<'g> {
    let difference = x.to_compute() - target.to_compute();
    let distance = difference.abs();
    let linear = (distance - 0.5 * delta) * delta;
    let loss = distance.le(delta).where_(distance * distance * 0.5, linear);
    loss.to(x.dtype().promote(target.dtype()))
}

/// Multiplies a loss by the argument `weight`, if given, and reduces it.
fn weighted<'g>(a: &Args<'g>, loss: Value<'g>) -> Result<Value<'g>> {
    // PyTorch multiplies in place, so the weight's dtype does not take part in promotion.
    let loss = match a.optional_tensor("weight") {
        Some(weight) => (loss * weight).to(loss.dtype()),
        None => loss,
    };
    reduce(a, loss)
}

/// Binary cross entropy of probabilities. Clamps logarithms to at least -100, so that the loss stays finite
/// (`aten/src/ATen/native/Loss.cpp`).
fn binary_cross_entropy<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, target) = (a.tensor("self"), a.tensor("target"));
    weighted(a, element_cross_entropy(x, target))
}

fn element_cross_entropy<'g>(x: Value<'g>, target: Value<'g>) -> Value<'g> {
    let (log_x, log_not_x) = (x.log().maximum(-100.0), (-x).log1p().maximum(-100.0));
    (target - 1.0) * log_not_x - target * log_x
}

/// Gradients of [`binary_cross_entropy`] by PyTorch's `binary_cross_entropy_backward`, whose denominator is at least 1e-12.
fn binary_cross_entropy_gradient<'g>(
    call: &CallGradient<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, gradient) = (call.args(), call.gradient(0)?);
    let (x, target) = (a.tensor("self"), a.tensor("target"));
    let elements = match a.int("reduction") {
        1 => gradient / x.numel(),
        _ => gradient,
    };
    let weighted = match a.optional_tensor("weight") {
        Some(weight) => (elements * weight).to(x.dtype()),
        None => elements,
    };
    let of_x = weighted * (x - target) / ((1.0 - x) * x).maximum(1e-12);
    let of_target = weighted * ((1.0 - x).log() - x.log());
    let mut gradients = vec![("self", of_x), ("target", of_target.to(target.dtype()))];
    if let Some(weight) = a.optional_tensor("weight") {
        let of_weight = (elements * element_cross_entropy(x, target)).sum_to(&weight.shape());
        gradients.push(("weight", of_weight.to(weight.dtype())));
    }
    Ok(gradients)
}

fn binary_cross_entropy_with_logits<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, target) = (a.tensor("self"), a.tensor("target"));
    let log = operator("aten.log_sigmoid")?.call_one(a.builder(), vec![x.into()])?;
    let log = match a.optional_tensor("pos_weight") {
        Some(weight) => log * ((weight - 1.0) * target + 1.0),
        None => log,
    };
    weighted(a, ((1.0 - target) * x - log).to(target.dtype()))
}

/// Kullback-Leibler divergence of a target from log-probabilities `x`. With `log_target`, the target has
/// log-probabilities, too.
fn divergence<'g>(a: &Args<'g>, x: Value<'g>, target: Value<'g>) -> Result<Value<'g>> {
    if a.bool("log_target") {
        return Ok(target.exp() * (target - x));
    }
    let xlogy = operator("aten.xlogy.Tensor")?;
    let terms = xlogy.call_one(a.builder(), vec![target.into(), target.into()])?;
    Ok(terms - target * x)
}

/// Negative log-likelihood of a Poisson distribution, without the logarithm of the target's factorial. With `full`,
/// adds the terms of Stirling's formula for that logarithm, for targets above 1.
fn poisson_nll<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, target) = (a.tensor("input"), a.tensor("target"));
    let mut loss = if a.bool("log_input") {
        x.exp() - target * x
    } else {
        x - target * (x + a.float("eps")).log()
    };
    if a.bool("full") {
        let stirling = target * target.log() - target + (target * (2.0 * PI)).log() * 0.5;
        loss = loss + target.le(1.0).where_(0.0, stirling);
    }
    reduce(a, loss)
}

/// Penalises pairs that differ by less than a margin in the direction that the target, 1 or -1, gives.
fn margin_ranking<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let [x, y, target] = ["input1", "input2", "target"].map(|name| a.tensor(name));
    let loss = (-target * (x - y) + a.float("margin")).maximum(0);
    reduce(a, loss)
}

/// Elements of target 1 are their own loss; those of target -1 lose the amount by which the margin exceeds them.
fn hinge_embedding<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, target) = (a.tensor("self"), a.tensor("target"));
    let shortfall = (a.float("margin") - x).maximum(0);
    let loss = target.eq(1).where_(0, shortfall) + target.eq(-1).where_(0, x);
    reduce(a, loss)
}

/// Penalises vectors of target 1 that differ in direction, and vectors of target -1 whose cosine exceeds a margin.
fn cosine_embedding<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    const EPSILON: f64 = 1e-12;
    let [x, y, target] = ["input1", "input2", "target"].map(|name| a.tensor(name));
    let dim = &[target.rank() as i64];
    let squared_norm = |x: Value<'g>| (x * x).sum(dim, false) + EPSILON;
    let cosine = (x * y).sum(dim, false) / (squared_norm(x) * squared_norm(y)).sqrt();
    let excess = (cosine - a.float("margin")).maximum(0);
    let loss = target.eq(1).where_(1.0 - cosine, 0) + target.eq(-1).where_(excess, 0);
    reduce(a, loss)
}

/// Penalises anchors that are not nearer to the positive than to the negative by a margin. With `swap`, the negative's
/// distance is the smaller of those to the anchor and to the positive.
fn triplet_margin<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let [anchor, positive, negative] =
        ["anchor", "positive", "negative"].map(|name| a.tensor(name));
    let distance = |x, y| pairwise_distance(x, y, a.float("p"), a.float("eps"), false);
    let (positive_distance, mut negative_distance) =
        (distance(anchor, positive)?, distance(anchor, negative)?);
    if a.bool("swap") {
        negative_distance = negative_distance.minimum(distance(positive, negative)?);
    }
    reduce(
        a,
        (positive_distance - negative_distance + a.float("margin")).maximum(0),
    )
}
