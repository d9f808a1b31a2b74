// Special functions in single precision. Equations are those of the NIST Digital Library of Mathematical Functions (DLMF).

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

// Ai and its slope at whole numbers from -8 to 1.
fn airy_at_whole(whole: i32) -> vec2<f32> {
    switch whole {
        case -8: { return vec2<f32>(-0.05270505, 0.93556094); }
        case -7: { return vec2<f32>(0.18428084, -0.77100817); }
        case -6: { return vec2<f32>(-0.32914517, 0.34593549); }
        case -5: { return vec2<f32>(0.35076101, 0.32719282); }
        case -4: { return vec2<f32>(-0.07026553, -0.79062858); }
        case -3: { return vec2<f32>(-0.37881429, 0.31458377); }
        case -2: { return vec2<f32>(0.22740743, 0.61825902); }
        case -1: { return vec2<f32>(0.53556088, -0.010160567); }
        case 0: { return vec2<f32>(0.35502805, -0.25881940); }
        default: { return vec2<f32>(0.135292416, -0.159147441); }
    }
}

// Ai for x between -8.5 and 1.5: Taylor's series around the nearest whole number, by y'' = x y.
fn airy_by_taylor(x: f32) -> f32 {
    let whole = round(x);
    let h = x - whole;
    let start = airy_at_whole(i32(whole));
    var before = 0.0;
    var here = start.x;
    var after = start.y;
    var power = h;
    var sum = start.x + start.y * h;
    for (var k = 0.0; k < 16.0; k = k + 1.0) {
        let next = (whole * here + before) / ((k + 1.0) * (k + 2.0));
        power = power * h;
        sum = sum + next * power;
        before = here;
        here = after;
        after = next;
    }
    return sum;
}

// Ai for x < -8, DLMF 9.7.9. The angle is ζ - π/4; ζ is a product of which no digit may be lost.
fn airy_by_phase(x: f32) -> f32 {
    let z = -x;
    let root = sqrt(z);
    let root_rest = (z - root * root) / (2.0 * root);
    let product = exact_product(root, z);
    let zeta = product.x * 0.6666667;
    let third = exact_product(product.x, 0.6666667);
    let low = third.y - product.x * 1.9868216e-8 + 0.6666667 * (product.y + root_rest * z);
    let r = 1.0 / zeta;
    let first = 0.06944445 * r;
    let second = 0.03713349 * r * r;
    let even = 1.0 - second;
    let odd = first - 0.037993059 * r * r * r;
    let sine = sin_of(zeta) + low * cos_of(zeta);
    let cosine = cos_of(zeta) - low * sin_of(zeta);
    return ((cosine + sine) * even + (sine - cosine) * odd) * 0.39894228 / sqrt(root);
}

// Not-a-number at infinity, as PyTorch has it.
fn airy_ai_of(x: f32) -> f32 {
    if is_nan(x) || abs(x) == infinity() {
        return not_a_number();
    }
    if x < -8.0 {
        return airy_by_phase(x);
    }
    if x < 1.5 {
        return airy_by_taylor(x);
    }
    // DLMF 9.6.2
    let zeta = 0.6666667 * x * sqrt(x);
    return sqrt(x / 3.0) * 0.31830987 * scaled_k(0.33333334, zeta) * exp_of(-zeta);
}

// exp(x²), the square taken apart so that its rounding is not lost.
fn exp_of_square(x: f32) -> f32 {
    let coarse = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    return exp_of(coarse * coarse) * exp_of((x - coarse) * (x + coarse));
}

// exp(x²) erfc(x); from 10 on DLMF 7.12.1.
fn erfcx_of(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let magnitude = abs(x);
    if magnitude < 0.9 {
        return exp_of_square(x) * (1.0 - erf_near_zero(x));
    }
    var scaled = 0.0;
    if magnitude < 10.0 {
        scaled = erfcx_of_large(magnitude);
    } else if magnitude < 1e18 {
        let r = 0.5 / (magnitude * magnitude);
        scaled = (1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r))) * 0.5641896 / magnitude;
    } else {
        scaled = 0.5641896 / magnitude;
    }
    if x > 0.0 {
        return scaled;
    }
    return select(2.0 * exp_of_square(magnitude) - scaled, infinity(), magnitude > 9.5);
}

// Quantile of the normal distribution: Newton's method on its logarithm, from Abramowitz and Stegun 26.2.23.
fn ndtri_of(p: f32) -> f32 {
    if is_nan(p) || p < 0.0 || p > 1.0 {
        return not_a_number();
    }
    if p == 0.0 || p == 1.0 {
        return select(infinity(), -infinity(), p == 0.0);
    }
    let tail = min(p, 1.0 - p);
    let logarithm = log_of(tail);
    let t = sqrt(-2.0 * logarithm);
    let numerator = 2.515517 + t * (0.802853 + t * 0.010328);
    let denominator = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    // The quantile of the upper tail, so that the error function's operand is positive.
    var z = t - numerator / denominator;
    for (var step = 0; step < 3; step = step + 1) {
        let scaled = erfcx_of(z * 0.70710677);
        let distance = log_of(0.5 * scaled) - 0.5 * z * z - logarithm;
        z = z + distance * scaled * 1.2533141;
    }
    return select(z, -z, p < 0.5);
}

// Hurwitz zeta function by Euler and Maclaurin's formula, DLMF 25.11.5; poles and gaps as in Cephes.
fn zeta_of(x: f32, q: f32) -> f32 {
    if x == 1.0 {
        return infinity();
    }
    if q <= 0.0 && floor(q) == q && (x > 1.0 || is_nan(x)) {
        return infinity();
    }
    if is_nan(x) || is_nan(q) || x < 1.0 || (q <= 0.0 && floor(x) != x) {
        return not_a_number();
    }
    // Terms further below zero than this are too small to count.
    var a = max(q, q - floor(q) - 2000.0);
    var sum = 0.0;
    while a < 10.0 {
        sum = sum + power(a, -x);
        a = a + 1.0;
    }
    let tail = power(a, -x);
    if tail == 0.0 {
        // Cephes' products of orders overflow, and meet a power that is 0.
        return select(sum, not_a_number(), sum == 0.0 && (a == infinity() || x > 1e13));
    }
    let r = 1.0 / (a * a);
    let first = tail * (x / a) / 12.0;
    let second = first * (x + 1.0) * (x + 2.0) * r / 60.0;
    let third = second * (x + 3.0) * (x + 4.0) * r / 42.0;
    let fourth = third * (x + 5.0) * (x + 6.0) * r / 40.0;
    return sum + (tail * (a / (x - 1.0) + 0.5) + first - second + third - fourth);
}

fn hypot_of(x: f32, y: f32) -> f32 {
    let larger = max(abs(x), abs(y));
    let smaller = min(abs(x), abs(y));
    if abs(x) == infinity() || abs(y) == infinity() {
        return infinity();
    }
    if is_nan(x) || is_nan(y) {
        return not_a_number();
    }
    if larger == 0.0 {
        return 0.0;
    }
    let ratio = smaller / larger;
    return larger * sqrt(1.0 + ratio * ratio);
}

// μ - ln(1 + μ); its series where the difference would lose digits.
fn excess_over_log1p(mu: f32) -> f32 {
    if abs(mu) > 0.3 {
        return mu - log1p_of(mu);
    }
    var sum = 0.0;
    for (var k = 18.0; k > 1.0; k = k - 1.0) {
        sum = 1.0 / k - mu * sum;
    }
    return mu * mu * sum;
}

// P and Q for a >= 30, the uniform expansion DLMF 8.12.3 to 8.12.9.
fn incomplete_gamma_of_large(a: f32, x: f32) -> vec2<f32> {
    let mu = (x - a) / a;
    let half_square = excess_over_log1p(mu);
    // From here on both are 0 and 1 in single precision.
    if a * half_square > 120.0 {
        return select(vec2<f32>(0.0, 1.0), vec2<f32>(1.0, 0.0), mu > 0.0);
    }
    let eta = copy_sign(sqrt(2.0 * half_square), mu);
    var c0 = -1.0 / 3.0 + eta * (1.0 / 12.0 - eta * (2.0 / 135.0 - eta * (1.0 / 864.0 + eta * (1.0 / 2835.0))));
    if abs(eta) > 0.5 {
        c0 = 1.0 / mu - 1.0 / eta;
    }
    let c1 = -1.0 / 540.0 - eta * (1.0 / 288.0 - eta / 378.0);
    let rest = (c0 + c1 / a) * exp_of(-a * half_square) * 0.3989423 / sqrt(a);
    let argument = eta * sqrt(0.5 * a);
    return vec2<f32>(0.5 * erfc_of(-argument) - rest, 0.5 * erfc_of(argument) + rest);
}

// xᵃ e⁻ˣ / Γ(a), for large a by Stirling's series around the peak.
fn gamma_density(a: f32, x: f32) -> f32 {
    if a < 8.0 {
        return power(x, a) * exp_of(-x - lgamma_of(a));
    }
    let series = (1.0 / 12.0 - 1.0 / (360.0 * a * a)) / a;
    return exp_of(-a * excess_over_log1p((x - a) / a) - series) * sqrt(a) * 0.3989423;
}

// P and Q, with PyTorch's limits; DLMF 8.7.1 below the peak and the continued fraction 8.9.2 above it.
fn incomplete_gamma(a: f32, x: f32) -> vec2<f32> {
    let a_infinite = a == infinity();
    let x_infinite = x == infinity();
    let undefined = a < 0.0 || x < 0.0 || (a_infinite && x_infinite);
    if undefined || (a == 0.0 && (is_nan(x) || x == 0.0)) {
        return vec2<f32>(not_a_number(), not_a_number());
    }
    if a == 0.0 || x_infinite {
        return vec2<f32>(1.0, 0.0);
    }
    if x == 0.0 || a_infinite {
        return vec2<f32>(0.0, 1.0);
    }
    if is_nan(a) || is_nan(x) {
        return vec2<f32>(not_a_number(), not_a_number());
    }
    if a >= 30.0 {
        return incomplete_gamma_of_large(a, x);
    }
    let density = gamma_density(a, x);
    if x < a + 1.0 {
        var term = 1.0 / a;
        var sum = term;
        for (var k = 1.0; k < 200.0 && term > 1e-9 * sum; k = k + 1.0) {
            term = term * x / (a + k);
            sum = sum + term;
        }
        let lower = density * sum;
        return vec2<f32>(lower, 1.0 - lower);
    }
    var b = x + 1.0 - a;
    var c = 1e30;
    var d = 1.0 / b;
    var fraction = d;
    for (var k = 1.0; k < 200.0; k = k + 1.0) {
        let numerator = k * (a - k);
        b = b + 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        fraction = fraction * (d * c);
        if abs(d * c - 1.0) < 1e-7 {
            break;
        }
    }
    let upper = density * fraction;
    return vec2<f32>(1.0 - upper, upper);
}

fn igamma_of(a: f32, x: f32) -> f32 {
    return incomplete_gamma(a, x).x;
}

fn igammac_of(a: f32, x: f32) -> f32 {
    return incomplete_gamma(a, x).y;
}

// The parts of x = m · 2ᵉ with 0.5 <= |m| < 1, from its bits; (x, 0) where there are none.
fn mantissa_and_exponent(x: f32) -> vec2<f32> {
    if x == 0.0 || is_nan(x) || abs(x) == infinity() {
        return vec2<f32>(x, 0.0);
    }
    let small = abs(x) < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 16777216.0, small));
    let exponent = f32((bits >> 23u) & 0xffu) - select(126.0, 150.0, small);
    return vec2<f32>(bitcast<f32>((bits & 0x807fffffu) | 0x3f000000u), exponent);
}

fn mantissa_of(x: f32) -> f32 {
    return mantissa_and_exponent(x).x;
}

fn exponent_of(x: f32) -> f32 {
    return mantissa_and_exponent(x).y;
}

// The whole part of a degree; negative, so that the polynomial is 0, if there is none.
fn whole_degree(n: f32) -> f32 {
    return select(trunc(n), -1.0, is_nan(n) || abs(n) > 9e18);
}

// ±value: the parity of a polynomial of this degree at -1.
fn by_parity(n: f32, value: f32) -> f32 {
    return select(value, -value, floor(0.5 * n) * 2.0 != n);
}

// arccos for |x| < 1 to the nearest number, since multiples of it are taken: what is missing of the cosine is found from
// the angle's distance to a whole number of quarter turns, where no digit is lost.
fn nearest_acos(x: f32) -> f32 {
    let angle = acos_of(x);
    let turns = round(angle * 0.63661975);
    let rest = angle - turns * 1.5707964;
    let low = turns * 4.371139e-8;
    let z = rest * rest;
    if turns == 1.0 {
        let tail = -1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z / 362880.0));
        return angle - ((x + rest) + (rest * z * tail + low)) / cos_near_zero(rest);
    }
    let sine = sin_near_zero(rest);
    let square = exact_product(rest, rest);
    let above = exact_sum(1.0, select(-x, x, turns == 2.0));
    let tail = 1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40320.0 - z / 3628800.0));
    return angle + ((above.x - 0.5 * square.x) + (above.y - 0.5 * square.y + z * z * tail - low * sine)) / sine;
}

// The Chebyshev polynomial of degree n >= 0 whose polynomial of degree 1 is `second`.
fn chebyshev_recurrence(x: f32, n: f32, second: f32) -> f32 {
    var before = 1.0;
    var here = second;
    for (var k = 1.0; k < min(n, 1048576.0) && !is_nan(here); k = k + 1.0) {
        let next = fused(x + x, here, -before);
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn chebyshev_t_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, 1.0), 1.0, x > 0.0);
    }
    if n > 6.0 && abs(x) < 1.0 {
        return cos_of(n * nearest_acos(x));
    }
    return chebyshev_recurrence(x, n, x);
}

fn chebyshev_u_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, n + 1.0), n + 1.0, x > 0.0);
    }
    if n > 8.0 && abs(x) < 1.0 {
        let angle = nearest_acos(x);
        return sin_of((n + 1.0) * angle) / sin_of(angle);
    }
    return chebyshev_recurrence(x, n, x + x);
}

fn chebyshev_v_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, n + n + 1.0), 1.0, x > 0.0);
    }
    if n > 8.0 && abs(x) < 1.0 {
        let angle = nearest_acos(x);
        return cos_of((n + 0.5) * angle) / cos_of(0.5 * angle);
    }
    return chebyshev_recurrence(x, n, x + x - 1.0);
}

fn chebyshev_w_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, 1.0), n + n + 1.0, x > 0.0);
    }
    if n > 8.0 && abs(x) < 1.0 {
        let angle = nearest_acos(x);
        return sin_of((n + 0.5) * angle) / sin_of(0.5 * angle);
    }
    return chebyshev_recurrence(x, n, x + x + 1.0);
}

// Not-a-number from the degree on whose coefficients exceed single precision, as in PyTorch.
fn hermite_h_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 || n > 128.0 {
        return select(0.0, not_a_number(), n > 0.0);
    }
    var before = 1.0;
    var here = x + x;
    for (var k = 1.0; k < n; k = k + 1.0) {
        let next = fused(x + x, here, -(2.0 * k * before));
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn hermite_he_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 || n > 128.0 {
        return select(0.0, not_a_number(), n > 0.0);
    }
    var before = 1.0;
    var here = x;
    for (var k = 1.0; k < n; k = k + 1.0) {
        let next = fused(x, here, -(k * before));
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn laguerre_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 || x == 0.0 {
        return select(1.0, 0.0, n < 0.0);
    }
    var before = 1.0;
    var here = 1.0 - x;
    for (var k = 1.0; k < min(n, 1048576.0) && !is_nan(here); k = k + 1.0) {
        let next = fused((k + k) + (1.0 - x), here, -(k * before)) / (k + 1.0);
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn legendre_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, 1.0), 1.0, x > 0.0);
    }
    var before = 1.0;
    var here = x;
    for (var k = 1.0; k < min(n, 1048576.0) && !is_nan(here); k = k + 1.0) {
        let next = fused((k + k + 1.0) * x, here, -(k * before)) / (k + 1.0);
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}
