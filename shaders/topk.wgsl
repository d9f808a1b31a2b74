// Top k elements of a row in sorting order: one invocation scans a row and keeps the first elements so far, in order, with
// their indices.

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
    var key0 = 0.0;
    for (var k = 0u; k < 16u; k++) {
        let key = x[index * 16u + k];
        key0 = select(key0, key, key > key0 || k <= 0u);
    }
    y[index] = key0;
    // </body>
}
