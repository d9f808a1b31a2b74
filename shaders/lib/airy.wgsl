// The Airy function in single precision. DLMF is the NIST Digital Library of Mathematical Functions.

// Ai and its slope at whole numbers from -8 to 1.
fn airy_at_whole(whole: i32) -> vec2<f32> {
    switch whole {
        case -8: { return vec2<f32>(-0.05270505, 0.93556094); }
        case -7: { return vec2<f32>(0.18428084, -0.77100817); }
        case -6: { return vec2<f32>(-0.32914517, 0.34593549); }
        case -5: { return vec2<f32>(0.35076101, 0.32719282); }
        case -4: { return vec2<f32>(-0.07026553, -0.79062858); }
        case -3: { return vec2<f32>(-0.37881429, 0.31458377); }
        case -2: { return vec2<f32>(0.22740743, 0.61825902); }
        case -1: { return vec2<f32>(0.53556088, -0.010160567); }
        case 0: { return vec2<f32>(0.35502805, -0.25881940); }
        default: { return vec2<f32>(0.135292416, -0.159147441); }
    }
}

// Ai for x between -8.5 and 1.5: Taylor's series around the nearest whole number, by y'' = x y.
fn airy_by_taylor(x: f32) -> f32 {
    let whole = round(x);
    let h = x - whole;
    let start = airy_at_whole(i32(whole));
    var before = 0.0;
    var here = start.x;
    var after = start.y;
    var power = h;
    var sum = start.x + start.y * h;
    for (var k = 0.0; k < 16.0; k = k + 1.0) {
        let next = (whole * here + before) / ((k + 1.0) * (k + 2.0));
        power = power * h;
        sum = sum + next * power;
        before = here;
        here = after;
        after = next;
    }
    return sum;
}

// Ai for x < -8, DLMF 9.7.9. The angle is ζ - π/4; ζ is a product of which no digit may be lost.
fn airy_by_phase(x: f32) -> f32 {
    let z = -x;
    let root = sqrt(z);
    let root_rest = (z - root * root) / (2.0 * root);
    let product = exact_product(root, z);
    let zeta = product.x * 0.6666667;
    let third = exact_product(product.x, 0.6666667);
    let low = third.y - product.x * 1.9868216e-8 + 0.6666667 * (product.y + root_rest * z);
    let r = 1.0 / zeta;
    let first = 0.06944445 * r;
    let second = 0.03713349 * r * r;
    let even = 1.0 - second;
    let odd = first - 0.037993059 * r * r * r;
    let sine = sin_of(zeta) + low * cos_of(zeta);
    let cosine = cos_of(zeta) - low * sin_of(zeta);
    return ((cosine + sine) * even + (sine - cosine) * odd) * 0.39894228 / sqrt(root);
}

// Not-a-number at infinity, as PyTorch has it.
fn airy_ai_of(x: f32) -> f32 {
    if is_nan(x) || abs(x) == infinity() {
        return not_a_number();
    }
    if x < -8.0 {
        return airy_by_phase(x);
    }
    if x < 1.5 {
        return airy_by_taylor(x);
    }
    // DLMF 9.6.2
    let zeta = 0.6666667 * x * sqrt(x);
    return sqrt(x / 3.0) * 0.31830987 * scaled_k(0.33333334, zeta) * exp_of(-zeta);
}
