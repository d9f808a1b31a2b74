//! Gradients of calls, for rows with a rule of their own.

use super::{Args, Operator, operator};
use crate::error::{Error, Result};
use crate::ir::{Argument, ArithmeticOperand, Builder, Value};
use crate::op::ScatterFunction;

/// Gradients of the arguments of a call that are tensors, by parameter. An absent argument has none.
pub type GradientRule = for<'g> fn(&CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>>;

/// The value without a gradient: a call of `aten::detach`.
pub(crate) fn detach(value: Value) -> Result<Value> {
    operator("aten.detach")?.call_one(value.builder(), vec![value.into()])
}

/// A call, its results, and their gradients.
pub struct CallGradient<'g> {
    args: Args<'g>,
    results: Vec<Value<'g>>,
    gradients: Vec<Option<Value<'g>>>,
}

impl<'g> CallGradient<'g> {
    /// A call with results and their gradients; `None` for results that the loss does not depend on.
    pub(crate) fn new(
        builder: &'g Builder,
        operator: &'static Operator,
        arguments: &[Argument],
        results: Vec<Value<'g>>,
        gradients: Vec<Option<Value<'g>>>,
    ) -> CallGradient<'g> {
        CallGradient {
            args: Args::new(builder, operator, arguments),
            results,
            gradients,
        }
    }

    /// Passes the gradient of the only result on to `self` where `is_passed` holds.
    pub(super) fn where_(&self, is_passed: Value<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
        Ok(vec![("self", is_passed.where_(self.gradient(0)?, 0.0))])
    }

    /// Adds the gradient of the first result to the elements of `self` that the second result names.
    pub(super) fn at_indices(&self, dim: i64) -> Result<Vec<(&'static str, Value<'g>)>> {
        let x = self.args.tensor("self");
        let (gradient, indices) = (self.gradient(0)?, self.result(1)?);
        if x.rank() == 0 {
            return Ok(vec![("self", gradient)]);
        }
        let zeros = x.builder().full(x.dtype(), x.shape(), 0.0);
        let gradient = zeros.scatter(dim, indices, gradient, ScatterFunction::Add);
        Ok(vec![("self", gradient)])
    }

    /// The gradient of an operand that was broadcast and promoted to the result.
    pub(super) fn operand(
        &self,
        name: &'static str,
        gradient: Value<'g>,
    ) -> Vec<(&'static str, Value<'g>)> {
        match self.args.number(name) {
            ArithmeticOperand::Value(operand) => {
                let gradient = gradient.sum_to(&operand.shape());
                vec![(name, gradient.to(operand.dtype()))]
            }
            _ => Vec::new(),
        }
    }

    /// The arguments of the call.
    pub fn args(&self) -> &Args<'g> {
        &self.args
    }

    /// A result of the call.
    pub fn result(&self, index: usize) -> Result<Value<'g>> {
        let result = self.results.get(index).copied();
        result.ok_or_else(|| Error::internal(format!("there is no result {index}")))
    }

    /// The gradient of a result; `None` if the loss does not depend on it.
    pub fn gradient_if_used(&self, index: usize) -> Option<Value<'g>> {
        self.gradients.get(index).copied().flatten()
    }

    /// The gradient of a result; zeros where the loss does not depend on it.
    pub fn gradient(&self, index: usize) -> Result<Value<'g>> {
        let known = self.gradient_if_used(index);
        let result = self.result(index)?;
        Ok(known.unwrap_or_else(|| {
            let builder = self.args.builder();
            builder.full(result.dtype(), result.shape(), 0.0)
        }))
    }
}
