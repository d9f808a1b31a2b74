// Modified Bessel functions in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

// Σ (x² / 4)ᵏ / (k! (k + n)!), DLMF 10.25.2 without its power of x, for orders 0 and 1 and |x| < 9.
fn modified_bessel_series(order: f32, x: f32) -> f32 {
    let quarter = 0.25 * x * x;
    var sum = 0.0;
    for (var k = 30.0; k > 0.0; k = k - 1.0) {
        sum = (1.0 + sum) * quarter / (k * (k + order));
    }
    return 1.0 + sum;
}

// 1 + Σ (±1)ᵏ aₖ(ν) / xᵏ, DLMF 10.40, for x >= 9.
fn hankel_series(order: f32, x: f32, direction: f32) -> f32 {
    var term = 1.0;
    var sum = 1.0;
    for (var k = 1.0; k < 16.0; k = k + 1.0) {
        let odd = 2.0 * k - 1.0;
        let next = term * direction * (4.0 * order * order - odd * odd) / (8.0 * k * x);
        if abs(next) >= abs(term) {
            break;
        }
        term = next;
        sum = sum + term;
    }
    return sum;
}

// e^-|x| I₀(x)
fn i0e_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude < 9.0 || is_nan(x) {
        return exp_of(-magnitude) * modified_bessel_series(0.0, magnitude);
    }
    if magnitude == infinity() {
        return 0.0;
    }
    return hankel_series(0.0, magnitude, -1.0) * 0.3989423 / sqrt(magnitude);
}

// e^-|x| I₁(x)
fn i1e_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude < 9.0 || is_nan(x) {
        return 0.5 * x * exp_of(-magnitude) * modified_bessel_series(1.0, magnitude);
    }
    if magnitude == infinity() {
        return copy_sign(0.0, x);
    }
    return copy_sign(hankel_series(1.0, magnitude, -1.0) * 0.3989423 / sqrt(magnitude), x);
}

// Not-a-number at infinity, as PyTorch has it.
fn i0_of(x: f32) -> f32 {
    if abs(x) == infinity() {
        return not_a_number();
    }
    return i0e_of(x) * exp_of(abs(x));
}

fn i1_of(x: f32) -> f32 {
    if abs(x) == infinity() {
        return not_a_number();
    }
    return i1e_of(x) * exp_of(abs(x));
}

// eˣ Kᵥ(x) for 0 < x < 9: DLMF 10.32.9 by the trapezoidal rule, which converges geometrically.
fn scaled_k_by_integral(order: f32, x: f32) -> f32 {
    let step = 0.2;
    var sum = 0.5;
    for (var k = 1.0; k < 600.0; k = k + 1.0) {
        let t = k * step;
        let half = exp_of(0.5 * t) - exp_of(-0.5 * t);
        let exponent = order * t - 0.5 * x * half * half;
        let term = exp_of(exponent) * 0.5 * (1.0 + exp_of(-2.0 * order * t));
        sum = sum + term;
        if term < 1e-9 * sum && exponent < 0.0 {
            break;
        }
    }
    return sum * step;
}

fn scaled_k(order: f32, x: f32) -> f32 {
    if is_nan(x) || x < 0.0 {
        return not_a_number();
    }
    if x == 0.0 {
        return infinity();
    }
    if x == infinity() {
        return 0.0;
    }
    if x < 9.0 {
        return scaled_k_by_integral(order, x);
    }
    return hankel_series(order, x, 1.0) * 1.2533141 / sqrt(x);
}

// eˣ K₀(x)
fn k0e_of(x: f32) -> f32 {
    return scaled_k(0.0, x);
}

// eˣ K₁(x)
fn k1e_of(x: f32) -> f32 {
    return scaled_k(1.0, x);
}

fn k0_of(x: f32) -> f32 {
    return scaled_k(0.0, x) * exp_of(-x);
}

fn k1_of(x: f32) -> f32 {
    return scaled_k(1.0, x) * exp_of(-x);
}
