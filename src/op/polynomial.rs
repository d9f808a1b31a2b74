//! Orthogonal polynomials by their recurrences, in single precision as PyTorch evaluates them
//! (`aten/src/ATen/native/Math.h`, with the products and sums that its builds fuse). The result includes overflow of a
//! recurrence.

/// Upper bound of the steps for any finite result.
const MAX_STEPS: i64 = 1 << 20;

/// The integer part of a degree; -1 (which gives 0) if it has none.
fn whole(degree: f64) -> i64 {
    if degree.is_finite() && degree.abs() < 9e18 {
        degree as i64
    } else {
        -1
    }
}

/// `±value`: the value of a polynomial at -1 by the parity of its degree.
fn by_parity(degree: i64, value: f32) -> f32 {
    if degree % 2 == 0 { value } else { -value }
}

/// The arc cosine, rounded to nearest. Multiplication spreads its last digit to all digits, and that digit differs between C
/// libraries, which PyTorch and `f32::acos` use.
fn nearest_acos(x: f32) -> f32 {
    f64::from(x).acos() as f32
}

/// The polynomial of a degree, from those of degrees 0 and 1 and the recurrence step `(k, q, p)` from degrees `k`, `k - 1`
/// to `k + 1`.
fn recur(degree: i64, first: f32, second: f32, step: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let (mut p, mut q) = (first, second);
    match degree {
        ..0 => return 0.0,
        0 => return first,
        _ => {}
    }
    for k in 1..degree.min(MAX_STEPS) {
        if q.is_nan() {
            break;
        }
        (p, q) = (q, step(k as f32, q, p));
    }
    q
}

/// `Tₙ(x)`; inside the interval it is computed by a cosine from degree 7 on.
pub(super) fn chebyshev_t(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    f64::from(if n < 0 {
        0.0
    } else if x.abs() == 1.0 {
        if 0.0 < x { 1.0 } else { by_parity(n, 1.0) }
    } else if 6 < n && x.abs() < 1.0 {
        (n as f32 * nearest_acos(x)).cos()
    } else {
        recur(n, 1.0, x, |_, q, p| (x + x).mul_add(q, -p))
    })
}

/// `Uₙ(x)`
pub(super) fn chebyshev_u(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    let next = (n + 1) as f32;
    f64::from(if n < 0 {
        0.0
    } else if x.abs() == 1.0 {
        if 0.0 < x { next } else { by_parity(n, next) }
    } else if 8 < n && x.abs() < 1.0 {
        let angle = nearest_acos(x);
        if angle.sin() == 0.0 {
            next * (next * angle).cos() / x
        } else {
            (next * angle).sin() / angle.sin()
        }
    } else {
        recur(n, 1.0, x + x, |_, q, p| (x + x).mul_add(q, -p))
    })
}

/// `Vₙ(x)`
pub(super) fn chebyshev_v(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    let odd = (n.saturating_mul(2) + 1) as f32;
    f64::from(if n < 0 {
        0.0
    } else if x.abs() == 1.0 {
        if 0.0 < x { 1.0 } else { by_parity(n, odd) }
    } else if 8 < n && x.abs() < 1.0 {
        let angle = nearest_acos(x);
        if (angle / 2.0).sin() == 1.0 {
            by_parity(n, odd)
        } else {
            ((n as f32 + 0.5) * angle).cos() / (angle / 2.0).cos()
        }
    } else {
        recur(n, 1.0, x + x - 1.0, |_, q, p| (x + x).mul_add(q, -p))
    })
}

/// `Wₙ(x)`
pub(super) fn chebyshev_w(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    let odd = (n.saturating_mul(2) + 1) as f32;
    f64::from(if n < 0 {
        0.0
    } else if x.abs() == 1.0 {
        if 0.0 < x { odd } else { by_parity(n, 1.0) }
    } else if 8 < n && x.abs() < 1.0 {
        let angle = nearest_acos(x);
        if (angle / 2.0).cos() != 1.0 {
            ((n as f32 + 0.5) * angle).sin() / (angle / 2.0).sin()
        } else if 0.0 < x {
            odd
        } else {
            by_parity(n, 1.0)
        }
    } else {
        recur(n, 1.0, x + x + 1.0, |_, q, p| (x + x).mul_add(q, -p))
    })
}

/// Largest degree for which the coefficients of Hermite polynomials fit single precision.
const HERMITE_LIMIT: i64 = 128;

/// `Hₙ(x)`, the physicists' polynomial.
pub(super) fn hermite_h(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    if HERMITE_LIMIT < n {
        return f64::NAN;
    }
    f64::from(recur(n, 1.0, x + x, |k, q, p| {
        (x + x).mul_add(q, -(2.0 * k * p))
    }))
}

/// `Heₙ(x)`, the probabilists' polynomial.
pub(super) fn hermite_he(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    if HERMITE_LIMIT < n {
        return f64::NAN;
    }
    f64::from(recur(n, 1.0, x, |k, q, p| x.mul_add(q, -(k * p))))
}

/// `Lₙ(x)`
pub(super) fn laguerre(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    let at_zero = if n < 0 { 0.0 } else { 1.0 };
    f64::from(if x == 0.0 {
        at_zero
    } else {
        recur(n, 1.0, 1.0 - x, |k, q, p| {
            ((k + k) + (1.0 - x)).mul_add(q, -(k * p)) / (k + 1.0)
        })
    })
}

/// `Pₙ(x)`
pub(super) fn legendre(x: f64, degree: f64) -> f64 {
    let (x, n) = (x as f32, whole(degree));
    f64::from(if n < 0 {
        0.0
    } else if x.abs() == 1.0 {
        if 0.0 < x { 1.0 } else { by_parity(n, 1.0) }
    } else {
        recur(n, 1.0, x, |k, q, p| {
            ((k + k + 1.0) * x).mul_add(q, -(k * p)) / (k + 1.0)
        })
    })
}
