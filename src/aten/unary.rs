//! Unary functions. Functions of floats convert integers to `f32`.

use std::f64::consts::PI;

use super::pointwise::{in_compute_dtype, in_float_dtype};
use super::{Args, CallGradient, Composite};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Value;
use crate::op::{BinaryFunction, UnaryFunction};

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &[
            "aten::acos(Tensor self) -> Tensor",
            "aten::arccos(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").acos()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::acosh(Tensor self) -> Tensor",
            "aten::arccosh(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").acosh()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::asin(Tensor self) -> Tensor",
            "aten::arcsin(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").asin()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::asinh(Tensor self) -> Tensor",
            "aten::arcsinh(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").asinh()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::atan(Tensor self) -> Tensor",
            "aten::arctan(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").atan()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::atanh(Tensor self) -> Tensor",
            "aten::arctanh(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").atanh()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::cos(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").cos()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::cosh(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").cosh()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::sin(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").sin()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::sinh(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").sinh()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::tan(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").tan()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::tanh(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").tanh()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::exp(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").exp()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::exp2(Tensor self) -> Tensor",
            "aten::special_exp2(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").exp2()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::expm1(Tensor self) -> Tensor",
            "aten::special_expm1(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").expm1()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::log(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").log()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::log2(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").log2()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::log10(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").log10()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::log1p(Tensor self) -> Tensor",
            "aten::special_log1p(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").log1p()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::sqrt(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").sqrt()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::rsqrt(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").rsqrt()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::sigmoid(Tensor self) -> Tensor",
            "aten::special_expit(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").sigmoid()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::erf(Tensor self) -> Tensor",
            "aten::special_erf(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").erf()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::erfc(Tensor self) -> Tensor",
            "aten::special_erfc(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").erfc()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::erfinv(Tensor self) -> Tensor",
            "aten::special_erfinv(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").erfinv()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::lgamma(Tensor self) -> Tensor",
            "aten::special_gammaln(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").lgamma()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::digamma(Tensor self) -> Tensor",
            "aten::special_digamma(Tensor self) -> Tensor",
            "aten::special_psi(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").digamma()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::floor(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").floor()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::ceil(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").ceil()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::trunc(Tensor self) -> Tensor",
            "aten::fix(Tensor self) -> Tensor",
        ],
        |a| Ok(a.tensor("self").trunc()),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::round(Tensor self) -> Tensor",
            "aten::round.decimals(Tensor self, *, int decimals) -> Tensor",
            "aten::special_round(Tensor self, *, int decimals=0) -> Tensor",
        ],
        round,
        &[
            "f32[B, 3]",
            "i64[3]",
            "decimals: f32[3], decimals=2",
            "decimals: f16[3], decimals=-1",
        ],
    ),
    Composite::elementwise(
        &["aten::frac(Tensor self) -> Tensor"],
        |a| Ok(in_compute_dtype(a.tensor("self"), |x| x - x.trunc())),
        &["f32[B, 3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::deg2rad(Tensor self) -> Tensor"],
        |a| Ok(in_float_dtype(a.tensor("self"), |x| x * (PI / 180.0))),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &["aten::rad2deg(Tensor self) -> Tensor"],
        |a| Ok(in_float_dtype(a.tensor("self"), |x| x * (180.0 / PI))),
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::sinc(Tensor self) -> Tensor",
            "aten::special_sinc(Tensor self) -> Tensor",
        ],
        sinc,
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::logit(Tensor self, float? eps=None) -> Tensor",
            "aten::special_logit(Tensor self, float? eps=None) -> Tensor",
        ],
        logit,
        &["f32[B, 3]", "f32[3], 0.1", "i64[3]"],
    )
    .with_gradient(logit_gradient),
    Composite::elementwise(
        &["aten::angle(Tensor self) -> Tensor"],
        angle,
        &["f32[B, 3]", "i64[3]", "f16[3]"],
    )
    .with_gradient(|_| Ok(Vec::new())),
    Composite::elementwise(
        &[
            "aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
        ],
        nan_to_num,
        &["f32[B, 3]", "f32[3], 1, 2, 3", "i64[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::polygamma(int n, Tensor self) -> Tensor",
            "aten::special_polygamma(int n, Tensor self) -> Tensor",
        ],
        |a| Ok(polygamma(a.tensor("self"), a.int("n"))),
        &["0, f32[B, 3]", "1, f32[3]", "3, i64[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::mvlgamma(Tensor self, int p) -> Tensor",
            "aten::special_multigammaln(Tensor self, int p) -> Tensor",
        ],
        log_gamma_of_matrices,
        &["f32[B, 3], 2"],
    ),
];

/// Rounds to a number of decimal places, ties to even. A negative number rounds to tens, hundreds and so on.
fn round<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let (x, decimals) = (a.tensor("self"), a.optional_int("decimals").unwrap_or(0));
    let scale = 10f64.powi(i32::try_from(decimals.abs()).unwrap_or(i32::MAX));
    Ok(match decimals {
        0 => x.round(),
        1.. => in_compute_dtype(x, |x| (x * scale).round() / scale),
        _ => in_compute_dtype(x, |x| (x / scale).round() * scale),
    })
}

/// `sin πx / πx`, 1 at 0.
fn sinc<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    Ok(in_float_dtype(a.tensor("self"), |x| {
        let angle = x * PI;
        x.eq(0.0).where_(1.0, angle.sin() / angle)
    }))
}

/// `log(x / (1 - x))`, for `x` clamped to `eps..=1 - eps` if the call has `eps`.
fn logit<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let eps = a.optional_float("eps").filter(|eps| *eps >= 0.0);
    let x = a.tensor("self").to_float();
    let x = match eps {
        Some(eps) => x.clamp(Some(eps.into()), Some((1.0 - eps).into())),
        None => x,
    };
    Ok((x / (1.0 - x)).log())
}

/// The gradient of [`logit`]: beyond the bounds zero with `eps`, not-a-number without.
fn logit_gradient<'g>(call: &CallGradient<'g>) -> Result<Vec<(&'static str, Value<'g>)>> {
    let eps = call.args().optional_float("eps").filter(|eps| *eps >= 0.0);
    let (low, outside) = eps.map_or((0.0, f64::NAN), |eps| (eps, 0.0));
    let (x, gradient) = (call.args().tensor("self").to_float(), call.gradient(0)?);
    let is_outside = x.lt(low).logical_or(x.gt(1.0 - low));
    let gradient = is_outside.where_(outside, gradient / (x * (1.0 - x)));
    Ok(vec![("self", gradient)])
}

/// The angle of real numbers in the complex plane: 0, π or not-a-number.
fn angle<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let zero_or_pi = x.lt(0).where_(PI, 0.0).to(x.dtype().to_float());
    Ok(if x.dtype().is_float() {
        x.isnan().where_(x, zero_or_pi)
    } else {
        zero_or_pi
    })
}

/// Replaces not-a-number and infinities by finite numbers.
fn nan_to_num<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let x = a.tensor("self");
    let Some(largest) = x.dtype().largest_finite() else {
        return Ok(x);
    };
    let or_default = |name, default| a.optional_float(name).unwrap_or(default);
    let finite = x.eq(f64::INFINITY).where_(or_default("posinf", largest), x);
    let finite = x
        .eq(f64::NEG_INFINITY)
        .where_(or_default("neginf", -largest), finite);
    Ok(x.isnan().where_(or_default("nan", 0.0), finite))
}

/// Derivatives of digamma: `(-1)ⁿ⁺¹ n! ζ(n + 1, x)` (Abramowitz and Stegun 6.4.10). The first derivative uses reflection for
/// small operands, where PyTorch's is defined as well (`aten/src/ATen/native/Math.h`).
fn polygamma<'g>(x: Value<'g>, n: i64) -> Value<'g> {
    in_float_dtype(x, |x| {
        let builder = x.builder();
        let zeta =
            |y: Value<'g>, order: i64| builder.combine(BinaryFunction::Zeta, order as f64, y);
        match n {
            0 => x.digamma(),
            1 => x.function(UnaryFunction::Trigamma),
            _ => {
                // PyTorch rounds the logarithm of the factorial and its exponential.
                let factorial: f64 = (1..=n).map(|factor| factor as f64).product();
                let factorial = match x.dtype() {
                    DType::F64 => factorial,
                    _ => f64::from(f64::from(factorial.ln() as f32).exp() as f32),
                };
                let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
                zeta(x, n + 1) * (sign * factorial)
            }
        }
    })
}

/// Logarithm of the multivariate gamma function: `p (p - 1) / 4 · log π + Σ log Γ(x - j / 2)` for `j < p`, in descending
/// order of the arguments.
fn log_gamma_of_matrices<'g>(a: &Args<'g>) -> Result<Value<'g>> {
    let p = a.int("p");
    if !(1..=256).contains(&p) {
        return a.reject(format!("p = {p}"));
    }
    let constant = (p * (p - 1)) as f64 / 4.0 * PI.ln();
    let x = a.tensor("self").to_float();
    let sum = (0..p).rev().fold(None, |sum: Option<Value>, j| {
        let term = (x - j as f64 / 2.0).lgamma();
        Some(sum.map_or(term, |sum| sum + term))
    });
    Ok(sum.unwrap_or(x) + constant)
}
