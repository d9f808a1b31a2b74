use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, strided, values, workspace};
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result};
use crate::shape::{Shape, TensorType, sizes};
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Broadcasts to a shape: new axes in front, axes of size 1 repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expand {
    /// Result shape.
    pub shape: Shape,
}

impl Rules for Expand {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        let result = TensorType {
            dtype: x.dtype,
            shape: self.shape.clone(),
        };
        let complain = || format!("{x} does not broadcast to {result}");
        let new = self
            .shape
            .len()
            .checked_sub(x.rank())
            .ok_or_else(|| Error::operator(complain()))?;
        for (size, wanted) in x.shape.iter().zip(&self.shape[new..]) {
            // A size whose example is 1 is repeated; a guard fixes it to 1.
            if symbols.hint(size)? == 1 && symbols.hint(wanted)? != 1 {
                symbols.require_equal(size, &Dim::ONE, complain)?;
            } else if !size.is(1) {
                symbols.require_equal(size, wanted, complain)?;
            }
        }
        Ok(vec![result])
    }

    fn eval(&self, found: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let shape = sizes(&self.shape, bindings)?;
        let new = shape.len() - x.shape().len();
        let strides = strided::strides(x.shape());
        let stride = |axis: usize| {
            axis.checked_sub(new)
                .filter(|axis| x.shape()[*axis] != 1)
                .map_or(0, |axis| strides[axis])
        };
        let expanded: Vec<i64> = (0..shape.len()).map(stride).collect();
        Ok(vec![strided::gather(x, &shape, &expanded, 0)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
