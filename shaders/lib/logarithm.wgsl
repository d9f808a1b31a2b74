// Logarithms in single precision.

// ln(1 + x) for x between √½ - 1 and √2 - 1 as a sum of two, of which the first has few digits: the series of 2·artanh(s),
// s = x / (2 + x).
fn log1p_parts(x: f32) -> vec2<f32> {
    let s = x / (2.0 + x);
    let z = s * s;
    let tail = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0)))));
    let square = 0.5 * x * x;
    let part = leading_part(x);
    return vec2<f32>(part, rounded(((x - part) - square) + s * (square + tail)));
}

fn log1p_near_zero(x: f32) -> f32 {
    let parts = log1p_parts(x);
    return parts.x + parts.y;
}

// The exponent n and m - 1, where x = m · 2ⁿ and m is near 1, for x > 0.
fn split_power(x: f32) -> vec2<f32> {
    let is_small = x < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, is_small)) - 0x3f3504f3u;
    let n = f32(bitcast<i32>(bits) >> 23u) - select(0.0, 23.0, is_small);
    let m = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u);
    return vec2<f32>(n, m - 1.0);
}

// The logarithm of zero, negative numbers, infinity and not-a-number.
fn log_limits(x: f32, ordinary: f32) -> f32 {
    if x > 0.0 && bitcast<u32>(x) < 0x7f800000u {
        return ordinary;
    }
    if x == 0.0 {
        return -infinity();
    }
    return select(x, not_a_number(), x < 0.0);
}

// The logarithm of a positive finite number as a sum of two.
fn log_parts(x: f32) -> vec2<f32> {
    let split = split_power(x);
    let parts = log1p_parts(split.y);
    return vec2<f32>(split.x * 0.693359375 + parts.x, rounded(parts.y - split.x * 0.00021219444));
}

fn log_of(x: f32) -> f32 {
    let parts = log_parts(x);
    return log_limits(x, parts.x + parts.y);
}

fn log2_of(x: f32) -> f32 {
    let split = split_power(x);
    let parts = log1p_parts(split.y);
    let small = parts.x * 0.0012887909 + parts.y * 1.442695;
    return log_limits(x, split.x + rounded(parts.x * 1.44140625 + small));
}

fn log10_of(x: f32) -> f32 {
    let split = split_power(x);
    let parts = log1p_parts(split.y);
    let small = split.x * 0.00024874567 + (parts.x * 0.0007007319 + parts.y * 0.4342945);
    let large = split.x * 0.30078125 + parts.x * 0.43359375;
    return log_limits(x, rounded(large) + rounded(small));
}

fn log1p_of(x: f32) -> f32 {
    if x > -0.25 && x < 0.4 {
        return select(log1p_near_zero(x), x, x == 0.0);
    }
    let sum = 1.0 + x;
    return log_of(sum) + select(0.0, sum_error(1.0, x) / sum, sum > 0.0);
}

// ln(e^x + e^y) without overflow.
fn log_add_exp(x: f32, y: f32) -> f32 {
    let high = maximum(x, y);
    let low = minimum(x, y);
    if is_nan(high) || abs(high) == infinity() {
        return high;
    }
    return high + log1p_of(exp_of(low - high));
}
