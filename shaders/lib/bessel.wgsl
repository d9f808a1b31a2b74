// Bessel functions in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

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

// J₀, J₁, Y₀ and Y₁ for 0 < x < 25: Miller's backward recurrence for J, and Neumann's series in them for Y,
// DLMF 3.6 and 10.23.
fn bessel_by_recurrence(x: f32) -> vec4<f32> {
    var above = 0.0;
    var here = 1e-30;
    var total = 0.0;
    var series_0 = 0.0;
    var series_1 = 0.0;
    var first = 0.0;
    // The order of `here` falls from an even number to 0.
    for (var order = 2.0 * floor(0.5 * (x + 24.0)); order > 0.0; order = order - 1.0) {
        let half = floor(0.5 * order);
        let direction = 1.0 - 2.0 * (half - 2.0 * floor(0.5 * half));
        if 2.0 * half == order {
            total = total + 2.0 * here;
            series_0 = series_0 + direction * here / half;
        } else if half > 0.0 {
            series_1 = series_1 + direction * here * order / (half * (half + 1.0));
        } else {
            first = here;
        }
        let below = 2.0 * order / x * here - above;
        above = here;
        here = below;
        if abs(here) > 1e20 {
            let scale = 1e-20;
            above = above * scale;
            here = here * scale;
            total = total * scale;
            series_0 = series_0 * scale;
            series_1 = series_1 * scale;
            first = first * scale;
        }
    }
    let norm = 1.0 / (total + here);
    let j0 = here * norm;
    let j1 = first * norm;
    let logarithm = log_of(0.5 * x) + 0.5772157;
    let y0 = 0.63661977 * (logarithm * j0 - 2.0 * series_0 * norm);
    let y1 = 0.63661977 * ((logarithm - 1.0) * j1 - j0 / x - series_1 * norm);
    return vec4<f32>(j0, j1, y0, y1);
}

// J and Y of an order for x >= 25, DLMF 10.17.3 and 10.17.4; the phase is taken off by addition theorems.
fn bessel_by_phase(order: f32, x: f32) -> vec2<f32> {
    let r = 1.0 / (8.0 * x);
    let square = 4.0 * order * order;
    let odd = (square - 1.0) * r;
    let second = odd * (square - 9.0) * r / 2.0;
    let third = second * (square - 25.0) * r / 3.0;
    let even = 1.0 - second + third * (square - 49.0) * r / 4.0;
    let rest = odd - third;
    let sine = sin_of(x);
    let cosine = cos_of(x);
    // cos and sin of x - π/4, for order 1 of x - 3π/4.
    let c = select(sine + cosine, sine - cosine, order == 1.0);
    let s = select(sine - cosine, -sine - cosine, order == 1.0);
    return vec2<f32>(c * even - s * rest, s * even + c * rest) * (0.5641896 / sqrt(x));
}

fn bessel_j0_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if is_nan(x) || magnitude == infinity() {
        return not_a_number();
    }
    if magnitude < 1e-4 {
        return 1.0;
    }
    if magnitude < 25.0 {
        return bessel_by_recurrence(magnitude).x;
    }
    return bessel_by_phase(0.0, magnitude).x;
}

fn bessel_j1_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if is_nan(x) || magnitude == infinity() {
        return not_a_number();
    }
    if magnitude < 1e-3 {
        return 0.5 * x;
    }
    if magnitude < 25.0 {
        return sign(x) * bessel_by_recurrence(magnitude).y;
    }
    return sign(x) * bessel_by_phase(1.0, magnitude).x;
}

fn bessel_y0_of(x: f32) -> f32 {
    if is_nan(x) || x < 0.0 || x == infinity() {
        return not_a_number();
    }
    if x == 0.0 {
        return -infinity();
    }
    if x < 1e-4 {
        return 0.63661977 * (log_of(x) - 0.115931516);
    }
    if x < 25.0 {
        return bessel_by_recurrence(x).z;
    }
    return bessel_by_phase(0.0, x).y;
}

fn bessel_y1_of(x: f32) -> f32 {
    if is_nan(x) || x < 0.0 || x == infinity() {
        return not_a_number();
    }
    if x < 1e-4 {
        return select(-0.63661977 / x, -infinity(), x < 1e-38);
    }
    if x < 25.0 {
        return bessel_by_recurrence(x).w;
    }
    return bessel_by_phase(1.0, x).y;
}
