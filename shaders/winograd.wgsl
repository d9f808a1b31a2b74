// Convolutions of 3x3 taps by tiles on a device whose subgroups are the lanes of a vector. A subgroup, which is a workgroup,
// makes the numbers of what its tiles see, multiplies them by panels of filters, matrix by matrix, and makes positions of the
// sums, with what is computed of these. A vector is four channels of a tile.

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
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) / 8u { return; }
    seen[index * 8u + local] = vec4<f32>();
    subgroupBarrier();
    y[index * 8u + local] = seen[index * 8u + (local + 1u) % 8u];
    // </body>
}
