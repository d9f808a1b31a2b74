//! Bessel and Airy functions by the series of Moshier's Cephes library, which PyTorch evaluates in the precision of the
//! dtype (`aten/src/ATen/native/Math.h`). Order of operations and fused products are those of PyTorch's builds.

use std::f64::consts::{FRAC_2_PI, FRAC_2_SQRT_PI, FRAC_PI_4};

use crate::kernel::series::bessel::*;
use crate::kernel::series::{Real, Series, airy};

fn magnitude<T: Real>(x: T) -> T {
    if x < T::from_f64(0.0) { -x } else { x }
}

/// Gives `value` the sign of `x`, for odd functions.
fn odd<T: Real>(x: T, value: T) -> T {
    if x < T::from_f64(0.0) { -value } else { value }
}

fn exp<T: Real>(x: T) -> T {
    x.apply_rounded(f64::exp)
}

/// True for `x` for which modified functions of the first kind use the series for small arguments.
fn is_near<T: Real>(x: T) -> bool {
    x <= T::from_f64(8.0)
}

/// The series of a modified function of the first kind for `x >= 0`. For large `x` it lacks the factor `1 / √x`.
fn first_kind<T: Real>(near: &Series, far: &Series, x: T) -> T {
    let two = T::from_f64(2.0);
    if is_near(x) {
        near.eval(x / two - two)
    } else {
        far.eval(T::from_f64(32.0) / x - two)
    }
}

fn series_i0<T: Real>(x: T) -> T {
    first_kind(&I0_NEAR, &I0_FAR, x)
}

/// The series is shorter in single precision.
fn series_i1<T: Real>(x: T) -> T {
    if T::IS_SINGLE {
        first_kind(&I1_NEAR_SINGLE, &I1_FAR_SINGLE, x)
    } else {
        first_kind(&I1_NEAR, &I1_FAR, x)
    }
}

/// `e^-|x| I₀(x)`
pub(super) fn i0e<T: Real>(x: T) -> T {
    let x = magnitude(x);
    if is_near(x) {
        series_i0(x)
    } else {
        series_i0(x) / x.square_root()
    }
}

/// `I₀(x)`; not-a-number at infinity, like the other functions of the first kind that are not scaled.
pub(super) fn i0<T: Real>(x: T) -> T {
    let x = magnitude(x);
    let product = exp(x) * series_i0(x);
    if is_near(x) {
        product
    } else {
        product / x.square_root()
    }
}

/// `e^-|x| I₁(x)`
pub(super) fn i1e<T: Real>(x: T) -> T {
    let z = magnitude(x);
    odd(
        x,
        if is_near(z) {
            series_i1(z) * z
        } else {
            series_i1(z) / z.square_root()
        },
    )
}

/// `I₁(x)` as `special.i1`
pub(super) fn i1<T: Real>(x: T) -> T {
    let z = magnitude(x);
    odd(
        x,
        if is_near(z) {
            exp(z) * z * series_i1(z)
        } else {
            exp(z) * series_i1(z) / z.square_root()
        },
    )
}

/// `I₁(x)` as `special.modified_bessel_i1`
pub(super) fn modified_i1<T: Real>(x: T) -> T {
    let z = magnitude(x);
    let series = first_kind(&I1_NEAR, &I1_FAR, z);
    odd(
        x,
        if is_near(z) {
            series * z * exp(z)
        } else {
            exp(z) * series / z.square_root()
        },
    )
}

/// The value of a function of the second kind for `x <= 0`; `None` for positive `x`.
fn second_kind_limit<T: Real>(x: T, at_zero: f64) -> Option<T> {
    if x == T::from_f64(0.0) {
        Some(T::from_f64(at_zero))
    } else if x < T::from_f64(0.0) {
        Some(T::from_f64(f64::NAN))
    } else {
        None
    }
}

/// The series of a modified function of the second kind for `x <= 2`.
fn second_kind_near<T: Real>(near: &Series, x: T) -> T {
    near.eval(x.fused_mul_add(x, T::from_f64(-2.0)))
}

/// The series of a modified function of the second kind for `x > 2`, without the factor `1 / √x`.
fn second_kind_far<T: Real>(far: &Series, x: T) -> T {
    far.eval(T::from_f64(8.0) / x - T::from_f64(2.0))
}

fn log_of_half<T: Real>(x: T) -> T {
    (T::from_f64(0.5) * x).apply_rounded(f64::ln)
}

/// `eˣ K₀(x)`
pub(super) fn k0e<T: Real>(x: T) -> T {
    if let Some(limit) = second_kind_limit(x, f64::INFINITY) {
        return limit;
    }
    if x <= T::from_f64(2.0) {
        (-log_of_half(x)).fused_mul_add(i0(x), second_kind_near(&K0_NEAR, x)) * exp(x)
    } else {
        second_kind_far(&K0_FAR, x) / x.square_root()
    }
}

/// `K₀(x)`; for small `x` the sum is computed in double precision.
pub(super) fn k0<T: Real + Into<f64>>(x: T) -> T {
    if let Some(limit) = second_kind_limit(x, f64::INFINITY) {
        return limit;
    }
    if x <= T::from_f64(2.0) {
        let (near, first): (f64, f64) = (second_kind_near(&K0_NEAR, x).into(), i0(x).into());
        T::from_f64((-(0.5 * x.into()).ln()).mul_add(first, near))
    } else {
        exp(-x) * second_kind_far(&K0_FAR, x) / x.square_root()
    }
}

/// `K₁(x)` for `0 < x <= 2`
fn k1_near<T: Real>(x: T) -> T {
    log_of_half(x).fused_mul_add(modified_i1(x), second_kind_near(&K1_NEAR, x) / x)
}

/// `eˣ K₁(x)`
pub(super) fn k1e<T: Real>(x: T) -> T {
    if let Some(limit) = second_kind_limit(x, f64::INFINITY) {
        return limit;
    }
    if x <= T::from_f64(2.0) {
        k1_near(x) * exp(x)
    } else {
        second_kind_far(&K1_FAR, x) / x.square_root()
    }
}

/// `K₁(x)`
pub(super) fn k1<T: Real>(x: T) -> T {
    if let Some(limit) = second_kind_limit(x, f64::INFINITY) {
        return limit;
    }
    if x <= T::from_f64(2.0) {
        k1_near(x)
    } else {
        exp(-x) * second_kind_far(&K1_FAR, x) / x.square_root()
    }
}

/// Hankel's expansion for `x > 5`: P, Q, and the cosine and sine of the phase.
struct AsymptoticExpansion<T> {
    p: T,
    q: T,
    cosine: T,
    sine: T,
    x: T,
}

impl<T: Real> AsymptoticExpansion<T> {
    fn new(z: T, x: T, phase: f64, [p, p_divisor, q, q_divisor]: [&Series; 4]) -> Self {
        let angle = x - T::from_f64(phase);
        AsymptoticExpansion {
            p: p.eval(z) / p_divisor.eval(z),
            q: T::from_f64(5.0) / x * (q.eval(z) / q_divisor.eval(z)),
            cosine: angle.apply_rounded(f64::cos),
            sine: angle.apply_rounded(f64::sin),
            x,
        }
    }

    fn order_0(x: T) -> Self {
        let series = [&P_0, &P_DIVISOR_0, &Q_0, &Q_DIVISOR_0];
        AsymptoticExpansion::new(T::from_f64(25.0) / (x * x), x, FRAC_PI_4, series)
    }

    fn order_1(x: T) -> Self {
        let series = [&P_1, &P_DIVISOR_1, &Q_1, &Q_DIVISOR_1];
        let ratio = T::from_f64(5.0) / x;
        AsymptoticExpansion::new(ratio * ratio, x, 3.0 * FRAC_PI_4, series)
    }

    /// `√(2 / πx) · value`
    fn scaled(&self, value: T) -> T {
        value * T::from_f64(FRAC_2_PI.sqrt()) / self.x.square_root()
    }

    fn first_kind(&self) -> T {
        self.scaled(self.p.fused_mul_add(self.cosine, -(self.q * self.sine)))
    }

    fn second_kind(&self) -> T {
        self.scaled(self.p.fused_mul_add(self.sine, self.q * self.cosine))
    }
}

/// Bessel function `J₀(x)`; not-a-number at infinity, like the functions below.
pub(super) fn j0<T: Real>(x: T) -> T {
    let x = magnitude(x);
    let z = x * x;
    if x < T::from_f64(0.00001) {
        (-z).fused_mul_add(T::from_f64(0.25), T::from_f64(1.0))
    } else if x <= T::from_f64(5.0) {
        let roots =
            (z - T::from_f64(5.783_185_962_946_785)) * (z - T::from_f64(30.471_262_343_662_087));
        roots * J0.eval(z) / J0_DIVISOR.eval(z)
    } else {
        AsymptoticExpansion::order_0(x).first_kind()
    }
}

/// Bessel function `J₁(x)`
pub(super) fn j1<T: Real>(x: T) -> T {
    let (signed, x) = (x, magnitude(x));
    let z = x * x;
    odd(
        signed,
        if x <= T::from_f64(5.0) {
            let ratio = J1.eval(z) / J1_DIVISOR.eval(z) * x;
            ratio
                * (z - T::from_f64(14.681_970_642_123_893))
                * (z - T::from_f64(49.218_456_321_694_6))
        } else {
            AsymptoticExpansion::order_1(x).first_kind()
        },
    )
}

/// Bessel function `Y₀(x)`
pub(super) fn y0<T: Real>(x: T) -> T {
    if let Some(limit) = second_kind_limit(x, f64::NEG_INFINITY) {
        return limit;
    }
    if x <= T::from_f64(5.0) {
        let z = x * x;
        let logarithm = T::from_f64(FRAC_2_PI) * x.apply_rounded(f64::ln);
        logarithm.fused_mul_add(j0(x), Y0.eval(z) / Y0_DIVISOR.eval(z))
    } else {
        AsymptoticExpansion::order_0(x).second_kind()
    }
}

/// Bessel function `Y₁(x)`
pub(super) fn y1<T: Real>(x: T) -> T {
    if let Some(limit) = second_kind_limit(x, f64::NEG_INFINITY) {
        return limit;
    }
    if x <= T::from_f64(5.0) {
        let z = x * x;
        let singular = j1(x).fused_mul_add(x.apply_rounded(f64::ln), -(T::from_f64(1.0) / x));
        x.fused_mul_add(
            Y1.eval(z) / Y1_DIVISOR.eval(z),
            T::from_f64(FRAC_2_PI) * singular,
        )
    } else {
        AsymptoticExpansion::order_1(x).second_kind()
    }
}

/// Airy function `Ai(x)`; not-a-number at infinity.
pub(super) fn airy_ai<T: Real>(x: T) -> T {
    let (border, two, three) = (T::from_f64(2.09), T::from_f64(2.0), T::from_f64(3.0));
    let scale = T::from_f64(0.5 * FRAC_2_SQRT_PI);
    if x < -border {
        let root = (-x).square_root();
        let zeta = -two * x * root / three;
        let z = T::from_f64(1.0) / zeta;
        let square = z * z;
        let p = square * airy::P.eval(square) / airy::P_DIVISOR.eval(square) + T::from_f64(1.0);
        let q = z * airy::Q.eval(square) / airy::Q_DIVISOR.eval(square);
        let angle = zeta + T::from_f64(FRAC_PI_4);
        let (sine, cosine) = (angle.apply_rounded(f64::sin), angle.apply_rounded(f64::cos));
        scale / root.square_root() * sine.fused_mul_add(p, -(cosine * q))
    } else if x > T::from_f64(103.892) {
        let is_infinite = x == T::from_f64(f64::INFINITY);
        T::from_f64(if is_infinite { f64::NAN } else { 0.0 })
    } else if x >= border {
        let root = x.square_root();
        let zeta = two * x * root / three;
        let z = T::from_f64(1.0) / zeta;
        scale * (airy::DECAY.eval(z) / airy::DECAY_DIVISOR.eval(z))
            / (two * root.square_root() * exp(zeta))
    } else {
        airy_by_powers(x)
    }
}

/// `Ai(x)` near 0, DLMF 9.4.1, until a term is below the precision.
fn airy_by_powers<T: Real>(x: T) -> T {
    let cube = x * x * x;
    let (mut even, mut odd, mut k) = (T::from_f64(1.0), x, T::from_f64(1.0));
    let (mut even_term, mut odd_term, mut part) = (even, x, even);
    let mut next = || {
        k = k + T::from_f64(1.0);
        k
    };
    while part > T::EPSILON {
        even_term = even_term * cube / next();
        let third = next();
        odd_term = odd_term * cube / third;
        even_term = even_term / third;
        even = even + even_term;
        odd_term = odd_term / next();
        odd = odd + odd_term;
        part = magnitude(even_term / even);
    }
    T::from_f64(0.355_028_053_887_817_2)
        .fused_mul_add(even, -(T::from_f64(0.258_819_403_792_806_8) * odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the NIST Digital Library's tables or of 30-digit arithmetic.
    #[test]
    fn values_match_references() {
        let known: [(f64, f64); 9] = [
            (i0(1.0), 1.266_065_877_752_008_3),
            (i1(-30.0), -768_532_038_938.957),
            (modified_i1(-30.0), -768_532_038_938.957),
            (k0(0.1), 2.427_069_024_702_017),
            (k1(2.0), 0.139_865_881_816_522_43),
            (k1e(100.0), 0.125_799_950_479_578_53),
            (airy_ai(-9.0), -0.022_133_721_547_341_4),
            (airy_ai(-1.0), 0.535_560_883_292_352_1),
            (airy_ai(2.0), 0.034_924_130_423_274_38),
        ];
        for (index, (found, expected)) in known.into_iter().enumerate() {
            let error = ((found - expected) / expected).abs();
            assert!(error < 1e-9, "{index}: {found} instead of {expected}");
        }
    }

    /// The result of PyTorch 2.13 in double precision, of which eight digits are correct there.
    #[test]
    fn the_airy_function_matches_pytorch() {
        let error = airy_ai(-3.0) + 0.378_814_288_330_433_9_f64;
        assert!(error.abs() < 1e-15, "{error}");
    }

    /// The results of PyTorch 2.13 in single precision, which differ from the nearest number in the last digits.
    #[test]
    fn single_precision_matches_pytorch() {
        let found = [i0(8.0f32), i1(-8.0), modified_i1(-8.0), k0e(1.0), k1e(1.0)];
        let known = [
            427.564_2,
            -399.873_54,
            -399.873_35,
            1.144_463_2,
            1.636_153_7,
        ];
        assert_eq!(found, known);
        let found = [j0(8.0f32), j1(8.0), y0(5.0), y1(5.0)];
        let known = [0.171_650_78, 0.234_636_35, -0.308_518_02, 0.147_862_88];
        assert_eq!(found, known);
    }
}
