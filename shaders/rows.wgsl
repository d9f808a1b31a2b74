// Rows on a device whose subgroups are the lanes of a SIMD vector: a subgroup shares a row, reads it as often as needed, and
// combines partial results with subgroup operations. A workgroup has one row for each of its subgroups.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
// </bindings>

// <size>
@compute @workgroup_size(64)
// </size>
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    // <place>
    let index = (workgroup.y * workgroups.x + workgroup.x) * 8u + local / 8u;
    let lane = local % 8u;
    // </place>
    // <body>
    if index >= arrayLength(&y) { return; }
    var sum = 0.0;
    for (var round = 0u; round < 16u; round++) {
        sum += x[index * 128u + round * 8u + lane];
    }
    sum += subgroupShuffleXor(sum, 4u);
    sum += subgroupShuffleXor(sum, 2u);
    sum += subgroupShuffleXor(sum, 1u);
    if lane == 0u {
        y[index] = sum;
    }
    // </body>
}
