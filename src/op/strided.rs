//! Traversal of host tensors by strides. In the oracle, all views are gathers along strides.

use crate::error::{Error, Result};
use crate::tensor::{Tensor, numel};

/// Copies `tensor` into `shape`, reading element `offset + Σ index·stride`.
pub(super) fn gather(
    tensor: &Tensor,
    shape: &[usize],
    strides: &[i64],
    offset: i64,
) -> Result<Tensor> {
    let bytes = tensor.bytes();
    let out = match tensor.dtype().size() {
        1 => gather_elements::<1>(bytes, shape, strides, offset)?,
        2 => gather_elements::<2>(bytes, shape, strides, offset)?,
        4 => gather_elements::<4>(bytes, shape, strides, offset)?,
        _ => gather_elements::<8>(bytes, shape, strides, offset)?,
    };
    Tensor::from_bytes(tensor.dtype(), shape, &out)
}

/// [`gather`] for elements of `N` bytes, one line along the last axis at a time.
fn gather_elements<const N: usize>(
    bytes: &[u8],
    shape: &[usize],
    strides: &[i64],
    offset: i64,
) -> Result<Vec<u8>> {
    let outside = || Error::internal("a view reads outside of its tensor");
    let elements: &[[u8; N]] = bytes.as_chunks().0;
    let mut out: Vec<[u8; N]> = Vec::with_capacity(numel(shape)?);
    for_each_line(shape, strides, offset, |start, length, step| {
        let last = start + (length as i64 - 1) * step;
        let (Ok(first), Ok(last)) = (usize::try_from(start), usize::try_from(last)) else {
            return Err(outside());
        };
        if elements.len() <= first.max(last) {
            return Err(outside());
        }
        match step {
            0 => out.extend(std::iter::repeat_n(elements[first], length)),
            1 => out.extend_from_slice(&elements[first..=last]),
            _ => out
                .extend((0..length as i64).map(|index| elements[(start + index * step) as usize])),
        }
        Ok(())
    })?;
    Ok(out.into_flattened())
}

/// Calls `visit` for every line along the last axis with the offset of its first element, its length and its stride.
pub(super) fn for_each_line(
    shape: &[usize],
    strides: &[i64],
    offset: i64,
    mut visit: impl FnMut(i64, usize, i64) -> Result<()>,
) -> Result<()> {
    match (shape, strides) {
        ([outer @ .., length], [outer_strides @ .., step]) if 0 < *length => {
            for_each_offset(outer, outer_strides, offset, |offset| {
                visit(offset, *length, *step)
            })
        }
        ([], _) => visit(offset, 1, 0),
        _ => Ok(()),
    }
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

/// Sizes before, at and after an axis, for loops that work along one axis.
pub(super) fn split_at_axis(shape: &[usize], axis: usize) -> Result<(usize, usize, usize)> {
    let size = *shape
        .get(axis)
        .ok_or_else(|| Error::operator(format!("axis {axis} is out of range")))?;
    Ok((
        shape[..axis].iter().product(),
        size,
        shape[axis + 1..].iter().product(),
    ))
}
