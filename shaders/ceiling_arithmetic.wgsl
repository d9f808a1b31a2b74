// Roofline: multiplies and adds in registers. A round has sixteen independent sums, eight times.

@group(0) @binding(0) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> sizes: array<vec4<u32>, 1>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // Values that a compiler cannot know.
    let factor = vec4<f32>(f32(sizes[0].y) * 0.25);
    let summand = vec4<f32>(f32(sizes[0].y));
    var a = vec4<f32>(f32(id.x));
    var b = a + 1.0;
    var c = a + 2.0;
    var d = a + 3.0;
    for (var round = 0u; round < sizes[0].x; round++) {
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
        a = a * factor + summand; b = b * factor + summand; c = c * factor + summand; d = d * factor + summand;
    }
    y[id.x] = (a + b) + (c + d);
}
