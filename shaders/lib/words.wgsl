// Pairs of single precision numbers in 64-bit words: the first of a pair in the low half.

fn low_numbers(words: vec4<u64>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(words));
}

fn high_numbers(words: vec4<u64>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(words >> vec4<u32>(32u)));
}

fn words_of(low: vec4<f32>, high: vec4<f32>) -> vec4<u64> {
    return vec4<u64>(bitcast<vec4<u32>>(low)) | (vec4<u64>(bitcast<vec4<u32>>(high)) << vec4<u32>(32u));
}

fn four_of(words: vec2<u64>) -> vec4<f32> {
    let low = bitcast<vec2<f32>>(vec2<u32>(words));
    let high = bitcast<vec2<f32>>(vec2<u32>(words >> vec2<u32>(32u)));
    return vec4(low.x, high.x, low.y, high.y);
}

fn words_of_four(numbers: vec4<f32>) -> vec2<u64> {
    let halves = bitcast<vec4<u32>>(numbers);
    return vec2<u64>(halves.xz) | (vec2<u64>(halves.yw) << vec2<u32>(32u));
}
