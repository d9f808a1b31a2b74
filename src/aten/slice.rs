//! Views of a part of a value: slices, splits, diagonals, windows.

use super::bounds_checks::{self as check, NegativeIndices};
use super::split::{chunk, diagonal, split, split_at, split_even, strided_index, unbind};
use super::{Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::shape::wrap_dim;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)",
            "aten::select_copy.int(Tensor self, int dim, SymInt index) -> Tensor",
        ],
        |a| Ok(a.tensor("self").select(a.int("dim"), a.size("index"))),
        &["f32[B, 3], 1, -1", "f32[4, 3], 0, 2"],
    ),
    Composite::one(
        &[
            "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
            "aten::slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
        ],
        |a| {
            let (start, end) = (a.optional_size("start"), a.optional_size("end"));
            Ok(a.tensor("self")
                .slice(a.int("dim"), start, end, a.int("step")))
        },
        &[
            "f32[B, 9], 1, 1, -1, 3",
            "f32[4, 5], 0, 2",
            "f32[4], 0, 3, 1",
            "f32[4], 0, -9, 9",
        ],
    ),
    Composite::one(
        &[
            "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)",
            "aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
        ],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            let start = resolve_start(x, dim, a.size("start"))?;
            Ok(x.narrow(dim, start, a.size("length")))
        },
        &["f32[B, 9], 1, 2, 4", "f32[9], 0, -3, 2", "f32[9], 0, 9, 0"],
    ),
    Composite::one(
        &["aten::narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)"],
        |a| {
            let (x, dim, start) = (a.tensor("self"), a.int("dim"), a.tensor("start"));
            let first = start
                .lt(0)
                .where_(start + x.size(dim), start)
                .reshape(vec![]);
            let positions = a.builder().iota(DType::I64, vec![a.size("length")], 0);
            let message = "narrow reads index {value} of an axis of size {size}";
            let positions = check::checked_index_with_message(x, dim, positions + first, NegativeIndices::Rejected, message);
            Ok(x.index_select(dim, positions))
        },
        &["Tensor: f32[9], 0, i64[], 2"],
    ),
    Composite::many(
        &[
            "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
            "aten::split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
            "aten::unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
        ],
        |a| split_even(a.tensor("self"), a.int("dim"), &a.size("split_size")),
        &["f32[7, B], 3", "f32[B, 6], 2, -1"],
    ),
    Composite::many(
        &["aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]"],
        |a| split(a.tensor("self"), a.int("dim"), &a.sizes("split_size")),
        &["f32[7, B], [3, 4]"],
    ),
    Composite::many(
        &[
            "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
            "aten::split(Tensor(a -> *) self, int[] split_sizes, int dim=0) -> Tensor(a)[]",
            "aten::split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
            "aten::unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
        ],
        |a| split(a.tensor("self"), a.int("dim"), &a.sizes("split_sizes")),
        &["f32[B, 7], [3, 0, 4], 1"],
    ),
    Composite::many(
        &[
            "aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]",
            "aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]",
        ],
        |a| chunk(a.tensor("self"), a.int("dim"), a.int("chunks")),
        &["f32[B, 6], 2, 1", "f32[7], 3", "f32[0], 3", "f32[5], 4"],
    ),
    Composite::many(
        &[
            "aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
            "aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]",
        ],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            if a.has("indices") {
                return split_at(x, dim, &a.sizes("indices"));
            }
            sections(x, dim, a.int("sections"), false)
        },
        &[
            "f32[7, B], 3",
            "f32[2], 3",
            "indices: f32[B, 7], [2, 5], 1",
            "indices: f32[4], [3, 1, -1, 9]",
        ],
    ),
    Composite::many(
        &[
            "aten::tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor(a)[]",
        ],
        |a| a.reject("the sizes of the chunks depend on data; pass a number or a list"),
        &[],
    ),
    Composite::many(
        &[
            "aten::hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]",
            "aten::hsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]",
        ],
        |a| {
            let x = at_least_rank(a.tensor("self"), 1)?;
            let dim = if x.rank() == 1 { 0 } else { 1 };
            if a.has("indices") {
                return split_at(x, dim, &a.sizes("indices"));
            }
            sections(x, dim, a.int("sections"), true)
        },
        &["f32[B, 6], 2", "f32[6], 3", "array: f32[B, 6], [2, 3]"],
    ),
    Composite::many(
        &[
            "aten::vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]",
            "aten::vsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]",
        ],
        |a| {
            let x = at_least_rank(a.tensor("self"), 2)?;
            if a.has("indices") {
                return split_at(x, 0, &a.sizes("indices"));
            }
            sections(x, 0, a.int("sections"), true)
        },
        &["f32[6, B], 2", "array: f32[6, B], [2, 3]"],
    ),
    Composite::many(
        &[
            "aten::dsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]",
            "aten::dsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]",
        ],
        |a| {
            let x = at_least_rank(a.tensor("self"), 3)?;
            if a.has("indices") {
                return split_at(x, 2, &a.sizes("indices"));
            }
            sections(x, 2, a.int("sections"), true)
        },
        &["f32[2, B, 6], 2", "array: f32[2, B, 6], [2, 3]"],
    ),
    Composite::many(
        &[
            "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]",
            "aten::unbind_copy.int(Tensor self, int dim=0) -> Tensor[]",
        ],
        |a| unbind(a.tensor("self"), a.int("dim")),
        &["f32[3, B]", "f32[B, 2], -1", "f32[0, 2]"],
    ),
    Composite::one(
        &[
            "aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)",
            "aten::unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor",
        ],
        |a| {
            unfold(
                a.tensor("self"),
                a.int("dimension"),
                a.int("size"),
                a.int("step"),
            )
        },
        &["f32[B, 9], 1, 3, 2", "f32[], 0, 1, 1", "f32[5], 0, 0, 2"],
    ),
    Composite::one(
        &[
            "aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
            "aten::diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
        ],
        |a| {
            diagonal(
                a.tensor("self"),
                a.int("offset"),
                a.int("dim1"),
                a.int("dim2"),
            )
        },
        &[
            "f32[3, 4]",
            "f32[B, 3, 4], -1, 1, -1",
            "f32[3, 4], 9",
            "f32[3, 2, B], 1, 0, 2",
        ],
    )
    .with_strides(StrideRule::Diagonal),
    Composite::one(
        &[
            "aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)",
        ],
        |a| diagonal(a.tensor("A"), a.int("offset"), a.int("dim1"), a.int("dim2")),
        &["f32[B, 3, 4], offset=1"],
    )
    .with_strides(StrideRule::Diagonal),
    Composite::one(
        &[
            "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
            "aten::as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
        ],
        |a| {
            let offset = a.optional_size("storage_offset").unwrap_or(Dim::ZERO);
            let size = a.sizes("size");
            let index = strided_index(a.builder(), &size, &a.sizes("stride"), &offset)?;
            let flat = index.reshape(vec![index.numel()]);
            Ok(a.tensor("self")
                .flatten(0, -1)
                .index_select(0, flat)
                .reshape(size))
        },
        &[
            "f32[3, 4], [2, 2], [4, 1], 1",
            "f32[9], [3, 3], [1, 2]",
            "f32[3], [], [], 1",
        ],
    )
    .with_strides(StrideRule::AsStrided),
];

/// Converts a start that counts from the end if it is negative to one that counts from the beginning of the axis.
pub(super) fn resolve_start(x: Value, dim: i64, start: Dim) -> Result<Dim> {
    let symbols = x.builder().symbols();
    let negative = !symbols.less_equal(&Dim::ZERO, &start)?;
    Ok(if negative {
        &start + &x.size(dim)
    } else {
        start
    })
}

/// Requires a rank of at least `rank`.
fn at_least_rank(x: Value, rank: usize) -> Result<Value> {
    if x.rank() < rank {
        return Err(Error::operator(format!(
            "expected at least {rank} dimensions, found {}",
            x.ty()
        )));
    }
    Ok(x)
}

/// Splits into `count` chunks. If `equal` is false, the first chunks may be longer by one; if true, unequal chunks are an
/// error.
fn sections<'g>(x: Value<'g>, dim: i64, count: i64, equal: bool) -> Result<Vec<Value<'g>>> {
    if count < 1 {
        return Err(Error::operator(format!(
            "the number of chunks must be at least 1, not {count}"
        )));
    }
    let size = x.size(dim);
    if equal
        && !x
            .builder()
            .symbols()
            .equal(&size.modulo(&Dim::from(count)), &Dim::ZERO)?
    {
        return Err(Error::operator(format!(
            "{size} elements cannot be split into {count} equal chunks"
        )));
    }
    let lengths = (0..count)
        .map(|index| (&size + &Dim::from(count - 1 - index)).floor_div(&Dim::from(count)));
    split(x, dim, &lengths.collect::<Vec<_>>())
}

/// Computes `Tensor.unfold`: the axis becomes one of windows, whose elements are a new last axis.
fn unfold(x: Value, dim: i64, size: i64, step: i64) -> Result<Value> {
    let axis = wrap_dim(dim, x.rank())?;
    if x.rank() == 0 {
        // A scalar has one element, hence one window, and no axis for the number of windows.
        return Ok(x.unsqueeze(0).narrow(0, 0, size));
    }
    if size != 0 {
        return Ok(x.unfold(dim, size, step, 1));
    }
    // Windows without elements: only their number matters.
    let mut shape = x.shape();
    if let Some(axis_size) = shape.get_mut(axis) {
        *axis_size = axis_size.floor_div(&Dim::from(step.max(1))) + 1;
    }
    shape.push(Dim::ZERO);
    Ok(x.builder().full(x.dtype(), shape, 0))
}
