// Bessel functions in single precision with the series of Moshier's Cephes library (`kernel::series::bessel`), combined as
// in PyTorch (`aten/src/ATen/native/Math.h`).

// The even and the odd part of the amplitude of order 0 for x > 5, then cosine and sine of the phase.
fn bessel_wave_0(x: f32) -> vec4<f32> {
    let z = 25.0 / (x * x);
    let even = bessel_even_0(z) / bessel_even_divisor_0(z);
    let odd = 5.0 / x * (bessel_odd_0(z) / bessel_odd_divisor_0(z));
    let angle = x - 0.7853982;
    return vec4<f32>(even, odd, cos_of(angle), sin_of(angle));
}

// The even and the odd part of the amplitude of order 1 for x > 5, then cosine and sine of the phase.
fn bessel_wave_1(x: f32) -> vec4<f32> {
    let ratio = 5.0 / x;
    let z = ratio * ratio;
    let even = bessel_even_1(z) / bessel_even_divisor_1(z);
    let odd = ratio * (bessel_odd_1(z) / bessel_odd_divisor_1(z));
    let angle = x - 2.3561945;
    return vec4<f32>(even, odd, cos_of(angle), sin_of(angle));
}

fn bessel_first_kind(x: f32, wave: vec4<f32>) -> f32 {
    return fused(wave.x, wave.z, -(wave.y * wave.w)) * 0.7978846 / sqrt(x);
}

fn bessel_second_kind(x: f32, wave: vec4<f32>) -> f32 {
    return fused(wave.x, wave.w, wave.y * wave.z) * 0.7978846 / sqrt(x);
}

fn bessel_j0_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let magnitude = abs(x);
    let z = x * x;
    if magnitude < 0.00001 {
        return 1.0;
    }
    if magnitude <= 5.0 {
        return (z - 5.783186) * (z - 30.471262) * j0_near(z) / j0_near_divisor(z);
    }
    return bessel_first_kind(magnitude, bessel_wave_0(magnitude));
}

fn bessel_j1_of(x: f32) -> f32 {
    if !has_angle(x) {
        return not_a_number();
    }
    let magnitude = abs(x);
    let z = x * x;
    if magnitude <= 5.0 {
        let ratio = j1_near(z) / j1_near_divisor(z) * x;
        return ratio * (z - 14.681971) * (z - 49.218456);
    }
    return select(1.0, -1.0, x < 0.0) * bessel_first_kind(magnitude, bessel_wave_1(magnitude));
}

fn bessel_y0_of(x: f32) -> f32 {
    if !has_angle(x) || x < 0.0 {
        return not_a_number();
    }
    if x == 0.0 {
        return -infinity();
    }
    if x <= 5.0 {
        let z = x * x;
        return fused(0.63661975 * log_of(x), bessel_j0_of(x), y0_near(z) / y0_near_divisor(z));
    }
    return bessel_second_kind(x, bessel_wave_0(x));
}

fn bessel_y1_of(x: f32) -> f32 {
    if !has_angle(x) || x < 0.0 {
        return not_a_number();
    }
    // The reciprocal overflows. Some devices round this bound and such values to zero.
    if x <= 2.938736e-39 {
        return -infinity();
    }
    if x <= 5.0 {
        let z = x * x;
        let singular = fused(bessel_j1_of(x), log_of(x), -(1.0 / x));
        return fused(x, y1_near(z) / y1_near_divisor(z), 0.63661975 * singular);
    }
    return bessel_second_kind(x, bessel_wave_1(x));
}
