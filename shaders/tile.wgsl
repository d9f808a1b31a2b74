// Matrix products on a device whose subgroups are the lanes of a SIMD vector: a subgroup computes a tile of the result in
// registers. Its invocations form bands, each with its own rows. An invocation loads four K indices of a row of its band, one
// K index of four rows if these are neighbours in memory, or four K indices of every row if there are few rows; and four
// neighbouring columns for one of four K indices. Rows are then broadcast within a band, and columns to all bands. Rows and
// columns beyond the edge repeat the last ones and are not written.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
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
    if index >= arrayLength(&y) { return; }
    var sum0_0 = vec4<f32>();
    for (var step = 0u; step < 16u; step++) {
        let a = x[step * 8u + local];
        sum0_0 += subgroupShuffle(a, 0u) * vec4<f32>(x[step]);
    }
    y[index] = sum0_0[0];
    // </body>
}
