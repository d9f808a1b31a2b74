// Quotients and remainders of double precision numbers.

// Subtracts multiples of the divisor by powers of two.
fn fmod_of_f64(x: f64, y: f64) -> f64 {
    let divisor = abs(y);
    var rest = abs(x);
    if is_nan_f64(x) || is_nan_f64(y) || rest == infinity_f64() || divisor == 0.0lf {
        return not_a_number_f64();
    }
    for (var step = 0; step < 2100 && rest >= divisor; step++) {
        let shift = rounded_exponent_f64(rest) - rounded_exponent_f64(divisor);
        let multiple = scale_by_power_f64(divisor, shift);
        rest = rest - select(multiple, 0.5lf * multiple, multiple > rest);
    }
    return copy_sign_f64(rest, x);
}

fn remainder_of_f64(x: f64, y: f64) -> f64 {
    let rest = fmod_of_f64(x, y);
    return select(rest, rest + y, rest != 0.0lf && (y < 0.0lf) != (rest < 0.0lf));
}

fn divide_by_zero_f64(x: f64, y: f64) -> f64 {
    let sign = select(1.0lf, -1.0lf, sign_bit_f64(x) != sign_bit_f64(y));
    return select(sign * infinity_f64(), not_a_number_f64(), x == 0.0lf || is_nan_f64(x));
}

fn trunc_divide_f64(x: f64, y: f64) -> f64 {
    return trunc_f64(x / y);
}

fn floor_divide_f64(x: f64, y: f64) -> f64 {
    if y == 0.0lf {
        return x / y;
    }
    let rest = fmod_of_f64(x, y);
    var quotient = (x - rest) / y;
    quotient = select(quotient, quotient - 1.0lf, rest != 0.0lf && (y < 0.0lf) != (rest < 0.0lf));
    if quotient == 0.0lf {
        return copy_sign_f64(0.0lf, x / y);
    }
    let below = floor_f64(quotient);
    return select(below, below + 1.0lf, quotient - below > 0.5lf);
}
