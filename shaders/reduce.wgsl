// Reduction: one invocation combines all elements of one result, or of some neighbouring results.

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
    // <index>
    let index = (workgroup.y * workgroups.x + workgroup.x) * 64u + local;
    // </index>
    // <body>
    if index >= arrayLength(&y) { return; }
    var sum = 0.0;
    for (var k = 0u; k < 16u; k++) {
        sum += x[index * 16u + k];
    }
    y[index] = sum;
    // </body>
}
