//! Triangles and diagonals of matrices.

use super::positions::{above_diagonal, where_true};
use super::split::{check_axis, diagonal, diagonal_length};
use super::{Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};
use crate::shape::{Shape, wrap_dim};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::tril(Tensor self, SymInt diagonal=0) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let [rows, columns] = matrix_sizes(x)?;
            let is_kept = above_diagonal(a.builder(), &rows, &columns).le(a.size("diagonal"));
            Ok(is_kept.where_(x, false))
        },
        &["f32[B, 3]", "i64[2, 3, 4], 1", "bool[3, 3], -1"],
    ),
    Composite::one(
        &["aten::triu(Tensor self, SymInt diagonal=0) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let [rows, columns] = matrix_sizes(x)?;
            let is_kept = above_diagonal(a.builder(), &rows, &columns).ge(a.size("diagonal"));
            Ok(is_kept.where_(x, false))
        },
        &["f32[B, 3]", "i64[2, 3, 4], 1", "bool[3, 3], -1"],
    ),
    Composite::one(
        &["aten::diag(Tensor self, int diagonal=0) -> Tensor"],
        |a| match a.tensor("self") {
            x if x.rank() == 1 => embed_diagonal(x, a.int("diagonal"), -2, -1),
            x if x.rank() == 2 => diagonal(x, a.int("diagonal"), 0, 1),
            x => Err(Error::operator(format!(
                "expected a vector or a matrix, found {}",
                x.ty()
            ))),
        },
        &["f32[B]", "f32[3, 4], 1", "f32[3], -2"],
    ),
    Composite::one(
        &["aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor"],
        |a| {
            embed_diagonal(
                a.tensor("self"),
                a.int("offset"),
                a.int("dim1"),
                a.int("dim2"),
            )
        },
        &["f32[B, 3]", "f32[2, 3], 1, 0, 2", "f32[3], -1"],
    ),
    Composite::one(
        &["aten::diagflat(Tensor self, int offset=0) -> Tensor"],
        |a| embed_diagonal(a.tensor("self").flatten(0, -1), a.int("offset"), -2, -1),
        &["f32[2, 2]", "f32[], 1"],
    ),
    Composite::one(
        &["aten::trace(Tensor self) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            x.sizes::<2>()?;
            Ok(diagonal(x, 0, 0, 1)?.sum(&[0], false))
        },
        &["f32[3, 4]", "i64[B, 3]"],
    ),
    Composite::one(
        &[
            "aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
        ],
        |a| {
            let (offset, dim1, dim2) = (a.int("offset"), a.int("dim1"), a.int("dim2"));
            set_diagonal(a.tensor("self"), a.tensor("src"), offset, dim1, dim2)
        },
        &["f32[3, 4], f32[3]", "f32[B, 3, 4], f32[B, 2], -1, 1, 2"],
    )
    .with_strides(StrideRule::SameStrides),
    // PyTorch has this operator only in its in-place variant.
    Composite::one(
        &["aten::fill_diagonal(Tensor self, Scalar fill_value, bool wrap=False) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let number = a
                .builder()
                .full(x.dtype(), Shape::new(), a.number("fill_value"));
            Ok(main_diagonal(x, a.bool("wrap"))?.where_(number, x))
        },
        &["f32[B, 3], 2", "i64[7, 2], -1, True", "f32[2, 2, 2], 0.5"],
    )
    .with_strides(StrideRule::SameStrides),
    Composite::one(
        &[
            "aten::tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let shape = [a.int("row"), a.int("col"), a.int("offset")];
            triangle_indices(
                a.builder(),
                shape,
                false,
                a.dtype("dtype").unwrap_or(DType::I64),
            )
        },
        &["3, 4", "4, 3, -1", "2, 3, 1", "0, 3"],
    ),
    Composite::one(
        &[
            "aten::triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let shape = [a.int("row"), a.int("col"), a.int("offset")];
            triangle_indices(
                a.builder(),
                shape,
                true,
                a.dtype("dtype").unwrap_or(DType::I64),
            )
        },
        &["3, 4", "4, 3, -1", "2, 3, 1", "0, 3"],
    ),
];

/// Mask of the elements whose indices are all equal. With `wrap`, the diagonal of a tall matrix restarts one row below
/// its end.
fn main_diagonal(x: Value<'_>, wrap: bool) -> Result<Value<'_>> {
    let (builder, shape) = (x.builder(), x.shape());
    if let [rows, columns] = shape.as_slice() {
        let column_minus_row = above_diagonal(builder, rows, columns);
        let column_minus_row = if wrap {
            column_minus_row.remainder(columns + 1)
        } else {
            column_minus_row
        };
        return Ok(column_minus_row.eq(0));
    }
    let [first, second, others @ ..] = shape.as_slice() else {
        return Err(Error::operator(format!(
            "a diagonal requires at least two dimensions, found {}",
            x.ty()
        )));
    };
    for size in others.iter().chain([second]) {
        let complain = || format!("all sizes of {} must be equal for a diagonal", x.ty());
        builder.symbols().require_equal(first, size, complain)?;
    }
    let index = |axis: usize| builder.iota(DType::I64, shape.clone(), axis);
    let equal = (1..x.rank()).map(|axis| index(axis).eq(index(0)));
    Ok(equal.reduce(Value::logical_and).unwrap_or(x))
}

/// Sizes of the last two dimensions.
fn matrix_sizes(x: Value) -> Result<[Dim; 2]> {
    if x.rank() < 2 {
        return Err(Error::operator(format!(
            "expected at least 2 dimensions, found {}",
            x.ty()
        )));
    }
    Ok([x.size(-2), x.size(-1)])
}

/// Places the last axis on the diagonal `offset` of matrices of zeros, whose axes in the result are `dim1` and `dim2`.
fn embed_diagonal(x: Value, offset: i64, dim1: i64, dim2: i64) -> Result<Value> {
    check_axis(x, -1)?;
    let size = &x.size(-1) + offset.saturating_abs();
    let rank = x.rank() + 1;
    let matrix_axes = [wrap_dim(dim1, rank)?, wrap_dim(dim2, rank)?];
    let mut shape: Vec<Dim> = x.shape().into_iter().take(x.rank() - 1).collect();
    let mut sorted_axes = matrix_axes;
    sorted_axes.sort_unstable();
    for axis in sorted_axes {
        shape.insert(axis.min(shape.len()), size.clone());
    }
    let zeros = x.builder().full(x.dtype(), shape, false);
    set_diagonal(zeros, x, offset, dim1, dim2)
}

/// Replaces the diagonal `offset` of the matrices along `dim1` and `dim2` by `diagonal`, whose last axis runs along it.
pub(super) fn set_diagonal<'g>(
    x: Value<'g>,
    diagonal: Value<'g>,
    offset: i64,
    dim1: i64,
    dim2: i64,
) -> Result<Value<'g>> {
    let (first, second) = (check_axis(x, dim1)?, check_axis(x, dim2)?);
    if first == second {
        return Err(Error::operator(format!(
            "a diagonal requires two different axes, not {dim1} and {dim2}"
        )));
    }
    let order: Vec<usize> = (0..x.rank())
        .filter(|axis| ![first, second].contains(axis))
        .chain([first, second])
        .collect();
    let matrices = x.permute(order.clone());
    let (rows, columns) = (x.size(dim1), x.size(dim2));
    let length = diagonal_length(x.builder(), &rows, &columns, offset)?;
    let mut diagonal_shape: Vec<Dim> = matrices.shape().into_iter().take(x.rank() - 2).collect();
    diagonal_shape.push(length.clone());
    // Element `i` of the diagonal is in row `first_row + i`.
    let first_row = Dim::from((-offset).max(0));
    let (mut low, mut high) = (
        vec![Dim::ZERO; diagonal_shape.len()],
        vec![Dim::ZERO; diagonal_shape.len()],
    );
    if let (Some(low), Some(high)) = (low.last_mut(), high.last_mut()) {
        *high = &(&rows - &first_row) - &length;
        *low = first_row;
    }
    if length.is(0) {
        return Ok(x);
    }
    let row_values = diagonal
        .to(x.dtype())
        .expand(diagonal_shape)
        .pad(&low, &high, 0)
        .unsqueeze(-1);
    let is_diagonal = above_diagonal(x.builder(), &rows, &columns).eq(offset);
    let inverse: Vec<usize> = (0..x.rank())
        .filter_map(|axis| order.iter().position(|moved_axis| *moved_axis == axis))
        .collect();
    Ok(is_diagonal.where_(row_values, matrices).permute(inverse))
}

/// Row and column indices of the lower or upper triangle of a matrix, `[2, elements]`. `offset` moves the diagonal to
/// the right.
fn triangle_indices(
    builder: &Builder,
    [rows, columns, offset]: [i64; 3],
    upper: bool,
    dtype: DType,
) -> Result<Value<'_>> {
    if rows < 0 || columns < 0 || rows.saturating_mul(columns) > i64::from(i32::MAX) {
        return Err(Error::operator(format!(
            "a triangle of {rows} rows and {columns} columns"
        )));
    }
    let boundary_column = |row: i64| {
        row.saturating_add(offset)
            .saturating_add(i64::from(!upper))
            .clamp(0, columns)
    };
    let count_in_row = |row: i64| {
        if upper {
            columns - boundary_column(row)
        } else {
            boundary_column(row)
        }
    };
    let total: i64 = if columns == 0 {
        0
    } else {
        (0..rows).map(count_in_row).sum()
    };
    if total == 0 {
        return Ok(builder.full(dtype, vec![Dim::from(2), Dim::ZERO], 0));
    }
    let column_minus_row = above_diagonal(builder, &Dim::from(rows), &Dim::from(columns));
    let is_kept = if upper {
        column_minus_row.ge(offset)
    } else {
        column_minus_row.le(offset)
    };
    let positions = where_true(is_kept.flatten(0, -1), Dim::from(total));
    Ok(builder
        .stack(
            &[
                positions.floor_divide(columns),
                positions.remainder(columns),
            ],
            0,
        )
        .to(dtype))
}
