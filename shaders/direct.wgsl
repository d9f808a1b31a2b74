// Depthwise convolution: an invocation computes four neighbouring positions, whose windows overlap. Taps outside of the
// input read zero; positions beyond the edge repeat the last one and are not written.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
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
        sum += x[tap] * vec4(x[index * 4u], x[index * 4u + 1u], x[index * 4u + 2u], x[index * 4u + 3u]);
    }
    y[index] = sum[0];
    // </body>
}
