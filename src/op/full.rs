use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, workspace};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Shape, TensorType, sizes};
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

/// A tensor filled with the operand: a number or a symbolic size.
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
        let bytes = element.bytes().repeat(numel(&shape)?);
        Ok(vec![Tensor::from_bytes(self.dtype, shape, &bytes)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Dim;

    #[test]
    fn shapes_beyond_memory_are_errors() {
        let one = Tensor::full(DType::F32, [], 1.0).expect("a number");
        for shape in [vec![1i64 << 40; 2], vec![1 << 60], vec![1 << 50]] {
            let shape: Shape = shape.into_iter().map(Dim::from).collect();
            let dtype = DType::F32;
            let full = Full { dtype, shape };
            assert!(
                full.eval(std::slice::from_ref(&one), &Bindings::new())
                    .is_err()
            );
        }
    }
}
