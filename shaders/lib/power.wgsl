// Powers in single precision.

// log2 of a positive number as a sum of two, so that multiplying it by an exponent loses no digits.
fn precise_log2(x: f32) -> vec2<f32> {
    let split = split_power(x);
    let f = split.y;
    let divisor = rounded(2.0 + f);
    let s = f / divisor;
    let whole = exact_product(s, divisor);
    // The error of s: (f - s · (2 + f)) / (2 + f), with the rounding error of 2 + f.
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

// |x|^y for finite nonzero x and finite y, as a sum of two.
fn power_parts(x: f32, y: f32) -> vec2<f32> {
    let logarithm = precise_log2(abs(x));
    let product = exact_product(y, logarithm.x);
    let whole = round(clamp(product.x, -160.0, 130.0));
    if abs(product.x) > 160.0 {
        return vec2<f32>(select(0.0, infinity(), product.x > 0.0), 0.0);
    }
    let high = product.x - whole;
    let low = product.y + y * logarithm.y;
    let natural = exact_product(high, 0.6931472);
    let small = natural.y + (low * 0.6931472 - high * 1.904654e-9);
    let part = leading_part(natural.x);
    let rest = rounded((natural.x - part) + (small + exp_tail(natural.x + small)));
    return vec2<f32>(scale_by_power(1.0 + part, whole), scale_by_power(rest, whole));
}

// The special cases are those of C's pow.
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
    let parts = power_parts(x, y);
    return select(parts.x + parts.y, -(parts.x + parts.y), x < 0.0 && is_odd);
}
