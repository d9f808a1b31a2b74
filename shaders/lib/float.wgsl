// Functions of single precision numbers that WGSL lacks, or that drivers may compute more loosely than PyTorch does.
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

// By bits: compilers take x != x for false.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn sign_bit(x: f32) -> bool {
    return (bitcast<u32>(x) >> 31u) == 1u;
}

fn copy_sign(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}

// 0 for not-a-number, as in PyTorch.
fn sign_of(x: f32) -> f32 {
    return select(sign(x), 0.0, is_nan(x));
}

// Not-a-number if either is.
fn maximum(x: f32, y: f32) -> f32 {
    return select(select(x, y, x < y), y, is_nan(y));
}

fn minimum(x: f32, y: f32) -> f32 {
    return select(select(x, y, y < x), y, is_nan(y));
}

// The nearest half precision number, ties to even.
fn round_f16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    var rounded = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) & 0xffffe000u;
    if magnitude < 0x38800000u {
        // Below 2⁻¹⁴ the steps are those of numbers near one half.
        rounded = bitcast<u32>((abs(x) + 0.5) - 0.5);
    }
    if magnitude >= 0x477ff000u {
        rounded = max(0x7f800000u, select(0u, magnitude, magnitude > 0x7f800000u));
    }
    return bitcast<f32>(rounded | (bits & 0x80000000u));
}

// The nearest bfloat16 number, ties to even.
fn round_bf16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
    return select(bitcast<f32>(rounded), x, is_nan(x));
}

// Truncated; what fits no integer gives the lowest, as on x86-64.
fn truncate_i32(x: f32) -> i32 {
    let fits = x >= -2147483648.0 && x < 2147483648.0;
    return select(-2147483648, i32(select(0.0, x, fits)), fits);
}

fn truncate_i64(x: f32) -> i64 {
    let fits = x >= -9223372036854775808.0 && x < 9223372036854775808.0;
    return select(-9223372036854775807li - 1li, i64(select(0.0, x, fits)), fits);
}

// x · 2ⁿ for n in -252..=254, in two steps so that results near the ends of the range are right.
fn scale_by_power(x: f32, n: i32) -> f32 {
    let half = n >> 1u;
    let first = bitcast<f32>(u32(half + 127) << 23u);
    let second = bitcast<f32>(u32(n - half + 127) << 23u);
    return x * first * second;
}

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

fn expm1_of(x: f32) -> f32 {
    let limited = clamp(x, -104.0, 89.0);
    let n = round(limited * 1.442695);
    let part = expm1_near_zero(without_powers(limited, n));
    if n == 0.0 || is_nan(x) {
        return select(part, x, is_nan(x));
    }
    if n > 120.0 {
        return scale_by_power(1.0 + part, i32(n));
    }
    let power = scale_by_power(1.0, i32(n));
    return power * part + (power - 1.0);
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

// An index that counts from the end if it is negative, kept within 0..size.
fn wrap_index(index: i32, size: u32) -> u32 {
    let wrapped = index + select(0, i32(size), index < 0);
    return u32(clamp(wrapped, 0, i32(size) - 1));
}

// What rounding takes from x + y.
fn sum_error(x: f32, y: f32) -> f32 {
    let sum = x + y;
    let rest = select((y - sum) + x, (x - sum) + y, abs(x) >= abs(y));
    return select(0.0, rest, abs(sum) < infinity());
}

// The order of sorting: not-a-number comes last.
fn is_before(x: f32, y: f32) -> bool {
    return x < y || (is_nan(y) && !is_nan(x));
}

// x · 2/π as a number of quarter turns, modulo 4, for |x| >= 30000: a 96-bit window of 2/π is multiplied by the mantissa, so
// that the turns that do not matter never arise (Payne and Hanek).
fn quarter_turns_of_large(x: f32) -> vec2<f32> {
    var digits = array<u32, 8>(
        0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
    );
    let bits = bitcast<u32>(x);
    let mantissa = (bits & 0x007fffffu) | 0x00800000u;
    let start = ((bits >> 23u) & 255u) - 150u + 30u;
    let word = start / 32u;
    let shift = start % 32u;
    var window = vec3<u32>(digits[word], digits[word + 1u], digits[word + 2u]);
    if shift > 0u {
        let next = vec3<u32>(window.y, window.z, digits[min(word + 3u, 7u)]);
        window = (window << vec3<u32>(shift)) | (next >> vec3<u32>(32u - shift));
    }
    // The product modulo 2⁹⁶, in halves of words.
    let low = (window & vec3<u32>(0xffffu)) * (mantissa & 0xffffu);
    let high_low = (window >> vec3<u32>(16u)) * (mantissa & 0xffffu);
    let low_high = (window & vec3<u32>(0xffffu)) * (mantissa >> 16u);
    let high = (window >> vec3<u32>(16u)) * (mantissa >> 16u);
    let middle = high_low + (low >> vec3<u32>(16u)) + low_high;
    let words = (low & vec3<u32>(0xffffu)) | (middle << vec3<u32>(16u));
    let carries = high + (middle >> vec3<u32>(16u));
    let second = words.y + carries.z;
    let first = words.x + carries.y + u32(second < words.y);
    let turns = (first + 0x20000000u) >> 30u;
    let rest = bitcast<i32>(first - (turns << 30u));
    let part = f32(rest) * 9.313226e-10 + f32(second) * 2.1684043e-19;
    let angle = part * 1.5707964;
    return select(vec2<f32>(f32(turns), angle), vec2<f32>(f32(4u - turns), -angle), x < 0.0);
}

// The nearest number of quarter turns and the angle that is left, in -π/4..π/4. The parts of π/2 have few bits, so that
// their products are exact.
fn quarter_turns(x: f32) -> vec2<f32> {
    if abs(x) >= 30000.0 {
        return quarter_turns_of_large(x);
    }
    let n = round(x * 0.63661975);
    let angle = (((x - n * 1.5703125) - n * 0.00048351288) - n * 3.1391647e-7) - n * 5.390302953474238e-15;
    return vec2<f32>(n, angle);
}

// sin for |x| <= π/4.
fn sin_near_zero(x: f32) -> f32 {
    let z = x * x;
    let tail = -1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362880.0)));
    return x + x * z * tail;
}

// cos for |x| <= π/4.
fn cos_near_zero(x: f32) -> f32 {
    let z = x * x;
    let tail = 1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40320.0 - z * (1.0 / 3628800.0)));
    return 1.0 - 0.5 * z + z * z * tail;
}

// Not-a-number and infinities have no angle.
fn has_angle(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}

fn sin_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let turns = quarter_turns(x);
    let quarter = i32(turns.x) & 3;
    let value = select(sin_near_zero(turns.y), cos_near_zero(turns.y), (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

fn cos_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let turns = quarter_turns(x);
    let quarter = i32(turns.x) & 3;
    let value = select(cos_near_zero(turns.y), sin_near_zero(turns.y), (quarter & 1) == 1);
    return select(value, -value, quarter == 1 || quarter == 2);
}

fn tan_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let turns = quarter_turns(x);
    let s = sin_near_zero(turns.y);
    let c = cos_near_zero(turns.y);
    return select(s / c, -c / s, (i32(turns.x) & 1) == 1);
}

// The series of arctan after two reductions, to |x| <= tan π/8.
fn atan_of(x: f32) -> f32 {
    let magnitude = abs(x);
    let is_large = magnitude > 1.0;
    let inner = select(magnitude, 1.0 / magnitude, is_large);
    let is_middle = inner > 0.41421357;
    let t = select(inner, (inner - 1.0) / (inner + 1.0), is_middle);
    let z = t * t;
    var sum = 1.0 / 17.0 - z / 19.0;
    sum = 1.0 / 15.0 - z * sum;
    sum = 1.0 / 13.0 - z * sum;
    sum = 1.0 / 11.0 - z * sum;
    sum = 1.0 / 9.0 - z * sum;
    sum = 1.0 / 7.0 - z * sum;
    sum = 1.0 / 5.0 - z * sum;
    sum = 1.0 / 3.0 - z * sum;
    var angle = t - t * z * sum;
    angle = select(angle, 0.7853982 + angle, is_middle);
    angle = select(angle, 1.5707964 - angle, is_large);
    return select(copy_sign(angle, x), x, is_nan(x));
}

// The angle of a point, in -π..=π.
fn atan2_of(y: f32, x: f32) -> f32 {
    if is_nan(x) || is_nan(y) {
        return not_a_number();
    }
    let width = abs(x);
    let height = abs(y);
    let is_diagonal = width == height && width != 0.0;
    let ratio = select(height / width, select(0.0, 1.0, is_diagonal), is_diagonal || height == 0.0);
    let angle = atan_of(ratio);
    return copy_sign(select(angle, 3.1415927 - angle, sign_bit(x)), y);
}

fn asin_of(x: f32) -> f32 {
    return atan_of(x / sqrt((1.0 - x) * (1.0 + x)));
}

fn acos_of(x: f32) -> f32 {
    return 2.0 * atan_of(sqrt((1.0 - x) / (1.0 + x)));
}

fn sinh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude > 80.0 {
        let root = exp_of(0.5 * magnitude);
        return copy_sign(0.5 * root * root, x);
    }
    let e = expm1_of(magnitude);
    return copy_sign(0.5 * (e + e / (e + 1.0)), x);
}

fn cosh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    let root = exp_of(0.5 * magnitude);
    let e = exp_of(magnitude);
    return select(0.5 * e + 0.5 / e, 0.5 * root * root, magnitude > 80.0);
}

fn tanh_of(x: f32) -> f32 {
    let e = expm1_of(2.0 * min(abs(x), 10.0));
    return select(copy_sign(e / (e + 2.0), x), x, is_nan(x));
}

fn asinh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude > 1.0e9 {
        return copy_sign(log_of(magnitude) + 0.6931472, x);
    }
    let square = magnitude * magnitude;
    return copy_sign(log1p_of(magnitude + square / (1.0 + sqrt(square + 1.0))), x);
}

fn acosh_of(x: f32) -> f32 {
    let above = x - 1.0;
    if x > 1.0e9 {
        return log_of(x) + 0.6931472;
    }
    return select(log1p_of(above + sqrt(above * (x + 1.0))), not_a_number(), !(x >= 1.0));
}

fn atanh_of(x: f32) -> f32 {
    let magnitude = abs(x);
    return copy_sign(0.5 * log1p_of(2.0 * magnitude / (1.0 - magnitude)), x);
}

fn sigmoid_of(x: f32) -> f32 {
    return 1.0 / (1.0 + exp_of(-x));
}

// exp(x²) erfc(x) for x between 0.9 and 11: a polynomial in t = 1 / (1 + x/2), fitted at Chebyshev's points.
fn erfcx_of_large(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.5 * x);
    let u = t - 0.4267948;
    var sum = -0.04892727;
    sum = sum * u + 0.08780368;
    sum = sum * u + 0.058926877;
    sum = sum * u - 0.13877138;
    sum = sum * u - 0.12708186;
    sum = sum * u + 0.18988144;
    sum = sum * u + 0.52184434;
    sum = sum * u + 0.607923;
    sum = sum * u + 0.4634211;
    return t * sum;
}

// The complementary error function for x >= 0.9. The square is taken apart so that the exponential of its rounding is not
// lost.
fn erfc_of_large(x: f32) -> f32 {
    let coarse = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    return exp_of(-coarse * coarse) * exp_of((coarse - x) * (coarse + x)) * erfcx_of_large(x);
}

// The error function for |x| < 1, by its series.
fn erf_near_zero(x: f32) -> f32 {
    let z = x * x;
    var sum = 1.0 / 76204800.0;
    sum = 1.0 / 6894720.0 - z * sum;
    sum = 1.0 / 685440.0 - z * sum;
    sum = 1.0 / 75600.0 - z * sum;
    sum = 1.0 / 9360.0 - z * sum;
    sum = 1.0 / 1320.0 - z * sum;
    sum = 1.0 / 216.0 - z * sum;
    sum = 1.0 / 42.0 - z * sum;
    sum = 1.0 / 10.0 - z * sum;
    sum = 1.0 / 3.0 - z * sum;
    return 1.1283792 * (x - x * z * sum);
}

fn erf_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude < 0.9 || is_nan(x) {
        return erf_near_zero(x);
    }
    return copy_sign(1.0 - erfc_of_large(min(magnitude, 4.5)), x);
}

fn erfc_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if magnitude < 0.9 || is_nan(x) {
        return 1.0 - erf_near_zero(x);
    }
    let tail = erfc_of_large(min(magnitude, 11.0));
    return select(tail, 2.0 - tail, x < 0.0);
}

// Giles, "Approximating the erfinv function" (2010).
fn erfinv_of(x: f32) -> f32 {
    if abs(x) == 1.0 {
        return x * infinity();
    }
    var w = -log_of((1.0 - x) * (1.0 + x));
    var sum = 0.0;
    if w < 5.0 {
        w = w - 2.5;
        sum = 2.8102264e-8;
        sum = sum * w + 3.4327394e-7;
        sum = sum * w - 3.5233877e-6;
        sum = sum * w - 4.3915065e-6;
        sum = sum * w + 0.00021858087;
        sum = sum * w - 0.001253725;
        sum = sum * w - 0.0041776816;
        sum = sum * w + 0.24664073;
        sum = sum * w + 1.5014094;
    } else {
        w = sqrt(w) - 3.0;
        sum = -0.00020021426;
        sum = sum * w + 0.00010095056;
        sum = sum * w + 0.0013493432;
        sum = sum * w - 0.0036734284;
        sum = sum * w + 0.0057395077;
        sum = sum * w - 0.0076224613;
        sum = sum * w + 0.0094388705;
        sum = sum * w + 1.001674;
        sum = sum * w + 2.8329768;
    }
    return sum * x;
}

// sin πx, whose period is exact.
fn sin_pi(x: f32) -> f32 {
    let rest = x - 2.0 * round(0.5 * x);
    return sin_of(3.1415927 * select(rest, copy_sign(1.0, rest) - rest, abs(rest) > 0.5));
}

// ln Γ(x) for x >= 0.5: Stirling's series from 8 on, reached by the recurrence.
fn lgamma_of_positive(x: f32) -> f32 {
    var shifted = x;
    var product = 1.0;
    while shifted < 8.0 {
        product = product * shifted;
        shifted = shifted + 1.0;
    }
    let r = 1.0 / shifted;
    let z = r * r;
    let series = r * (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0)));
    let stirling = (shifted - 0.5) * (log_of(shifted) - 1.0) + (0.4189385 + series);
    return stirling - log_of(product);
}

// ln |Γ(x)|; the values around 1 and 2, where it vanishes, come from the recurrence and keep absolute precision.
fn lgamma_of(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if abs(x) == infinity() || (x <= 0.0 && floor(x) == x) {
        return infinity();
    }
    if x >= 0.5 {
        return lgamma_of_positive(x);
    }
    return log_of(3.1415927 / abs(sin_pi(x))) - lgamma_of_positive(1.0 - x);
}

// ψ(x) for x > 0: the asymptotic series from 8 on, reached by the recurrence.
fn digamma_of_positive(x: f32) -> f32 {
    var shifted = x;
    var sum = 0.0;
    while shifted < 8.0 {
        sum = sum - 1.0 / shifted;
        shifted = shifted + 1.0;
    }
    let r = 1.0 / shifted;
    let z = r * r;
    let series = z * (1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z * (1.0 / 240.0))));
    return sum + (log_of(shifted) - 0.5 * r - series);
}

fn digamma_of(x: f32) -> f32 {
    if x == 0.0 {
        return copy_sign(infinity(), -x);
    }
    if is_nan(x) || x > 0.0 {
        return select(digamma_of_positive(x), x, is_nan(x) || x == infinity());
    }
    let rest = x - round(x);
    if rest == 0.0 {
        return not_a_number();
    }
    return digamma_of_positive(1.0 - x) - 3.1415927 / tan_of(3.1415927 * rest);
}

// A product and what rounding takes from it.
fn exact_product(x: f32, y: f32) -> vec2<f32> {
    let product = x * y;
    let x_high = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    let y_high = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
    let x_low = x - x_high;
    let y_low = y - y_high;
    let error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low;
    return vec2<f32>(product, error);
}

// x · y + z rounded once, which WGSL's fma need not do. A product that overflows does so whatever z is, unless z is infinite.
fn fused(x: f32, y: f32, z: f32) -> f32 {
    let product = exact_product(x, y);
    if has_angle(x) && has_angle(y) && !has_angle(z) {
        return z;
    }
    let sum = product.x + z;
    // What rounding takes from a tiny product is no number.
    if !has_angle(sum) || abs(product.x) < 1e-30 {
        return sum;
    }
    return sum + (sum_error(product.x, z) + product.y);
}

// A sum of numbers of which the first is not smaller, and what rounding takes from it.
fn exact_sum(x: f32, y: f32) -> vec2<f32> {
    let sum = x + y;
    return vec2<f32>(sum, (x - sum) + y);
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

// The remainder of a division that is rounded towards zero, exact: each step takes off as much as its quotient can say.
fn fmod_of(x: f32, y: f32) -> f32 {
    let divisor = abs(y);
    var rest = abs(x);
    if is_nan(x) || is_nan(y) || rest == infinity() || divisor == 0.0 {
        return not_a_number();
    }
    for (var step = 0u; step < 40u && rest >= divisor; step++) {
        // Large quotients are cut to a power of two times the divisor.
        var unit = divisor;
        if rest / divisor > 4096.0 {
            let shift = ((bitcast<u32>(rest) >> 23u) - (bitcast<u32>(divisor) >> 23u)) - 11u;
            unit = scale_by_power(divisor, i32(shift));
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

// x / 0.0, which drivers fold to what they like.
fn divide_by_zero(x: f32, y: f32) -> f32 {
    let sign = select(1.0, -1.0, sign_bit(x) != sign_bit(y));
    return select(sign * infinity(), not_a_number(), x == 0.0 || is_nan(x));
}

fn trunc_divide(x: f32, y: f32) -> f32 {
    return trunc(x / y);
}

// As PyTorch's floor division of floats: from the exact remainder.
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
