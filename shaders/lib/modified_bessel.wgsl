// Modified Bessel functions in single precision with the series of Moshier's Cephes library (`kernel::series::bessel`),
// combined as in PyTorch (`aten/src/ATen/native/Math.h`).

// e^-x I₀(x) for x >= 0; for x > 8 without the factor 1 / √x.
fn series_i0(x: f32) -> f32 {
    if x <= 8.0 {
        return i0_near(0.5 * x - 2.0);
    }
    return i0_far(32.0 / x - 2.0);
}

// e^-x I₁(x) for x >= 0, without the factor x for x <= 8 and 1 / √x for x > 8; with the series that PyTorch shortens.
fn series_i1(x: f32) -> f32 {
    if x <= 8.0 {
        return i1_near_single(0.5 * x - 2.0);
    }
    return i1_far_single(32.0 / x - 2.0);
}

// e^-|x| I₀(x)
fn i0e_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if is_nan(x) || magnitude == infinity() {
        return select(0.0, x, is_nan(x));
    }
    return series_i0(magnitude) / select(1.0, sqrt(magnitude), magnitude > 8.0);
}

// e^-|x| I₁(x)
fn i1e_of(x: f32) -> f32 {
    let magnitude = abs(x);
    if is_nan(x) || magnitude == infinity() {
        return select(copy_sign(0.0, x), x, is_nan(x));
    }
    let series = series_i1(magnitude);
    return copy_sign(select(series * magnitude, series / sqrt(magnitude), magnitude > 8.0), x);
}

// Not-a-number at infinity, like the functions that follow.
fn i0_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let magnitude = abs(x);
    return exp_of(magnitude) * series_i0(magnitude) / select(1.0, sqrt(magnitude), magnitude > 8.0);
}

fn i1_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let magnitude = abs(x);
    let is_large = magnitude > 8.0;
    let value = exp_of(magnitude) * select(magnitude, 1.0, is_large) * series_i1(magnitude);
    return copy_sign(value / select(1.0, sqrt(magnitude), is_large), x);
}

fn modified_i1_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let magnitude = abs(x);
    if magnitude <= 8.0 {
        return copy_sign(i1_near(0.5 * magnitude - 2.0) * magnitude * exp_of(magnitude), x);
    }
    return copy_sign(exp_of(magnitude) * i1_far(32.0 / magnitude - 2.0) / sqrt(magnitude), x);
}

// Value of a function of the second kind at zero, for negative numbers, and at infinity.
fn second_kind_limit(x: f32) -> f32 {
    return select(select(0.0, infinity(), x == 0.0), not_a_number(), is_nan(x) || x < 0.0);
}

// K₀(x) for 0 < x <= 2; PyTorch combines it in double precision.
fn k0_by_series(x: f32) -> f32 {
    let series = k0_near(fused(x, x, -2.0));
    let logarithm = log_parts(0.5 * x);
    let first = i0_of(x);
    let product = exact_product(-logarithm.x, first);
    let low = sum_error(series, product.x) + (product.y - logarithm.y * first);
    return rounded(series + product.x) + rounded(low);
}

// K₁(x) for 0 < x <= 2
fn k1_by_series(x: f32) -> f32 {
    return fused(log_of(0.5 * x), modified_i1_of(x), k1_near(fused(x, x, -2.0)) / x);
}

// eˣ K₀(x)
fn k0e_of(x: f32) -> f32 {
    if !(x > 0.0 && has_angle(x)) {
        return second_kind_limit(x);
    }
    if x > 2.0 {
        return k0_far(8.0 / x - 2.0) / sqrt(x);
    }
    return fused(-log_of(0.5 * x), i0_of(x), k0_near(fused(x, x, -2.0))) * exp_of(x);
}

// eˣ K₁(x)
fn k1e_of(x: f32) -> f32 {
    if !(x > 0.0 && has_angle(x)) {
        return second_kind_limit(x);
    }
    if x > 2.0 {
        return k1_far(8.0 / x - 2.0) / sqrt(x);
    }
    return k1_by_series(x) * exp_of(x);
}

fn k0_of(x: f32) -> f32 {
    if !(x > 0.0 && has_angle(x)) {
        return second_kind_limit(x);
    }
    if x > 2.0 {
        return exp_of(-x) * k0_far(8.0 / x - 2.0) / sqrt(x);
    }
    return k0_by_series(x);
}

fn k1_of(x: f32) -> f32 {
    if !(x > 0.0 && has_angle(x)) {
        return second_kind_limit(x);
    }
    if x > 2.0 {
        return exp_of(-x) * k1_far(8.0 / x - 2.0) / sqrt(x);
    }
    return k1_by_series(x);
}
