// Sines, tangents and angles in double precision.

// The number of quarter turns modulo 4, and the remaining angle.
fn quarter_turns_f64(x: f64) -> vec2<f64> {
    let n = round_f64(x * 0.6366197723675814lf);
    let angle = ((x - n * 1.5707963267341256lf) - n * 6.077100506303966e-11lf) - n * 2.0222662487959506e-21lf;
    return vec2<f64>(n - 4.0lf * floor_f64(0.25lf * n), angle);
}

fn sin_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    var sum = 1.0lf - z / 342.0lf;
    sum = 1.0lf - z * sum / 272.0lf;
    sum = 1.0lf - z * sum / 210.0lf;
    sum = 1.0lf - z * sum / 156.0lf;
    sum = 1.0lf - z * sum / 110.0lf;
    sum = 1.0lf - z * sum / 72.0lf;
    sum = 1.0lf - z * sum / 42.0lf;
    sum = 1.0lf - z * sum / 20.0lf;
    sum = 1.0lf - z * sum / 6.0lf;
    return x * sum;
}

fn cos_near_zero_f64(x: f64) -> f64 {
    let z = x * x;
    var sum = 1.0lf - z / 380.0lf;
    sum = 1.0lf - z * sum / 306.0lf;
    sum = 1.0lf - z * sum / 240.0lf;
    sum = 1.0lf - z * sum / 182.0lf;
    sum = 1.0lf - z * sum / 132.0lf;
    sum = 1.0lf - z * sum / 90.0lf;
    sum = 1.0lf - z * sum / 56.0lf;
    sum = 1.0lf - z * sum / 30.0lf;
    sum = 1.0lf - z * sum / 12.0lf;
    sum = 1.0lf - z * sum / 2.0lf;
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
