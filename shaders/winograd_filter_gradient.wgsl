// Gradient of a filter with 3x3 taps on a device whose subgroups are the lanes of a SIMD vector. A workgroup is one subgroup.
// It transforms chunks of tiles of the convolution's input and of the gradient of its output, and multiplies them matrix by
// matrix. It adds these products up, and transforms the sums to taps. A vector is four channels of a tile.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> seen: array<vec4<f32>>;
// </bindings>

// <size>
@compute @workgroup_size(8)
// </size>
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    // <lane>
    @builtin(subgroup_invocation_id) local: u32,
    // </lane>
) {
    // <index>
    let index = workgroup.y * workgroups.x + workgroup.x;
    // </index>
    // <body>
    if index >= arrayLength(&y) / 8u { return; }
    seen[index * 8u + local] = vec4<f32>();
    subgroupBarrier();
    y[index * 8u + local] = seen[index * 8u + (local + 1u) % 8u];
    // </body>
}
