// The gamma function and its relatives in double precision.

fn lgamma_of_positive_f64(x: f64) -> f64 {
    var shifted = x;
    var product = 1.0lf;
    while shifted < 15.0lf {
        product = product * shifted;
        shifted = shifted + 1.0lf;
    }
    let r = 1.0lf / shifted;
    let z = r * r;
    let series = r * (1.0lf / 12.0lf - z * (1.0lf / 360.0lf - z * (1.0lf / 1260.0lf - z * (1.0lf / 1680.0lf - z / 1188.0lf))));
    return (shifted - 0.5lf) * log_of_f64(shifted) - shifted + 0.9189385332046727lf + series - log_of_f64(product);
}

fn lgamma_of_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if abs(x) == infinity_f64() || (x <= 0.0lf && floor_f64(x) == x) {
        return infinity_f64();
    }
    if x >= 0.5lf {
        return lgamma_of_positive_f64(x);
    }
    let turned = abs(sin_of_f64(3.141592653589793lf * (x - floor_f64(x))));
    return log_of_f64(3.141592653589793lf / turned) - lgamma_of_positive_f64(1.0lf - x);
}

fn digamma_of_positive_f64(x: f64) -> f64 {
    var shifted = x;
    var sum = 0.0lf;
    while shifted < 15.0lf {
        sum = sum - 1.0lf / shifted;
        shifted = shifted + 1.0lf;
    }
    let r = 1.0lf / shifted;
    let z = r * r;
    let series = z * (1.0lf / 12.0lf - z * (1.0lf / 120.0lf - z * (1.0lf / 252.0lf - z * (1.0lf / 240.0lf - z / 132.0lf))));
    return sum + (log_of_f64(shifted) - 0.5lf * r - series);
}

fn digamma_of_f64(x: f64) -> f64 {
    if x == 0.0lf {
        return copy_sign_f64(infinity_f64(), -x);
    }
    if is_nan_f64(x) || x > 0.0lf {
        return select(digamma_of_positive_f64(x), x, is_nan_f64(x) || x == infinity_f64());
    }
    let rest = x - round_f64(x);
    if rest == 0.0lf {
        return not_a_number_f64();
    }
    return digamma_of_positive_f64(1.0lf - x) - 3.141592653589793lf / tan_of_f64(3.141592653589793lf * rest);
}
