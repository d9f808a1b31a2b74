//! Cumulative sums and extremes, differences, and integrals by the trapezoidal rule.

use super::concatenate::cat;
use super::split::check_axis;
use super::{Composite, StrideRule};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScanFunction;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"],
        |a| {
            Ok(cumulative(
                a.tensor("self"),
                ScanFunction::Sum,
                a.int("dim"),
                a.dtype("dtype"),
            ))
        },
        &[
            "f32[B, 3], 1",
            "i32[2, 3], 0",
            "bool[3], 0",
            "f16[2, 3], -1, dtype=f32",
            "f32[], 0",
            "f32[0], 0",
        ],
    ),
    Composite::one(
        &["aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"],
        |a| {
            Ok(cumulative(
                a.tensor("self"),
                ScanFunction::Prod,
                a.int("dim"),
                a.dtype("dtype"),
            ))
        },
        &["f32[B, 3], 1", "i32[2, 3], 0"],
    ),
    Composite::many(
        &["aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)"],
        |a| {
            Ok(cumulative_extreme(
                a.tensor("self"),
                ScanFunction::Max,
                a.int("dim"),
            ))
        },
        &["f32[B, 3], 1", "bool[2, 3], 0", "i64[], 0"],
    )
    .with_gradient(|call| call.at_indices(call.args().int("dim"))),
    Composite::many(
        &["aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)"],
        |a| {
            Ok(cumulative_extreme(
                a.tensor("self"),
                ScanFunction::Min,
                a.int("dim"),
            ))
        },
        &["f32[B, 3], 1", "bool[2, 3], 0"],
    )
    .with_gradient(|call| call.at_indices(call.args().int("dim"))),
    Composite::one(
        &["aten::logcumsumexp(Tensor self, int dim) -> Tensor"],
        |a| {
            Ok(a.tensor("self")
                .to_float()
                .scan(ScanFunction::LogSumExp, a.int("dim")))
        },
        &["f32[B, 3], 1", "f16[2, 3], 0"],
    ),
    Composite::one(
        &[
            "aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
        ],
        |a| {
            let (x, dim) = (a.tensor("self"), a.int("dim"));
            check_axis(x, dim)?;
            if a.int("n") == 0 {
                return Ok(x);
            }
            let operands = [
                a.optional_tensor("prepend"),
                Some(x),
                a.optional_tensor("append"),
            ];
            let operands: Vec<Value> = operands.into_iter().flatten().collect();
            let concatenated = if operands.len() > 1 {
                cat(a.builder(), &operands, dim)
            } else {
                x
            };
            difference(concatenated, a.int("n"), dim)
        },
        &[
            "f32[B, 4]",
            "i64[4, 3], 2, 0",
            "bool[4]",
            "f32[2], 5",
            "f32[3], 1, 0, f32[1], f32[2]",
        ],
    )
    .with_strides(StrideRule::Elementwise),
    Composite::one(
        &[
            "aten::trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
            "aten::trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor",
        ],
        |a| {
            let (y, dim) = (a.tensor("y"), a.int("dim"));
            if !y.has_elements(&[dim])? {
                return Ok((y.sum(&[dim], false) * 0.0).to(y.dtype()));
            }
            let (first, last) = (y.select(dim, 0), y.select(dim, -1));
            Ok((y.sum(&[dim], false) - (first + last) * 0.5) * a.float("dx"))
        },
        &["f32[B, 4]", "f32[4, 3], dx=0.5, dim=0"],
    ),
    Composite::one(
        &[
            "aten::trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
            "aten::trapz.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
        ],
        |a| {
            let (y, dim) = (a.tensor("y"), a.int("dim"));
            if !y.has_elements(&[dim])? {
                return Ok((y.sum(&[dim], false) * 0.0).to(y.dtype()));
            }
            Ok(doubled_areas(y, a.tensor("x"), dim)?.sum(&[dim], false) / 2.0)
        },
        &["x: f32[B, 4], f32[4]", "x: f32[4, 3], f32[4, 3], dim=0"],
    ),
    Composite::one(
        &["aten::cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor"],
        |a| {
            let dim = a.int("dim");
            let [left, right] = neighbours(a.tensor("y"), dim)?;
            Ok(cumulative(left + right, ScanFunction::Sum, dim, None) * (a.float("dx") / 2.0))
        },
        &["dx: f32[B, 4]", "dx: f32[4, 3], dx=0.5, dim=0"],
    ),
    Composite::one(
        &["aten::cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor"],
        |a| {
            let dim = a.int("dim");
            Ok(cumulative(
                doubled_areas(a.tensor("y"), a.tensor("x"), dim)?,
                ScanFunction::Sum,
                dim,
                None,
            ) / 2.0)
        },
        &["x: f32[B, 4], f32[4]"],
    ),
    Composite::many(
        &[
            "aten::gradient.scalarint(Tensor self, *, Scalar? spacing=None, int? dim=None, int edge_order=1) -> Tensor[]",
            "aten::gradient.scalararray(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]",
            "aten::gradient.array(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]",
            "aten::gradient.scalarrayint(Tensor self, *, Scalar[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
            "aten::gradient.scalarrayarray(Tensor self, *, Scalar[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
        ],
        |a| {
            let (x, dims) = (a.tensor("self"), gradient_dims(a));
            let spacings = a.optional_floats("spacing").unwrap_or_default();
            let spacing = |index: usize| {
                if spacings.len() == 1 {
                    spacings.first()
                } else {
                    spacings.get(index)
                }
            };
            let gradient_along = |(index, dim): (usize, &i64)| {
                let step = spacing(index).copied().unwrap_or(1.0);
                gradient_evenly_spaced(x, *dim, step, a.int("edge_order"))
            };
            dims.iter().enumerate().map(gradient_along).collect()
        },
        &[
            "scalarint: f32[4, 5]",
            "scalarint: f32[B, 5], spacing=0.5, dim=1, edge_order=2",
            "scalarrayarray: f32[4, 5], spacing=[1.0, 2.0], dim=[1, 0]",
        ],
    ),
    Composite::many(
        &[
            "aten::gradient.tensorarrayint(Tensor self, *, Tensor[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
            "aten::gradient.tensorarray(Tensor self, *, Tensor[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
        ],
        |a| {
            let (x, dims, coordinates) = (a.tensor("self"), gradient_dims(a), a.tensors("spacing"));
            let pairs = dims.iter().zip(coordinates);
            pairs
                .map(|(dim, axis_coordinates)| {
                    gradient_at_coordinates(x, *dim, axis_coordinates, a.int("edge_order"))
                })
                .collect()
        },
        &[
            "tensorarrayint: f32[B, 5], spacing=[f32[5]], dim=1",
            "tensorarray: f32[4, 5], spacing=[f32[4], f32[5]], dim=[0, 1], edge_order=2",
        ],
    ),
];

/// A cumulative sum or product in `dtype`; by default in the dtype of `x`, but `i64` for integers and `bool`.
fn cumulative(x: Value<'_>, function: ScanFunction, dim: i64, dtype: Option<DType>) -> Value<'_> {
    let dtype = dtype.unwrap_or(x.dtype().to_sum());
    let scan_dtype = if dtype == DType::Bool {
        DType::I64
    } else {
        dtype
    };
    x.to(dtype).to(scan_dtype).scan(function, dim).to(dtype)
}

/// Cumulative maxima or minima, and the last index at which each occurs.
fn cumulative_extreme(x: Value<'_>, function: ScanFunction, dim: i64) -> Vec<Value<'_>> {
    let builder = x.builder();
    if x.rank() == 0 {
        return vec![x, builder.full(DType::I64, vec![], 0)];
    }
    let operand = if x.dtype() == DType::Bool {
        x.to(DType::I32)
    } else {
        x
    };
    let extremes = operand.scan(function, dim);
    let is_extreme = if x.dtype().is_float() {
        operand.eq(extremes).logical_or(operand.isnan())
    } else {
        operand.eq(extremes)
    };
    let position = x.positions(dim).expand(x.shape());
    let index = is_extreme.where_(position, 0).scan(ScanFunction::Max, dim);
    vec![extremes.to(x.dtype()), index]
}

/// The elements of an axis without the last one, and the elements without the first one.
fn neighbours<'g>(x: Value<'g>, dim: i64) -> Result<[Value<'g>; 2]> {
    check_axis(x, dim)?;
    let size = x.size(dim);
    let length = if x.has_elements(&[dim])? {
        &size - 1
    } else {
        Dim::ZERO
    };
    let start = &size - &length;
    Ok([
        x.narrow(dim, 0, length.clone()),
        x.narrow(dim, start, length),
    ])
}

/// Differences of adjacent elements along an axis, taken `order` times; "exclusive or" for `bool`.
fn difference(x: Value<'_>, order: i64, dim: i64) -> Result<Value<'_>> {
    if order < 0 {
        return Err(Error::operator(format!("the difference of order {order}")));
    }
    let mut result = x;
    for _ in 0..order {
        if !result.has_elements(&[dim])? {
            break;
        }
        let [left, right] = neighbours(result, dim)?;
        result = if x.dtype() == DType::Bool {
            left.logical_xor(right)
        } else {
            right - left
        };
    }
    Ok(result)
}

/// Twice the area under the line between each two adjacent points (`x`, `y`) along an axis.
fn doubled_areas<'g>(y: Value<'g>, x: Value<'g>, dim: i64) -> Result<Value<'g>> {
    let axis = check_axis(y, dim)?;
    let x = if x.rank() == 1 {
        let mut shape = vec![Dim::ONE; y.rank()];
        if let Some(size) = shape.get_mut(axis) {
            *size = x.numel();
        }
        x.reshape(shape)
    } else {
        let missing_axes = y.rank().saturating_sub(x.rank());
        x.reshape([vec![Dim::ONE; missing_axes], x.shape()].concat())
    };
    let dim = i64::try_from((axis + x.rank()).saturating_sub(y.rank())).unwrap_or(0);
    let [left, right] = neighbours(y, i64::try_from(axis).unwrap_or(0))?;
    Ok(difference(x, 1, dim)? * (left + right))
}

/// The dimensions along which a call takes gradients: those given, else all.
fn gradient_dims(a: &super::Args) -> Vec<i64> {
    let rank = a.tensor("self").rank();
    a.optional_ints("dim")
        .unwrap_or_else(|| (0i64..).take(rank).collect())
}

/// Central differences of elements whose distance is `step`. The ends have one-sided differences of order `edge_order`,
/// 1 or 2.
fn gradient_evenly_spaced(x: Value<'_>, dim: i64, step: f64, edge_order: i64) -> Result<Value<'_>> {
    check_axis(x, dim)?;
    let x = x.to_float();
    let size = x.size(dim);
    let element = |index: i64| {
        x.narrow(
            dim,
            if index < 0 {
                &size + index
            } else {
                Dim::from(index)
            },
            1,
        )
    };
    let inner = (x.narrow(dim, 2, &size - 2) - x.narrow(dim, 0, &size - 2)) / (2.0 * step);
    let (first, last) = match edge_order {
        1 => (
            (element(1) - element(0)) / step,
            (element(-1) - element(-2)) / step,
        ),
        2 => (
            (element(0) * -1.5 + element(1) * 2.0 - element(2) * 0.5) / step,
            (element(-1) * 1.5 - element(-2) * 2.0 + element(-3) * 0.5) / step,
        ),
        other => return Err(Error::operator(format!("edge_order = {other}"))),
    };
    super::concatenate::concat_nonempty(x.builder(), &[first, inner, last], dim)
}

/// Differences of elements at given coordinates, weighted so that the result is exact for parabolas. The ends have
/// one-sided differences of order `edge_order`, 1 or 2.
fn gradient_at_coordinates<'g>(
    x: Value<'g>,
    dim: i64,
    coordinates: Value<'g>,
    edge_order: i64,
) -> Result<Value<'g>> {
    let axis = check_axis(x, dim)?;
    let x = x.to_float();
    let size = x.size(dim);
    let mut shape = vec![Dim::ONE; x.rank()];
    if let Some(step_count) = shape.get_mut(axis) {
        *step_count = &size - 1;
    }
    let steps = difference(coordinates.to(x.dtype()), 1, 0)?.reshape(shape);
    let inner_count = &size - 2;
    let shifted = |start: i64| x.narrow(dim, start, inner_count.clone());
    let (step_before, step_after) = (
        steps.narrow(dim, 0, inner_count.clone()),
        steps.narrow(dim, 1, inner_count.clone()),
    );
    let inner = shifted(0) * (step_after * -1.0 / (step_before * (step_before + step_after)))
        + shifted(1) * ((step_after - step_before) / (step_before * step_after))
        + shifted(2) * (step_before / (step_after * (step_before + step_after)));
    let wrapped = |index: i64, size: &Dim| {
        if index < 0 {
            size + index
        } else {
            Dim::from(index)
        }
    };
    let element = |index: i64| x.narrow(dim, wrapped(index, &size), 1);
    let step = |index: i64| steps.narrow(dim, wrapped(index, &(&size - 1)), 1);
    let parabola_slope = |indices: [i64; 3], near: Value<'g>, far: Value<'g>, sign: f64| {
        let slope = element(indices[0]) * ((near * -2.0 - far) / (near * (near + far)))
            + element(indices[1]) * ((near + far) / (near * far))
            - element(indices[2]) * (near / (far * (near + far)));
        slope * sign
    };
    let (first, last) = match edge_order {
        1 => (
            (element(1) - element(0)) / step(0),
            (element(-1) - element(-2)) / step(-1),
        ),
        2 => (
            parabola_slope([0, 1, 2], step(0), step(1), 1.0),
            parabola_slope([-1, -2, -3], step(-1), step(-2), -1.0),
        ),
        other => return Err(Error::operator(format!("edge_order = {other}"))),
    };
    super::concatenate::concat_nonempty(x.builder(), &[first, inner, last], dim)
}

/// For each element of a vector, the number of true elements up to it, itself included.
pub(super) fn cumulative_true_count(mask: Value<'_>) -> Value<'_> {
    mask.to(DType::I64).scan(ScanFunction::Sum, 0)
}
