// Exponentials in single precision. Drivers may compute WGSL's built-in functions less accurately than PyTorch.

// e^x - 1 - x for |x| <= ln 2 / 2, by Taylor's series.
fn exp_tail(x: f32) -> f32 {
    var sum = 1.0 / 40320.0;
    sum = sum * x + 1.0 / 5040.0;
    sum = sum * x + 1.0 / 720.0;
    sum = sum * x + 1.0 / 120.0;
    sum = sum * x + 1.0 / 24.0;
    sum = sum * x + 1.0 / 6.0;
    sum = sum * x + 0.5;
    return sum * (x * x);
}

// 2^x for |x| <= 1/2, fitted for the least relative error.
fn exp2_near_zero(x: f32) -> f32 {
    var sum = 0.00015353362;
    sum = sum * x + 0.0013398875;
    sum = sum * x + 0.0096184369;
    sum = sum * x + 0.055503324;
    sum = sum * x + 0.24022648;
    sum = sum * x + 0.69314718;
    return sum * x + 1.0;
}

// p of e^x = 2ⁿ (1 + p + q), with few significant digits. The first part of ln 2 has few digits too, so that its product is
// exact.
fn exp_part(x: f32, n: f32) -> f32 {
    return upper_digits(x - n * 0.693359375);
}

// q of e^x = 2ⁿ (1 + p + q).
fn exp_rest(x: f32, n: f32) -> f32 {
    let high = x - n * 0.693359375;
    let low = n * 0.00021219444;
    return (high - exp_part(x, n)) + (low + exp_tail(high + low));
}

fn exp_of(x: f32) -> f32 {
    let limited = bounded(x, -104.0, 89.0);
    let n = round(limited * 1.442695);
    return scale_by_power((1.0 + exp_part(limited, n)) + exp_rest(limited, n), n);
}

fn exp2_of(x: f32) -> f32 {
    let limited = bounded(x, -151.0, 129.0);
    let n = round(limited);
    return scale_by_power(exp2_near_zero(limited - n), n);
}

// Has no branch: if several branches are inlined into one kernel with others, lavapipe (Mesa 22.3) computes one of them
// wrongly.
fn expm1_of(x: f32) -> f32 {
    let limited = bounded(x, -104.0, 89.0);
    let n = round(limited * 1.442695);
    let part = exp_part(limited, n);
    let rest = exp_rest(limited, n);
    let scale = scale_by_power(1.0, n);
    // Around 0 no digit is lost: nothing is added to the parts before 1 is subtracted.
    let sum = rounded((scale - 1.0) + scale * part) + scale * rest;
    return select(sum, scale_by_power((1.0 + part) + rest, n), n > 120.0);
}

fn sigmoid_of(x: f32) -> f32 {
    return 1.0 / (1.0 + exp_of(-x));
}
