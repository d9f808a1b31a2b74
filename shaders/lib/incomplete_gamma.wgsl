// Incomplete gamma functions in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

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
    // From here on P and Q are 0 and 1 in single precision.
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
        // Further out the power may overflow, while the exponential vanishes.
        if x > 300.0 {
            return 0.0;
        }
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
