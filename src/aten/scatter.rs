//! Operators that write elements by index.

use super::advanced::index_put;
use super::bounds_checks::{self as check, NegativeIndices};
use super::cumulative::cumulative_true_count;
use super::scatter_gradient::reduction_gradient;
use super::{Args, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{ArithmeticOperand, Value};
use crate::op::{ReduceFunction, ScatterFunction};
use crate::shape::{Shape, wrap_dim};

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
            "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
        ],
        |a| {
            let function = reduction_by_name(&a.str("reduce"))?;
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            scatter(x, dim, index(a), a.tensor("src"), function)
        },
        &[
            "f32[B, 4], 1, i64[B, 2], f32[B, 3]",
            "reduce: f32[4, 2], 0, i64[3, 2], f32[3, 2], reduce='add'",
        ],
    ),
    Composite::one(
        &[
            "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
            "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
        ],
        |a| {
            let (x, index) = (a.tensor("self"), index(a));
            let value = a
                .builder()
                .full(x.dtype(), index.shape(), a.number("value"));
            scatter(x, a.int("dim"), index, value, reduction_by_name(&a.str("reduce"))?)
        },
        &[
            "f32[B, 4], 1, i64[B, 2], 1.5",
            "value_reduce: f32[4], 0, i64[2], 2, reduce='multiply'",
        ],
    ),
    Composite::one(
        &["aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            scatter(x, dim, index(a), a.tensor("src"), ScatterFunction::Add)
        },
        &["f32[B, 4], 1, i64[B, 2], f32[B, 3]"],
    ),
    Composite::one(
        &[
            "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
        ],
        |a| {
            let (dim, index) = (a.int("dim"), index(a));
            scatter_reduce(
                a.tensor("self"),
                dim,
                index,
                a.tensor("src"),
                &a.str("reduce"),
                a.bool("include_self"),
            )
        },
        &[
            "two: f32[B, 4], 1, i64[B, 5], f32[B, 5], 'sum'",
            "two: f32[4], 0, i64[5], f32[5], 'mean', include_self=False",
            "two: i64[4], 0, i64[5], i64[5], 'amax', include_self=False",
            "two: f32[4, 2], 0, i64[3, 2], f32[3, 2], 'prod'",
        ],
    )
    .with_gradient(|call| reduction_gradient(call, "src", index(call.args()))),
    Composite::one(
        &[
            "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
        ],
        |a| {
            let (x, source) = (a.tensor("self"), a.tensor("source"));
            let scaled = match a.is_number("alpha", 1.0) {
                true => source,
                false => (source * a.number("alpha")).to(x.dtype()),
            };
            let index = along(scaled, a.int("dim"), index(a))?;
            scatter(x, a.int("dim"), index, scaled, ScatterFunction::Add)
        },
        &["f32[4, B], 0, i64[3], f32[3, B], alpha=2"],
    ),
    Composite::one(
        &["aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor"],
        |a| {
            let source = a.tensor("source");
            let index = along(source, a.int("dim"), index(a))?;
            scatter(
                a.tensor("self"),
                a.int("dim"),
                index,
                source,
                ScatterFunction::Set,
            )
        },
        &["f32[B, 4], 1, i64[2], f32[B, 2]"],
    ),
    Composite::one(
        &[
            "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
            "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
        ],
        |a| filled(a, a.tensor("self"), a.number("value")),
        &[
            "f32[B, 4], 1, i64[2], 1.5",
            "int_Tensor: i64[4], 0, i64[], i64[]",
        ],
    )
    .with_gradient(|call| {
        let gradient = call.gradient(0)?;
        let kept = filled(call.args(), gradient, 0.0.into())?;
        // An element counts once, however often it was written.
        let axes: Vec<i64> = (0..gradient.rank() as i64).collect();
        let value = (gradient - kept).sum(&axes, false);
        Ok([vec![("self", kept)], call.operand("value", value)].concat())
    })
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
        ],
        |a| {
            let (dim, source) = (a.int("dim"), a.tensor("source"));
            let index = along(source, dim, index(a))?;
            scatter_reduce(
                a.tensor("self"),
                dim,
                index,
                source,
                &a.str("reduce"),
                a.bool("include_self"),
            )
        },
        &[
            "f32[4, B], 0, i64[3], f32[3, B], 'mean'",
            "f32[4], 0, i64[3], f32[3], 'amin', include_self=False",
        ],
    )
    .with_gradient(|call| {
        let (a, source) = (call.args(), call.args().tensor("source"));
        let index = along(source, a.int("dim"), index(a))?;
        reduction_gradient(call, "source", index)
    }),
    Composite::one(
        &["aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            let (index, source) = (
                a.tensor("index").flatten(0, -1),
                a.tensor("source").flatten(0, -1),
            );
            let flat = x.flatten(0, -1);
            let message =
                "out of range: tried to access index {value} on a tensor of {size} elements";
            let index = check::checked_index_with_message(flat, 0, index, NegativeIndices::FromEnd, message);
            let written = index_put(flat, &[Some(index)], source, a.bool("accumulate"))?;
            Ok(written.reshape(x.shape()))
        },
        &["f32[4, 3], i64[2], f32[2]", "f32[4], i64[5], f32[5], True"],
    ),
    Composite::one(
        &["aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor"],
        |a| {
            let (x, mask, source) = (a.tensor("self"), a.tensor("mask"), a.tensor("source"));
            let shape = a
                .builder()
                .symbols()
                .broadcast_shapes(&[x.shape(), mask.shape()])?;
            let (x, mask) = (
                x.expand(shape.clone()),
                mask.to_bool().expand(shape.clone()),
            );
            let last = &source.numel() - 1;
            let source_index = cumulative_true_count(mask.flatten(0, -1)) - 1;
            let selected = source
                .flatten(0, -1)
                .index_select(0, source_index.clamp(Some(0.into()), Some(last.into())));
            Ok(mask.where_(selected.reshape(shape), x))
        },
        &[
            "f32[B, 3], bool[B, 3], f32[B, 3]",
            "f32[2, 3], bool[3], f32[6]",
        ],
    ),
];

/// Writes a number into the elements of `x` whose coordinate along `dim` is among `index`.
fn filled<'g>(a: &Args<'g>, x: Value<'g>, value: ArithmeticOperand<'g>) -> Result<Value<'g>> {
    let (dim, index) = (a.int("dim"), a.tensor("index"));
    let index = check::checked_index(x, dim, index, NegativeIndices::FromEnd);
    let mut shape = x.shape();
    if let Some(size) = shape.get_mut(wrap_dim(dim, x.rank())?) {
        *size = index.numel();
    }
    let value = a.builder().full(x.dtype(), shape, value);
    let index = along(value, dim, index)?;
    scatter(x, dim, index, value, ScatterFunction::Set)
}

/// The indices of an axis, checked to be non-negative.
fn index<'g>(a: &Args<'g>) -> Value<'g> {
    let (x, dim) = (a.tensor("self"), a.int("dim"));
    check::checked_index(x, dim, a.tensor("index"), NegativeIndices::Rejected)
}

/// The function that `scatter` names by `reduce`.
fn reduction_by_name(reduce: &str) -> Result<ScatterFunction> {
    match reduce {
        "" => Ok(ScatterFunction::Set),
        "add" => Ok(ScatterFunction::Add),
        "multiply" => Ok(ScatterFunction::Mul),
        other => Err(Error::unsupported(format!("reduce = {other:?}"))),
    }
}

/// Expands a vector of indices along an axis to the shape of a source.
fn along<'g>(source: Value<'g>, dim: i64, index: Value<'g>) -> Result<Value<'g>> {
    let axis = wrap_dim(dim, source.rank())?;
    let mut shape = vec![Dim::ONE; source.rank()];
    if let Some(size) = shape.get_mut(axis) {
        *size = index.numel();
    }
    Ok(index.reshape(shape).expand(source.shape()))
}

/// Computes `torch.scatter`, scalars included. A source may be larger than its index.
pub(super) fn scatter<'g>(
    x: Value<'g>,
    dim: i64,
    index: Value<'g>,
    source: Value<'g>,
    function: ScatterFunction,
) -> Result<Value<'g>> {
    if x.rank() == 0 {
        let [index, source] = [index, source].map(|value| value.reshape(vec![value.numel()]));
        let vector = x.reshape(vec![Dim::ONE]);
        return Ok(scatter_dimensioned(vector, dim, index, source, function)?.reshape(Shape::new()));
    }
    scatter_dimensioned(x, dim, index, source, function)
}

/// [`scatter`] into a value that has dimensions.
fn scatter_dimensioned<'g>(
    x: Value<'g>,
    dim: i64,
    index: Value<'g>,
    source: Value<'g>,
    function: ScatterFunction,
) -> Result<Value<'g>> {
    let (index, source) = if index.rank() == 0 {
        (index.unsqueeze(0), source.reshape(vec![source.numel()]))
    } else {
        (index, source)
    };
    if index.shape().iter().any(|size| size.is(0)) {
        return Ok(x);
    }
    if source.rank() != index.rank() {
        return Err(Error::operator(format!(
            "{} does not scatter at {}",
            source.ty(),
            index.ty()
        )));
    }
    let cropped = (0i64..)
        .zip(index.shape())
        .fold(source, |source, (dim, size)| source.narrow(dim, 0, size));
    Ok(x.scatter(dim, index, cropped, function))
}

/// Computes `torch.scatter_reduce`. Without `include_self`, the old values of elements that are written do not count.
pub(super) fn scatter_reduce<'g>(
    x: Value<'g>,
    dim: i64,
    index: Value<'g>,
    source: Value<'g>,
    reduce: &str,
    include_self: bool,
) -> Result<Value<'g>> {
    let (function, reduction) = match reduce {
        "sum" | "mean" => (ScatterFunction::Add, ReduceFunction::Sum),
        "prod" => (ScatterFunction::Mul, ReduceFunction::Prod),
        "amax" => (ScatterFunction::Max, ReduceFunction::Max),
        "amin" => (ScatterFunction::Min, ReduceFunction::Min),
        other => return Err(Error::unsupported(format!("reduce = {other:?}"))),
    };
    let builder = x.builder();
    // A constant in the shape of `like`: `number` for a float dtype, `integer` otherwise.
    let constant = |dtype: DType, like: Value<'g>, number: f64, integer: i64| {
        if dtype.is_float() {
            builder.full(dtype, like.shape(), number)
        } else {
            builder.full(dtype, like.shape(), integer)
        }
    };
    let dtype = x.dtype();
    let start = if include_self {
        x
    } else {
        let neutral = constant(
            dtype,
            index,
            reduction.identity(dtype),
            reduction.identity_integer(dtype),
        );
        scatter(x, dim, index, neutral, ScatterFunction::Set)?
    };
    let combined = scatter(start, dim, index, source.to(dtype), function)?;
    if reduce != "mean" {
        return Ok(combined);
    }
    let initial_count = constant(
        dtype,
        x,
        f64::from(u8::from(include_self)),
        i64::from(include_self),
    );
    let ones = constant(dtype, index, 1.0, 1);
    let count = scatter(initial_count, dim, index, ones, ScatterFunction::Add)?.maximum(1);
    Ok(if dtype.is_float() {
        combined / count
    } else {
        combined.floor_divide(count)
    })
}
