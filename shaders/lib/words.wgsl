// Single precision numbers two by two in words of 64 bits: the first of a pair in the low half.

fn low_numbers(words: vec4<u64>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(words));
}

fn high_numbers(words: vec4<u64>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(words >> vec4<u32>(32u)));
}

fn words_of(low: vec4<f32>, high: vec4<f32>) -> vec4<u64> {
    return vec4<u64>(bitcast<vec4<u32>>(low)) | (vec4<u64>(bitcast<vec4<u32>>(high)) << vec4<u32>(32u));
}
