// The error function and its relatives in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

// exp(x²) erfc(x) for x between 0.9 and 11: a polynomial in t = 1 / (1 + x/2), fitted at Chebyshev's points.
fn erfcx_of_large(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.5 * x);
    let u = t - 0.4267948;
    var sum = -0.04892727;
    sum = sum * u + 0.08780368;
    sum = sum * u + 0.058926877;
    sum = sum * u - 0.13877138;
    sum = sum * u - 0.12708186;
    sum = sum * u + 0.18988144;
    sum = sum * u + 0.52184434;
    sum = sum * u + 0.607923;
    sum = sum * u + 0.4634211;
    return t * sum;
}

// The complementary error function for x >= 0.9. The square is split into two parts, so that the exponential of its rounding
// error is not lost.
fn erfc_of_large(x: f32) -> f32 {
    let coarse = upper_digits(x);
    return exp_of(-coarse * coarse) * exp_of((coarse - x) * (coarse + x)) * erfcx_of_large(x);
}

// The error function for |x| <= 0.9: x + x·p(x²), p fitted for the least relative error.
fn erf_near_zero(x: f32) -> f32 {
    let z = x * x;
    var sum = 8.5131025e-5;
    sum = sum * z - 0.00081756391;
    sum = sum * z + 0.0052038589;
    sum = sum * z - 0.026860509;
    sum = sum * z + 0.11283715;
    sum = sum * z - 0.37612635;
    sum = sum * z + 0.12837917;
    return x + x * sum;
}

// The error function for x between 0.9 and 3.95, where it is 1 - 2^p(x), p fitted for the least error of that.
fn erf_of_large(x: f32) -> f32 {
    var sum = 0.00028447472;
    sum = sum * x - 0.0044083251;
    sum = sum * x + 0.0321391;
    sum = sum * x - 0.15009430;
    sum = sum * x - 0.91908282;
    sum = sum * x - 1.6269988;
    sum = sum * x - 0.00025605547;
    let n = round(sum);
    return 1.0 - exp2_near_zero(sum - n) * power_of_two(n);
}

// Has no branch, because a rasteriser would execute both sides.
fn erf_of(x: f32) -> f32 {
    let magnitude = abs(x);
    let large = copy_sign(erf_of_large(bounded(magnitude, 0.0, 3.95)), x);
    return select(large, erf_near_zero(x), magnitude < 0.9);
}

fn erfc_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude < 0.9 || is_nan(x) {
        return 1.0 - erf_near_zero(x);
    }
    let tail = erfc_of_large(min(magnitude, 11.0));
    return select(tail, 2.0 - tail, x < 0.0);
}

// Giles, "Approximating the erfinv function" (2010).
fn erfinv_of(x: f32) -> f32 {
    if abs(x) == 1.0 {
        return x * infinity();
    }
    var w = -log_of((1.0 - x) * (1.0 + x));
    var sum = 0.0;
    if w < 5.0 {
        w = w - 2.5;
        sum = 2.8102264e-8;
        sum = sum * w + 3.4327394e-7;
        sum = sum * w - 3.5233877e-6;
        sum = sum * w - 4.3915065e-6;
        sum = sum * w + 0.00021858087;
        sum = sum * w - 0.001253725;
        sum = sum * w - 0.0041776816;
        sum = sum * w + 0.24664073;
        sum = sum * w + 1.5014094;
    } else {
        w = sqrt(w) - 3.0;
        sum = -0.00020021426;
        sum = sum * w + 0.00010095056;
        sum = sum * w + 0.0013493432;
        sum = sum * w - 0.0036734284;
        sum = sum * w + 0.0057395077;
        sum = sum * w - 0.0076224613;
        sum = sum * w + 0.0094388705;
        sum = sum * w + 1.001674;
        sum = sum * w + 2.8329768;
    }
    return sum * x;
}

// exp(x²), with the square split into two parts so that its rounding error is not lost.
fn exp_of_square(x: f32) -> f32 {
    let coarse = upper_digits(x);
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
    // PyTorch rounds the square.
    return select(2.0 * exp_of(x * x) - scaled, infinity(), magnitude > 9.5);
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
    // The quantile of the upper tail, so that the operand of the error function is positive.
    var z = t - numerator / denominator;
    for (var step = 0; step < 3; step = step + 1) {
        let scaled = erfcx_of(z * 0.70710677);
        let distance = log_of(0.5 * scaled) - 0.5 * z * z - logarithm;
        z = z + distance * scaled * 1.2533141;
    }
    return select(z, -z, p < 0.5);
}
