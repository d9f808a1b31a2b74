//! Walking host tensors by strides: the views of the oracle are all gathers along strides.

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Copies `tensor` into `shape`, reading element `offset + Σ index·stride`.
pub(super) fn gather(
    tensor: &Tensor,
    shape: &[usize],
    strides: &[i64],
    offset: i64,
) -> Result<Tensor> {
    let size = tensor.dtype().size();
    let numel: usize = shape.iter().product();
    let bytes = tensor.bytes();
    let mut out = Vec::with_capacity(numel.saturating_mul(size));
    let outside = || Error::internal("a view reads outside of its tensor");
    for_each_offset(shape, strides, offset, |offset| {
        let start = usize::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_mul(size))
            .ok_or_else(outside)?;
        out.extend_from_slice(bytes.get(start..start + size).ok_or_else(outside)?);
        Ok(())
    })?;
    Tensor::from_bytes(tensor.dtype(), shape, &out)
}

/// Calls `visit` with the strided offset of every index of `shape`, in row-major order.
pub(super) fn for_each_offset(
    shape: &[usize],
    strides: &[i64],
    offset: i64,
    mut visit: impl FnMut(i64) -> Result<()>,
) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    let mut index = vec![0usize; shape.len()];
    let mut position = offset;
    loop {
        visit(position)?;
        let mut axis = shape.len();
        loop {
            let Some(previous) = axis.checked_sub(1) else {
                return Ok(());
            };
            axis = previous;
            index[axis] += 1;
            position += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            position -= strides[axis] * shape[axis] as i64;
            index[axis] = 0;
        }
    }
}

/// Row-major strides as signed numbers.
pub(super) fn strides(shape: &[usize]) -> Vec<i64> {
    crate::tensor::strides(shape)
        .into_iter()
        .map(|stride| stride as i64)
        .collect()
}

/// Sizes before, at and after an axis: the loops of every operator that works along one axis.
pub(super) fn around(shape: &[usize], axis: usize) -> Result<(usize, usize, usize)> {
    let size = *shape
        .get(axis)
        .ok_or_else(|| Error::operator(format!("axis {axis} is out of range")))?;
    Ok((
        shape[..axis].iter().product(),
        size,
        shape[axis + 1..].iter().product(),
    ))
}
