use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, strided, workspace};
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result};
use crate::shape::{Shape, TensorType, sizes};
use crate::symbols::Symbols;
use crate::tensor::{Tensor, numel};

/// Pads a value with a number, the second operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    /// Elements added at the start of each axis; never negative.
    pub low: Shape,
    /// Elements added at the end of each axis; never negative.
    pub high: Shape,
}

impl Pad {
    fn result(&self, shape: &[Dim]) -> Shape {
        shape
            .iter()
            .zip(self.low.iter().zip(&self.high))
            .map(|(size, (low, high))| size + low + high)
            .collect()
    }
}

impl Rules for Pad {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [Operand::Value(x), Operand::Number(_)] = operands::<_, 2>(found)? else {
            return Err(Error::operator("pads a value with a number"));
        };
        if self.low.len() != x.rank() || self.high.len() != x.rank() {
            return Err(Error::operator(format!(
                "{} paddings for {x}",
                self.low.len()
            )));
        }
        for padding in self.low.iter().chain(&self.high) {
            if !symbols.less_equal(&Dim::ZERO, padding)? {
                return Err(Error::operator(format!(
                    "the padding {padding} is negative"
                )));
            }
        }
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape: self.result(&x.shape),
        }])
    }

    fn eval(&self, found: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let [x, value] = operands::<_, 2>(found)?;
        let known: Shape = x.shape().iter().map(|size| Dim::from(*size)).collect();
        let shape = sizes(&self.result(&known), bindings)?;
        let low = sizes(&self.low, bindings)?;
        let strides = strided::strides(&shape);
        let offset: i64 = low
            .iter()
            .zip(&strides)
            .map(|(low, stride)| *low as i64 * stride)
            .sum();
        let size = x.dtype().size();
        let mut out = value.cast(x.dtype())?.bytes().repeat(numel(&shape)?);
        let mut source = x.bytes().chunks_exact(size);
        strided::for_each_offset(x.shape(), &strides, offset, |offset| {
            let start = offset as usize * size;
            if let (Some(to), Some(from)) = (out.get_mut(start..start + size), source.next()) {
                to.copy_from_slice(from);
            }
            Ok(())
        })?;
        Ok(vec![Tensor::from_bytes(x.dtype(), shape, &out)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
