// Scatter: one invocation copies one row along the axis and then combines values into it, in the order of the indices.

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
    if index >= arrayLength(&y) / 16u { return; }
    for (var i = 0u; i < 16u; i++) {
        y[index * 16u + i] = 0.0;
    }
    for (var k = 0u; k < 16u; k++) {
        let at = index * 16u + min(u32(x[k]), 15u);
        y[at] = y[at] + 1.0;
    }
    // </body>
}
