//! Limits on gradients. The formulas are those of `torch.nn.utils.clip_grad_norm_` and `clip_grad_value_`.

use crate::error::{Error, Result};
use crate::ir::Value;

/// A limit on the gradients of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum GradientClipping {
    /// Scales all gradients so that their norm, as one vector, is at most this number: `clip_grad_norm_`.
    Norm(f64),
    /// Limits each element to the range between the negative number and the number: `clip_grad_value_`.
    Value(f64),
}

impl GradientClipping {
    /// The limited gradients, and their norm before that if it is computed.
    pub(super) fn apply<'g>(
        self,
        gradients: &[Value<'g>],
    ) -> Result<(Vec<Value<'g>>, Option<Value<'g>>)> {
        match self {
            GradientClipping::Norm(max_norm) => {
                let norm = norm(gradients)?;
                let scale = (norm + 1e-6).rdiv(max_norm).minimum(1.0);
                let scaled = gradients
                    .iter()
                    .map(|gradient| *gradient * scale.to(gradient.dtype()));
                Ok((scaled.collect(), Some(norm)))
            }
            GradientClipping::Value(limit) => {
                let limited = gradients.iter();
                let limited = limited.map(|gradient| gradient.maximum(-limit).minimum(limit));
                Ok((limited.collect(), None))
            }
        }
    }
}

/// The Euclidean norm of all elements.
fn norm<'g>(gradients: &[Value<'g>]) -> Result<Value<'g>> {
    let squares = gradients.iter().map(|gradient| {
        let gradient = gradient.to_compute();
        let axes: Vec<i64> = (0..gradient.rank() as i64).collect();
        (gradient * gradient).sum(&axes, false)
    });
    let sum = squares.reduce(|sum, square| sum + square);
    let sum = sum.ok_or_else(|| Error::internal("there are no gradients"))?;
    Ok(sum.sqrt())
}
