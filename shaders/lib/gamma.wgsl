// The gamma function and its relatives in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

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
    // Stirling's series minus the logarithm of the product, as sums of two: their common part cancels.
    let above = log_parts(shifted);
    let below = log_parts(product);
    let stirling = exact_product(shifted - 0.5, above.x - 1.0);
    if stirling.x == infinity() {
        return stirling.x;
    }
    let rest = stirling.y + (shifted - 0.5) * above.y + (0.4189385 + series) - below.y;
    return rounded(stirling.x - below.x) + rounded(sum_error(stirling.x, -below.x) + rest);
}

// ln |Γ(x)|; the values around 1 and 2, where it vanishes, come from the recurrence and keep absolute precision.
fn lgamma_of(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if abs(x) == infinity() || (x <= 0.0 && floor(x) == x) {
        return infinity();
    }
    if x == 1.0 || x == 2.0 {
        return 0.0;
    }
    if x >= 0.5 {
        return lgamma_of_positive(x);
    }
    return log_of(3.1415927 / abs(sin_pi(x))) - lgamma_of_positive(1.0 - x);
}

// ψ(x) for x > 0: Cephes' asymptotic series from 10 on, reached by the recurrence.
fn digamma_of_positive(x: f32) -> f32 {
    var shifted = x;
    var sum = 0.0;
    while shifted < 10.0 {
        sum = sum - 1.0 / shifted;
        shifted = shifted + 1.0;
    }
    if shifted == 10.0 {
        return sum + 2.2517526;
    }
    let z = 1.0 / (shifted * shifted);
    return rounded(sum + log_of(shifted)) - 0.5 / shifted - z * digamma_tail(z);
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

// ψ'(x): reflection, six steps of the recurrence and the first terms of the asymptotic series, DLMF 5.15.8.
fn trigamma_of(x: f32) -> f32 {
    let is_reflected = x < 0.5;
    let sine = sin_of(3.1415927 * x);
    var shifted = select(x, 1.0 - x, is_reflected);
    var sum = select(0.0, -9.869605 / (sine * sine), is_reflected);
    for (var step = 0; step < 6; step = step + 1) {
        sum = sum + 1.0 / (shifted * shifted);
        shifted = shifted + 1.0;
    }
    let z = 1.0 / (shifted * shifted);
    let series = fused(-z, fused(-z, 0.023809524, 0.033333335), 0.16666667);
    sum = sum + fused(z, series, 1.0 + 1.0 / (2.0 * shifted)) / shifted;
    return select(sum, -sum, is_reflected);
}
