// Exponentials, logarithms and powers in single precision. Drivers may compute WGSL's own more loosely than PyTorch does.

// e^x - 1 for |x| <= ln 2 / 2, by Taylor's series.
fn expm1_near_zero(x: f32) -> f32 {
    var sum = 1.0 / 40320.0;
    sum = sum * x + 1.0 / 5040.0;
    sum = sum * x + 1.0 / 720.0;
    sum = sum * x + 1.0 / 120.0;
    sum = sum * x + 1.0 / 24.0;
    sum = sum * x + 1.0 / 6.0;
    sum = sum * x + 0.5;
    return sum * (x * x) + x;
}

// What is left of x after n · ln 2; the first part of ln 2 has few bits, so that its product is exact.
fn without_powers(x: f32, n: f32) -> f32 {
    return (x - n * 0.693359375) + n * 0.00021219444;
}

fn exp_of(x: f32) -> f32 {
    let limited = clamp(x, -104.0, 89.0);
    let n = round(limited * 1.442695);
    let part = expm1_near_zero(without_powers(limited, n));
    return select(scale_by_power(1.0 + part, i32(n)), x, is_nan(x));
}

fn exp2_of(x: f32) -> f32 {
    let limited = clamp(x, -151.0, 129.0);
    let n = round(limited);
    let part = expm1_near_zero((limited - n) * 0.6931472);
    return select(scale_by_power(1.0 + part, i32(n)), x, is_nan(x));
}

// Without a branch: where several are inlined into one kernel with others, lavapipe (Mesa 22.3) computes one of them wrongly.
fn expm1_of(x: f32) -> f32 {
    let limited = clamp(x, -104.0, 89.0);
    let n = round(limited * 1.442695);
    let part = expm1_near_zero(without_powers(limited, n));
    let scale = scale_by_power(1.0, i32(n));
    let sum = scale * part + (scale - 1.0);
    let value = select(sum, scale_by_power(1.0 + part, i32(n)), n > 120.0);
    return select(value, x, is_nan(x));
}

// ln(1 + x) for x between √½ - 1 and √2 - 1: the series of 2·artanh(s), s = x / (2 + x).
fn log1p_near_zero(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let z = s * s;
    let tail = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0)))));
    let square = 0.5 * x * x;
    return x - (square - s * (square + tail));
}

// The exponent n and m - 1, where x = m · 2ⁿ and m lies around 1, for x > 0.
fn split_power(x: f32) -> vec2<f32> {
    let is_small = x < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, is_small)) - 0x3f3504f3u;
    let n = f32(bitcast<i32>(bits) >> 23u) - select(0.0, 23.0, is_small);
    let m = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u);
    return vec2<f32>(n, m - 1.0);
}

// A logarithm's value where it is no ordinary number.
fn log_limits(x: f32, ordinary: f32) -> f32 {
    if x > 0.0 && bitcast<u32>(x) < 0x7f800000u {
        return ordinary;
    }
    if x == 0.0 {
        return -infinity();
    }
    return select(x, not_a_number(), x < 0.0);
}

fn log_of(x: f32) -> f32 {
    let split = split_power(x);
    let part = log1p_near_zero(split.y);
    return log_limits(x, split.x * 0.693359375 + (part - split.x * 0.00021219444));
}

fn log2_of(x: f32) -> f32 {
    let split = split_power(x);
    return log_limits(x, split.x + log1p_near_zero(split.y) * 1.442695);
}

fn log10_of(x: f32) -> f32 {
    let split = split_power(x);
    return log_limits(x, split.x * 0.30078125 + (split.x * 0.00024874567 + log1p_near_zero(split.y) * 0.4342945));
}

fn log1p_of(x: f32) -> f32 {
    if x > -0.25 && x < 0.4 {
        return log1p_near_zero(x);
    }
    return log_of(1.0 + x);
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

fn sigmoid_of(x: f32) -> f32 {
    return 1.0 / (1.0 + exp_of(-x));
}

// log2 of a positive number as a sum of two, so that it can be multiplied by an exponent without losing digits.
fn precise_log2(x: f32) -> vec2<f32> {
    let split = split_power(x);
    let f = split.y;
    let divisor = 2.0 + f;
    let s = f / divisor;
    let whole = exact_product(s, divisor);
    // What is missing of s: (f - s · (2 + f)) / (2 + f), with what rounding took from 2 + f.
    let s_low = ((f - whole.x) - whole.y - s * (f - (divisor - 2.0))) / divisor;
    let z = s * s;
    let tail = s * z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0)))));
    let natural = exact_sum(2.0 * s, 2.0 * s_low + tail);
    let scaled = exact_product(natural.x, 1.442695);
    let low = scaled.y + (natural.x * 1.925963e-8 + natural.y * 1.442695);
    let high = exact_sum(split.x, scaled.x);
    let swapped = exact_sum(scaled.x, split.x);
    let sum = select(swapped, high, abs(split.x) >= abs(scaled.x));
    return vec2<f32>(sum.x, sum.y + low);
}

// |x|^y for ordinary x and y.
fn power_of_magnitude(x: f32, y: f32) -> f32 {
    let logarithm = precise_log2(abs(x));
    let product = exact_product(y, logarithm.x);
    let whole = round(clamp(product.x, -160.0, 130.0));
    if abs(product.x) > 160.0 {
        return select(0.0, infinity(), product.x > 0.0);
    }
    let rest = (product.x - whole) + (product.y + y * logarithm.y);
    return scale_by_power(1.0 + expm1_near_zero(rest * 0.6931472), i32(whole));
}

// The cases are those of C's pow.
fn power(x: f32, y: f32) -> f32 {
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    if is_nan(x) || is_nan(y) {
        return not_a_number();
    }
    let magnitude = abs(x);
    let is_whole = floor(y) == y;
    let is_odd = is_whole && abs(y) < 16777216.0 && floor(0.5 * y) != 0.5 * y;
    if abs(y) == infinity() {
        let grows = (magnitude > 1.0) == (y > 0.0);
        return select(select(0.0, infinity(), grows), 1.0, magnitude == 1.0);
    }
    if magnitude == 0.0 || magnitude == infinity() {
        let grows = (magnitude == 0.0) == (y < 0.0);
        let limit = select(0.0, infinity(), grows);
        return select(limit, copy_sign(limit, x), is_odd);
    }
    if x < 0.0 && !is_whole {
        return not_a_number();
    }
    let value = power_of_magnitude(x, y);
    return select(value, -value, x < 0.0 && is_odd);
}
