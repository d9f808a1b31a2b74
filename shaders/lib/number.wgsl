// Single precision numbers: classification, order, rounding and parts.
//
// Functions are separated by blank lines; the comment in front of a function belongs to it.

// Infinity; WGSL has no constant for it, and a constant expression must not yield it.
fn infinity() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}

fn not_a_number() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}

// Tests bits, because compilers fold x != x to false.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn sign_bit(x: f32) -> bool {
    return (bitcast<u32>(x) >> 31u) == 1u;
}

// By arithmetic. For bits combined with masks and chosen by a condition, LLVM 15 makes one AVX-512 instruction (vpternlogd),
// and the wrong one if it reads the mask from memory. Mesa 25 makes such bits of a choice between 1 and -1.
fn copy_sign(x: f32, y: f32) -> f32 {
    return abs(x) * (1.0 - 2.0 * f32(bitcast<u32>(y) >> 31u));
}

// 0 for not-a-number, as in PyTorch.
fn sign_of(x: f32) -> f32 {
    return select(sign(x), 0.0, is_nan(x));
}

// Not-a-number if either operand is.
fn maximum(x: f32, y: f32) -> f32 {
    return select(select(x, y, x < y), y, is_nan(y));
}

fn minimum(x: f32, y: f32) -> f32 {
    return select(select(x, y, y < x), y, is_nan(y));
}

// Truncates; a number that fits no integer gives the lowest integer, as on x86-64.
fn truncate_i32(x: f32) -> i32 {
    let fits = x >= -2147483648.0 && x < 2147483648.0;
    return select(-2147483648, i32(select(0.0, x, fits)), fits);
}

fn truncate_i64(x: f32) -> i64 {
    let fits = x >= -9223372036854775808.0 && x < 9223372036854775808.0;
    return select(-9223372036854775807li - 1li, i64(select(0.0, x, fits)), fits);
}

// Widens an integer to 64 bits from its halves: Mesa 22 folds `i64(x) < c` to false if c is a constant.
fn widened(x: i32) -> i64 {
    return (i64(x >> 31u) << 32u) | i64(bitcast<u32>(x));
}

// Clamps x to two bounds; not-a-number stays. For 512-bit vectors lavapipe (Mesa 22.3) needs three instructions for each of
// the functions that WGSL's clamp consists of.
fn bounded(x: f32, low: f32, high: f32) -> f32 {
    return select(select(x, low, x < low), high, x > high);
}

// 2ⁿ for integers n in -126..=127. The number added to n makes n the last digits of the sum, with the exponent's bias.
fn power_of_two(n: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(n + 12583039.0) << 23u);
}

// x · 2ⁿ for integers n in -252..=254, in two steps so that results near the ends of the range are right.
fn scale_by_power(x: f32, n: f32) -> f32 {
    let half = floor(0.5 * n);
    return x * power_of_two(half) * power_of_two(n - half);
}

// Resolves an index that counts from the end if it is negative, and clamps it to 0..size.
fn wrap_index(index: i32, size: u32) -> u32 {
    let wrapped = index + select(0, i32(size), index < 0);
    return u32(clamp(wrapped, 0, i32(size) - 1));
}

// x to twelve binary digits after the point: it has few digits, so its sums and small products are exact.
fn leading_part(x: f32) -> f32 {
    return round(x * 4096.0) / 4096.0;
}

// The first twelve binary digits of x.
fn upper_digits(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// A finite sum as it was rounded: Mesa's compiler simplifies x - (x + y) to -y, and reassociates x + (y + z).
fn rounded(sum: f32) -> f32 {
    return bounded(sum, -3.402823466e38, 3.402823466e38);
}

// The rounding error of x + y.
fn sum_error(x: f32, y: f32) -> f32 {
    let sum = rounded(x + y);
    let rest = select((y - sum) + x, (x - sum) + y, abs(x) >= abs(y));
    return select(0.0, rest, abs(x + y) < infinity());
}

// Sorting order: not-a-number comes last.
fn is_before(x: f32, y: f32) -> bool {
    return x < y || (is_nan(y) && !is_nan(x));
}

// An integer key in sorting order: zeros are equal, not-a-number comes last.
fn order_of(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    // The bits of negative numbers are in reverse order.
    let ordered = bits ^ ((bits >> 31u) & 0x7fffffff);
    return select(select(ordered, 0, x == 0.0), 0x7fffffff, is_nan(x));
}

// A product and its rounding error.
fn exact_product(x: f32, y: f32) -> vec2<f32> {
    let product = x * y;
    let x_high = upper_digits(x);
    let y_high = upper_digits(y);
    let x_low = x - x_high;
    let y_low = y - y_high;
    let error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low;
    return vec2<f32>(product, error);
}

// x · y + z rounded once, which WGSL's fma does not guarantee. A product that overflows does so for every z, unless z is
// infinite.
fn fused(x: f32, y: f32, z: f32) -> f32 {
    let product = exact_product(x, y);
    if has_angle(x) && has_angle(y) && !has_angle(z) {
        return z;
    }
    let sum = product.x + z;
    // The rounding error of a tiny product is not representable.
    if !has_angle(sum) || abs(product.x) < 1e-30 {
        return sum;
    }
    return rounded(sum) + rounded(sum_error(product.x, z) + product.y);
}

// A sum of numbers of which the first is not smaller, and its rounding error.
fn exact_sum(x: f32, y: f32) -> vec2<f32> {
    let sum = rounded(x + y);
    return vec2<f32>(sum, (x - sum) + y);
}

// The next number after x towards y.
fn next_after(x: f32, y: f32) -> f32 {
    if is_nan(x) || is_nan(y) {
        return not_a_number();
    }
    if x == y {
        return y;
    }
    if x == 0.0 {
        return copy_sign(bitcast<f32>(1u + (bitcast<u32>(x) & 0u)), y);
    }
    let bits = bitcast<u32>(x);
    return bitcast<f32>(select(bits - 1u, bits + 1u, (y > x) == (x > 0.0)));
}

// The parts of x = m · 2ᵉ with 0.5 <= |m| < 1, from its bits; (x, 0) if x has no such parts.
fn mantissa_and_exponent(x: f32) -> vec2<f32> {
    if x == 0.0 || is_nan(x) || abs(x) == infinity() {
        return vec2<f32>(x, 0.0);
    }
    let small = abs(x) < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 16777216.0, small));
    let exponent = f32((bits >> 23u) & 0xffu) - select(126.0, 150.0, small);
    return vec2<f32>(bitcast<f32>((bits & 0x807fffffu) | 0x3f000000u), exponent);
}

fn mantissa_of(x: f32) -> f32 {
    return mantissa_and_exponent(x).x;
}

fn exponent_of(x: f32) -> f32 {
    return mantissa_and_exponent(x).y;
}
