use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, check_axis, strided, workspace};
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// Joins values along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    /// The axis along which sizes may differ.
    pub axis: usize,
}

impl Rules for Concat {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let types: Option<Vec<&TensorType>> = found.iter().map(|operand| operand.value()).collect();
        let types = types.ok_or_else(|| Error::operator("takes values, not numbers"))?;
        let [first, others @ ..] = types.as_slice() else {
            return Err(Error::operator("takes at least one operand"));
        };
        check_axis(self.axis, first.rank())?;
        let mut result = (*first).clone();
        for other in others {
            let complain = || format!("{first} and {other} do not join along axis {}", self.axis);
            if other.dtype != first.dtype || other.rank() != first.rank() {
                return Err(Error::operator(complain()));
            }
            for (axis, (left, right)) in first.shape.iter().zip(&other.shape).enumerate() {
                if axis != self.axis {
                    symbols.require_equal(left, right, complain)?;
                }
            }
            result.shape[self.axis] = &result.shape[self.axis] + &other.shape[self.axis];
        }
        Ok(vec![result])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let first = found
            .first()
            .ok_or_else(|| Error::operator("takes at least one operand"))?;
        let (before, _, _) = strided::split_at_axis(first.shape(), self.axis)?;
        let mut out = Vec::with_capacity(found.iter().map(Tensor::byte_count).sum());
        for row in 0..before {
            for tensor in found {
                let bytes = tensor.bytes();
                let length = bytes.len() / before;
                out.extend_from_slice(&bytes[row * length..(row + 1) * length]);
            }
        }
        let mut shape = first.shape().to_vec();
        shape[self.axis] = found.iter().map(|tensor| tensor.shape()[self.axis]).sum();
        Ok(vec![Tensor::from_bytes(first.dtype(), shape, &out)?])
    }

    fn workspace(&self, _: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results)
    }
}
