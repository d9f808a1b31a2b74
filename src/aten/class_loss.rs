//! Classification losses: scores for classes against target classes.

use super::bounds_checks::{self as check, NegativeIndices};
use super::loss::reduce;
use super::pointwise::round_to;
use super::softmax::log_softmax;
use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScanFunction;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100) -> Tensor",
            "aten::nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100) -> Tensor",
            "aten::nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100) -> Tensor",
        ],
        |a| Ok(negative_log_likelihood(a)?.loss),
        &[
            "f32[B, 3], i64[B]",
            "f32[2, 3, 4], i64[2, 4], f32[3], 2, 1",
            "nll_loss_nd: f32[3], i64[], None, 0",
        ],
    ),
    Composite::many(
        &[
            "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, Tensor)",
            "aten::nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, Tensor)",
        ],
        |a| {
            let nll = negative_log_likelihood(a)?;
            Ok(vec![nll.loss, nll.total_weight])
        },
        &["f32[B, 3], i64[B], None, 1, -100"],
    ),
    Composite::one(
        &[
            "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100, float label_smoothing=0.0) -> Tensor",
        ],
        cross_entropy,
        &[
            "f32[B, 3], i64[B]",
            "f32[2, 3, 4], f32[2, 3, 4], f32[3], 1, -100, 0.1",
            "f32[2, 3, 4], i64[2, 4], f32[3], 1, 1, 0.1",
        ],
    ),
    Composite::one(
        &[
            "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) -> Tensor",
        ],
        multi_margin,
        &["f32[B, 3], i64[B]", "f32[2, 3], i64[2], 2, 0.5, f32[3], 0"],
    ),
    Composite::one(
        &["aten::multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"],
        |a| Ok(multilabel_margin(a)?.0),
        &["f32[B, 3], i64[B, 3]"],
    ),
    Composite::many(
        &[
            "aten::multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor, Tensor)",
        ],
        |a| {
            let (loss, is_target) = multilabel_margin(a)?;
            Ok(vec![loss, is_target])
        },
        &["f32[B, 3], i64[B, 3], 1"],
    ),
];

/// The class axis: the second axis, or the only one of a vector.
fn class_axis(scores: Value) -> i64 {
    i64::from(scores.rank() > 1)
}

/// The target classes as `i64`. A vector of scores has one target, which may be given as a vector of one element.
fn target_classes<'g>(a: &Args<'g>, scores: Value<'g>) -> Value<'g> {
    let classes = a.tensor("target").to(DType::I64);
    if scores.rank() == 1 {
        classes.reshape(Vec::new())
    } else {
        classes
    }
}

/// Reshapes a number for each class so that it broadcasts against scores.
fn along_classes<'g>(numbers: Value<'g>, scores: Value<'g>) -> Value<'g> {
    let mut shape = vec![Dim::ONE; scores.rank()];
    if let Some(size) = shape.get_mut(class_axis(scores) as usize) {
        *size = numbers.numel();
    }
    numbers.to(scores.dtype()).reshape(shape)
}

/// Scores of the target classes. In `classes` and in the result, the class axis has size 1.
fn target_scores<'g>(scores: Value<'g>, classes: Value<'g>) -> Value<'g> {
    scores.gather(class_axis(scores), classes)
}

/// A negative log-likelihood loss and the weight that its mean is divided by.
struct NllLoss<'g> {
    loss: Value<'g>,
    /// Sum of the targets' weights; 0 if the losses of a batch are not reduced, as in PyTorch.
    total_weight: Value<'g>,
}

/// The loss of a call whose argument `self` has log-probabilities, in the dtype of that argument.
fn negative_log_likelihood<'g>(a: &Args<'g>) -> Result<NllLoss<'g>> {
    let scores = a.tensor("self");
    let nll = weighted_nll(a, scores.to_compute())?;
    Ok(NllLoss {
        loss: nll.loss.to(scores.dtype()),
        total_weight: nll.total_weight.to(scores.dtype()),
    })
}

/// Negative weighted scores of the target classes, reduced. Ignored targets count as zero, and the mean is weighted.
/// `scores` are log-probabilities in the compute dtype.
fn weighted_nll<'g>(a: &Args<'g>, scores: Value<'g>) -> Result<NllLoss<'g>> {
    let axis = class_axis(scores);
    let classes = target_classes(a, scores).unsqueeze(axis);
    let is_ignored = classes.eq(a.int("ignore_index"));
    let classes = is_ignored.where_(0, classes);
    let message = "Target {value} is out of bounds";
    let classes = check::checked_index_with_message(
        scores,
        axis,
        classes,
        NegativeIndices::Rejected,
        message,
    );
    let weight = match a.optional_tensor("weight") {
        Some(weight) => target_scores(
            along_classes(weight, scores).expand(scores.shape()),
            classes,
        ),
        None => a.builder().full(scores.dtype(), classes.shape(), 1.0),
    };
    let weight = is_ignored.where_(0.0, weight);
    let losses = is_ignored
        .where_(0.0, -(target_scores(scores, classes) * weight))
        .squeeze(&[axis]);
    let total_weight = match a.int("reduction") {
        0 if scores.rank() > 1 => a.builder().full(scores.dtype(), Vec::new(), 0.0),
        _ => weight.sum(&[], false),
    };
    let loss = match a.int("reduction") {
        1 => losses.sum(&[], false) / total_weight,
        _ => reduce(a, losses)?,
    };
    Ok(NllLoss { loss, total_weight })
}

/// Computes `torch.nn.functional.cross_entropy`. Targets are class indices, or probabilities of the shape of the
/// scores.
fn cross_entropy<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (scores, target) = (a.tensor("self"), a.tensor("target"));
    let (axis, smoothing) = (class_axis(scores), a.float("label_smoothing"));
    let log_probs = log_softmax(scores, axis).to_compute();
    let loss = if target.dtype().is_float() {
        require_shape_of_scores(a, target)?;
        cross_entropy_of_probabilities(a, log_probs, target.to(log_probs.dtype()))?
    } else if smoothing == 0.0 {
        weighted_nll(a, log_probs)?.loss
    } else {
        let smoothing_term = smoothing_loss(a, log_probs)? * smoothing / scores.size(axis);
        weighted_nll(a, log_probs)?.loss * (1.0 - smoothing) + smoothing_term
    };
    Ok(loss.to(scores.dtype()))
}

/// Requires target probabilities to have the shape of the scores.
fn require_shape_of_scores<'g>(a: &Args<'g>, target: Value<'g>) -> Result<()> {
    let (scores, target) = (a.tensor("self").ty(), target.ty());
    let complaint = || {
        let wanted = "classes as integers, or probabilities of the shape of the scores";
        format!("cross_entropy_loss wants {wanted}, got {target} for {scores}")
    };
    if scores.rank() != target.rank() {
        return Err(Error::operator(complaint()));
    }
    let mut pairs = scores.shape.iter().zip(&target.shape);
    let symbols = a.builder().symbols();
    pairs.try_for_each(|(wanted, found)| symbols.require_equal(wanted, found, complaint))
}

/// Cross entropy against target probabilities. The mean is over all axes except the class axis.
fn cross_entropy_of_probabilities<'g>(
    a: &Args<'g>,
    log_probs: Value<'g>,
    target: Value<'g>,
) -> Result<Value<'g>> {
    let (axis, smoothing) = (class_axis(log_probs), a.float("label_smoothing"));
    let mut target = target;
    if smoothing != 0.0 {
        let class_count = a
            .builder()
            .full(log_probs.dtype(), Vec::new(), log_probs.size(axis));
        target = target * (1.0 - smoothing) + class_count.rdiv(smoothing);
    }
    let mut terms = log_probs * target;
    if let Some(weight) = a.optional_tensor("weight") {
        terms = terms * along_classes(weight, log_probs);
    }
    let losses = -terms.sum(&[axis], false);
    reduce(a, losses)
}

/// The loss against a uniform distribution over the classes, times the number of classes.
fn smoothing_loss<'g>(a: &Args<'g>, log_probs: Value<'g>) -> Result<Value<'g>> {
    let axis = class_axis(log_probs);
    let classes = target_classes(a, log_probs).unsqueeze(axis);
    let is_ignored = classes.eq(a.int("ignore_index"));
    let weighted = match a.optional_tensor("weight") {
        Some(weight) => log_probs * along_classes(weight, log_probs),
        None => log_probs,
    };
    let losses = is_ignored
        .where_(0.0, -weighted.sum(&[axis], true))
        .squeeze(&[axis]);
    Ok(match a.int("reduction") {
        1 => losses.sum(&[], false) / weighted_nll(a, log_probs)?.total_weight,
        _ => reduce(a, losses)?,
    })
}

/// Positive numbers unchanged; all others, including not-a-number, become 0.
fn positive(x: Value) -> Value {
    x.gt(0.0).where_(x, 0.0)
}

/// Turns a vector or a scalar into a matrix of one row.
fn as_rows(x: Value) -> Value {
    if x.rank() < 2 {
        x.reshape(vec![Dim::ONE, x.numel()])
    } else {
        x
    }
}

/// Penalises other classes whose scores come within a margin of the target class's score. The excess is raised to the
/// power `p`; its sum is divided by the number of classes.
fn multi_margin<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let scores = a.tensor("self");
    let rows = as_rows(scores);
    let classes = a.tensor("target").reshape(vec![rows.size(0), Dim::ONE]);
    let compute_rows = rows.to_compute();
    let message = "target out of range: class {value} of {size}";
    let classes = check::checked_index_with_message(
        compute_rows,
        1,
        classes,
        NegativeIndices::Rejected,
        message,
    );
    let excess = positive(compute_rows - compute_rows.gather(1, classes) + a.float("margin"));
    let mut terms = match a.int("p") {
        1 => excess,
        _ => excess * excess,
    };
    if let Some(weight) = a.optional_tensor("weight") {
        let weight = weight.to_compute().unsqueeze(0).expand(rows.shape());
        terms = terms * weight.gather(1, classes);
    }
    let terms = compute_rows.positions(1).eq(classes).where_(0.0, terms);
    let losses = terms.sum(&[1], false) / compute_rows.size(1);
    let losses = if scores.rank() < 2 {
        losses.reshape(Vec::new())
    } else {
        losses
    };
    reduce(a, round_to(scores.dtype(), losses))
}

/// The loss, and a mask of the target classes in the dtype of the scores. A row of the target lists classes up to its
/// first negative number. Each pair of a target class and another class is penalised by the amount that the target's
/// score lacks to exceed the other's by 1.
fn multilabel_margin<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let (scores, target) = (a.tensor("self"), a.tensor("target"));
    let shape = target.shape();
    let (scores, target) = (as_rows(scores), as_rows(target));
    let is_listed = target
        .ge(0)
        .to(DType::I64)
        .scan(ScanFunction::Min, -1)
        .to_bool();
    let classes = is_listed.where_(target, 0);
    let message = "argument #2 'target' is out of range: class {value} of {size}";
    let classes =
        check::checked_index_with_message(scores, -1, classes, NegativeIndices::Rejected, message);
    let mentions = classes.unsqueeze(-1).eq(scores.positions(-1).unsqueeze(-2));
    let is_target = mentions
        .logical_and(is_listed.unsqueeze(-1))
        .any(&[-2], false);
    let compute_scores = scores.to_compute();
    let listed_scores = compute_scores.gather(-1, classes).unsqueeze(-1);
    let excess = positive(compute_scores.unsqueeze(-2) - listed_scores + 1.0);
    let is_penalized = is_listed
        .unsqueeze(-1)
        .logical_and(is_target.logical_not().unsqueeze(-2));
    let losses = is_penalized.where_(excess, 0.0).sum(&[-2, -1], false) / scores.size(-1);
    let batch_rank = shape.len().saturating_sub(1).min(1);
    let losses = losses.reshape(shape.iter().take(batch_rank).cloned().collect::<Vec<Dim>>());
    let loss = reduce(a, round_to(scores.dtype(), losses))?;
    Ok((loss, is_target.to(scores.dtype()).reshape(shape)))
}
