use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, values};
use crate::dim::{Bindings, Dim};
use crate::error::Result;
use crate::shape::{Shape, TensorType, sizes};
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Changes the shape; elements keep their row-major order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reshape {
    /// Result shape, with an equal number of elements.
    pub shape: Shape,
}

impl Rules for Reshape {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        let result = TensorType {
            dtype: x.dtype,
            shape: self.shape.clone(),
        };
        let complain = || format!("{x} and {result} differ in their number of elements");
        symbols.require_equal(
            &Dim::product(&x.shape),
            &Dim::product(&self.shape),
            complain,
        )?;
        Ok(vec![result])
    }

    fn eval(&self, found: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        Ok(vec![x.reshape(sizes(&self.shape, bindings)?)?])
    }

    fn shares_operand(&self) -> bool {
        true
    }

    fn workspace(&self, _: &[HostType], _: &[HostType]) -> u64 {
        0
    }
}
