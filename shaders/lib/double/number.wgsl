// Double precision numbers: classification, order and parts.
//
// Drivers have square roots in double precision but no other functions. So the functions in this folder are series, longer
// and slower than those of single precision, good to some 1e-12. Drivers have rounding too, but with 512-bit vectors
// lavapipe takes numbers above 2²⁴ for integers and rounds 1.5 to 1.

fn infinity_f64() -> f64 {
    return f64(infinity());
}

fn not_a_number_f64() -> f64 {
    return f64(not_a_number());
}

// Narrowing preserves not-a-number.
fn is_nan_f64(x: f64) -> bool {
    return is_nan(f32(x));
}

fn maximum_f64(x: f64, y: f64) -> f64 {
    return select(select(x, y, x < y), y, is_nan_f64(y));
}

fn minimum_f64(x: f64, y: f64) -> f64 {
    return select(select(x, y, y < x), y, is_nan_f64(y));
}

fn is_before_f64(x: f64, y: f64) -> bool {
    return x < y || (is_nan_f64(y) && !is_nan_f64(x));
}

fn sign_bit_f64(x: f64) -> bool {
    return (bitcast<u64>(x) >> 63u) == 1lu;
}

fn copy_sign_f64(x: f64, y: f64) -> f64 {
    return abs(x) * select(1.0lf, -1.0lf, sign_bit_f64(y));
}

fn sign_of_f64(x: f64) -> f64 {
    if x > 0.0lf {
        return 1.0lf;
    }
    return select(0.0lf, -1.0lf, x < 0.0lf);
}

// Clears the bits after the binary point.
fn trunc_f64(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    let exponent = i32((bits >> 52u) & 2047lu) - 1023;
    if exponent >= 52 {
        return x;
    }
    let fraction = select(0x000ffffffffffffflu >> u32(max(exponent, 0)), 0x7ffffffffffffffflu, exponent < 0);
    return bitcast<f64>(bits & ~fraction);
}

fn floor_f64(x: f64) -> f64 {
    let whole = trunc_f64(x);
    return select(whole, whole - 1.0lf, x < whole);
}

fn ceil_f64(x: f64) -> f64 {
    let whole = trunc_f64(x);
    return select(whole, whole + 1.0lf, x > whole);
}

// Rounds to nearest, ties to even.
fn round_f64(x: f64) -> f64 {
    let whole = trunc_f64(x);
    let rest = abs(x - whole);
    let is_even = 2.0lf * trunc_f64(0.5lf * whole) == whole;
    let next = whole + copy_sign_f64(1.0lf, x);
    return select(whole, next, rest > 0.5lf || (rest == 0.5lf && !is_even));
}

fn truncate_i64_f64(x: f64) -> i64 {
    let fits = x >= -9223372036854775808.0lf && x < 9223372036854775808.0lf;
    return select(-9223372036854775807li - 1li, i64(select(0.0lf, x, fits)), fits);
}

fn truncate_i32_f64(x: f64) -> i32 {
    let fits = x > -2147483649.0lf && x < 2147483648.0lf;
    return select(-2147483648, i32(select(0.0lf, x, fits)), fits);
}

fn scale_by_power_f64(x: f64, n: i32) -> f64 {
    let half = n >> 1u;
    let first = bitcast<f64>(u64(half + 1023) << 52u);
    let second = bitcast<f64>(u64(n - half + 1023) << 52u);
    return x * first * second;
}

// The next single precision number, as in the host oracle.
fn next_after_f64(x: f64, y: f64) -> f64 {
    return f64(next_after(f32(x), f32(y)));
}
