use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, operands, strided, values, workspace};
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Permutes the axes: result axis `i` is operand axis `axes[i]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permute {
    /// Each axis of the operand, exactly once.
    pub axes: Vec<usize>,
}

impl Permute {
    /// The axes of the permutation that undoes this one.
    pub fn inverse(&self) -> Vec<usize> {
        let place = |axis: usize| {
            let mut axes = self.axes.iter();
            axes.position(|source| *source == axis).unwrap_or(axis)
        };
        (0..self.axes.len()).map(place).collect()
    }
}

impl Rules for Permute {
    fn infer(&self, _: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x] = values(found)?;
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..x.rank()) {
            return Err(Error::operator(format!(
                "{:?} is not a permutation of the axes of {x}",
                self.axes
            )));
        }
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape: self
                .axes
                .iter()
                .map(|axis| x.shape[*axis].clone())
                .collect(),
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x] = operands::<_, 1>(found)?;
        let strides = strided::strides(x.shape());
        let shape: Vec<usize> = self.axes.iter().map(|axis| x.shape()[*axis]).collect();
        let order: Vec<i64> = self.axes.iter().map(|axis| strides[*axis]).collect();
        Ok(vec![strided::gather(x, &shape, &order, 0)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
