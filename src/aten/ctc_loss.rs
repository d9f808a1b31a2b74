//! Connectionist temporal classification (Graves et al. 2006): the likelihood of a label sequence, summed over all its
//! alignments with the frames of a longer sequence.

use super::bounds_checks::{self as check, NegativeIndices};
use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};
use crate::op::ScanFunction;
use crate::scalar::Scalar;

pub(super) const ROWS: &[Composite] = &[Composite::one(
    &[
        "aten::ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, int reduction=1, bool zero_infinity=False) -> Tensor",
        "aten::ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, int reduction=1, bool zero_infinity=False) -> Tensor",
    ],
    ctc_loss,
    &[
        "f32[5, 2, 4], i64[2, 2], [5, 4], [2, 1]",
        "f32[5, 2, 4], i64[3], [5, 4], [2, 1], 3, 2, True",
        "f32[5, 4], i64[2], [5], [2], 0, 0",
        "Tensor: f32[5, 2, 4], i64[2, 2], i64[2], i64[2], 0, 0",
    ],
)];

/// The frames and labels of a batch.
struct Alignment<'g> {
    /// Scores of the labels in each frame, `[frames, batch, 2 · labels + 1]`. Blanks stand around the labels.
    scores: Value<'g>,
    /// True where a path may skip the blank before a label, `[batch, 2 · labels + 1]`.
    may_skip: Value<'g>,
    /// Number of frames of each sequence.
    input_lengths: Value<'g>,
    /// Number of labels of each sequence.
    target_lengths: Value<'g>,
}

fn ctc_loss<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let log_probs = a.tensor("log_probs");
    let is_batch = log_probs.rank() == 3;
    let alignment = align(
        a,
        if is_batch {
            log_probs
        } else {
            log_probs.unsqueeze(1)
        },
    )?;
    let target_lengths = alignment.target_lengths;
    let mut losses = alignment.losses()?;
    if a.bool("zero_infinity") {
        losses = losses.eq(f64::INFINITY).where_(0.0, losses);
    }
    let losses = losses.to(log_probs.dtype());
    Ok(match a.int("reduction") {
        0 if is_batch => losses,
        0 => losses.squeeze(&[0]),
        1 => (losses / target_lengths.maximum(1).to(losses.dtype())).mean(&[], false),
        _ => losses.sum(&[], false),
    })
}

/// Puts blanks around the labels, and looks up their scores in each frame.
fn align<'g>(a: &Args<'g>, log_probs: Value<'g>) -> Result<Alignment<'g>> {
    let log_probs = log_probs.to_compute();
    let [frames, batch, _] = log_probs.sizes()?;
    let builder = a.builder();
    let input_lengths = lengths(a, "input_lengths", &batch, &frames);
    let (targets, target_lengths) = padded_targets(a, &batch)?;
    let labels = targets.size(1);
    let is_label = targets.positions(1).lt(target_lengths.unsqueeze(1));
    let blank = a.int("blank");
    let targets = is_label.where_(targets, blank);
    let blanks = builder.full(DType::I64, vec![batch.clone(), labels.clone()], blank);
    let pairs = builder.stack(&[blanks, targets], -1);
    let pairs = pairs.reshape(vec![batch.clone(), &labels * &Dim::from(2)]);
    let last = builder.full(DType::I64, vec![batch, Dim::ONE], blank);
    let path = builder.concat(&[pairs, last], 1);
    let index = check::checked_index(log_probs, 2, path, NegativeIndices::Rejected);
    let mut shape = index.shape();
    shape.insert(0, frames);
    Ok(Alignment {
        scores: log_probs.gather(2, index.unsqueeze(0).expand(shape)),
        may_skip: path.ne(shifted(path, 2, blank)),
        input_lengths,
        target_lengths,
    })
}

impl<'g> Alignment<'g> {
    /// The negative logarithm of the likelihood of each sequence.
    fn losses(&self) -> Result<Value<'g>> {
        let builder = self.scores.builder();
        let frames = builder.symbols().specialize(&self.scores.size(0))?;
        let first = self.scores.select(0, 0);
        let mut paths = first.positions(1).lt(2).where_(first, f64::NEG_INFINITY);
        for frame in 1..frames {
            let is_inside = self.input_lengths.gt(frame).unsqueeze(1);
            let next = self.next(paths) + self.scores.select(0, frame);
            paths = is_inside.where_(next, paths);
            builder.check()?;
        }
        let end = (self.target_lengths * 2).unsqueeze(1);
        let before = end
            .gt(0)
            .where_(paths.gather(1, (end - 1).maximum(0)), f64::NEG_INFINITY);
        let likelihood = log_sum_exp(builder, &[paths.gather(1, end), before]).squeeze(&[1]);
        let is_empty = self.input_lengths.eq(0);
        let of_empty = self.target_lengths.eq(0).to(likelihood.dtype()).log();
        Ok(-is_empty.where_(of_empty, likelihood))
    }

    /// The paths that reach each label in the next frame: by staying, from the symbol before, or past a blank.
    fn next(&self, paths: Value<'g>) -> Value<'g> {
        let nothing = f64::NEG_INFINITY;
        let past_blank = self.may_skip.where_(shifted(paths, 2, nothing), nothing);
        log_sum_exp(
            paths.builder(),
            &[paths, shifted(paths, 1, nothing), past_blank],
        )
    }
}

/// `log(Σ exp(x))` of values of one shape. The logarithm of 0 is minus infinity.
fn log_sum_exp<'g>(builder: &'g Builder, values: &[Value<'g>]) -> Value<'g> {
    let stacked = builder.stack(values, 0);
    let largest = stacked.amax(&[0], true);
    let largest = largest.eq(f64::NEG_INFINITY).where_(0.0, largest);
    (stacked - largest).exp().sum(&[0], false).log() + largest.squeeze(&[0])
}

/// The rows of a matrix moved to the right, with `filling` in their first columns.
fn shifted<'g>(x: Value<'g>, columns: i64, filling: impl Into<Scalar>) -> Value<'g> {
    let low = [Dim::ZERO, Dim::from(columns)];
    let high = [Dim::ZERO, Dim::from(-columns)];
    x.pad(&low, &high, filling)
}

/// Numbers of frames or labels of each sequence, `[batch]`: at most `most`.
fn lengths<'g>(a: &Args<'g>, name: &str, batch: &Dim, most: &Dim) -> Value<'g> {
    let builder = a.builder();
    let lengths = match a.overload() {
        "Tensor" => a.tensor(name).to(DType::I64).reshape(vec![batch.clone()]),
        _ => {
            let number = |length: i64| builder.full(DType::I64, vec![Dim::ONE], length);
            let numbers: Vec<Value<'g>> = a.ints(name).into_iter().map(number).collect();
            builder.concat(&numbers, 0).expand(vec![batch.clone()])
        }
    };
    let message = format!("ctc_loss expects {name} from 0 to less than {{size}}, got {{value}}");
    lengths.check_in_range(Dim::ZERO, &(most + 1), message)
}

/// The labels as a matrix, `[batch, labels]`, and the number of labels of each sequence. A vector holds the labels of all
/// sequences one after the other.
fn padded_targets<'g>(a: &Args<'g>, batch: &Dim) -> Result<(Value<'g>, Value<'g>)> {
    let targets = a.tensor("targets").to(DType::I64);
    if targets.rank() == 2 {
        let lengths = lengths(a, "target_lengths", batch, &targets.size(1));
        return Ok((targets, lengths));
    }
    if targets.rank() != 1 {
        let message = format!(
            "ctc_loss wants a vector or matrix as `targets`, got {}",
            targets.ty()
        );
        return Err(Error::operator(message));
    }
    let lengths = lengths(a, "target_lengths", batch, &targets.numel());
    let starts = lengths.scan(ScanFunction::Sum, 0) - lengths;
    let most = a.overload() != "Tensor";
    let most = most.then(|| {
        a.ints("target_lengths")
            .into_iter()
            .max()
            .unwrap_or_default()
    });
    let labels = most.map_or_else(|| targets.numel(), Dim::from);
    let positions = a
        .builder()
        .iota(DType::I64, vec![Dim::ONE, labels.clone()], 1);
    let index = (starts.unsqueeze(1) + positions).minimum(targets.numel() - 1);
    let padded = targets.index_select(0, index.flatten(0, -1));
    Ok((padded.reshape(vec![batch.clone(), labels]), lengths))
}
