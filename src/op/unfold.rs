use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, check_axis, operands, strided, values, workspace};
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Windows along an axis. The axis becomes the index of the window, and a new last axis the index within it. Result `[.., w,
/// .., k]` is operand index `w·stride + k·dilation`. Pooling is a reduction over such windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unfold {
    /// The axis to slide along.
    pub axis: usize,
    /// Number of elements of a window.
    pub size: i64,
    /// Distance between windows.
    pub stride: i64,
    /// Distance between the elements of a window.
    pub dilation: i64,
}

impl Unfold {
    fn windows(&self, size: &Dim) -> Dim {
        let reach = self
            .dilation
            .saturating_mul(self.size - 1)
            .saturating_add(1);
        (size - &Dim::from(reach)).floor_div(&Dim::from(self.stride)) + 1
    }
}

impl Rules for Unfold {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        check_axis(self.axis, x.rank())?;
        if self.size < 1 || self.stride < 1 || self.dilation < 1 {
            return Err(Error::operator(
                "size, stride and dilation of windows are at least 1",
            ));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = self.windows(&x.shape[self.axis]);
        if !symbols.less_equal(&Dim::ZERO, &shape[self.axis])? {
            return Err(Error::operator(format!(
                "a window of {} elements does not fit axis {} of {x}",
                self.size, self.axis
            )));
        }
        shape.push(Dim::from(self.size));
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape,
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let mut shape = x.shape().to_vec();
        let mut strides = strided::strides(x.shape());
        let windows = self
            .windows(&Dim::from(shape[self.axis]))
            .as_const()
            .unwrap_or(0);
        shape[self.axis] = usize::try_from(windows).unwrap_or(0);
        shape.push(usize::try_from(self.size).unwrap_or(0));
        strides.push(strides[self.axis] * self.dilation);
        strides[self.axis] *= self.stride;
        Ok(vec![strided::gather(x, &shape, &strides, 0)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
