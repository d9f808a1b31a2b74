//! Checks of constructors' arguments and of inputs, with PyTorch's messages where it has good ones.

use crate::error::Error;
use crate::trace::native::{Module, TracedTensor, Visitor, example_sizes, failed};

/// The error of a module's arguments. PyTorch raises it in the constructor; here the module's calls return it, with the
/// line of the constructor or option.
#[derive(Clone, Debug, Default)]
pub(super) struct ArgumentCheck(Option<TracedTensor>);

impl ArgumentCheck {
    /// A check of one condition.
    #[track_caller]
    pub fn of(holds: bool, message: impl FnOnce() -> String) -> ArgumentCheck {
        let mut check = ArgumentCheck::default();
        check.require(holds, message);
        check
    }

    /// Checks a further condition. The first error is kept.
    #[track_caller]
    pub fn require(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds && self.0.is_none() {
            self.0 = Some(refuse(message()));
        }
    }

    /// Checks the probability of a dropout.
    #[track_caller]
    pub fn require_probability(&mut self, p: f64) {
        self.require((0.0..=1.0).contains(&p), || {
            format!("dropout probability has to be between 0 and 1, but got {p}")
        });
    }

    /// A tensor that holds the error, if there is one.
    pub fn failed(&self) -> Option<TracedTensor> {
        self.0.clone()
    }
}

/// Has no parameters.
impl Module for ArgumentCheck {
    fn visit(&self, _visitor: &mut Visitor<'_>) {}
}

/// A tensor that holds an error of the caller's line.
#[track_caller]
pub(super) fn refuse(message: String) -> TracedTensor {
    failed(Error::operator(message))
}

/// Returns an error if the rank of the input `x` is none of `ranks`. `what` names the module in the error.
pub(super) fn rank_error(what: &str, x: &TracedTensor, ranks: &[usize]) -> Option<TracedTensor> {
    let is_refused = x.error().is_none() && !ranks.contains(&x.rank());
    let wanted_ranks: Vec<String> = ranks.iter().map(|rank| format!("{rank}D")).collect();
    let (wanted_ranks, rank) = (wanted_ranks.join(" or "), x.rank());
    is_refused.then(|| refuse(format!("{what} expects {wanted_ranks} input, got {rank}D")))
}

/// Returns an error if the axis of the input `x`, counted from the end if negative, has another size than `wanted`. `noun`
/// names the elements along the axis: "channels".
pub(super) fn size_error(
    x: &TracedTensor,
    axis: i64,
    wanted: usize,
    noun: &str,
) -> Option<TracedTensor> {
    let sizes = example_sizes(x)?;
    let rank = i64::try_from(sizes.len()).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    let found = *sizes.get(usize::try_from(axis).ok()?)?;
    let message =
        format!("expected input{sizes:?} to have {wanted} {noun}, but got {found} {noun} instead");
    (found != wanted).then(|| refuse(message))
}

/// Returns an error if the input `x` has another element type than the module's weight. `what` names the module.
pub(super) fn dtype_error(
    what: &str,
    x: &TracedTensor,
    weight: &TracedTensor,
) -> Option<TracedTensor> {
    let is_failed = x.error().is_some() || weight.error().is_some();
    let (found, wanted) = (x.dtype(), weight.dtype());
    let message = format!("{what} expects {wanted} input like its weight, got {found}");
    (!is_failed && found != wanted).then(|| refuse(message))
}

/// Returns an error unless the input `x` has integers. `what` names the module.
pub(super) fn integer_error(what: &str, x: &TracedTensor) -> Option<TracedTensor> {
    let (is_failed, dtype) = (x.error().is_some(), x.dtype());
    let message = format!("{what} expects integers (i64 or i32), got {dtype}");
    (!is_failed && !dtype.is_integer()).then(|| refuse(message))
}
