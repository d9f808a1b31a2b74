// Orthogonal polynomials in single precision, by recurrence on the degree.

// The integer part of a degree; -1, so that the polynomial is 0, if there is none.
fn whole_degree(n: f32) -> f32 {
    return select(trunc(n), -1.0, is_nan(n) || abs(n) > 9e18);
}

// ±value: the parity of a polynomial of this degree at -1.
fn by_parity(n: f32, value: f32) -> f32 {
    return select(value, -value, floor(0.5 * n) * 2.0 != n);
}

// The Chebyshev polynomial of degree n >= 0 whose polynomial of degree 1 is `second`.
fn chebyshev_recurrence(x: f32, n: f32, second: f32) -> f32 {
    var before = 1.0;
    var here = second;
    for (var k = 1.0; k < min(n, 1048576.0) && !is_nan(here); k = k + 1.0) {
        let next = fused(x + x, here, -before);
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn chebyshev_t_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, 1.0), 1.0, x > 0.0);
    }
    if n > 6.0 && abs(x) < 1.0 {
        return cos_of(n * nearest_acos(x));
    }
    return chebyshev_recurrence(x, n, x);
}

fn chebyshev_u_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, n + 1.0), n + 1.0, x > 0.0);
    }
    if n > 8.0 && abs(x) < 1.0 {
        let angle = nearest_acos(x);
        return sin_of((n + 1.0) * angle) / sin_of(angle);
    }
    return chebyshev_recurrence(x, n, x + x);
}

fn chebyshev_v_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, n + n + 1.0), 1.0, x > 0.0);
    }
    if n > 8.0 && abs(x) < 1.0 {
        let angle = nearest_acos(x);
        return cos_of((n + 0.5) * angle) / cos_of(0.5 * angle);
    }
    return chebyshev_recurrence(x, n, x + x - 1.0);
}

fn chebyshev_w_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, 1.0), n + n + 1.0, x > 0.0);
    }
    if n > 8.0 && abs(x) < 1.0 {
        let angle = nearest_acos(x);
        return sin_of((n + 0.5) * angle) / sin_of(0.5 * angle);
    }
    return chebyshev_recurrence(x, n, x + x + 1.0);
}

// Not-a-number from the degree on at which coefficients exceed single precision, as in PyTorch.
fn hermite_h_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 || n > 128.0 {
        return select(0.0, not_a_number(), n > 0.0);
    }
    var before = 1.0;
    var here = x + x;
    for (var k = 1.0; k < n; k = k + 1.0) {
        let next = fused(x + x, here, -(2.0 * k * before));
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn hermite_he_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 || n > 128.0 {
        return select(0.0, not_a_number(), n > 0.0);
    }
    var before = 1.0;
    var here = x;
    for (var k = 1.0; k < n; k = k + 1.0) {
        let next = fused(x, here, -(k * before));
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn laguerre_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 || x == 0.0 {
        return select(1.0, 0.0, n < 0.0);
    }
    var before = 1.0;
    var here = 1.0 - x;
    for (var k = 1.0; k < min(n, 1048576.0) && !is_nan(here); k = k + 1.0) {
        let next = fused((k + k) + (1.0 - x), here, -(k * before)) / (k + 1.0);
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}

fn legendre_of(x: f32, degree: f32) -> f32 {
    let n = whole_degree(degree);
    if n < 0.0 {
        return 0.0;
    }
    if abs(x) == 1.0 {
        return select(by_parity(n, 1.0), 1.0, x > 0.0);
    }
    var before = 1.0;
    var here = x;
    for (var k = 1.0; k < min(n, 1048576.0) && !is_nan(here); k = k + 1.0) {
        let next = fused((k + k + 1.0) * x, here, -(k * before)) / (k + 1.0);
        before = here;
        here = next;
    }
    return select(here, 1.0, n == 0.0);
}
