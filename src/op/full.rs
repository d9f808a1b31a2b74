use serde::{Deserialize, Serialize};

use super::{Operand, Rules, operands};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Shape, TensorType, sizes};
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Every element is the operand: a number or a symbolic size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Full {
    /// Element type.
    pub dtype: DType,
    /// Result shape.
    pub shape: Shape,
}

impl Rules for Full {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        match operands::<_, 1>(found)? {
            [Operand::Value(_)] => Err(Error::operator(
                "fills with a number or a size, not with a value",
            )),
            _ => Ok(vec![TensorType {
                dtype: self.dtype,
                shape: self.shape.clone(),
            }]),
        }
    }

    fn eval(&self, found: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let [value] = operands::<_, 1>(found)?;
        let element = value.cast(self.dtype)?;
        let shape = sizes(&self.shape, bindings)?;
        let numel: usize = shape.iter().product();
        Ok(vec![Tensor::from_bytes(
            self.dtype,
            shape,
            &element.bytes().repeat(numel),
        )?])
    }
}
