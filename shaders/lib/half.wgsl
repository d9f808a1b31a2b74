// Numbers of 16 bits: rounding to them, and pairs of them in words.

// The nearest half precision number, ties to even.
fn round_f16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    var rounded = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) & 0xffffe000u;
    if magnitude < 0x38800000u {
        // Below 2⁻¹⁴ the steps are those of numbers near one half.
        rounded = bitcast<u32>((abs(x) + 0.5) - 0.5);
    }
    if magnitude >= 0x477ff000u {
        rounded = max(0x7f800000u, select(0u, magnitude, magnitude > 0x7f800000u));
    }
    return bitcast<f32>(rounded | (bits & 0x80000000u));
}

// The nearest half precision number, ties to even; the largest one for any finite number beyond it, since what is only
// stored in half precision must not become infinite.
fn half_of(x: f32) -> f32 {
    let is_finite = (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
    return round_f16(select(x, clamp(x, -65504.0, 65504.0), is_finite));
}

// The same of four, without branches, as they are stored in two words; and back. The bits are put together here: in vectors of
// 512 bits lavapipe (Mesa 22.3) takes pack2x16float apart into more than all of this.
fn pairs_of(x: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(x);
    let magnitude = bits & vec4(0x7fffffffu);
    let finite = select(magnitude, vec4(0x477fe000u), magnitude > vec4(0x477fe000u));
    let odd = (finite >> vec4(13u)) & vec4(1u);
    let normal = (finite - 0x37fff001u + odd) >> vec4(13u);
    // Below 2⁻¹⁴ the steps are those of numbers near one half.
    let small = bitcast<vec4<u32>>(abs(x) + 0.5) - 0x3f000000u;
    let rounded = select(normal, small, magnitude < vec4(0x38800000u));
    let other = select(vec4(0x7c00u), vec4(0x7e00u), magnitude > vec4(0x7f800000u));
    let half = select(rounded, other, magnitude >= vec4(0x7f800000u));
    let signed = half | ((bits >> vec4(16u)) & vec4(0x8000u));
    return signed.xz | (signed.yw << vec2(16u));
}

// By shifting: behind a vector's element by a number lavapipe (Mesa 22.3) makes branches, and then computes some of what
// follows wrongly.
fn one_of_pair(pair: u32, part: u32) -> f32 {
    return unpack2x16float(pair >> (part * 16u))[0];
}

fn four_of_pairs(x: vec2<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(x[0]), unpack2x16float(x[1]));
}

// The first ones of four pairs, and the second ones.
fn low_halves(pairs: vec4<u32>) -> vec4<f32> {
    let low = vec2(unpack2x16float(pairs[0])[0], unpack2x16float(pairs[1])[0]);
    return vec4(low, unpack2x16float(pairs[2])[0], unpack2x16float(pairs[3])[0]);
}

fn high_halves(pairs: vec4<u32>) -> vec4<f32> {
    let low = vec2(unpack2x16float(pairs[0])[1], unpack2x16float(pairs[1])[1]);
    return vec4(low, unpack2x16float(pairs[2])[1], unpack2x16float(pairs[3])[1]);
}

// The nearest bfloat16 number, ties to even.
fn round_bf16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
    return select(bitcast<f32>(rounded), x, is_nan(x));
}
