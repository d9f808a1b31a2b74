// Pairs of single precision numbers in 64-bit words: the first of a pair in the low half.
//
// A word is assembled with a shift that Mesa's rasteriser does not know: kernels have one layer of workgroups, so that it is
// always 32 bits. The rasteriser stores a vector lane by lane, and takes each number that it needs out of a vector in
// memory. With a constant shift LLVM would assemble each word after that, out of twice as many numbers.

fn low_numbers(words: vec4<u64>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(words));
}

fn high_numbers(words: vec4<u64>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(words >> vec4<u32>(32u)));
}

fn words_of(low: vec4<f32>, high: vec4<f32>, workgroups: vec3<u32>) -> vec4<u64> {
    let bits = vec4(workgroups.z * 32u);
    return vec4<u64>(bitcast<vec4<u32>>(low)) | (vec4<u64>(bitcast<vec4<u32>>(high)) << bits);
}

fn four_of(words: vec2<u64>) -> vec4<f32> {
    let low = bitcast<vec2<f32>>(vec2<u32>(words));
    let high = bitcast<vec2<f32>>(vec2<u32>(words >> vec2<u32>(32u)));
    return vec4(low.x, high.x, low.y, high.y);
}

fn words_of_four(numbers: vec4<f32>, workgroups: vec3<u32>) -> vec2<u64> {
    let halves = bitcast<vec4<u32>>(numbers);
    let bits = vec2(workgroups.z * 32u);
    return vec2<u64>(halves.xz) | (vec2<u64>(halves.yw) << bits);
}
