//! Splitting and indexing that several modules of operators share.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};
use crate::shape::{Shape, wrap_dim};

/// The dtype of index tables along an axis. Kernels load four of these at once, but 64-bit elements one by one.
pub(super) const INDEX_DTYPE: DType = DType::I32;

/// Specialises a size that decides the number of results to its value in the example, and records a guard. Symbols that
/// the number does not determine stay free.
pub(super) fn specialized_count(builder: &Builder, size: &Dim) -> Result<i64> {
    let number = builder.symbols().hint(size)?;
    builder.symbols().equal(size, &Dim::from(number))?;
    Ok(number)
}

/// Splits an axis into chunks of the given sizes, which must add up to its size.
pub(super) fn split<'g>(x: Value<'g>, dim: i64, sizes: &[Dim]) -> Result<Vec<Value<'g>>> {
    check_axis(x, dim)?;
    let total = sizes.iter().fold(Dim::ZERO, |sum, size| &sum + size);
    let complain = || {
        format!(
            "the sizes of the chunks add up to {total}, not to the size of axis {dim} of {}",
            x.ty()
        )
    };
    x.builder()
        .symbols()
        .require_equal(&total, &x.size(dim), complain)?;
    let mut start = Dim::ZERO;
    Ok(sizes
        .iter()
        .map(|size| {
            let slice = x.narrow(dim, start.clone(), size.clone());
            start = &start + size;
            slice
        })
        .collect())
}

/// Splits an axis into chunks of one size; the last one may be shorter.
pub(super) fn split_even<'g>(x: Value<'g>, dim: i64, size: &Dim) -> Result<Vec<Value<'g>>> {
    check_axis(x, dim)?;
    let total = x.size(dim);
    let count = specialized_count(x.builder(), &total.ceil_div(size))?;
    if count <= 1 {
        return Ok(vec![x]);
    }
    let mut sizes = vec![size.clone(); usize::try_from(count - 1).unwrap_or(0)];
    sizes.push(&total - &(size * &Dim::from(count - 1)));
    split(x, dim, &sizes)
}

/// Splits an axis into at most `chunks` chunks of one size; the last one may be shorter.
pub(super) fn chunk<'g>(x: Value<'g>, dim: i64, chunks: i64) -> Result<Vec<Value<'g>>> {
    check_axis(x, dim)?;
    if chunks < 1 {
        return Err(Error::operator(format!(
            "the number of chunks must be at least 1, not {chunks}"
        )));
    }
    if !x.has_elements(&[dim])? {
        return Ok(vec![x; usize::try_from(chunks).unwrap_or(1)]);
    }
    split_even(x, dim, &x.size(dim).ceil_div(&Dim::from(chunks)))
}

/// Splits an axis at the given bounds, which may be negative or out of range as in Python's slices.
pub(super) fn split_at<'g>(x: Value<'g>, dim: i64, bounds: &[Dim]) -> Result<Vec<Value<'g>>> {
    check_axis(x, dim)?;
    let starts = std::iter::once(None).chain(bounds.iter().cloned().map(Some));
    let ends = bounds
        .iter()
        .cloned()
        .map(Some)
        .chain(std::iter::once(None));
    Ok(starts
        .zip(ends)
        .map(|(start, end)| x.slice(dim, start, end, 1))
        .collect())
}

/// One value for each index of an axis, whose size must be known.
pub(super) fn unbind<'g>(x: Value<'g>, dim: i64) -> Result<Vec<Value<'g>>> {
    check_axis(x, dim)?;
    let size = specialized_count(x.builder(), &x.size(dim))?;
    Ok((0..size).map(|index| x.select(dim, index)).collect())
}

/// Computes `Tensor.diagonal`: two axes disappear, and the diagonal of their matrices becomes the last axis.
pub(super) fn diagonal(x: Value, offset: i64, dim1: i64, dim2: i64) -> Result<Value> {
    let (first, second) = (check_axis(x, dim1)?, check_axis(x, dim2)?);
    if first == second {
        return Err(Error::operator(format!(
            "a diagonal requires two different axes, not {dim1} and {dim2}"
        )));
    }
    let (rows, columns) = (x.size(dim1), x.size(dim2));
    let (down, right) = ((-offset).max(0), offset.max(0));
    let length = diagonal_length(x.builder(), &rows, &columns, offset)?;
    let others = (0..x.rank()).filter(|axis| ![first, second].contains(axis));
    let x = x.permute(others.chain([first, second]).collect::<Vec<_>>());
    if length.is(0) {
        let mut shape = x.shape();
        shape.truncate(shape.len().saturating_sub(2));
        shape.push(length);
        return Ok(x.builder().full(x.dtype(), shape, 0));
    }
    if let Some(width) = columns.as_const() {
        let start = Dim::from(down.saturating_mul(width).saturating_add(right));
        let step = width.saturating_add(1);
        let end = &(&start + &(&(&length - &Dim::ONE) * &Dim::from(step))) + 1;
        return Ok(x.flatten(-2, -1).slice(-1, Some(start), Some(end), step));
    }
    // The step of a slice must be a number. Otherwise gather the elements whose row index equals the column index.
    let square = x.narrow(-2, down, length.clone()).narrow(-1, right, length);
    let mut index_shape = square.shape();
    if let Some(last) = index_shape.last_mut() {
        *last = Dim::ONE;
    }
    let row_axis = square.rank().saturating_sub(2);
    let index = x.builder().iota(DType::I64, index_shape, row_axis);
    Ok(square.gather(-1, index).flatten(-2, -1))
}

/// Number of elements on a diagonal of a matrix. A positive offset is above the main diagonal.
pub(super) fn diagonal_length(
    builder: &Builder,
    rows: &Dim,
    columns: &Dim,
    offset: i64,
) -> Result<Dim> {
    let symbols = builder.symbols();
    let (down, right) = (
        rows - &Dim::from((-offset).max(0)),
        columns - &Dim::from(offset.max(0)),
    );
    let shorter = if symbols.less_equal(&down, &right)? {
        down
    } else {
        right
    };
    Ok(if symbols.less_equal(&Dim::ZERO, &shorter)? {
        shorter
    } else {
        Dim::ZERO
    })
}

/// Linear indices `offset + Σ index·stride` for each index of a shape.
pub(super) fn strided_index<'g>(
    builder: &'g Builder,
    sizes: &[Dim],
    strides: &[Dim],
    offset: &Dim,
) -> Result<Value<'g>> {
    if sizes.len() != strides.len() {
        return Err(Error::operator(format!(
            "{} sizes and {} strides",
            sizes.len(),
            strides.len()
        )));
    }
    let shape: Shape = sizes.to_vec();
    let first = builder.full(DType::I64, shape.clone(), offset);
    let axes = strides.iter().enumerate();
    Ok(axes.fold(first, |index, (axis, stride)| {
        index + builder.iota(DType::I64, shape.clone(), axis) * stride
    }))
}

/// Converts a dimension to an axis; an error if it is out of range or the value is a scalar.
pub(super) fn check_axis(x: Value, dim: i64) -> Result<usize> {
    let axis = wrap_dim(dim, x.rank())?;
    if x.rank() == 0 {
        return Err(Error::operator("a scalar has no axes"));
    }
    Ok(axis)
}
