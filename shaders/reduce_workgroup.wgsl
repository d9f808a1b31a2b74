// Rows and reductions: the invocations of one workgroup share a row and combine their partial results in workgroup memory.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
// </bindings>

// <memory>
var<workgroup> shares: array<f32, 64>;
// </memory>

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) { return; }
    var sum = 0.0;
    for (var round = 0u; round < 16u; round++) {
        sum += x[(index * 16u + round) * 64u + local];
    }
    shares[local] = sum;
    workgroupBarrier();
    for (var width = 32u; width > 0u; width /= 2u) {
        if local < width {
            shares[local] += shares[local + width];
        }
        workgroupBarrier();
    }
    if local == 0u {
        y[index] = shares[0];
    }
    // </body>
}
