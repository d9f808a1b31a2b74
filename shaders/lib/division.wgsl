// Quotients and remainders of single precision numbers.

// The remainder of a division that is rounded towards zero, exact: each step subtracts the largest multiple that its
// quotient gives exactly.
fn fmod_of(x: f32, y: f32) -> f32 {
    let divisor = abs(y);
    var rest = abs(x);
    if is_nan(x) || is_nan(y) || rest == infinity() || divisor == 0.0 {
        return not_a_number();
    }
    for (var step = 0u; step < 40u && rest >= divisor; step++) {
        // Large quotients are reduced to a power of two times the divisor.
        var unit = divisor;
        if rest / divisor > 4096.0 {
            let shift = ((bitcast<u32>(rest) >> 23u) - (bitcast<u32>(divisor) >> 23u)) - 11u;
            unit = scale_by_power(divisor, f32(shift));
        }
        let quotient = floor(rest / unit);
        let product = exact_product(quotient, unit);
        rest = (rest - product.x) - product.y;
        rest = select(rest, rest + unit, rest < 0.0);
    }
    return copy_sign(rest, x);
}

// The remainder with the sign of the divisor.
fn remainder_of(x: f32, y: f32) -> f32 {
    let rest = fmod_of(x, y);
    return select(rest, rest + y, rest != 0.0 && (y < 0.0) != (rest < 0.0));
}

// x / 0.0, which drivers constant-fold inconsistently.
fn divide_by_zero(x: f32, y: f32) -> f32 {
    let sign = select(1.0, -1.0, sign_bit(x) != sign_bit(y));
    return select(sign * infinity(), not_a_number(), x == 0.0 || is_nan(x));
}

fn trunc_divide(x: f32, y: f32) -> f32 {
    return trunc(x / y);
}

// Floor division of floats as in PyTorch: from the exact remainder.
fn floor_divide(x: f32, y: f32) -> f32 {
    if y == 0.0 {
        return x / y;
    }
    let rest = fmod_of(x, y);
    var quotient = (x - rest) / y;
    quotient = select(quotient, quotient - 1.0, rest != 0.0 && (y < 0.0) != (rest < 0.0));
    if quotient == 0.0 {
        return copy_sign(0.0, x / y);
    }
    let below = floor(quotient);
    return select(below, below + 1.0, quotient - below > 0.5);
}
