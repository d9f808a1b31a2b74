//! Window functions.

use std::f64::consts::PI;

use super::{Args, Composite};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Value;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::hann_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::hann_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| window(a, |angle, _| cosines(angle, &[0.5, 0.5])),
        &["8", "periodic: 8, False", "1", "0"],
    ),
    Composite::one(
        &[
            "aten::hamming_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::hamming_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::hamming_window.periodic_alpha(int window_length, bool periodic, float alpha, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::hamming_window.periodic_alpha_beta(int window_length, bool periodic, float alpha, float beta, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let or_default =
                |name: &str, default: f64| if a.has(name) { a.float(name) } else { default };
            let weights = [or_default("alpha", 0.54), or_default("beta", 0.46)];
            window(a, |angle, _| cosines(angle, &weights))
        },
        &["8", "periodic_alpha_beta: 8, False, 0.6, 0.4"],
    ),
    Composite::one(
        &[
            "aten::blackman_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::blackman_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| window(a, |angle, _| cosines(angle, &[0.42, 0.5, 0.08])),
        &["8", "periodic: 8, False"],
    ),
    Composite::one(
        &[
            "aten::bartlett_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::bartlett_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| window(a, |_, fraction| (fraction * 2.0 - 1.0).abs().rsub(1.0)),
        &["8", "periodic: 8, False"],
    ),
    Composite::one(
        &[
            "aten::kaiser_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::kaiser_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
            "aten::kaiser_window.beta(int window_length, bool periodic, float beta, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        ],
        |a| {
            let beta = if a.has("beta") { a.float("beta") } else { 12.0 };
            window(a, |_, fraction| {
                let offset = fraction * 2.0 - 1.0;
                let inside = (offset * offset).rsub(1.0).maximum(0.0);
                bessel_i0(inside * (beta * beta / 4.0), beta)
            })
        },
        &["8", "beta: 8, False, 5.0"],
    ),
];

/// The window of a call. `formula` computes it from the angles `2π·i/n` and the fractions `i/n`, where `n` is the
/// period.
fn window<'g>(
    a: &Args<'g>,
    formula: impl Fn(Value<'g>, Value<'g>) -> Value<'g>,
) -> Result<Value<'g>> {
    let dtype = a.dtype("dtype").unwrap_or(DType::F32);
    let compute_dtype = if dtype == DType::F64 {
        dtype
    } else {
        DType::F32
    };
    let length = a.int("window_length");
    if length < 0 || !dtype.is_float() {
        return Err(Error::operator(format!(
            "a window of {length} elements of {dtype}"
        )));
    }
    let shape = vec![Dim::from(length)];
    if length < 2 {
        return Ok(a.builder().full(dtype, shape, 1));
    }
    let periodic = !a.has("periodic") || a.bool("periodic");
    let period = if periodic { length } else { length - 1 };
    let index = a.builder().iota(compute_dtype, shape, 0);
    let angle = index * (2.0 * PI / period as f64);
    Ok(formula(angle, index / period).to(dtype))
}

/// `w₀ - w₁·cos x + w₂·cos 2x` for the angle `x` and the weights `w`.
fn cosines<'g>(angle: Value<'g>, weights: &[f64]) -> Value<'g> {
    let zero = angle * 0.0;
    weights
        .iter()
        .enumerate()
        .fold(zero, |sum, (order, weight)| {
            let sign = if order % 2 == 0 { 1.0 } else { -1.0 };
            sum + (angle * order as f64).cos() * (sign * weight)
        })
}

/// `I₀(x) / I₀(beta)` for `x² / 4`, by the power series `Σ (x²/4)ᵏ / k!²` (Abramowitz and Stegun 9.6.12), whose terms are
/// all positive. The terms are scaled from the start, so that they do not overflow.
fn bessel_i0(quarter_square: Value<'_>, beta: f64) -> Value<'_> {
    let terms = (20 + (beta.abs() * 1.5) as usize).min(400);
    let at_beta = {
        let quarter = beta * beta / 4.0;
        let next =
            |(term, order): &(f64, f64)| Some((term * quarter / (order * order), order + 1.0));
        std::iter::successors(Some((1.0, 1.0)), next)
            .take(terms)
            .map(|(term, _)| term)
            .sum::<f64>()
    };
    let first = quarter_square * 0.0 + 1.0 / at_beta;
    let (mut term, mut sum) = (first, first);
    for order in 1..terms {
        term = term * quarter_square * (1.0 / (order as f64 * order as f64));
        sum = sum + term;
    }
    sum
}
