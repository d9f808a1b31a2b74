// Sines, tangents and angles in single precision. Drivers may compute WGSL's built-in functions less accurately than
// PyTorch.

// x · 2/π in quarter turns, modulo 4, for |x| >= 30000: multiplies the mantissa by a 96-bit window of 2/π, so that multiples
// of four quarter turns are never computed (Payne and Hanek).
fn quarter_turns_of_large(x: f32) -> vec3<f32> {
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
    // The product modulo 2⁹⁶, in half words.
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
    return select(vec3<f32>(f32(turns), angle, 0.0), vec3<f32>(f32(4u - turns), -angle, 0.0), x < 0.0);
}

// The nearest number of quarter turns and the remaining angle in -π/4..π/4, as a sum of two. The parts of π/2 have few bits,
// so that their products are exact.
fn quarter_turns(x: f32) -> vec3<f32> {
    if abs(x) >= 30000.0 {
        return quarter_turns_of_large(x);
    }
    let n = round(x * 0.63661975);
    let angle = exact_sum((x - n * 1.5703125) - n * 0.00048351288, -n * 3.1391647e-7);
    return vec3<f32>(n, angle.x, angle.y - n * 5.390302953474238e-15);
}

// sin(high + low) for angles up to π/4.
fn sin_near_zero(high: f32, low: f32) -> f32 {
    let x = high + low;
    let z = x * x;
    let tail = -1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362880.0)));
    return high + (x * z * tail + low);
}

// cos(high + low) for angles up to π/4.
fn cos_near_zero(high: f32, low: f32) -> f32 {
    let x = high + low;
    let z = x * x;
    let tail = 1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40320.0 - z * (1.0 / 3628800.0)));
    let part = 4.0 * leading_part(0.25 * high);
    let rest = (high - part) + low;
    return (1.0 - 0.5 * part * part) + rounded(z * z * tail - rest * (part + 0.5 * rest));
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
    let value = select(sin_near_zero(turns.y, turns.z), cos_near_zero(turns.y, turns.z), (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

fn cos_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let turns = quarter_turns(x);
    let quarter = i32(turns.x) & 3;
    let value = select(cos_near_zero(turns.y, turns.z), sin_near_zero(turns.y, turns.z), (quarter & 1) == 1);
    return select(value, -value, quarter == 1 || quarter == 2);
}

fn tan_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let turns = quarter_turns(x);
    let s = sin_near_zero(turns.y, turns.z);
    let c = cos_near_zero(turns.y, turns.z);
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
    // The multiple of π/4 has two parts; small terms are added first.
    let odd = select(0.0, 1.0, is_middle);
    let quarters = select(odd, 2.0 - odd, is_large);
    let direction = select(1.0, -1.0, is_large);
    let small = quarters * -2.1855695e-8 - direction * (t * z * sum);
    let angle = quarters * 0.7853982 + (direction * t + small);
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

// sin πx, whose period is exact.
fn sin_pi(x: f32) -> f32 {
    let rest = x - 2.0 * round(0.5 * x);
    return sin_of(3.1415927 * select(rest, copy_sign(1.0, rest) - rest, abs(rest) > 0.5));
}

fn hypot_of(x: f32, y: f32) -> f32 {
    let larger = max(abs(x), abs(y));
    let smaller = min(abs(x), abs(y));
    if abs(x) == infinity() || abs(y) == infinity() {
        return infinity();
    }
    if is_nan(x) || is_nan(y) {
        return not_a_number();
    }
    if larger == 0.0 {
        return 0.0;
    }
    let ratio = smaller / larger;
    return larger * sqrt(1.0 + ratio * ratio);
}

// arccos for |x| < 1 to the nearest number, because multiples of it are taken: the error of the cosine is computed from the
// angle's distance to a multiple of a quarter turn, where no digit is lost.
fn nearest_acos(x: f32) -> f32 {
    let angle = acos_of(x);
    let turns = round(angle * 0.63661975);
    let rest = angle - turns * 1.5707964;
    let low = turns * 4.371139e-8;
    let z = rest * rest;
    if turns == 1.0 {
        let tail = -1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z / 362880.0));
        return angle - ((x + rest) + (rest * z * tail + low)) / cos_near_zero(rest, 0.0);
    }
    let sine = sin_near_zero(rest, 0.0);
    let square = exact_product(rest, rest);
    let above = exact_sum(1.0, select(-x, x, turns == 2.0));
    let tail = 1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40320.0 - z / 3628800.0));
    return angle + ((above.x - 0.5 * square.x) + (above.y - 0.5 * square.y + z * z * tail - low * sine)) / sine;
}
