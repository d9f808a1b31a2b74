use serde::{Deserialize, Serialize};

use super::{HostType, Operand, Rules, check_axis, operands, strided, values, workspace};
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// `torch.gather`: result `[.., i, ..]` is operand `[.., index[.., i, ..], ..]` along an axis. The second operand holds the
/// indices; its sizes in the other axes are at most the first operand's. Negative indices count from the end. The oracle
/// rejects an index out of range; a device clamps it. Indices that a model receives pass a [`Check`](super::Check) first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gather {
    /// The axis that is indexed.
    pub axis: usize,
}

impl Rules for Gather {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        let [x, index] = values(found)?;
        check_index(symbols, self.axis, x, index)?;
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape: index.shape.clone(),
        }])
    }

    fn eval(&self, found: &[Tensor], _: &Bindings) -> Result<Vec<Tensor>> {
        let [x, index] = operands::<_, 2>(found)?;
        let size = x.dtype().size();
        let mut out = Vec::with_capacity(index.numel() * size);
        for_each_position(x.shape(), index, self.axis, |position| {
            out.extend_from_slice(&x.bytes()[position * size..(position + 1) * size]);
        })?;
        Ok(vec![Tensor::from_bytes(x.dtype(), index.shape(), &out)?])
    }

    fn workspace(&self, operands: &[HostType], results: &[HostType]) -> u64 {
        workspace::copies(results).saturating_add(workspace::numbers(operands.get(1)))
    }
}

/// The rule for the operands of gather and scatter: integer indices, equal rank, and sizes in other axes within the
/// operand's.
pub(super) fn check_index(
    symbols: &Symbols,
    axis: usize,
    x: &TensorType,
    index: &TensorType,
) -> Result<()> {
    check_axis(axis, x.rank())?;
    let complain = || Error::operator(format!("{index} does not index axis {axis} of {x}"));
    if !index.dtype.is_integer() || index.rank() != x.rank() {
        return Err(complain());
    }
    for (other, (size, limit)) in index.shape.iter().zip(&x.shape).enumerate() {
        if other != axis && !symbols.less_equal(size, limit)? {
            return Err(complain());
        }
    }
    Ok(())
}

/// Calls `visit` with the position in a tensor of `shape` for each index, in row-major order of the indices.
pub(super) fn for_each_position(
    shape: &[usize],
    index: &Tensor,
    axis: usize,
    mut visit: impl FnMut(usize),
) -> Result<()> {
    let mut strides = strided::strides(shape);
    let stride = std::mem::take(&mut strides[axis]);
    let size = shape[axis] as i64;
    let mut indices = index.to_i64().into_iter();
    strided::for_each_offset(index.shape(), &strides, 0, |offset| {
        let index = indices.next().unwrap_or(0);
        let wrapped = if index < 0 { index + size } else { index };
        if wrapped < 0 || wrapped >= size {
            return Err(Error::input(format!(
                "index {index} is out of range for {size} elements"
            )));
        }
        visit((offset + wrapped * stride) as usize);
        Ok(())
    })
}
