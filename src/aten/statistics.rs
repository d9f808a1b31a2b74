//! Variances, covariances, histograms.

use super::index::gather;
use super::positions::spaced;
use super::reduce::{dims, floating};
use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScatterFunction;
use crate::shape::Shape;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::var(Tensor self, bool unbiased=True) -> Tensor",
            "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
            "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        ],
        |a| Ok(variance(a)?.0),
        &[
            "f32[B, 3]",
            "dim: f32[2, 3], [1], False, True",
            "correction: f32[2, 3], [0], correction=0",
            "f16[4]",
        ],
    ),
    Composite::one(
        &[
            "aten::std(Tensor self, bool unbiased=True) -> Tensor",
            "aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
            "aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        ],
        |a| Ok(deviation(a)?.0),
        &[
            "f32[B, 3]",
            "dim: f32[2, 3], [1], False, True",
            "correction: f32[2, 3], [0], correction=0",
        ],
    ),
    Composite::many(
        &[
            "aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
            "aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
            "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        ],
        |a| variance(a).map(|(variance, mean)| vec![variance, mean]),
        &[
            "f32[B, 3]",
            "correction: f32[2, 3], [0], correction=0, keepdim=True",
        ],
    ),
    Composite::many(
        &[
            "aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
            "aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
            "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        ],
        |a| deviation(a).map(|(deviation, mean)| vec![deviation, mean]),
        &[
            "f32[B, 3]",
            "correction: f32[2, 3], [0], correction=0, keepdim=True",
        ],
    ),
    Composite::one(
        &[
            "aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            let weights = (a.optional_tensor("fweights"), a.optional_tensor("aweights"));
            covariance(x, a.float("correction"), weights)
        },
        &[
            "f32[3, B]",
            "f32[5], correction=0",
            "f32[2, 4], fweights=i64[4], aweights=f32[4]",
        ],
    ),
    Composite::one(
        &["aten::corrcoef(Tensor self) -> Tensor"],
        |a| {
            let covariance = covariance(a.tensor("self"), 1.0, (None, None))?;
            if covariance.rank() == 0 {
                return Ok(covariance / covariance);
            }
            let deviation = super::parts::diagonal(covariance, 0, 0, 1)?.sqrt();
            let scaled = covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0);
            Ok(scaled.clamp(Some((-1.0).into()), Some(1.0.into())))
        },
        &["f32[3, B]", "f32[5]"],
    ),
    Composite::one(
        &["aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor"],
        |a| {
            let x = floating(a.tensor("self"))?.flatten(0, -1);
            let [low, high] = bounds(x, a.float("min"), a.float("max"), 1.0);
            let ones = a.builder().full(x.dtype(), x.shape(), 1.0);
            histogram(x, a.int("bins"), low, high, ones)
        },
        &["f32[B], 4, -1, 1", "f32[2, 3], 5"],
    ),
    Composite::many(
        &[
            "aten::histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        ],
        |a| {
            let x = floating(a.tensor("self"))?.flatten(0, -1);
            let range = a.optional_floats("range").unwrap_or_default();
            let [low, high] = match range.as_slice() {
                [low, high] => bounds(x, *low, *high, 0.5),
                _ if x.numel().is(0) => bounds(x, 0.0, 1.0, 0.5),
                _ => bounds(x, 0.0, 0.0, 0.5),
            };
            let edges = spaced(low, high, a.int("bins") + 1)?;
            Ok(vec![histogram_between(a, x, edges)?, edges])
        },
        &[
            "bin_ct: f32[B], 4, range=[-1.0, 1.0]",
            "bin_ct: f32[6], 3, weight=f32[6], density=True",
        ],
    ),
    Composite::many(
        &[
            "aten::histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        ],
        |a| {
            let (x, edges) = (floating(a.tensor("self"))?.flatten(0, -1), a.tensor("bins"));
            Ok(vec![histogram_between(a, x, edges)?, edges])
        },
        &["bins_tensor: f32[B], f32[4]"],
    ),
    Composite::one(
        &["aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor"],
        |a| {
            a.reject("the result's size is the largest element, which a graph does not know; use scatter_add on zeros of a known size")
        },
        &[],
    ),
];

/// The divisor's correction from `unbiased` or `correction`.
fn correction(a: &Args) -> f64 {
    if a.has("unbiased") {
        f64::from(u8::from(a.bool("unbiased")))
    } else {
        a.optional_float("correction").unwrap_or(1.0)
    }
}

/// Variance and mean along the call's dimensions.
fn variance<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let (x, dims, keepdim) = (floating(a.tensor("self"))?, dims(a), a.bool("keepdim"));
    Ok((x.var(&dims, correction(a), keepdim), x.mean(&dims, keepdim)))
}

/// Standard deviation and mean; half precision rounds once, at the end.
fn deviation<'g>(a: &Args<'g>) -> Result<(Value<'g>, Value<'g>)> {
    let (x, dims, keepdim) = (floating(a.tensor("self"))?, dims(a), a.bool("keepdim"));
    let variance = x.to_compute().var(&dims, correction(a), keepdim);
    Ok((variance.sqrt().to(x.dtype()), x.mean(&dims, keepdim)))
}

/// Covariance of the rows of a matrix; a scalar for a vector.
fn covariance<'g>(
    x: Value<'g>,
    correction: f64,
    (frequencies, importances): (Option<Value<'g>>, Option<Value<'g>>),
) -> Result<Value<'g>> {
    let rows = match x.rank() {
        0 => x.reshape(vec![Dim::ONE, Dim::ONE]),
        1 => x.unsqueeze(0),
        2 => x,
        _ => return Err(Error::operator(format!("covariance of {}", x.ty()))),
    };
    let rows = rows.to_float();
    let weights = match (frequencies, importances) {
        (Some(frequencies), Some(importances)) => Some(frequencies * importances),
        (one, other) => one.or(other),
    };
    let builder = x.builder();
    let total = match weights {
        Some(weights) => weights.sum(&[0], false),
        None => builder.full(DType::I64, Shape::new(), rows.size(1)),
    };
    let weighted = |rows: Value<'g>| weights.map_or(rows, |weights| rows * weights);
    let mean = weighted(rows).sum(&[1], true) / total;
    let divisor = match (weights, importances) {
        (Some(weights), Some(importances)) if correction != 0.0 => {
            total - (weights * importances).sum(&[0], false) * correction / total
        }
        _ => total - correction,
    };
    let centred = rows - mean;
    let product = centred.matmul(weighted(centred).to(centred.dtype()).transpose(0, 1));
    let scaled = product / divisor.to(product.dtype()).maximum(0.0);
    Ok(scaled.squeeze(&[0, 1]))
}

/// The ends of a histogram as scalars: those given, or the data's if they are equal; a single point gets room on both sides.
fn bounds(x: Value<'_>, low: f64, high: f64, room: f64) -> [Value<'_>; 2] {
    let builder = x.builder();
    let scalar = |number: f64| builder.full(x.dtype(), Shape::new(), number);
    let (low, high) = if low == high && !x.numel().is(0) {
        (x.amin(&[], false), x.amax(&[], false))
    } else {
        (scalar(low), scalar(high))
    };
    let single = low.eq(high);
    [
        single.where_(low - room, low),
        single.where_(high + room, high),
    ]
}

/// Sums of the call's weights between neighbouring edges, of which the last belongs to its bin, as a density if the call
/// says so.
fn histogram_between<'g>(a: &Args<'g>, x: Value<'g>, edges: Value<'g>) -> Result<Value<'g>> {
    let bins = &edges.numel() - 1;
    let passed = edges.unsqueeze(0).le(x.unsqueeze(1)).sum(&[1], false);
    let top = gather(
        edges,
        0,
        a.builder().full(DType::I64, vec![Dim::ONE], &bins),
    );
    let place = x.eq(top).where_(passed - 1, passed) - 1;
    let ones = || a.builder().full(x.dtype(), x.shape(), 1.0);
    let weights = a.optional_tensor("weight");
    let weights = weights.map_or_else(ones, |weight| weight.to(x.dtype()).flatten(0, -1));
    let count = count_into(place, bins.clone(), weights)?;
    if !a.bool("density") {
        return Ok(count);
    }
    let widths = edges.narrow(0, 1, bins.clone()) - edges.narrow(0, 0, bins);
    Ok(count / (count.sum(&[], false) * widths))
}

/// Sums of weights by bin; elements outside of the ends, and not-a-number, count nowhere.
fn histogram<'g>(
    x: Value<'g>,
    bins: i64,
    low: Value<'g>,
    high: Value<'g>,
    weights: Value<'g>,
) -> Result<Value<'g>> {
    if bins < 1 {
        return Err(Error::operator(format!("{bins} bins")));
    }
    let place = ((x - low) * bins / (high - low)).floor();
    let inside = x.ge(low).logical_and(x.le(high));
    let place = inside
        .where_(place.minimum((bins - 1) as f64), -1.0)
        .to(DType::I64);
    count_into(place, Dim::from(bins), weights)
}

/// Sums of weights by place; places outside count nowhere.
fn count_into<'g>(place: Value<'g>, bins: Dim, weights: Value<'g>) -> Result<Value<'g>> {
    let builder = place.builder();
    let inside = place.ge(0).logical_and(place.lt(&bins));
    // One more bin takes what counts nowhere.
    let slot = inside.where_(place, builder.full(DType::I64, Shape::new(), &bins));
    let empty = builder.full(weights.dtype(), vec![&bins + 1], 0);
    if place.numel().is(0) {
        return Ok(empty.narrow(0, 0, bins));
    }
    Ok(empty
        .scatter(0, slot, weights, ScatterFunction::Add)
        .narrow(0, 0, bins))
}
