// The error function and its relatives in double precision.

// e^(-x²) times a series of positive terms.
fn erf_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    var sum = 1.0lf;
    for (var k = 60; k > 0; k--) {
        sum = 1.0lf + 2.0lf * z * sum / f64(2 * k + 1);
    }
    return 1.1283791670955126lf * x * exp_of_f64(-z) * sum;
}

// e^(-x²) times a continued fraction, for x >= 2.5.
fn erfc_of_large_f64(x: f64) -> f64 {
    var fraction = 0.0lf;
    for (var k = 80; k > 0; k--) {
        fraction = 0.5lf * f64(k) / (x + fraction);
    }
    return 0.5641895835477563lf * exp_of_f64(-x * x) / (x + fraction);
}

fn erf_of_f64(x: f64) -> f64 {
    if abs(x) < 2.5lf || is_nan_f64(x) {
        return erf_near_zero_f64(x);
    }
    return copy_sign_f64(1.0lf - erfc_of_large_f64(min(abs(x), 30.0lf)), x);
}

fn erfc_of_f64(x: f64) -> f64 {
    if abs(x) < 2.5lf || is_nan_f64(x) {
        return 1.0lf - erf_near_zero_f64(x);
    }
    let tail = erfc_of_large_f64(min(abs(x), 30.0lf));
    return select(tail, 2.0lf - tail, x < 0.0lf);
}

// The single precision value, refined by Newton's method.
fn erfinv_of_f64(x: f64) -> f64 {
    if abs(x) >= 1.0lf {
        return select(not_a_number_f64(), x * infinity_f64(), abs(x) == 1.0lf);
    }
    var result = f64(erfinv_of(clamp(f32(x), -0.99999994, 0.99999994)));
    for (var step = 0; step < 3; step++) {
        let slope = 1.1283791670955126lf * exp_of_f64(-result * result);
        result = result - (erf_of_f64(result) - x) / slope;
    }
    return result;
}
