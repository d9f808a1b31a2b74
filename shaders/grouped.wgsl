// Grouped convolution with few channels per group: one invocation computes four channels of a block of positions, whose
// windows overlap. A vector is four channels; if a group has several channels, there is one vector of weights for each input
// channel of the group.

// <bindings>
@group(0) @binding(0) var weight: texture_storage_2d_array<rgba32float, read>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
// </bindings>

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = (workgroup.y * workgroups.x + workgroup.x) * 64u + local;
    // <body>
    if index >= arrayLength(&y) { return; }
    var sum = vec4<f32>();
    for (var tap = 0u; tap < 3u; tap++) {
        sum += textureLoad(weight, vec2(0u, tap), 0u) * x[index + tap];
    }
    y[index] = sum;
    // </body>
}
