//! Positions of elements: of true ones, of a triangle, of a diagonal.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{Builder, Value};

/// Indices of the true elements of a vector, in order; there are at least `count`, and the first `count` are taken.
/// A stable sort that puts true before false lists them.
pub(super) fn where_true(mask: Value<'_>, count: Dim) -> Value<'_> {
    mask.to(DType::I32).sort(0, true).1.narrow(0, 0, count)
}

/// Column index minus row index of matrices `[rows, columns]`: 0 on the diagonal, positive above it.
pub(super) fn above_diagonal<'g>(builder: &'g Builder, rows: &Dim, columns: &Dim) -> Value<'g> {
    let shape = vec![rows.clone(), columns.clone()];
    builder.iota(DType::I64, shape.clone(), 1) - builder.iota(DType::I64, shape, 0)
}
