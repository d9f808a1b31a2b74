// Functions of double precision numbers. WGSL's own functions exist for single precision only on most drivers.

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
