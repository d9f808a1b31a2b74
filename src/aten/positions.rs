//! Values computed from positions: indices of true elements, distances from a diagonal, evenly spaced numbers.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};

/// The indices of the first `count` true elements of a vector, in order; there must be that many. A stable sort that puts
/// true before false finds them.
pub(super) fn where_true(mask: Value<'_>, count: Dim) -> Value<'_> {
    mask.to(DType::I32).sort(0, true).1.narrow(0, 0, count)
}

/// Column index minus row index of matrices `[rows, columns]`: 0 on the diagonal, positive above it.
pub(super) fn above_diagonal<'g>(builder: &'g Builder, rows: &Dim, columns: &Dim) -> Value<'g> {
    let shape = vec![rows.clone(), columns.clone()];
    builder.iota(DType::I64, shape.clone(), 1) - builder.iota(DType::I64, shape, 0)
}

/// `steps` evenly spaced numbers from `start` to `end`, two scalars of one float dtype. As in PyTorch, the first half
/// is computed from `start`, the second from `end`.
pub(super) fn spaced<'g>(start: Value<'g>, end: Value<'g>, steps: i64) -> Result<Value<'g>> {
    if steps < 0 {
        return Err(Error::operator(format!("{steps} steps")));
    }
    let shape = vec![Dim::from(steps)];
    if steps < 2 {
        return Ok(start.expand(shape));
    }
    let index = start.builder().iota(start.dtype(), shape, 0);
    let step = (end - start) / (steps - 1);
    let from_start = start + step * index;
    let from_end = end - step * index.rsub((steps - 1) as f64);
    Ok(index.lt((steps / 2) as f64).where_(from_start, from_end))
}
