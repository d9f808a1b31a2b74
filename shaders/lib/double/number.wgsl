// Double precision numbers: classification, order and parts.
//
// Drivers have square roots in double precision but no other functions. So the functions in this folder are series, longer
// and slower than those of single precision, good to some 1e-12. Drivers have rounding too, but with 512-bit vectors
// lavapipe takes numbers above 2²⁴ for integers and rounds 1.5 to 1.
//
// No function reads or makes the bits of a number: naga's HLSL leaves such bit casts out (wgpu 30).

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

// Narrowing preserves the sign, also of zeros and of numbers that become zero.
fn sign_bit_f64(x: f64) -> bool {
    return sign_bit(f32(x));
}

fn copy_sign_f64(x: f64, y: f64) -> f64 {
    return abs(x) * f64(copy_sign(1.0, f32(y)));
}

fn sign_of_f64(x: f64) -> f64 {
    if x > 0.0lf {
        return 1.0lf;
    }
    return select(0.0lf, -1.0lf, x < 0.0lf);
}

// Converts the upper and the lower 26 digits of a number below 2⁵² to integers and back.
fn trunc_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    if !(magnitude < 4503599627370496.0lf) {
        return x;
    }
    let upper = f64(u32(magnitude / 67108864.0lf)) * 67108864.0lf;
    return copy_sign_f64(upper + f64(u32(magnitude - upper)), x);
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

// x · 2ⁿ for integers n in -2044..=2046, in two steps so that results near the ends of the range are right.
fn scale_by_power_f64(x: f64, n: i32) -> f64 {
    let half = n >> 1u;
    return x * power_of_two_f64(half) * power_of_two_f64(n - half);
}

// 2ⁿ for integers n in -1022..=1023.
fn power_of_two_f64(n: i32) -> f64 {
    let sixteenth = n / 16;
    let root = f64(power_of_two(f32(sixteenth)));
    let square = root * root;
    let fourth = square * square;
    let eighth = fourth * fourth;
    return eighth * eighth * f64(power_of_two(f32(n - 16 * sixteenth)));
}

// The exponent of a positive finite number, or one more if the number rounds up to a power of two in single precision.
// Steps are unrolled; see exponential.wgsl.
fn rounded_exponent_f64(x: f64) -> i32 {
    var n = exponent_step_f64(x, 512);
    n += exponent_step_f64(scale_by_power_f64(x, -n), 256);
    n += exponent_step_f64(scale_by_power_f64(x, -n), 128);
    n += exponent_step_f64(scale_by_power_f64(x, -n), 64);
    return n + i32(bitcast<u32>(f32(scale_by_power_f64(x, -n))) >> 23u) - 127;
}

// The step by which the exponent is nearer to zero: n for numbers from 2ⁿ, -n for numbers below 2⁻ⁿ, else 0.
fn exponent_step_f64(x: f64, n: i32) -> i32 {
    let power = power_of_two_f64(n);
    return select(select(0, -n, x * power < 1.0lf), n, x >= power);
}

// The next single precision number, as in the host oracle.
fn next_after_f64(x: f64, y: f64) -> f64 {
    return f64(next_after(f32(x), f32(y)));
}
