// Bessel functions in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

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
