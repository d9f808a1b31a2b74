//! The adaptive softmax over many classes (Grave et al. 2017): rare classes are in clusters, whose scores take fewer features.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, rank_error};
use super::{Linear, Sequential};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor, example_sizes, ops};

/// `torch.nn.AdaptiveLogSoftmaxWithLoss`. Returns the logarithm of each target's probability, and the mean loss.
///
/// PyTorch computes a cluster for the rows alone whose targets are in it, and a trace by PyTorch is one for the example's
/// targets. Here all clusters are computed for all rows, so that a graph serves any targets.
#[derive(Clone, Debug, Module)]
pub struct AdaptiveLogSoftmaxWithLoss {
    head: Linear,
    tail: Vec<Sequential>,
    /// The first class of each cluster.
    #[module(skip)]
    cutoffs: Vec<usize>,
    check: ArgumentCheck,
}

impl AdaptiveLogSoftmaxWithLoss {
    /// A softmax over `classes`, of which those from each of the `cutoffs` on are a cluster. Classes are sorted by frequency,
    /// the most frequent first. The features of each cluster are a quarter of those of the one before.
    #[track_caller]
    pub fn new(inputs: usize, classes: usize, cutoffs: &[usize]) -> AdaptiveLogSoftmaxWithLoss {
        AdaptiveLogSoftmaxWithLoss::with_div_value(inputs, classes, cutoffs, 4.0)
    }

    /// [`new`](Self::new) with another divisor of the features than 4.
    #[track_caller]
    pub fn with_div_value(
        inputs: usize,
        classes: usize,
        cutoffs: &[usize],
        div_value: f64,
    ) -> AdaptiveLogSoftmaxWithLoss {
        let is_ascending = cutoffs.is_sorted_by(|a, b| a < b);
        let is_inside = cutoffs.first().is_some_and(|first| *first > 0)
            && cutoffs.last().is_some_and(|last| *last < classes);
        let check = ArgumentCheck::of(is_ascending && is_inside, || {
            "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is \
             between 1 and n_classes-1"
                .to_string()
        });
        let cutoffs = if check.failed().is_some() {
            &[]
        } else {
            cutoffs
        };
        let ends = cutoffs.iter().skip(1).chain([&classes]);
        let tail = (1..)
            .zip(cutoffs.iter().zip(ends))
            .map(|(level, (start, end))| {
                let hidden = (inputs as f64 / div_value.powi(level)).floor() as usize;
                Sequential::new()
                    .add(Linear::new(inputs, hidden).bias(false))
                    .add(Linear::new(hidden, end - start).bias(false))
            });
        AdaptiveLogSoftmaxWithLoss {
            tail: tail.collect(),
            head: Linear::new(inputs, cutoffs.first().unwrap_or(&0) + cutoffs.len()).bias(false),
            cutoffs: cutoffs.to_vec(),
            check,
        }
    }

    /// Whether the head adds a bias; false by default.
    #[must_use]
    pub fn head_bias(mut self, bias: bool) -> AdaptiveLogSoftmaxWithLoss {
        if let Some([outputs, inputs]) = example_sizes(self.head.weight()).as_deref() {
            self.head = Linear::new(*inputs, *outputs).bias(bias);
        }
        self
    }

    /// The logarithms of the probabilities of all classes, `[rows, classes]`.
    #[track_caller]
    pub fn log_prob(&self, x: &TracedTensor) -> TracedTensor {
        let head = self.head.call(x).log_softmax(1);
        let first = self.cutoffs.first().copied().unwrap_or_default();
        let mut parts = vec![head.narrow(1, 0, first)];
        for (index, cluster) in self.tail.iter().enumerate() {
            let of_cluster = head.narrow(1, first + index, 1);
            parts.push(cluster.call(x).log_softmax(1) + of_cluster);
        }
        ops::cat_with(&parts, kw!(dim = 1))
    }

    /// The likeliest class of each row, `[rows]`.
    #[track_caller]
    pub fn predict(&self, x: &TracedTensor) -> TracedTensor {
        self.log_prob(x).argmax_with(kw!(dim = 1))
    }

    /// The logarithm of each target's probability, and the loss.
    fn losses(&self, x: &TracedTensor, target: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let is_batch = target.rank() > 0;
        let (x, target) = match is_batch {
            true => (x.clone(), target.clone()),
            false => (x.unsqueeze(0), target.unsqueeze(0)),
        };
        let of_targets = self.log_prob(&x).gather(1, &target.unsqueeze(1));
        let output = of_targets.squeeze_dim(1);
        let loss = (-&output).mean();
        (
            if is_batch {
                output
            } else {
                output.squeeze_dim(0)
            },
            loss,
        )
    }
}

/// Called with an input, `[rows, inputs]` or `[inputs]`, and target classes, `[rows]` or a scalar.
impl<X: Borrow<TracedTensor>, Y: Borrow<TracedTensor>> Forward<(X, Y)>
    for AdaptiveLogSoftmaxWithLoss
{
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, (x, target): (X, Y)) -> (TracedTensor, TracedTensor) {
        let (x, target) = (x.borrow(), target.borrow());
        let name = "AdaptiveLogSoftmaxWithLoss";
        let refused = self
            .check
            .failed()
            .or_else(|| rank_error(name, x, &[target.rank() + 1]));
        match refused {
            Some(refused) => (refused.clone(), refused),
            None => self.losses(x, target),
        }
    }
}
