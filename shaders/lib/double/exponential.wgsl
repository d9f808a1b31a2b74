// Exponentials, logarithms and powers in double precision. Series are unrolled: in a kernel that loops over a row, loops
// here would count towards the iterations after which lavapipe ends loops.

fn expm1_near_zero_f64(x: f64) -> f64 {
    var sum = 1.0lf + x / 15.0lf;
    sum = 1.0lf + x * sum / 14.0lf;
    sum = 1.0lf + x * sum / 13.0lf;
    sum = 1.0lf + x * sum / 12.0lf;
    sum = 1.0lf + x * sum / 11.0lf;
    sum = 1.0lf + x * sum / 10.0lf;
    sum = 1.0lf + x * sum / 9.0lf;
    sum = 1.0lf + x * sum / 8.0lf;
    sum = 1.0lf + x * sum / 7.0lf;
    sum = 1.0lf + x * sum / 6.0lf;
    sum = 1.0lf + x * sum / 5.0lf;
    sum = 1.0lf + x * sum / 4.0lf;
    sum = 1.0lf + x * sum / 3.0lf;
    sum = 1.0lf + x * sum / 2.0lf;
    return x * sum;
}

fn without_powers_f64(x: f64, n: f64) -> f64 {
    return (x - n * 0.6931471803691238lf) - n * 1.9082149292705877e-10lf;
}

fn exp_of_f64(x: f64) -> f64 {
    let limited = clamp(x, -746.0lf, 710.0lf);
    let n = round_f64(limited * 1.4426950408889634lf);
    let part = expm1_near_zero_f64(without_powers_f64(limited, n));
    return select(scale_by_power_f64(1.0lf + part, i32(n)), x, is_nan_f64(x));
}

fn exp2_of_f64(x: f64) -> f64 {
    let limited = clamp(x, -1076.0lf, 1025.0lf);
    let n = round_f64(limited);
    let part = expm1_near_zero_f64((limited - n) * 0.6931471805599453lf);
    return select(scale_by_power_f64(1.0lf + part, i32(n)), x, is_nan_f64(x));
}

fn expm1_of_f64(x: f64) -> f64 {
    if abs(x) < 0.3lf {
        return expm1_near_zero_f64(x);
    }
    return exp_of_f64(x) - 1.0lf;
}

fn log1p_near_zero_f64(x: f64) -> f64 {
    let s = x / (2.0lf + x);
    let z = s * s;
    var sum = 1.0lf / 25.0lf;
    sum = sum * z + 1.0lf / 23.0lf;
    sum = sum * z + 1.0lf / 21.0lf;
    sum = sum * z + 1.0lf / 19.0lf;
    sum = sum * z + 1.0lf / 17.0lf;
    sum = sum * z + 1.0lf / 15.0lf;
    sum = sum * z + 1.0lf / 13.0lf;
    sum = sum * z + 1.0lf / 11.0lf;
    sum = sum * z + 1.0lf / 9.0lf;
    sum = sum * z + 1.0lf / 7.0lf;
    sum = sum * z + 1.0lf / 5.0lf;
    sum = sum * z + 1.0lf / 3.0lf;
    sum = sum * z + 1.0lf;
    return 2.0lf * s * sum;
}

fn log_of_f64(x: f64) -> f64 {
    if is_nan_f64(x) || x == infinity_f64() {
        return x;
    }
    if x <= 0.0lf {
        return select(not_a_number_f64(), -infinity_f64(), x == 0.0lf);
    }
    let exponent = rounded_exponent_f64(x);
    let mantissa = scale_by_power_f64(x, -exponent);
    let is_large = mantissa > 1.4142135623730951lf;
    let m = select(mantissa, 0.5lf * mantissa, is_large);
    let n = f64(exponent + select(0, 1, is_large));
    let part = log1p_near_zero_f64(m - 1.0lf);
    return n * 0.6931471803691238lf + (part + n * 1.9082149292705877e-10lf);
}

fn log2_of_f64(x: f64) -> f64 {
    return log_of_f64(x) * 1.4426950408889634lf;
}

fn log10_of_f64(x: f64) -> f64 {
    return log_of_f64(x) * 0.4342944819032518lf;
}

fn log1p_of_f64(x: f64) -> f64 {
    if x > -0.25lf && x < 0.4lf {
        return log1p_near_zero_f64(x);
    }
    return log_of_f64(1.0lf + x);
}

fn log_add_exp_f64(x: f64, y: f64) -> f64 {
    let high = maximum_f64(x, y);
    let low = minimum_f64(x, y);
    if is_nan_f64(high) || abs(high) == infinity_f64() {
        return high;
    }
    return high + log1p_of_f64(exp_of_f64(low - high));
}

fn sigmoid_of_f64(x: f64) -> f64 {
    return 1.0lf / (1.0lf + exp_of_f64(-x));
}

fn power_f64(x: f64, y: f64) -> f64 {
    if y == 0.0lf || x == 1.0lf {
        return 1.0lf;
    }
    if is_nan_f64(x) || is_nan_f64(y) {
        return not_a_number_f64();
    }
    let magnitude = abs(x);
    let is_whole = floor_f64(y) == y;
    let is_odd = is_whole && floor_f64(0.5lf * y) != 0.5lf * y;
    if abs(y) == infinity_f64() {
        let grows = (magnitude > 1.0lf) == (y > 0.0lf);
        return select(select(0.0lf, infinity_f64(), grows), 1.0lf, magnitude == 1.0lf);
    }
    if magnitude == 0.0lf || magnitude == infinity_f64() {
        let grows = (magnitude == 0.0lf) == (y < 0.0lf);
        let limit = select(0.0lf, infinity_f64(), grows);
        return select(limit, copy_sign_f64(limit, x), is_odd);
    }
    if x < 0.0lf && !is_whole {
        return not_a_number_f64();
    }
    let value = exp_of_f64(y * log_of_f64(magnitude));
    return select(value, -value, x < 0.0lf && is_odd);
}
