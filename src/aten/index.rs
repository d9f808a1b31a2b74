//! Operators that read elements by index.

use super::advanced::{index_put, indexed, with_checked_indices};
use super::bounds_checks::{self as check, NegativeIndices};
use super::concatenate::broadcast;
use super::positions::where_true;
use super::split::check_axis;
use super::{Args, CallGradient, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScatterFunction;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
            "aten::index.Tensor_hacked_twin(Tensor self, Tensor[] indices) -> Tensor",
            "aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
            "aten::_unsafe_index.Tensor_hacked_twin(Tensor self, Tensor[] indices) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            indexed(x, &with_checked_indices(x, &a.optional_tensors("indices"))?)
        },
        &[
            "f32[4, B], [i64[3]]",
            "f32[B, 4, 5], [None, i64[2], i64[3, 1]]",
            "f32[4, B, 5], [i64[2], None, i64[2]]",
            "f32[4], [i64[]]",
        ],
    )
    .with_strides(StrideRule::Indexed),
    Composite::one(
        &[
            "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
            "aten::index_put.hacked_twin(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor",
            "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
            "aten::_unsafe_index_put.hacked_twin(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor",
            "aten::_index_put_impl(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, bool unsafe=False) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            index_put(
                x,
                &with_checked_indices(x, &a.optional_tensors("indices"))?,
                a.tensor("values"),
                a.bool("accumulate"),
            )
        },
        &[
            "f32[4, B], [i64[3]], f32[3, B], True",
            "f32[B, 4, 5], [None, i64[2], i64[2]], f32[]",
            "f32[B, 4], [bool[B, 4]], f32[]",
            "f32[4, B, 5], [i64[2], None, i64[2]], f32[2, 1], True",
        ],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let elements = indexed(x, &clamped_indices(x, &a.optional_tensors("indices")))?;
            let fill = a.builder().full(x.dtype(), Shape::new(), a.number("fill"));
            Ok(a.tensor("mask").where_(elements, fill))
        },
        &["f32[4], bool[3], [i64[3]], 0"],
    ),
    Composite::one(
        &[
            "aten::_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let added = a.tensor("mask").where_(a.tensor("values"), false);
            index_put(x, &clamped_indices(x, &a.optional_tensors("indices")), added, true)
        },
        &["f32[4], bool[3], [i64[3]], f32[3]"],
    ),
    Composite::one(
        &["aten::index_select(Tensor self, int dim, Tensor index) -> Tensor"],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            if x.rank() == 0 {
                return Ok(x);
            }
            check_axis(x, dim)?;
            let index = check::checked_index(x, dim, a.tensor("index"), NegativeIndices::Rejected);
            Ok(x.index_select(dim, index))
        },
        &["f32[4, B], 0, i64[3]", "f32[B, 4], -1, i32[2]"],
    ),
    Composite::one(
        &["aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            let index = check::checked_index(x, dim, a.tensor("index"), NegativeIndices::Rejected);
            Ok(gather(x, dim, index))
        },
        &["f32[B, 4], 1, i64[B, 3]", "f32[4, 3], 0, i64[2, 2]"],
    ),
    Composite::one(
        &["aten::take(Tensor self, Tensor index) -> Tensor"],
        |a| {
            let x = a.tensor("self").flatten(0, -1);
            let message =
                "out of range: tried to access index {value} on a tensor of {size} elements";
            let index = a.tensor("index");
            let index = check::checked_index_with_message(x, 0, index, NegativeIndices::FromEnd, message);
            Ok(take(x, index))
        },
        &["f32[4, 3], i64[2, B]"],
    ),
    Composite::one(
        &["aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor"],
        |a| {
            let (x, index) = (a.tensor("self"), a.tensor("indices"));
            match a.optional_int("dim") {
                Some(dim) => take_along(x, index, dim),
                None => {
                    let (x, index) = (x.flatten(0, -1), index.flatten(0, -1));
                    Ok(take(x, check::checked_index(x, 0, index, NegativeIndices::Rejected)))
                }
            }
        },
        &["f32[B, 4], i64[1, 2], 1", "f32[4, 3], i64[5]"],
    ),
    Composite::one(
        &[
            "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
        ],
        |a| {
            let weight = a.tensor("weight");
            let message = "index out of range in self: index {value}, {size} rows";
            let indices = a.tensor("indices");
            if indices.dtype().is_float() {
                let dtype = indices.dtype();
                return a.reject(format!("indices of {dtype}: they must be integers"));
            }
            let indices = check::checked_index_with_message(weight, 0, indices, NegativeIndices::Rejected, message);
            Ok(rows_of(weight, indices))
        },
        &["f32[10, 4], i64[B, 3]", "f32[10, 4], i64[]"],
    )
    .with_gradient(embedding_gradient),
    Composite::one(
        &["aten::one_hot(Tensor self, int num_classes=-1) -> Tensor"],
        |a| {
            let (x, classes) = (a.tensor("self"), a.int("num_classes"));
            if classes < 0 {
                return a.reject("the number of classes depends on the elements; pass num_classes");
            }
            let class = a.builder().iota(DType::I64, vec![Dim::from(classes)], 0);
            let message = "Class values must be non-negative and smaller than num_classes: class {value} of {size}";
            let x = x.check_in_range(Dim::ZERO, &Dim::from(classes), message);
            Ok(x.unsqueeze(-1).eq(class).to(DType::I64))
        },
        &["i64[B, 2], 5"],
    ),
    Composite::one(
        &[
            "aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
            "aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
        ],
        |a| {
            let sequence = a.tensor("sorted_sequence");
            let sorted = match a.optional_tensor("sorter") {
                Some(order) => {
                    let message =
                        "torch.searchsorted(): sorter index {value} is out of range of {size}";
                    let order = check::checked_index_with_message(sequence, -1, order, NegativeIndices::Rejected, message);
                    gather(sequence, -1, order)
                }
                None => sequence,
            };
            let right = a.bool("right") || a.str("side") == "right";
            search_sorted(a, sorted, a.tensor("self"), right)
        },
        &[
            "f32[5], f32[B]",
            "f32[2, 5], f32[2, 3], right=True",
            "Scalar: f32[5], 0.5, out_int32=True",
        ],
    ),
    Composite::one(
        &[
            "aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
            "aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
        ],
        |a| search_sorted(a, a.tensor("boundaries"), a.tensor("self"), a.bool("right")),
        &["f32[B, 2], f32[5]", "Scalar: 0.5, f32[5], right=True"],
    ),
    Composite::one(
        &["aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor"],
        |a| nonzero_static(a.tensor("self"), a.size("size"), a.int("fill_value")),
        &["f32[2, 3], size=4", "i64[3], size=5, fill_value=7"],
    ),
    Composite::one(
        &[
            "aten::nonzero(Tensor self) -> Tensor",
            "aten::argwhere(Tensor self) -> Tensor",
            "aten::masked_select(Tensor self, Tensor mask) -> Tensor",
        ],
        |a| {
            a.reject("the size of the result depends on data; use torch.where on whole tensors")
        },
        &[],
    ),
    Composite::many(
        &[
            "aten::nonzero_numpy(Tensor self) -> Tensor[]",
            "aten::_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)",
            "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
            "aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
            "aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)",
        ],
        |a| a.reject("the size of the results depends on data"),
        &[],
    ),
];

/// The gradient of the weight of `aten::embedding`. Rows at `padding_idx` get none; with `scale_grad_by_freq` each is divided
/// by the number of times that its index occurs.
fn embedding_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, weight) = (call.args(), call.args().tensor("weight"));
    let indices = a.tensor("indices").to(DType::I64);
    let indices = indices.reshape([indices.numel()]);
    let mut rows = call.gradient(0)?.reshape([indices.numel(), weight.size(1)]);
    let column = indices.unsqueeze(-1);
    if a.int("padding_idx") >= 0 {
        rows = column.eq(a.int("padding_idx")).where_(0.0, rows);
    }
    if a.bool("scale_grad_by_freq") {
        let zeros = a.builder().full(rows.dtype(), [weight.size(0)], 0.0);
        let ones = a.builder().full(rows.dtype(), indices.shape(), 1.0);
        let counts = zeros.scatter(0, indices, ones, ScatterFunction::Add);
        rows = rows / counts.gather(0, indices).unsqueeze(-1);
    }
    let zeros = a.builder().full(rows.dtype(), weight.shape(), 0.0);
    let gradient = zeros.scatter(0, column.expand(rows.shape()), rows, ScatterFunction::Add);
    Ok(vec![("weight", gradient)])
}

/// Computes `torch.gather`, also for operands of rank 0 and for empty indices.
pub(super) fn gather<'g>(x: Value<'g>, dim: i64, index: Value<'g>) -> Value<'g> {
    let shape = index.shape();
    match (x.rank(), shape.len()) {
        (0, 0) => x.unsqueeze(0).gather(0, index.unsqueeze(0)).reshape(shape),
        (0, _) => x.unsqueeze(0).gather(dim, index),
        (1, 0) => x.gather(0, index.unsqueeze(0)).reshape(shape),
        _ if shape.iter().any(|size| size.is(0)) => x.builder().full(x.dtype(), shape, false),
        _ => x.gather(dim, index),
    }
}

/// Selects elements of a vector; the result has the shape of the indices.
fn take<'g>(x: Value<'g>, index: Value<'g>) -> Value<'g> {
    x.index_select(0, index.flatten(0, -1))
        .reshape(index.shape())
}

/// Selects slices along the first axis: rows, if `x` is a matrix. The result has the shape of the indices, followed by
/// that of a slice.
pub(super) fn rows_of<'g>(x: Value<'g>, index: Value<'g>) -> Value<'g> {
    let mut shape = index.shape();
    shape.extend(x.shape().into_iter().skip(1));
    x.index_select(0, index.flatten(0, -1)).reshape(shape)
}

/// Computes `torch.take_along_dim`. Indices out of range wrap around: they are taken modulo the size of the axis.
fn take_along<'g>(x: Value<'g>, index: Value<'g>, dim: i64) -> Result<Value<'g>> {
    let axis = check_axis(x, dim)?;
    if x.rank() != index.rank() {
        return Err(Error::operator(format!(
            "{} does not index {}",
            index.ty(),
            x.ty()
        )));
    }
    // `x` and `index` broadcast in all other axes; along this axis each keeps its size.
    let without_axis = |value: Value<'g>| {
        let mut shape = value.shape();
        shape.splice(axis..axis + 1, [Dim::ONE]);
        shape
    };
    let common_shape = x
        .builder()
        .symbols()
        .broadcast_shapes(&[without_axis(x), without_axis(index)])?;
    let expanded = |value: Value<'g>| {
        let mut shape = common_shape.clone();
        shape.splice(axis..axis + 1, [value.size(dim)]);
        value.expand(shape)
    };
    let index = index.remainder(x.size(dim));
    Ok(gather(expanded(x), dim, expanded(index)))
}

/// Clamps indices to the bounds of their axes. A mask later replaces the elements that indices out of bounds select.
fn clamped_indices<'g>(x: Value<'g>, indices: &[Option<Value<'g>>]) -> Vec<Option<Value<'g>>> {
    let clamped = |(axis, index): (i64, &Option<Value<'g>>)| {
        let index = (*index)?;
        let last = &x.size(axis) - 1;
        Some(index.clamp(Some((-&x.size(axis)).into()), Some(last.into())))
    };
    (0i64..).zip(indices).map(clamped).collect()
}

/// Counts, for each value, the elements of its sorted row that come before it: those less than the value, or with
/// `right` those not greater. All elements come before a not-a-number. The result is `i32` if the call has `out_int32`,
/// else `i64`.
fn search_sorted<'g>(
    a: &Args<'g>,
    sorted: Value<'g>,
    values: Value<'g>,
    right: bool,
) -> Result<Value<'g>> {
    let sorted_rows = if sorted.rank() <= 1 {
        sorted
    } else {
        sorted.unsqueeze(-2)
    };
    let needles = values.unsqueeze(-1);
    let (sorted_rows, needles) = match broadcast(a.builder(), &[sorted_rows, needles])?.as_slice() {
        [sorted_rows, needles] => (*sorted_rows, *needles),
        _ => return Err(Error::internal("two values broadcast to two")),
    };
    let is_after = if right {
        sorted_rows.gt(needles)
    } else {
        sorted_rows.ge(needles)
    };
    let count = is_after.logical_not().sum(&[-1], false);
    Ok(if a.bool("out_int32") {
        count.to(DType::I32)
    } else {
        count
    })
}

/// Coordinates of the first `size` non-zero elements, `[size, rank]`; the remaining rows contain `fill`.
fn nonzero_static(x: Value, size: Dim, fill: i64) -> Result<Value> {
    let builder = x.builder();
    if x.rank() == 0 {
        return Ok(builder.full(DType::I64, vec![size, Dim::ZERO], 0));
    }
    let mask = x.flatten(0, -1).to_bool();
    let size_fits = builder.symbols().less_equal(&size, &mask.numel())?;
    // `where_true` needs a count up to the number of elements. Its positions after the true ones are replaced by
    // `fill`.
    let count = if size_fits {
        size.clone()
    } else {
        mask.numel()
    };
    let padding = &size - &count;
    let positions = where_true(mask, count.clone()).pad(&[Dim::ZERO], &[padding], 0);
    let is_nonzero = builder
        .iota(DType::I64, vec![size], 0)
        .lt(mask.sum(&[0], false));
    let mut stride = Dim::ONE;
    let mut columns = Vec::new();
    for axis_size in x.shape().iter().rev() {
        let coordinate = positions.floor_divide(&stride).remainder(axis_size);
        columns.push(is_nonzero.where_(coordinate, fill));
        stride = &stride * axis_size;
    }
    columns.reverse();
    Ok(builder.stack(&columns, 1))
}
