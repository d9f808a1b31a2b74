//! Special functions in double precision, from their series, integrals and asymptotic expansions. Equations are those of
//! the NIST Digital Library of Mathematical Functions (DLMF), <https://dlmf.nist.gov>.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_4, PI};

/// From here on the asymptotic expansions of Bessel functions have double precision.
const LARGE: f64 = 20.0;

/// `Σ (x² / 4)ᵏ / (k! (k + n)!) · (x / 2)ⁿ`, DLMF 10.25.2, for orders 0 and 1.
fn series_i(order: i32, x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut term, mut sum, mut k) = ((x / 2.0).powi(order), 0.0, 0.0);
    while term.abs() > 1e-18 * f64::abs(sum) {
        sum += term;
        k += 1.0;
        term *= quarter / (k * (k + f64::from(order)));
    }
    sum
}

/// `1 + Σ (±1)ᵏ aₖ(ν) / xᵏ`, DLMF 10.17.1 and 10.40, up to its smallest term.
fn hankel_series(order: f64, x: f64, sign: f64) -> f64 {
    let (mut term, mut sum) = (1.0f64, 1.0f64);
    for k in 1..60 {
        let k = f64::from(k);
        let odd = 2.0 * k - 1.0;
        let next = term * sign * (4.0 * order * order - odd * odd) / (8.0 * k * x);
        if next.abs() >= term.abs() || next.abs() < 1e-18 {
            break;
        }
        term = next;
        sum += term;
    }
    sum
}

/// `e^-|x| Iₙ(x)`
fn scaled_i(order: i32, x: f64) -> f64 {
    let magnitude = x.abs();
    let scaled = if magnitude < LARGE {
        (-magnitude).exp() * series_i(order, magnitude)
    } else {
        hankel_series(f64::from(order), magnitude, -1.0) / (2.0 * PI * magnitude).sqrt()
    };
    if order % 2 == 1 && x < 0.0 {
        -scaled
    } else {
        scaled
    }
}

/// `eˣ Kᵥ(x)` for `x > 0`: DLMF 10.32.9 by the trapezoidal rule, which converges geometrically for this integrand.
fn scaled_k(order: f64, x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::INFINITY;
    }
    if LARGE < x {
        return hankel_series(order, x, 1.0) * (PI / (2.0 * x)).sqrt();
    }
    let step = 0.1;
    let mut sum = 0.5;
    for index in 1..10_000 {
        let t = f64::from(index) * step;
        let half = (0.5 * t).sinh();
        // The larger exponential of the hyperbolic cosine of order · t is taken into the exponent.
        let exponent = order * t - 2.0 * x * half * half;
        let term = exponent.exp() * 0.5 * (1.0 + (-2.0 * order * t).exp());
        sum += term;
        if term < 1e-18 * sum && exponent < 0.0 {
            break;
        }
    }
    sum * step
}

/// `e^-|x| I₀(x)`
pub(super) fn i0e(x: f64) -> f64 {
    scaled_i(0, x)
}

/// `e^-|x| I₁(x)`
pub(super) fn i1e(x: f64) -> f64 {
    scaled_i(1, x)
}

/// Modified Bessel function `I₀(x)`; not-a-number at infinity, as in PyTorch.
pub(super) fn i0(x: f64) -> f64 {
    scaled_i(0, x) * x.abs().exp()
}

/// Modified Bessel function `I₁(x)`; not-a-number at infinity, as in PyTorch.
pub(super) fn i1(x: f64) -> f64 {
    scaled_i(1, x) * x.abs().exp()
}

/// `eˣ K₀(x)`
pub(super) fn k0e(x: f64) -> f64 {
    scaled_k(0.0, x)
}

/// `eˣ K₁(x)`
pub(super) fn k1e(x: f64) -> f64 {
    scaled_k(1.0, x)
}

/// Modified Bessel function `K₀(x)`
pub(super) fn k0(x: f64) -> f64 {
    scaled_k(0.0, x) * (-x).exp()
}

/// Modified Bessel function `K₁(x)`
pub(super) fn k1(x: f64) -> f64 {
    scaled_k(1.0, x) * (-x).exp()
}

/// A function that PyTorch gives as not-a-number at infinity.
fn unless_infinite(x: f64, function: fn(f64) -> f64) -> f64 {
    if x.is_infinite() {
        f64::NAN
    } else {
        function(x)
    }
}

/// Bessel function `J₀(x)`
pub(super) fn j0(x: f64) -> f64 {
    unless_infinite(x, libm::j0)
}

/// Bessel function `J₁(x)`
pub(super) fn j1(x: f64) -> f64 {
    unless_infinite(x, libm::j1)
}

/// Bessel function `Y₀(x)`
pub(super) fn y0(x: f64) -> f64 {
    unless_infinite(x, libm::y0)
}

/// Bessel function `Y₁(x)`
pub(super) fn y1(x: f64) -> f64 {
    unless_infinite(x, libm::y1)
}

/// Airy function `Ai(x)`; not-a-number at infinity, as in PyTorch.
pub(super) fn airy_ai(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let z = x.abs();
    let zeta = 2.0 / 3.0 * z * z.sqrt();
    if 1.0 < x {
        // DLMF 9.6.2
        (x / 3.0).sqrt() / PI * scaled_k(1.0 / 3.0, zeta) * (-zeta).exp()
    } else if -8.0 < x {
        airy_series(x)
    } else {
        // DLMF 9.7.9
        let (even, odd) = airy_phases(zeta);
        let angle = zeta - FRAC_PI_4;
        (angle.cos() * even + angle.sin() * odd) / (PI.sqrt() * z.sqrt().sqrt())
    }
}

/// DLMF 9.4.1
fn airy_series(x: f64) -> f64 {
    const AT_ZERO: f64 = 0.355_028_053_887_817_2;
    const SLOPE_AT_ZERO: f64 = -0.258_819_403_792_806_8;
    let cube = x * x * x;
    let (mut first, mut second) = (AT_ZERO, SLOPE_AT_ZERO * x);
    let (mut sum, mut k) = (first + second, 0.0);
    while 1e-18 < first.abs() + second.abs() {
        k += 3.0;
        first *= cube / (k * (k - 1.0));
        second *= cube / (k * (k + 1.0));
        sum += first + second;
    }
    sum
}

/// `Σ (-1)ᵏ u₂ₖ / ζ²ᵏ` and `Σ (-1)ᵏ u₂ₖ₊₁ / ζ²ᵏ⁺¹` with the coefficients of DLMF 9.7.2.
fn airy_phases(zeta: f64) -> (f64, f64) {
    let (mut even, mut odd, mut term) = (1.0, 0.0, 1.0f64);
    for k in 1..24 {
        let n = f64::from(k);
        let factor = (6.0 * n - 5.0) * (6.0 * n - 3.0) * (6.0 * n - 1.0);
        let next = term * factor / (216.0 * n * (2.0 * n - 1.0) * zeta);
        if next.abs() >= term.abs() {
            break;
        }
        term = next;
        match k % 4 {
            0 => even += term,
            1 => odd += term,
            2 => even -= term,
            _ => odd -= term,
        }
    }
    (even, odd)
}

/// Scaled complementary error function `exp(x²) erfc(x)`; from 25 on DLMF 7.12.1.
pub(super) fn erfcx(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 * (x * x).exp() - erfcx(-x);
    }
    if x < 25.0 {
        return (x * x).exp() * libm::erfc(x);
    }
    let r = 1.0 / (2.0 * x * x);
    (1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r)))) / (x * PI.sqrt())
}

/// Quantile of the normal distribution: Newton's method on its logarithm, from Abramowitz and Stegun 26.2.23.
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

/// Hurwitz zeta function `Σ (q + k)^-x` by Euler and Maclaurin's formula, DLMF 25.11.5; poles and gaps as in Cephes.
pub(super) fn zeta(x: f64, q: f64) -> f64 {
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
    /// Terms further below zero than this are too small to count.
    const DEEPEST: f64 = 1e6;
    if x == 1.0 {
        return f64::INFINITY;
    }
    if q <= 0.0 && q == q.floor() && (x >= 1.0 || x.is_nan()) {
        return f64::INFINITY;
    }
    if x.is_nan() || q.is_nan() || x < 1.0 || (q <= 0.0 && x != x.floor()) {
        return f64::NAN;
    }
    let (mut a, mut sum) = (q.max(q.fract() - DEEPEST), 0.0);
    while a < 10.0 {
        sum += a.powf(-x);
        a += 1.0;
    }
    let mut power = a.powf(-x);
    if power == 0.0 {
        // Cephes' products of orders overflow, and meet a power that is 0.
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

/// Uniform expansion for large `a`, DLMF 8.12.3 to 8.12.9, its first term.
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

/// Exponent of a number written as `m · 2ᵉ` with `0.5 <= |m| < 1`; 0 where there is none.
pub(super) fn exponent(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        0.0
    } else {
        f64::from(libm::frexp(x).1)
    }
}

/// Mantissa of a number written as `m · 2ᵉ` with `0.5 <= |m| < 1`; the number itself where there is none.
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
#[expect(
    clippy::excessive_precision,
    reason = "reference values keep the digits of their tables"
)]
mod tests {
    use super::*;

    /// Values of the NIST Digital Library's tables or of 30-digit arithmetic.
    #[test]
    fn values_are_known() {
        let known = [
            (i0(1.0), 1.266_065_877_752_008_3),
            (i1(-30.0), -768_532_038_938.957),
            (k0(0.1), 2.427_069_024_702_016_6),
            (k1(2.0), 0.139_865_881_816_522_43),
            (k1e(100.0), 0.125_799_950_479_578_53),
            (airy_ai(-9.0), -0.022_133_721_547_341_4),
            (airy_ai(-3.0), -0.378_814_293_677_658_07),
            (airy_ai(2.0), 0.034_924_130_423_274_38),
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
