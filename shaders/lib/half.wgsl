// 16-bit floats: rounding to them, and pairs of them in words.

// The nearest half precision number, ties to even.
fn round_f16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    var rounded = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) & 0xffffe000u;
    if magnitude < 0x38800000u {
        // Below 2⁻¹⁴ the spacing is constant, as for numbers near one half.
        rounded = bitcast<u32>((abs(x) + 0.5) - 0.5);
    }
    if magnitude >= 0x477ff000u {
        rounded = max(0x7f800000u, select(0u, magnitude, magnitude > 0x7f800000u));
    }
    return bitcast<f32>(rounded | (bits & 0x80000000u));
}

// The nearest half precision number, ties to even. Finite numbers beyond the largest one become the largest one, because
// storing a number in half precision must not make it infinite.
fn half_of(x: f32) -> f32 {
    let is_finite = (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
    return round_f16(select(x, clamp(x, -65504.0, 65504.0), is_finite));
}

// Packs four numbers, rounded as above, in two words, without branches; the next function unpacks them. The bits are
// assembled here, because for 512-bit vectors lavapipe (Mesa 22.3) expands pack2x16float to more instructions than this.
fn pairs_of(x: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(x);
    let magnitude = bits & vec4(0x7fffffffu);
    let finite = select(magnitude, vec4(0x477fe000u), magnitude > vec4(0x477fe000u));
    // Adding 2¹³ times the number's own power of two rounds the number to the digits of a half; they are the last digits of
    // the sum. Below 2⁻¹⁴ that power is used instead. The exponent of the half goes above them.
    let power = select(finite, vec4(0x38800000u), finite < vec4(0x38800000u)) & vec4(0x7f800000u);
    let sum = bitcast<vec4<u32>>(bitcast<vec4<f32>>(finite) + bitcast<vec4<f32>>(power + vec4(0x06800000u)));
    let rounded = sum - power + (power >> vec4(13u)) - vec4(0x0681c400u);
    // The upper bits of an infinity are 0x380 more than in half precision; not-a-number keeps a payload.
    let beyond = magnitude - vec4(0x7f800000u);
    let payload = select(beyond, vec4(0x200u), beyond > vec4(0x200u));
    let is_finite = magnitude < vec4(0x7f800000u);
    // The last choice is neither between constants nor computed from a constant: otherwise LLVM 15 repeats the last steps
    // for each lane that writes a buffer. Parts are added, because from masks and choices LLVM makes one AVX-512 instruction
    // (vpternlogd), and sometimes the wrong one.
    let low = bits.xz >> vec2(16u);
    let low_half = rounded.xz + (low & vec2(0x8000u));
    let low_other = low - vec2(0x380u) + payload.xz;
    let high = bits.yw & vec2(0xffff0000u);
    let high_half = (rounded.yw << vec2(16u)) + (bits.yw & vec2(0x80000000u));
    let high_other = high - vec2(0x3800000u) + (payload.yw << vec2(16u));
    return select(low_other, low_half, is_finite.xz) | select(high_other, high_half, is_finite.yw);
}

// Selects by shifting: after a vector element with a variable index, lavapipe (Mesa 22.3) emits branches and then computes
// some of the following code wrongly.
fn one_of_pair(pair: u32, part: u32) -> f32 {
    return unpack2x16float(pair >> (part * 16u))[0];
}

fn four_of_pairs(x: vec2<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(x[0]), unpack2x16float(x[1]));
}

// The first elements of four pairs, and the second ones.
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
