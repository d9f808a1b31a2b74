// The zeta function in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

// Adds two numbers, each of which is a sum of two.
fn sum_of_parts(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(x.x + y.x, x.y + rounded(sum_error(x.x, y.x) + y.y));
}

// (a + low)^-x as a sum of two, if it is finite and nonzero.
fn zeta_term(a: f32, low: f32, x: f32) -> vec2<f32> {
    let value = power(a, -x);
    if value == 0.0 || !has_angle(value) || !has_angle(x) {
        return vec2<f32>(value, 0.0);
    }
    let parts = sign(value) * power_parts(a, -x);
    return vec2<f32>(parts.x, parts.y - parts.x * (x * low / a));
}

// Hurwitz zeta function by the Euler–Maclaurin formula, DLMF 25.11.5; poles and gaps as in Cephes. PyTorch sums in double
// precision, except for the first term.
fn zeta_of(x: f32, q: f32) -> f32 {
    if x == 1.0 {
        return infinity();
    }
    if q <= 0.0 && floor(q) == q && (x > 1.0 || is_nan(x)) {
        return infinity();
    }
    if is_nan(x) || is_nan(q) || x < 1.0 || (q <= 0.0 && floor(x) != x) {
        return not_a_number();
    }
    // Terms with q + k further below zero are too small to count.
    var k = max(1.0, -2000.0 - floor(q));
    var sum = vec2<f32>(power(q, -x), 0.0);
    while q + k < 10.0 {
        sum = sum_of_parts(sum, zeta_term(q + k, sum_error(q, k), x));
        k = k + 1.0;
    }
    let a = q + k;
    let tail = power(a, -x);
    if tail == 0.0 {
        // Cephes' products of orders overflow and are multiplied by a power that is 0.
        let is_undefined = sum.x == 0.0 && (a == infinity() || x > 1e13);
        return select(sum.x + (sum.y + power(a, 1.0 - x) / (x - 1.0)), not_a_number(), is_undefined);
    }
    let r = 1.0 / (a * a);
    let first = tail * (x / a) / 12.0;
    let second = first * (x + 1.0) * (x + 2.0) * r / 60.0;
    let third = second * (x + 3.0) * (x + 4.0) * r / 42.0;
    let fourth = third * (x + 5.0) * (x + 6.0) * r / 40.0;
    let rest = tail * (a / (x - 1.0) + 0.5) + first - second + third - fourth;
    return sum.x + rounded(sum.y + rest);
}
