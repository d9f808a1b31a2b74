// Functions of double precision numbers. Drivers have roots and rounding in double precision but no other functions, so that
// these are series, longer and slower than those of single precision, good to some 1e-12.

fn infinity_f64() -> f64 {
    return f64(infinity());
}

fn not_a_number_f64() -> f64 {
    return f64(not_a_number());
}

// Narrowing keeps not-a-number.
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
    let sign = bitcast<u64>(y) & (1lu << 63u);
    return bitcast<f64>((bitcast<u64>(x) & ~(1lu << 63u)) | sign);
}

fn sign_of_f64(x: f64) -> f64 {
    if x > 0.0lf {
        return 1.0lf;
    }
    return select(0.0lf, -1.0lf, x < 0.0lf);
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

fn expm1_near_zero_f64(x: f64) -> f64 {
    var sum = 1.0lf;
    for (var k = 15; k > 1; k--) {
        sum = 1.0lf + x * sum / f64(k);
    }
    return x * sum;
}

fn without_powers_f64(x: f64, n: f64) -> f64 {
    return (x - n * 0.6931471803691238lf) - n * 1.9082149292705877e-10lf;
}

fn exp_of_f64(x: f64) -> f64 {
    let limited = clamp(x, -746.0lf, 710.0lf);
    let n = round(limited * 1.4426950408889634lf);
    let part = expm1_near_zero_f64(without_powers_f64(limited, n));
    return select(scale_by_power_f64(1.0lf + part, i32(n)), x, is_nan_f64(x));
}

fn exp2_of_f64(x: f64) -> f64 {
    let limited = clamp(x, -1076.0lf, 1025.0lf);
    let n = round(limited);
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
    var sum = 0.0lf;
    for (var k = 25; k > 0; k -= 2) {
        sum = sum * z + 1.0lf / f64(k);
    }
    return 2.0lf * s * sum;
}

fn log_of_f64(x: f64) -> f64 {
    if is_nan_f64(x) || x == infinity_f64() {
        return x;
    }
    if x <= 0.0lf {
        return select(not_a_number_f64(), -infinity_f64(), x == 0.0lf);
    }
    let is_small = x < 2.2250738585072014e-308lf;
    let bits = bitcast<i64>(select(x, x * 18014398509481984.0lf, is_small)) - 4604544271217802189li;
    let n = f64(bits >> 52u) - select(0.0lf, 54.0lf, is_small);
    let m = bitcast<f64>((bits & 4503599627370495li) + 4604544271217802189li);
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

// The number of quarter turns modulo 4, and the angle that is left.
fn quarter_turns_f64(x: f64) -> vec2<f64> {
    let n = round(x * 0.6366197723675814lf);
    let angle = ((x - n * 1.5707963267341256lf) - n * 6.077100506303966e-11lf) - n * 2.0222662487959506e-21lf;
    return vec2<f64>(n - 4.0lf * floor(0.25lf * n), angle);
}

fn sin_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    var sum = 1.0lf;
    for (var k = 18; k > 0; k -= 2) {
        sum = 1.0lf - z * sum / f64(k * (k + 1));
    }
    return x * sum;
}

fn cos_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    var sum = 1.0lf;
    for (var k = 19; k > 0; k -= 2) {
        sum = 1.0lf - z * sum / f64(k * (k + 1));
    }
    return sum;
}

fn sin_of_f64(x: f64) -> f64 {
    if is_nan_f64(x) || abs(x) == infinity_f64() {
        return not_a_number_f64();
    }
    let turns = quarter_turns_f64(x);
    let quarter = i32(turns.x);
    let value = select(sin_near_zero_f64(turns.y), cos_near_zero_f64(turns.y), (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

fn cos_of_f64(x: f64) -> f64 {
    if is_nan_f64(x) || abs(x) == infinity_f64() {
        return not_a_number_f64();
    }
    let turns = quarter_turns_f64(x);
    let quarter = i32(turns.x);
    let value = select(cos_near_zero_f64(turns.y), sin_near_zero_f64(turns.y), (quarter & 1) == 1);
    return select(value, -value, quarter == 1 || quarter == 2);
}

fn tan_of_f64(x: f64) -> f64 {
    return sin_of_f64(x) / cos_of_f64(x);
}

// The series of arctan after three halvings of the angle.
fn atan_of_f64(x: f64) -> f64 {
    let is_large = abs(x) > 1.0lf;
    var t = select(abs(x), 1.0lf / abs(x), is_large);
    for (var halving = 0; halving < 3; halving++) {
        t = t / (1.0lf + sqrt(1.0lf + t * t));
    }
    let z = t * t;
    var sum = 0.0lf;
    for (var k = 21; k > 0; k -= 2) {
        sum = 1.0lf / f64(k) - z * sum;
    }
    let angle = 8.0lf * t * sum;
    return select(copy_sign_f64(select(angle, 1.5707963267948966lf - angle, is_large), x), x, is_nan_f64(x));
}

fn atan2_of_f64(y: f64, x: f64) -> f64 {
    if is_nan_f64(x) || is_nan_f64(y) {
        return not_a_number_f64();
    }
    let width = abs(x);
    let height = abs(y);
    let is_diagonal = width == height && width != 0.0lf;
    let ratio = select(height / width, select(0.0lf, 1.0lf, is_diagonal), is_diagonal || height == 0.0lf);
    let angle = atan_of_f64(ratio);
    return copy_sign_f64(select(angle, 3.141592653589793lf - angle, sign_bit_f64(x)), y);
}

fn asin_of_f64(x: f64) -> f64 {
    return atan_of_f64(x / sqrt((1.0lf - x) * (1.0lf + x)));
}

fn acos_of_f64(x: f64) -> f64 {
    return 2.0lf * atan_of_f64(sqrt((1.0lf - x) / (1.0lf + x)));
}

fn sinh_of_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    if magnitude > 700.0lf {
        let root = exp_of_f64(0.5lf * magnitude);
        return copy_sign_f64(0.5lf * root * root, x);
    }
    let e = expm1_of_f64(magnitude);
    return copy_sign_f64(0.5lf * (e + e / (e + 1.0lf)), x);
}

fn cosh_of_f64(x: f64) -> f64 {
    let root = exp_of_f64(0.5lf * abs(x));
    let e = exp_of_f64(abs(x));
    return select(0.5lf * e + 0.5lf / e, 0.5lf * root * root, abs(x) > 700.0lf);
}

fn tanh_of_f64(x: f64) -> f64 {
    let e = expm1_of_f64(2.0lf * min(abs(x), 20.0lf));
    return select(copy_sign_f64(e / (e + 2.0lf), x), x, is_nan_f64(x));
}

fn asinh_of_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    if magnitude > 1.0e9lf {
        return copy_sign_f64(log_of_f64(magnitude) + 0.6931471805599453lf, x);
    }
    let square = magnitude * magnitude;
    return copy_sign_f64(log1p_of_f64(magnitude + square / (1.0lf + sqrt(square + 1.0lf))), x);
}

fn acosh_of_f64(x: f64) -> f64 {
    if x > 1.0e9lf {
        return log_of_f64(x) + 0.6931471805599453lf;
    }
    let above = x - 1.0lf;
    return select(log1p_of_f64(above + sqrt(above * (x + 1.0lf))), not_a_number_f64(), !(x >= 1.0lf));
}

fn atanh_of_f64(x: f64) -> f64 {
    let magnitude = abs(x);
    return copy_sign_f64(0.5lf * log1p_of_f64(2.0lf * magnitude / (1.0lf - magnitude)), x);
}

fn sigmoid_of_f64(x: f64) -> f64 {
    return 1.0lf / (1.0lf + exp_of_f64(-x));
}

// e^(-x²) times a series of positive terms.
fn erf_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    var sum = 1.0lf;
    for (var k = 60; k > 0; k--) {
        sum = 1.0lf + 2.0lf * z * sum / f64(2 * k + 1);
    }
    return 1.1283791670955126lf * x * exp_of_f64(-z) * sum;
}

// e^(-x²) times a continued fraction, for x >= 2.5.
fn erfc_of_large_f64(x: f64) -> f64 {
    var fraction = 0.0lf;
    for (var k = 80; k > 0; k--) {
        fraction = 0.5lf * f64(k) / (x + fraction);
    }
    return 0.5641895835477563lf * exp_of_f64(-x * x) / (x + fraction);
}

fn erf_of_f64(x: f64) -> f64 {
    if abs(x) < 2.5lf || is_nan_f64(x) {
        return erf_near_zero_f64(x);
    }
    return copy_sign_f64(1.0lf - erfc_of_large_f64(min(abs(x), 30.0lf)), x);
}

fn erfc_of_f64(x: f64) -> f64 {
    if abs(x) < 2.5lf || is_nan_f64(x) {
        return 1.0lf - erf_near_zero_f64(x);
    }
    let tail = erfc_of_large_f64(min(abs(x), 30.0lf));
    return select(tail, 2.0lf - tail, x < 0.0lf);
}

// The single precision value, and Newton's steps from there.
fn erfinv_of_f64(x: f64) -> f64 {
    if abs(x) >= 1.0lf {
        return select(not_a_number_f64(), x * infinity_f64(), abs(x) == 1.0lf);
    }
    var result = f64(erfinv_of(clamp(f32(x), -0.99999994, 0.99999994)));
    for (var step = 0; step < 3; step++) {
        let slope = 1.1283791670955126lf * exp_of_f64(-result * result);
        result = result - (erf_of_f64(result) - x) / slope;
    }
    return result;
}

fn lgamma_of_positive_f64(x: f64) -> f64 {
    var shifted = x;
    var product = 1.0lf;
    while shifted < 15.0lf {
        product = product * shifted;
        shifted = shifted + 1.0lf;
    }
    let r = 1.0lf / shifted;
    let z = r * r;
    let series = r * (1.0lf / 12.0lf - z * (1.0lf / 360.0lf - z * (1.0lf / 1260.0lf - z * (1.0lf / 1680.0lf - z / 1188.0lf))));
    return (shifted - 0.5lf) * log_of_f64(shifted) - shifted + 0.9189385332046727lf + series - log_of_f64(product);
}

fn lgamma_of_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if abs(x) == infinity_f64() || (x <= 0.0lf && floor(x) == x) {
        return infinity_f64();
    }
    if x >= 0.5lf {
        return lgamma_of_positive_f64(x);
    }
    let turned = abs(sin_of_f64(3.141592653589793lf * (x - floor(x))));
    return log_of_f64(3.141592653589793lf / turned) - lgamma_of_positive_f64(1.0lf - x);
}

fn digamma_of_positive_f64(x: f64) -> f64 {
    var shifted = x;
    var sum = 0.0lf;
    while shifted < 15.0lf {
        sum = sum - 1.0lf / shifted;
        shifted = shifted + 1.0lf;
    }
    let r = 1.0lf / shifted;
    let z = r * r;
    let series = z * (1.0lf / 12.0lf - z * (1.0lf / 120.0lf - z * (1.0lf / 252.0lf - z * (1.0lf / 240.0lf - z / 132.0lf))));
    return sum + (log_of_f64(shifted) - 0.5lf * r - series);
}

fn digamma_of_f64(x: f64) -> f64 {
    if x == 0.0lf {
        return copy_sign_f64(infinity_f64(), -x);
    }
    if is_nan_f64(x) || x > 0.0lf {
        return select(digamma_of_positive_f64(x), x, is_nan_f64(x) || x == infinity_f64());
    }
    let rest = x - round(x);
    if rest == 0.0lf {
        return not_a_number_f64();
    }
    return digamma_of_positive_f64(1.0lf - x) - 3.141592653589793lf / tan_of_f64(3.141592653589793lf * rest);
}

fn power_f64(x: f64, y: f64) -> f64 {
    if y == 0.0lf || x == 1.0lf {
        return 1.0lf;
    }
    if is_nan_f64(x) || is_nan_f64(y) {
        return not_a_number_f64();
    }
    let magnitude = abs(x);
    let is_whole = floor(y) == y;
    let is_odd = is_whole && floor(0.5lf * y) != 0.5lf * y;
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

// Takes off multiples of the divisor that are powers of two.
fn fmod_of_f64(x: f64, y: f64) -> f64 {
    let divisor = abs(y);
    var rest = abs(x);
    if is_nan_f64(x) || is_nan_f64(y) || rest == infinity_f64() || divisor == 0.0lf {
        return not_a_number_f64();
    }
    for (var step = 0; step < 2100 && rest >= divisor; step++) {
        let shift = i32(bitcast<u64>(rest) >> 52u) - i32(bitcast<u64>(divisor) >> 52u);
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
    return trunc(x / y);
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
    let below = floor(quotient);
    return select(below, below + 1.0lf, quotient - below > 0.5lf);
}

// The next single precision number, as the oracle has it.
fn next_after_f64(x: f64, y: f64) -> f64 {
    return f64(next_after(f32(x), f32(y)));
}
