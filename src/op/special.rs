//! Special functions in double precision, from series, integrals and asymptotic expansions. Equations are those of the NIST
//! Digital Library of Mathematical Functions (DLMF), <https://dlmf.nist.gov>.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use crate::kernel::series::Real;
use crate::kernel::series::gamma::DIGAMMA;

/// Logarithmic derivative of the gamma function: reflection in double precision, recurrence up to 10, asymptotic series.
pub(super) fn digamma<T: Real + Into<f64>>(x: T) -> T {
    if x == T::from_f64(0.0) {
        return T::from_f64(f64::NEG_INFINITY.copysign(-x.into()));
    }
    if x < T::from_f64(0.0) {
        let fraction = x.into().fract();
        return if fraction == 0.0 {
            T::from_f64(f64::NAN)
        } else {
            digamma_of_positive(T::from_f64(1.0) - x) - T::from_f64(PI / (PI * fraction).tan())
        };
    }
    digamma_of_positive(x)
}

fn digamma_of_positive<T: Real>(mut x: T) -> T {
    let (one, ten) = (T::from_f64(1.0), T::from_f64(10.0));
    let mut sum = T::from_f64(0.0);
    while x < ten {
        sum = sum - one / x;
        x = x + one;
    }
    if x == ten {
        return sum + T::from_f64(2.251_752_589_066_721);
    }
    let z = one / (x * x);
    sum + x.apply_rounded(f64::ln) - T::from_f64(0.5) / x - z * DIGAMMA.eval(z)
}

/// Derivative of the digamma function: reflection, six steps of the recurrence, and the first terms of the asymptotic
/// series, DLMF 5.15.8. Fuses the products and sums that PyTorch's builds fuse.
pub(super) fn trigamma<T: Real>(x: T) -> T {
    let (one, pi) = (T::from_f64(1.0), T::from_f64(PI));
    if x < T::from_f64(0.5) {
        let sine = (pi * x).apply_rounded(f64::sin);
        let reflected = T::from_f64(0.0) - (pi * pi) / (sine * sine);
        return -trigamma_from(one - x, reflected);
    }
    trigamma_from(x, T::from_f64(0.0))
}

fn trigamma_from<T: Real>(mut x: T, mut sum: T) -> T {
    let one = T::from_f64(1.0);
    for _ in 0..6 {
        sum = sum + one / (x * x);
        x = x + one;
    }
    let z = one / (x * x);
    let series = (-z).fused_mul_add(T::from_f64(1.0 / 42.0), T::from_f64(1.0 / 30.0));
    let series = (-z).fused_mul_add(series, T::from_f64(1.0 / 6.0));
    sum + z.fused_mul_add(series, one + one / (T::from_f64(2.0) * x)) / x
}

/// Scaled complementary error function `exp(x²) erfc(x)`. PyTorch rounds the square of a negative operand.
pub(super) fn erfcx<T: Real + Into<f64>>(x: T) -> T {
    let (value, square): (f64, f64) = (x.into(), (x * x).into());
    T::from_f64(if value < 0.0 {
        2.0 * square.exp() - erfcx_of_positive(-value)
    } else {
        erfcx_of_positive(value)
    })
}

/// Uses DLMF 7.12.1 from 25 on.
fn erfcx_of_positive(x: f64) -> f64 {
    if x < 25.0 {
        return (x * x).exp() * libm::erfc(x);
    }
    let r = 1.0 / (2.0 * x * x);
    (1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r)))) / (x * PI.sqrt())
}

/// Quantile of the normal distribution: Newton's method on its logarithm, starting from Abramowitz and Stegun 26.2.23.
pub(super) fn ndtri(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 {
        return f64::NEG_INFINITY;
    }
    if 0.5 < p {
        return -ndtri(1.0 - p);
    }
    let t = (-2.0 * p.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    (0..4).fold(numerator / denominator - t, |z, _| {
        let scaled = erfcx(-z * FRAC_1_SQRT_2);
        let distance = (0.5 * scaled).ln() - 0.5 * z * z - p.ln();
        z - distance * scaled * (PI / 2.0).sqrt()
    })
}

/// Hurwitz zeta function `Σ (q + k)^-x` by the Euler-Maclaurin formula, DLMF 25.11.5; poles and undefined ranges as in
/// Cephes. PyTorch sums in double precision, except for the first term.
pub(super) fn zeta<T: Real + Into<f64>>(x: T, q: T) -> T {
    let (x, q) = (x.into(), q.into());
    let first = T::from_f64(q.powf(-x));
    T::from_f64(hurwitz(x, q, first.into()))
}

/// The zeta function, given its first term.
fn hurwitz(x: f64, q: f64, first: f64) -> f64 {
    /// `B₂ₖ / (2k)!`
    const BERNOULLI: [f64; 9] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
        -3_617.0 / 10_670_622_842_880_000.0,
        43_867.0 / 5_109_094_217_170_944_000.0,
    ];
    /// Terms whose `q + k` is below minus this number are negligible.
    const NEGLIGIBLE_BELOW: f64 = 1e6;
    if x == 1.0 {
        return f64::INFINITY;
    }
    if q <= 0.0 && q == q.floor() && (x >= 1.0 || x.is_nan()) {
        return f64::INFINITY;
    }
    if x.is_nan() || q.is_nan() || x < 1.0 || (q <= 0.0 && x != x.floor()) {
        return f64::NAN;
    }
    let (mut a, mut sum) = ((q + 1.0).max(q.fract() - NEGLIGIBLE_BELOW), first);
    while a < 10.0 {
        sum += a.powf(-x);
        a += 1.0;
    }
    let mut power = a.powf(-x);
    if power == 0.0 {
        // In Cephes, the products of orders overflow, and are multiplied by a power that is 0.
        let overflows = a.is_infinite() || 1e13 < x;
        return if sum == 0.0 && overflows {
            f64::NAN
        } else {
            sum
        };
    }
    sum += power * (a / (x - 1.0) + 0.5);
    power *= x / a;
    let mut rising = x;
    for coefficient in BERNOULLI {
        sum += coefficient * power;
        power *= (rising + 1.0) * (rising + 2.0) / (a * a);
        rising += 2.0;
    }
    sum
}

/// Regularised lower incomplete gamma function `P(a, x)`
pub(super) fn igamma(a: f64, x: f64) -> f64 {
    incomplete_gamma(a, x).0
}

/// Regularised upper incomplete gamma function `Q(a, x)`
pub(super) fn igammac(a: f64, x: f64) -> f64 {
    incomplete_gamma(a, x).1
}

/// `P` and `Q`, with PyTorch's limits (`aten/src/ATen/native/Math.h`).
fn incomplete_gamma(a: f64, x: f64) -> (f64, f64) {
    const NAN: (f64, f64) = (f64::NAN, f64::NAN);
    let undefined = a < 0.0 || x < 0.0 || (a.is_infinite() && x.is_infinite());
    if undefined || (a == 0.0 && (x.is_nan() || x == 0.0)) {
        return NAN;
    }
    if a == 0.0 || x.is_infinite() {
        return (1.0, 0.0);
    }
    if x == 0.0 || a.is_infinite() {
        return (0.0, 1.0);
    }
    if a.is_nan() || x.is_nan() {
        return NAN;
    }
    if 1e5 < a {
        return incomplete_gamma_of_large(a, x);
    }
    let factor = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let p = factor * lower_series(a, x);
        (p, 1.0 - p)
    } else {
        let q = factor * upper_fraction(a, x);
        (1.0 - q, q)
    }
}

/// `Σ xᵏ / (a (a + 1) … (a + k))`, DLMF 8.7.1.
fn lower_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0 / a, 1.0 / a, 0.0);
    while 1e-17 * sum < term {
        k += 1.0;
        term *= x / (a + k);
        sum += term;
    }
    sum
}

/// `Γ(a, x) / (xᵃ e⁻ˣ)`, the continued fraction DLMF 8.9.2 in its even form, by Lentz's method.
fn upper_fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for k in 1..100_000 {
        let k = f64::from(k);
        let numerator = k * (a - k);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction
}

/// First term of the uniform expansion for large `a`, DLMF 8.12.3 to 8.12.9.
fn incomplete_gamma_of_large(a: f64, x: f64) -> (f64, f64) {
    let mu = (x - a) / a;
    let half_square = if mu.abs() < 1e-3 {
        mu * mu * (0.5 - mu * (1.0 / 3.0 - mu * (0.25 - mu * 0.2)))
    } else {
        mu - mu.ln_1p()
    };
    let eta = (2.0 * half_square).sqrt().copysign(mu);
    let correction = if eta.abs() < 0.1 {
        -1.0 / 3.0 + eta * (1.0 / 12.0 - eta * (2.0 / 135.0 - eta / 864.0))
    } else {
        1.0 / mu - 1.0 / eta
    };
    let rest = correction * (-a * half_square).exp() / (2.0 * PI * a).sqrt();
    let argument = eta * (a / 2.0).sqrt();
    (
        0.5 * libm::erfc(-argument) - rest,
        0.5 * libm::erfc(argument) + rest,
    )
}

/// Exponent of a number written as `m · 2ᵉ` with `0.5 <= |m| < 1`; 0 for zero and non-finite numbers.
pub(super) fn exponent(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        0.0
    } else {
        f64::from(libm::frexp(x).1)
    }
}

/// Mantissa of a number written as `m · 2ᵉ` with `0.5 <= |m| < 1`; zero and non-finite numbers as they are.
pub(super) fn mantissa(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        x
    } else {
        libm::frexp(x).0
    }
}

/// Greatest common divisor of magnitudes.
pub(super) fn gcd(x: i64, y: i64) -> i64 {
    let (mut x, mut y) = (x.unsigned_abs(), y.unsigned_abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the NIST Digital Library's tables or of 30-digit arithmetic.
    #[test]
    fn values_match_references() {
        let known = [
            (digamma(0.25), -4.227_453_533_376_265),
            (trigamma(0.25), 17.197_329_154_507_11),
            (erfcx(30.0), 0.018_795_888_861_416_75),
            (ndtri(1e-10), -6.361_340_902_404_056),
            (ndtri(0.975), 1.959_963_984_540_054),
            (zeta(2.0, 1.0), PI * PI / 6.0),
            (zeta(3.0, -1.5), 0.118_102_025_820_863_7),
            (igamma(2.5, 1.0), 0.150_854_963_915_390_38),
            (igammac(3.0, 10.0), 0.002_769_395_715_511_576),
            (igamma(1e6, 1e6), 0.500_132_980_760_872_6),
        ];
        for (index, (found, expected)) in known.into_iter().enumerate() {
            let error = ((found - expected) / expected).abs();
            assert!(error < 1e-9, "{index}: {found} instead of {expected}");
        }
    }
}
