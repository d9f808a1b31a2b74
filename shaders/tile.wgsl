// Products of matrices on a device whose subgroups are the lanes of a vector: a subgroup computes a tile of the result in
// registers. For the left factor an invocation is a row, or four steps of every row where rows are few; for the right one it
// is four neighbouring columns. Each number of the left factor is handed to all invocations in turn. Rows and columns beyond
// the edge repeat the last ones and are not written.

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
    @builtin(local_invocation_index) local: u32,
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
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
