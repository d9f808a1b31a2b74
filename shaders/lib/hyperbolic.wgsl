// Hyperbolic functions and their inverses in single precision.

fn sinh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude > 80.0 {
        let root = exp_of(0.5 * magnitude);
        return copy_sign(0.5 * root * root, x);
    }
    let e = expm1_of(magnitude);
    return copy_sign(0.5 * (e + e / (e + 1.0)), x);
}

fn cosh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    let root = exp_of(0.5 * magnitude);
    let e = exp_of(magnitude);
    return select(0.5 * e + 0.5 / e, 0.5 * root * root, magnitude > 80.0);
}

fn tanh_of(x: f32) -> f32 {
    let e = expm1_of(2.0 * bounded(abs(x), 0.0, 10.0));
    let is_large = e > 2.0;
    let ratio = select(e, 2.0, is_large) / (e + 2.0);
    return copy_sign(select(ratio, 1.0 - ratio, is_large), x);
}

fn asinh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude > 1.0e9 {
        return copy_sign(log_of(magnitude) + 0.6931472, x);
    }
    let square = magnitude * magnitude;
    return copy_sign(log1p_of(magnitude + square / (1.0 + sqrt(square + 1.0))), x);
}

fn acosh_of(x: f32) -> f32 {
    let above = x - 1.0;
    if x > 1.0e9 {
        return log_of(x) + 0.6931472;
    }
    return select(log1p_of(above + sqrt(above * (x + 1.0))), not_a_number(), !(x >= 1.0));
}

fn atanh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    return copy_sign(0.5 * log1p_of(2.0 * magnitude / (1.0 - magnitude)), x);
}
