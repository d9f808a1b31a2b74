//! Histograms.

use super::index::gather;
use super::positions::spaced;
use super::reduce::require_float;
use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Value};
use crate::op::ScatterFunction;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor"],
        |a| {
            let x = require_float(a.tensor("self"))?.flatten(0, -1);
            let [low, high] = bin_range(x, a.float("min"), a.float("max"), 1.0);
            histogram_even(x, a.int("bins"), low, high)
        },
        &["f32[B], 4, -1, 1", "f32[2, 3], 5"],
    ),
    Composite::many(
        &[
            "aten::histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
            "aten::histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        ],
        |a| {
            let points = require_float(a.tensor("self"))?
                .flatten(0, -1)
                .unsqueeze(-1);
            histogram(a, points)
        },
        &[
            "bin_ct: f32[B], 4, range=[-1.0, 1.0]",
            "bin_ct: f32[6], 3, weight=f32[6], density=True",
            "bins_tensor: f32[B], f32[4]",
        ],
    ),
    Composite::many(
        &[
            "aten::histogramdd(Tensor self, int[] bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)",
            "aten::histogramdd.int_bins(Tensor self, int bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)",
            "aten::histogramdd.TensorList_bins(Tensor self, Tensor[] bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)",
        ],
        |a| {
            let x = require_float(a.tensor("self"))?;
            if x.rank() < 2 {
                return Err(Error::operator(format!(
                    "points are the rows of a matrix, not {}",
                    x.ty()
                )));
            }
            histogram(a, x.flatten(0, -2))
        },
        &[
            "f32[B, 2], [3, 2]",
            "TensorList_bins: f32[5, 2], [f32[3], f32[4]]",
        ],
    ),
    Composite::one(
        &["aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor"],
        |a| {
            a.reject(
                "the size of the result depends on data; use scatter_add on zeros of a known size",
            )
        },
        &[],
    ),
];

/// Both ends of the bins as scalars: `low` and `high`, or the range of the data if these are equal. If the ends are
/// still equal, each moves outwards by `margin`.
fn bin_range(x: Value<'_>, low: f64, high: f64, margin: f64) -> [Value<'_>; 2] {
    let builder = x.builder();
    let scalar = |number: f64| builder.full(x.dtype(), Shape::new(), number);
    let (low, high) = if low == high && x.has_elements(&[]).is_ok_and(|is_nonempty| is_nonempty) {
        (x.amin(&[], false), x.amax(&[], false))
    } else {
        (scalar(low), scalar(high))
    };
    let is_empty_range = low.eq(high);
    [
        is_empty_range.where_(low - margin, low),
        is_empty_range.where_(high + margin, high),
    ]
}

/// Counts the elements of a vector in bins of equal width. Elements outside the range and not-a-number are not counted.
fn histogram_even<'g>(
    x: Value<'g>,
    bins: i64,
    low: Value<'g>,
    high: Value<'g>,
) -> Result<Value<'g>> {
    if bins < 1 {
        return Err(Error::operator(format!("{bins} bins")));
    }
    let bin = ((x - low) * bins / (high - low)).floor();
    let is_inside = x.ge(low).logical_and(x.le(high));
    let bin = is_inside
        .where_(bin.minimum((bins - 1) as f64), -1.0)
        .to(DType::I64);
    Ok(sum_by_bin(
        bin,
        Dim::from(bins),
        x.builder().full(x.dtype(), x.shape(), 1.0),
    ))
}

/// The histogram of points, then the bin edges of each coordinate. Each row of the matrix `points` is a point.
fn histogram<'g>(a: &Args<'g>, points: Value<'g>) -> Result<Vec<Value<'g>>> {
    let [count, coordinates] = points.sizes()?;
    let builder = a.builder();
    let dimensions = super::split::specialized_count(builder, &coordinates)?;
    let mut edges = Vec::new();
    let mut flat_bin = builder.full(DType::I64, vec![count.clone()], 0);
    let mut is_outside = builder.full(DType::Bool, vec![count.clone()], false);
    for index in 0..dimensions {
        let x = points.select(1, index);
        let axis_edges = bin_edges(a, x, usize::try_from(index).unwrap_or(0))?;
        let bins = &axis_edges.numel() - 1;
        let bin = bin_indices(x, axis_edges, &bins);
        is_outside = is_outside.logical_or(bin.lt(0)).logical_or(bin.ge(&bins));
        flat_bin = flat_bin * &bins + bin;
        edges.push(axis_edges);
    }
    let sizes: Shape = edges
        .iter()
        .map(|axis_edges| &axis_edges.numel() - 1)
        .collect();
    let weight = match a.optional_tensor("weight") {
        Some(weight) => weight.to(points.dtype()).flatten(0, -1),
        None => builder.full(points.dtype(), vec![count], 1.0),
    };
    let flat_bin = is_outside.where_(-1, flat_bin);
    let mut histogram = sum_by_bin(flat_bin, Dim::product(&sizes), weight).reshape(sizes.clone());
    if a.bool("density") {
        let total_weight = histogram.sum(&[], false);
        for (axis, axis_edges) in edges.iter().enumerate() {
            let size = sizes.get(axis).cloned().unwrap_or(Dim::ONE);
            let mut shape = vec![Dim::ONE; sizes.len()];
            if let Some(axis_size) = shape.get_mut(axis) {
                *axis_size = size.clone();
            }
            let widths = axis_edges.narrow(0, 1, size.clone()) - axis_edges.narrow(0, 0, size);
            histogram = histogram / widths.reshape(shape);
        }
        histogram = histogram / total_weight;
    }
    Ok(std::iter::once(histogram).chain(edges).collect())
}

/// The bin edges of coordinate `index`: those given, or evenly spaced ones over the given range or the range of the
/// data `x`.
fn bin_edges<'g>(a: &Args<'g>, x: Value<'g>, index: usize) -> Result<Value<'g>> {
    let axis_bins = match a.get("bins") {
        Argument::Value(_) => return Ok(a.tensor("bins")),
        Argument::List(items) => items,
        _ => Vec::new(),
    };
    if let Some(Argument::Value(edges)) = axis_bins.get(index) {
        return Ok(a.builder().value(*edges));
    }
    let bins = a.ints("bins");
    let bins = bins.get(index).or(bins.first()).copied().unwrap_or(1);
    let range = a.optional_floats("range").unwrap_or_default();
    let [low, high] = match range.get(2 * index..2 * index + 2) {
        Some([low, high]) => bin_range(x, *low, *high, 0.5),
        _ if !x.has_elements(&[])? => bin_range(x, 0.0, 1.0, 0.5),
        _ => bin_range(x, 0.0, 0.0, 0.5),
    };
    spaced(low, high, bins.saturating_add(1))
}

/// The bin of each element: the number of edges up to the element, minus one. The last edge belongs to the last bin.
/// Elements outside all bins get -1 or `bins`.
fn bin_indices<'g>(x: Value<'g>, edges: Value<'g>, bins: &Dim) -> Value<'g> {
    let edges_passed = edges.unsqueeze(0).le(x.unsqueeze(1)).sum(&[1], false);
    let last_edge = gather(edges, 0, x.builder().full(DType::I64, vec![Dim::ONE], bins));
    x.eq(last_edge).where_(edges_passed - 1, edges_passed) - 1
}

/// Sums the weights of each bin, `[bins]`. Elements whose bin index is out of range are dropped.
fn sum_by_bin<'g>(bin: Value<'g>, bins: Dim, weights: Value<'g>) -> Value<'g> {
    let builder = bin.builder();
    let is_inside = bin.ge(0).logical_and(bin.lt(&bins));
    // An extra bin takes the dropped weights.
    let slot = is_inside.where_(bin, &bins);
    let zeros = builder.full(weights.dtype(), vec![&bins + 1], 0);
    if bin.numel().is(0) {
        return zeros.narrow(0, 0, bins);
    }
    zeros
        .scatter(0, slot, weights, ScatterFunction::Add)
        .narrow(0, 0, bins)
}
