use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, check_axis, operands, strided, values, workspace};
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Takes every `step`-th element along an axis: result index `i` is operand index `start + i·step`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The axis to slice.
    pub axis: usize,
    /// First index.
    pub start: Dim,
    /// Number of indices, all of which must be inside the operand.
    pub length: Dim,
    /// Distance of indices; negative to go backwards.
    pub step: i64,
}

impl Slice {
    /// True if the slice of a value of this shape is the whole value.
    pub fn is_identity(&self, shape: &[Dim]) -> bool {
        shape.get(self.axis) == Some(&self.length) && self.start.is(0) && self.step == 1
    }
}

impl Rules for Slice {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        check_axis(self.axis, x.rank())?;
        let last = &self.start + &(&(&self.length - &Dim::ONE) * &Dim::from(self.step));
        let (low, high) = if self.step < 0 {
            (&last, &self.start)
        } else {
            (&self.start, &last)
        };
        let empty = symbols.hint(&self.length)? == 0;
        let inside = symbols.less_equal(&Dim::ZERO, low)?
            && symbols.less_equal(&(high + 1), &x.shape[self.axis])?;
        if !empty && !inside {
            let outside = match low == high {
                true => format!("index {low} lies"),
                false => format!("indices {low} to {high} lie"),
            };
            let axis = self.axis;
            return Err(Error::operator(format!(
                "{outside} outside of axis {axis} of {x}"
            )));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = self.length.clone();
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape,
        }])
    }

    fn eval(&self, found: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let mut strides = strided::strides(x.shape());
        let mut shape = x.shape().to_vec();
        let offset = self.start.eval(bindings)? * strides[self.axis];
        strides[self.axis] *= self.step;
        shape[self.axis] = usize::try_from(self.length.eval(bindings)?).unwrap_or(0);
        Ok(vec![strided::gather(x, &shape, &strides, offset)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
