// The Airy function in single precision with the series of Moshier's Cephes library (`kernel::series::airy`), combined as in
// PyTorch (`aten/src/ATen/native/Math.h`).

// Ai for x < -2.09
fn airy_by_phase(x: f32) -> f32 {
    let root = sqrt(-x);
    let zeta = -2.0 * x * root / 3.0;
    let z = 1.0 / zeta;
    let square = z * z;
    let even = square * airy_even(square) / airy_even_divisor(square) + 1.0;
    let odd = z * airy_odd(square) / airy_odd_divisor(square);
    let angle = zeta + 0.7853982;
    return 0.5641896 / sqrt(root) * fused(sin_of(angle), even, -(cos_of(angle) * odd));
}

// Ai for x >= 2.09
fn airy_by_decay(x: f32) -> f32 {
    let root = sqrt(x);
    let zeta = 2.0 * x * root / 3.0;
    let z = 1.0 / zeta;
    return 0.5641896 * (airy_decay(z) / airy_decay_divisor(z)) / (2.0 * sqrt(root) * exp_of(zeta));
}

// Ai around 0, DLMF 9.4.1, until a term is below the precision.
fn airy_by_powers(x: f32) -> f32 {
    let cube = x * x * x;
    var even = 1.0;
    var odd = x;
    var even_term = 1.0;
    var odd_term = x;
    var part = 1.0;
    for (var k = 1.0; part > 1.1920929e-7; k = k + 3.0) {
        even_term = even_term * cube / (k + 1.0) / (k + 2.0);
        odd_term = odd_term * cube / (k + 2.0) / (k + 3.0);
        even = even + even_term;
        odd = odd + odd_term;
        part = abs(even_term / even);
    }
    return fused(0.35502806, even, -(0.25881940 * odd));
}

// Not-a-number at infinity.
fn airy_ai_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    if x > 103.892 {
        return 0.0;
    }
    if x < -2.09 {
        return airy_by_phase(x);
    }
    if x >= 2.09 {
        return airy_by_decay(x);
    }
    return airy_by_powers(x);
}
