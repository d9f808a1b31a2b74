// Stable sort along an axis: one invocation counts the elements of its row that come before its own.

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
    var rank = 0u;
    for (var k = 0u; k < arrayLength(&y); k++) {
        rank += u32(x[k] < x[index] || (x[k] == x[index] && k < index));
    }
    y[rank] = x[index];
    // </body>
}
