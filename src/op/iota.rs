use serde::{Deserialize, Serialize};

use super::{Operand, Rules, check_axis, operands};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{Shape, TensorType, sizes};
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

/// A tensor whose elements are their indices along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iota {
    /// Element type.
    pub dtype: DType,
    /// Result shape.
    pub shape: Shape,
    /// The axis whose index is the value.
    pub axis: usize,
}

impl Rules for Iota {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        operands::<_, 0>(found)?;
        check_axis(self.axis, self.shape.len())?;
        Ok(vec![TensorType {
            dtype: self.dtype,
            shape: self.shape.clone(),
        }])
    }

    fn eval(&self, _: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let shape = sizes(&self.shape, bindings)?;
        let mut data = Vec::with_capacity(numel(&shape)?);
        let (before, size, after) = super::strided::split_at_axis(&shape, self.axis)?;
        for _ in 0..before {
            data.extend((0..size).flat_map(|index| std::iter::repeat_n(index as i64, after)));
        }
        Ok(vec![Tensor::from_i64(self.dtype, shape, data)?])
    }
}
