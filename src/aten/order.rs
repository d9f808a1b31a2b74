//! Sorting, and operators that read from sorted rows.

use super::reduce::require_float;
use super::split::check_axis;
use super::{Args, CallGradient, Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScanFunction;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::many(
        &[
            "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
            "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        ],
        |a| {
            let (values, indices) = a.tensor("self").sort(a.int("dim"), a.bool("descending"));
            Ok(vec![values, indices])
        },
        &[
            "f32[B, 5]",
            "i64[4, 3], 0, True",
            "stable: f32[5], stable=True",
            "f32[]",
            "f32[0]",
        ],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor",
            "aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
        ],
        |a| Ok(a.tensor("self").sort(a.int("dim"), a.bool("descending")).1),
        &["f32[B, 5]", "i64[4, 3], 0, True"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::msort(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").sort(0, false).0),
        &["f32[4, B]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::many(
        &[
            "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
        ],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            let (values, indices) = first_sorted(x, dim, a.bool("largest"), &a.size("k"));
            Ok(vec![values, indices])
        },
        &["f32[B, 5], 3", "i64[4, 3], 2, 0, False", "f32[3], 0"],
    ),
    Composite::many(
        &[
            "aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            if x.rank() == 0 {
                let (values, indices) = x.sort(dim, false);
                return Ok(vec![values, indices]);
            }
            let k = a.size("k");
            let (values, indices) = first_sorted(x, dim, false, &k);
            let last = &k - 1;
            Ok(vec![
                select_index(a, values, dim, &last),
                select_index(a, indices, dim, &last),
            ])
        },
        &["f32[B, 5], 2", "i64[4, 3], 1, 0, True"],
    ),
    Composite::one(
        &["aten::median(Tensor self) -> Tensor"],
        |a| Ok(median(a, a.tensor("self").flatten(0, -1), 0, false)?.0),
        &["f32[B, 3]", "i64[4]", "f32[]"],
    )
    .with_gradient(to_equals),
    Composite::many(
        &[
            "aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ],
        |a| median_of(a, false),
        &[
            "dim: f32[B, 5], 1",
            "dim: i64[4, 3], 0, True",
            "dim: f32[], 0",
        ],
    ),
    Composite::one(
        &["aten::nanmedian(Tensor self) -> Tensor"],
        |a| Ok(median(a, a.tensor("self").flatten(0, -1), 0, true)?.0),
        &["f32[B, 3]", "i64[4]"],
    )
    .with_gradient(to_equals),
    Composite::many(
        &[
            "aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ],
        |a| median_of(a, true),
        &["dim: f32[B, 5], 1", "dim: i64[4, 3], 0, True"],
    ),
    Composite::many(
        &[
            "aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ],
        |a| mode(a, a.tensor("self"), a.int("dim")),
        &["i64[B, 5]", "f32[4, 3], 0, True", "f32[]"],
    ),
    Composite::one(
        &[
            "aten::quantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
            "aten::quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
        ],
        |a| quantile(a, false),
        &[
            "scalar: f32[B, 5], 0.4, 1",
            "f32[4, 3], f32[2], 0, True",
            "scalar: f32[2, 3], 0.5, interpolation='nearest'",
        ],
    ),
    Composite::one(
        &[
            "aten::nanquantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
            "aten::nanquantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
        ],
        |a| quantile(a, true),
        &["scalar: f32[B, 5], 0.4, 1", "f32[4, 3], f32[2], 0, True"],
    ),
];

/// The first `k` elements along an axis in sorted order, and their indices.
fn first_sorted<'g>(x: Value<'g>, dim: i64, descending: bool, k: &Dim) -> (Value<'g>, Value<'g>) {
    match k.as_const().and_then(|k| usize::try_from(k).ok()) {
        Some(k) if k > 0 => x.topk(k, dim, descending),
        _ if x.rank() == 0 => x.sort(dim, descending),
        _ => {
            let (values, indices) = x.sort(dim, descending);
            let leading = |value: Value<'g>| value.narrow(dim, 0, k.clone());
            (leading(values), leading(indices))
        }
    }
}

/// One index of an axis, which stays with size 1 if the call says `keepdim`.
fn select_index<'g>(a: &Args, x: Value<'g>, dim: i64, index: &Dim) -> Value<'g> {
    if a.bool("keepdim") {
        x.narrow(dim, index.clone(), 1)
    } else {
        x.select(dim, index.clone())
    }
}

/// The elements that equal the only result share its gradient.
fn to_equals<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (x, result) = (call.args().tensor("self"), call.result(0)?);
    let is_both_nan = x.isnan().logical_and(result.isnan());
    let is_equal = x.eq(result).logical_or(is_both_nan).to(x.dtype());
    let share = call.gradient(0)? / is_equal.sum(&[], false);
    Ok(vec![("self", is_equal * share)])
}

/// The medians along the argument `dim`, and their indices.
fn median_of<'g>(a: &Args<'g>, ignore_nan: bool) -> Result<Vec<Value<'g>>> {
    let (x, dim) = (a.tensor("self"), a.int("dim"));
    if x.rank() == 0 {
        let (value, index) = x.sort(dim, false);
        return Ok(vec![value, index]);
    }
    let (values, indices) = median(a, x, dim, ignore_nan)?;
    let finish = |value: Value<'g>| {
        if a.bool("keepdim") {
            value
        } else {
            value.select(dim, 0)
        }
    };
    Ok(vec![finish(values), finish(indices)])
}

/// The lower median along an axis, which stays with size 1, and its index. Both are scalars for a vector if the overload has
/// no `dim`. If there is a not-a-number, it is the median, unless `ignore_nan` is true.
fn median<'g>(
    a: &Args<'g>,
    x: Value<'g>,
    dim: i64,
    ignore_nan: bool,
) -> Result<(Value<'g>, Value<'g>)> {
    check_axis(x, dim)?;
    let (values, indices) = x.sort(dim, false);
    let size = x.size(dim);
    if !x.has_elements(&[dim])? {
        if a.has("dim") || !x.dtype().is_float() {
            return Err(Error::operator(format!(
                "the median of no elements, in {}",
                x.ty()
            )));
        }
        let nan = a.builder().full(x.dtype(), Shape::new(), f64::NAN);
        return Ok((nan, nan));
    }
    let nan = if x.dtype().is_float() {
        x.isnan()
    } else {
        x.ne(x)
    };
    let (value, index) = if ignore_nan {
        let count = nan.logical_not().sum(&[dim], true);
        let middle = (count - 1).floor_divide(2).maximum(0);
        (values.gather(dim, middle), indices.gather(dim, middle))
    } else {
        let middle = (&size - 1).floor_div(&Dim::from(2));
        let (value, index) = (
            values.narrow(dim, middle.clone(), 1),
            indices.narrow(dim, middle, 1),
        );
        let first_nan = nan.to(DType::I32).argmax(dim, true);
        let has_nan = nan.any(&[dim], true);
        if x.dtype().is_float() {
            (
                has_nan.where_(f64::NAN, value),
                has_nan.where_(first_nan, index),
            )
        } else {
            (value, index)
        }
    };
    Ok(if a.has("dim") {
        (value, index)
    } else {
        (value.reshape(Shape::new()), index.reshape(Shape::new()))
    })
}

/// The most frequent element along an axis (the smallest if several), and the last of its indices.
fn mode<'g>(a: &Args<'g>, x: Value<'g>, dim: i64) -> Result<Vec<Value<'g>>> {
    if x.rank() == 0 {
        let (value, index) = x.sort(dim, false);
        return Ok(vec![value, index]);
    }
    check_axis(x, dim)?;
    if !x.has_elements(&[dim])? {
        return Err(Error::operator(format!(
            "the mode of no elements, in {}",
            x.ty()
        )));
    }
    let (values, indices) = x.sort(dim, false);
    // Equal elements form a run in sorted order. The last element of the longest run is the one farthest from the start
    // of its run.
    let position = values.positions(dim).expand(values.shape());
    let last = &values.size(dim) - 1;
    let is_run_start = if last.is(0) {
        position.eq(0)
    } else {
        let changes = values
            .narrow(dim, 1, last.clone())
            .ne(values.narrow(dim, 0, last));
        let first = position.narrow(dim, 0, 1).eq(0);
        a.builder().concat(&[first, changes], dim)
    };
    let run_start = is_run_start
        .where_(position, 0)
        .scan(ScanFunction::Max, dim);
    let mode_position = (position - run_start).argmax(dim, true);
    let finish = |value: Value<'g>| {
        let element = value.gather(dim, mode_position);
        if a.bool("keepdim") {
            element
        } else {
            element.select(dim, 0)
        }
    };
    Ok(vec![finish(values), finish(indices)])
}

/// Computes `torch.quantile`: the elements at `q·(n - 1)` of sorted rows; several `q` form a new first axis.
fn quantile<'g>(a: &Args<'g>, ignore_nan: bool) -> Result<Value<'g>> {
    let (x, keepdim) = (require_float(a.tensor("self"))?, a.bool("keepdim"));
    let q = a
        .builder()
        .full(x.dtype(), a.tensor("q").shape(), a.number("q"));
    if q.rank() > 1 {
        return Err(Error::operator(format!(
            "q is a scalar or a vector, not {}",
            q.ty()
        )));
    }
    let (rows, dim) = match a.optional_int("dim") {
        Some(dim) if x.rank() > 0 => (x.move_axis(dim, -1), dim),
        _ => (x.reshape(vec![x.numel()]), 0),
    };
    let sorted = rows.sort(-1, false).0;
    let fractional_ranks = ranks(sorted, q.reshape(vec![q.numel()]), ignore_nan);
    let result = at_ranks(a, sorted, fractional_ranks)?;
    // The axis of `q` moves to the front. With `keepdim`, the reduced axis comes back with size 1.
    let result = result.move_axis(-1, 0);
    let result = match (keepdim, a.optional_int("dim")) {
        (false, _) => result,
        (true, Some(_)) if x.rank() > 0 => {
            let axis = check_axis(x, dim)?;
            result.unsqueeze(i64::try_from(axis).unwrap_or(0) + 1)
        }
        _ => result.reshape(
            [q.numel()]
                .into_iter()
                .chain(vec![Dim::ONE; x.rank()])
                .collect::<Shape>(),
        ),
    };
    Ok(if q.rank() == 0 {
        result.select(0, 0)
    } else {
        result
    })
}

/// Fractional positions of the quantiles `q` in sorted rows, `[.., q]`. Not-a-number sorts last. In rows that have one,
/// all positions are that of the last element, unless `ignore_nan` is true.
fn ranks<'g>(sorted: Value<'g>, q: Value<'g>, ignore_nan: bool) -> Value<'g> {
    let last = &sorted.size(-1) - 1;
    let nan = sorted.isnan();
    if ignore_nan {
        let last_number = nan.logical_not().sum(&[-1], true) - 1;
        return (q * last_number.maximum(0).to(sorted.dtype())).maximum(0);
    }
    let last_rank = sorted.builder().full(sorted.dtype(), Shape::new(), &last);
    nan.any(&[-1], true).where_(last_rank, q * last_rank)
}

/// Elements of sorted rows at fractional positions, by the argument `interpolation`.
fn at_ranks<'g>(a: &Args<'g>, sorted: Value<'g>, ranks: Value<'g>) -> Result<Value<'g>> {
    let mut shape = sorted.shape();
    if let (Some(size), Some(count)) = (shape.last_mut(), ranks.shape().last()) {
        *size = count.clone();
    }
    let element_at =
        |ranks: Value<'g>| sorted.gather(-1, ranks.to(DType::I64).expand(shape.clone()));
    let (low, high) = (ranks.floor(), ranks.ceil());
    Ok(match a.str("interpolation").as_str() {
        "lower" => element_at(low),
        "higher" => element_at(high),
        "nearest" => element_at(ranks.round()),
        "midpoint" => lerp(element_at(low), element_at(high), None),
        "linear" => lerp(element_at(low), element_at(high), Some(ranks - low)),
        other => return a.reject(format!("interpolation = {other:?}")),
    })
}

/// Interpolates from `low` to `high` by a weight (0.5 if `None`), from the nearer end.
fn lerp<'g>(low: Value<'g>, high: Value<'g>, weight: Option<Value<'g>>) -> Value<'g> {
    let distance = high - low;
    match weight {
        None => high - distance * 0.5,
        Some(weight) => weight
            .lt(0.5)
            .where_(low + distance * weight, high - distance * weight.rsub(1.0)),
    }
}
