//! The loss of label sequences without alignment.

use std::borrow::Borrow;

use super::loss::{Reduction, loss_module};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, TracedTensor};

loss_module! {
    /// `torch.nn.CTCLoss`: connectionist temporal classification. Called with log-probabilities, `[frames, batch, classes]`;
    /// targets, `[batch, labels]` or all labels one after the other; and the numbers of frames and labels of each sequence,
    /// lists or tensors.
    CTCLoss {
        /// The class of blanks; 0 by default.
        blank: i64 = 0,
        /// Whether an infinite loss, of targets longer than the input, counts as zero; false by default.
        zero_infinity: bool = false
    } []
}

impl<X, Y, I, T> Forward<(X, Y, I, T)> for CTCLoss
where
    X: Borrow<TracedTensor>,
    Y: Borrow<TracedTensor>,
    I: Into<Arg>,
    T: Into<Arg>,
{
    type Output = TracedTensor;

    fn forward(&self, (x, targets, input_lengths, target_lengths): (X, Y, I, T)) -> TracedTensor {
        x.borrow().ctc_loss_with(
            targets.borrow(),
            input_lengths,
            target_lengths,
            kw!(
                blank = self.blank,
                reduction = self.reduction,
                zero_infinity = self.zero_infinity
            ),
        )
    }
}
