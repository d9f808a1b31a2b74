// Hyperbolic functions and their inverses in double precision.

fn sinh_of_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    if magnitude > 700.0lf {
        let root = exp_of_f64(0.5lf * magnitude);
        return copy_sign_f64(0.5lf * root * root, x);
    }
    let e = expm1_of_f64(magnitude);
    return copy_sign_f64(0.5lf * (e + e / (e + 1.0lf)), x);
}

fn cosh_of_f64(x: f64) -> f64 {
    let root = exp_of_f64(0.5lf * abs(x));
    let e = exp_of_f64(abs(x));
    return select(0.5lf * e + 0.5lf / e, 0.5lf * root * root, abs(x) > 700.0lf);
}

fn tanh_of_f64(x: f64) -> f64 {
    let e = expm1_of_f64(2.0lf * min(abs(x), 20.0lf));
    return select(copy_sign_f64(e / (e + 2.0lf), x), x, is_nan_f64(x));
}

fn asinh_of_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    if magnitude > 1.0e9lf {
        return copy_sign_f64(log_of_f64(magnitude) + 0.6931471805599453lf, x);
    }
    let square = magnitude * magnitude;
    return copy_sign_f64(log1p_of_f64(magnitude + square / (1.0lf + sqrt(square + 1.0lf))), x);
}

fn acosh_of_f64(x: f64) -> f64 {
    if x > 1.0e9lf {
        return log_of_f64(x) + 0.6931471805599453lf;
    }
    let above = x - 1.0lf;
    return select(log1p_of_f64(above + sqrt(above * (x + 1.0lf))), not_a_number_f64(), !(x >= 1.0lf));
}

fn atanh_of_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    return copy_sign_f64(0.5lf * log1p_of_f64(2.0lf * magnitude / (1.0lf - magnitude)), x);
}
