//! Concatenation, stacking and repetition.

use super::split::check_axis;
use super::view::at_least;
use super::{Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Builder, Value};
use crate::op::ScanFunction;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
            "aten::concat(Tensor[] tensors, int dim=0) -> Tensor",
            "aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor",
        ],
        |a| Ok(cat(a.builder(), &a.tensors("tensors"), a.int("dim"))),
        &[
            "[f32[B, 2], f32[B, 3]], 1",
            "[f32[2], i64[3]]",
            "[f32[0], f32[2, 3]], -1",
            "[f32[0, 3], f32[2, 3]]",
        ],
    )
    .with_strides(StrideRule::Concat),
    Composite::one(
        &[
            "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
            "aten::_stack(Tensor[] tensors, int dim=0) -> Tensor",
        ],
        |a| {
            let rows = promoted(&a.tensors("tensors"));
            Ok(a.builder().stack(&rows, a.int("dim")))
        },
        &["[f32[B, 2], f32[B, 2]], -1", "[f32[], i64[]]"],
    )
    .with_strides(StrideRule::Stack),
    Composite::one(
        &["aten::hstack(Tensor[] tensors) -> Tensor"],
        |a| Ok(hstack(a.builder(), &a.tensors("tensors"))),
        &[
            "[f32[3], f32[2]]",
            "[f32[B, 2], f32[B, 3]]",
            "[f32[], f32[]]",
        ],
    ),
    Composite::one(
        &[
            "aten::vstack(Tensor[] tensors) -> Tensor",
            "aten::row_stack(Tensor[] tensors) -> Tensor",
        ],
        |a| {
            let rows: Vec<Value> = a
                .tensors("tensors")
                .into_iter()
                .map(|x| at_least(x, 2))
                .collect();
            Ok(cat(a.builder(), &rows, 0))
        },
        &["[f32[3], f32[2, 3]]"],
    ),
    Composite::one(
        &["aten::dstack(Tensor[] tensors) -> Tensor"],
        |a| {
            let blocks: Vec<Value> = a
                .tensors("tensors")
                .into_iter()
                .map(|x| at_least(x, 3))
                .collect();
            Ok(cat(a.builder(), &blocks, 2))
        },
        &["[f32[B, 3], f32[B, 3, 2]]", "[f32[3], f32[3]]"],
    ),
    Composite::one(
        &["aten::column_stack(Tensor[] tensors) -> Tensor"],
        |a| {
            let columns: Vec<Value> = a
                .tensors("tensors")
                .into_iter()
                .map(|x| {
                    if x.rank() <= 1 {
                        x.reshape(vec![x.numel(), Dim::ONE])
                    } else {
                        x
                    }
                })
                .collect();
            Ok(hstack(a.builder(), &columns))
        },
        &["[f32[B], f32[B, 3]]"],
    ),
    Composite::one(
        &["aten::_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor"],
        |a| {
            let (dim, chunks) = (a.int("dim"), Dim::from(a.int("num_chunks").max(1)));
            let chunk_rows: Vec<Value> = a
                .tensors("tensors")
                .into_iter()
                .map(|x| chunked(x, dim, &chunks))
                .collect();
            Ok(cat(a.builder(), &chunk_rows, -1))
        },
        &[
            "[f32[5, 2], f32[3]], 0, 2",
            "[f32[1, 2, 3], f32[1, 2, 4]], -1, 5",
        ],
    ),
    Composite::one(
        &["aten::block_diag(Tensor[] tensors) -> Tensor"],
        |a| {
            let blocks: Vec<Value> = a
                .tensors("tensors")
                .into_iter()
                .map(|x| at_least(x, 2))
                .collect();
            block_diag(a.builder(), &promoted(&blocks))
        },
        &["[f32[2, 3], f32[], f32[B]]"],
    ),
    Composite::one(
        &["aten::repeat(Tensor self, SymInt[] repeats) -> Tensor"],
        |a| {
            let (x, repeats) = (a.tensor("self"), a.sizes("repeats"));
            if repeats.len() < x.rank() {
                return Err(Error::operator(format!(
                    "{} repeats for {}",
                    repeats.len(),
                    x.ty()
                )));
            }
            Ok(x.repeat(&repeats))
        },
        &["f32[B, 3], [2, 1, 2]", "f32[2], [0]", "f32[], [3]"],
    ),
    Composite::one(
        &["aten::tile(Tensor self, SymInt[] dims) -> Tensor"],
        |a| Ok(a.tensor("self").repeat(&a.sizes("dims"))),
        &["f32[B, 3], [2]", "f32[3], [2, 2]"],
    ),
    Composite::one(
        &[
            "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let (x, dim) = match a.optional_int("dim") {
                Some(dim) => (x, dim),
                None => (x.flatten(0, -1), 0),
            };
            Ok(interleave(x, dim, a.size("repeats")))
        },
        &[
            "self_int: f32[B, 3], 2, 1",
            "self_int: f32[2, 3], 2",
            "self_int: f32[2, 3], 0, -1",
        ],
    ),
    Composite::one(
        &[
            "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
        ],
        |a| {
            let (x, repeats) = (a.tensor("self"), a.tensor("repeats"));
            let (x, dim) = match a.optional_int("dim") {
                Some(dim) => (x, dim),
                None => (x.flatten(0, -1), 0),
            };
            let counts = repeats.flatten(0, -1).expand(vec![x.size(dim)]);
            Ok(x.index_select(
                dim,
                repetition_sources(counts, a.optional_size("output_size"))?,
            ))
        },
        &[],
    ),
    Composite::one(
        &["aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor"],
        |a| {
            Ok(
                repetition_sources(a.tensor("repeats"), a.optional_size("output_size"))?
                    .to(a.tensor("repeats").dtype()),
            )
        },
        &[],
    ),
    Composite::many(
        &["aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]"],
        |a| broadcast(a.builder(), &a.tensors("tensors")),
        &["[f32[B, 1], f32[3]]"],
    )
    .with_strides(StrideRule::ItselfOrView),
];

/// Converts values to their common dtype.
pub(super) fn promoted<'g>(values: &[Value<'g>]) -> Vec<Value<'g>> {
    let dtype = common_dtype(values);
    values.iter().map(|value| value.to(dtype)).collect()
}

/// The promoted dtype of several tensors. Tensors with dimensions win over scalars of the same category.
pub(super) fn common_dtype(values: &[Value]) -> DType {
    let promoted_dtype = |are_scalars: bool| {
        let selected = values
            .iter()
            .filter(|value| (value.rank() == 0) == are_scalars);
        selected.map(|value| value.dtype()).reduce(DType::promote)
    };
    match (promoted_dtype(false), promoted_dtype(true)) {
        (Some(with_dims), Some(scalars)) if with_dims.category() < scalars.category() => {
            with_dims.promote(scalars)
        }
        (Some(with_dims), _) => with_dims,
        (None, scalars) => scalars.unwrap_or(DType::F32),
    }
}

/// Computes `torch.cat`: promotes, and skips vectors of size 0 whatever the rank of the others.
pub(super) fn cat<'g>(builder: &'g Builder, values: &[Value<'g>], dim: i64) -> Value<'g> {
    let promoted = promoted(values);
    let is_empty_vector = |value: &Value| value.rank() == 1 && value.size(0).is(0);
    let nonempty: Vec<Value> = promoted
        .iter()
        .copied()
        .filter(|value| !is_empty_vector(value))
        .collect();
    builder.concat(
        if nonempty.is_empty() {
            promoted.get(..1).unwrap_or_default()
        } else {
            &nonempty
        },
        dim,
    )
}

/// Concatenates along the second axis, or along the only one of vectors.
fn hstack<'g>(builder: &'g Builder, values: &[Value<'g>]) -> Value<'g> {
    let at_least_1d: Vec<Value> = values.iter().map(|value| at_least(*value, 1)).collect();
    let dim = i64::from(at_least_1d.first().is_some_and(|first| first.rank() > 1));
    cat(builder, &at_least_1d, dim)
}

/// Splits an axis into `chunks` chunks of equal size, padding the end with zeros, and flattens each chunk into a row.
fn chunked<'g>(x: Value<'g>, dim: i64, chunks: &Dim) -> Value<'g> {
    let Some(axis) = x.axis(dim) else { return x };
    let size = x.size(dim);
    let mut high = vec![Dim::ZERO; x.rank()];
    if let Some(padding) = high.get_mut(axis) {
        *padding = &(&size.ceil_div(chunks) * chunks) - &size;
    }
    let padded = x.pad(&vec![Dim::ZERO; x.rank()], &high, 0);
    let mut shape: Shape = x.shape().into_iter().take(axis).collect();
    shape.push(chunks.clone());
    let row = padded.numel().floor_div(&Dim::product(&shape));
    shape.push(row);
    padded.reshape(shape)
}

/// Places matrices along the diagonal of a matrix of zeros.
fn block_diag<'g>(builder: &'g Builder, blocks: &[Value<'g>]) -> Result<Value<'g>> {
    let mut width = Dim::ZERO;
    let mut offsets = Vec::new();
    for block in blocks {
        let [_, columns] = block.sizes()?;
        offsets.push(width.clone());
        width = &width + &columns;
    }
    let rows: Vec<Value> = blocks
        .iter()
        .zip(offsets)
        .map(|(block, left)| {
            let right = &width - &(&left + &block.size(1));
            block.pad(&[Dim::ZERO, left], &[Dim::ZERO, right], 0)
        })
        .collect();
    if rows.is_empty() {
        return Ok(builder.full(DType::F32, vec![Dim::ONE, Dim::ZERO], 0));
    }
    Ok(builder.concat(&rows, 0))
}

/// Repeats each element of an axis `times` times in a row (`torch.repeat_interleave`).
fn interleave(x: Value<'_>, dim: i64, times: Dim) -> Value<'_> {
    let Some(axis) = x.axis(dim) else { return x };
    let x = if x.rank() == 0 { x.unsqueeze(0) } else { x };
    let (mut expanded_shape, mut shape) = (x.shape(), x.shape());
    if let Some(size) = shape.get_mut(axis) {
        *size = &*size * &times;
    }
    expanded_shape.insert((axis + 1).min(expanded_shape.len()), times);
    x.unsqueeze(axis as i64 + 1)
        .expand(expanded_shape)
        .reshape(shape)
}

/// The index of the source element for each of the `output_size` positions of a repetition, in which element `i` occurs
/// `counts[i]` times in a row.
fn repetition_sources<'g>(counts: Value<'g>, output_size: Option<Dim>) -> Result<Value<'g>> {
    let Some(length) = output_size else {
        return Err(Error::unsupported(
            "the result's size depends on the elements of repeats; pass output_size",
        ));
    };
    let ends = counts
        .to(DType::I64)
        .scan(ScanFunction::Sum, 0)
        .unsqueeze(0);
    let positions = counts.builder().iota(DType::I64, vec![length, Dim::ONE], 0);
    Ok(ends.le(positions).sum(&[1], false))
}

/// Values expanded to their common shape.
pub(super) fn broadcast<'g>(builder: &'g Builder, values: &[Value<'g>]) -> Result<Vec<Value<'g>>> {
    let shapes: Vec<Shape> = values.iter().map(|value| value.shape()).collect();
    let shape = builder.symbols().broadcast_shapes(&shapes)?;
    Ok(values
        .iter()
        .map(|value| value.expand(shape.clone()))
        .collect())
}

/// Concatenates values along an axis and skips empty ones.
pub(super) fn concat_nonempty<'g>(
    builder: &'g Builder,
    values: &[Value<'g>],
    dim: i64,
) -> Result<Value<'g>> {
    for value in values {
        check_axis(*value, dim)?;
    }
    let nonempty: Vec<Value> = values
        .iter()
        .copied()
        .filter(|value| !value.size(dim).is(0))
        .collect();
    Ok(builder.concat(
        if nonempty.is_empty() {
            values.get(..1).unwrap_or_default()
        } else {
            &nonempty
        },
        dim,
    ))
}
