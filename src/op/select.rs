use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, workspace};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Elementwise selection: the second operand where the first is true, else the third. Either may be a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Select {}

impl Rules for Select {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [Operand::Value(condition), a, b] = operands::<_, 3>(found)? else {
            return Err(Error::operator("the condition is a value"));
        };
        if condition.dtype != DType::Bool {
            return Err(Error::operator(format!(
                "the condition is {condition}, not bool"
            )));
        }
        let choices = [a.value(), b.value()];
        let mut choices = choices.into_iter().flatten();
        let first = choices
            .next()
            .ok_or_else(|| Error::operator("chooses between two numbers"))?;
        let complain = || format!("{condition} does not choose between {a:?} and {b:?}");
        for other in choices.chain([first]) {
            if other.dtype != first.dtype || other.rank() != condition.rank() {
                return Err(Error::operator(complain()));
            }
            for (left, right) in condition.shape.iter().zip(&other.shape) {
                symbols.require_equal(left, right, complain)?;
            }
        }
        Ok(vec![TensorType {
            dtype: first.dtype,
            shape: condition.shape.clone(),
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [condition, a, b] = operands::<_, 3>(found)?;
        let size = a.dtype().size();
        let mut out = Vec::with_capacity(condition.numel() * size);
        for (index, yes) in condition.bytes().iter().enumerate() {
            let chosen = if *yes != 0 { a } else { b };
            let index = if chosen.shape().is_empty() { 0 } else { index };
            let element = chosen.bytes().get(index * size..(index + 1) * size);
            out.extend_from_slice(element.unwrap_or_default());
        }
        Ok(vec![Tensor::from_bytes(
            a.dtype(),
            condition.shape(),
            &out,
        )?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
