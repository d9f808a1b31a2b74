use serde::{Deserialize, Serialize};

use super::{Operand, Rules, operands, values};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Converts elements like `Tensor.to(dtype)`: to integers by truncation and wrapping, to `bool` by comparison with zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cast {
    /// Result dtype.
    pub dtype: DType,
}

impl Rules for Cast {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        Ok(vec![TensorType {
            dtype: self.dtype,
            shape: x.shape.clone(),
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        Ok(vec![x.cast(self.dtype)?])
    }
}
