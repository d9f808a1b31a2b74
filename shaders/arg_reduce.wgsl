// Index of the best element along an axis: one invocation reads all elements of one result.

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
    var best = x[index * 16u];
    var best_index = 0u;
    for (var k = 0u; k < 16u; k++) {
        if x[index * 16u + k] > best {
            best = x[index * 16u + k];
            best_index = k;
        }
    }
    y[index] = f32(best_index);
    // </body>
}
