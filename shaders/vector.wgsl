// Product of a few rows with a matrix: a workgroup computes neighbouring columns. Its invocations split K, four indices at a
// time, and then add up their partial sums.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
// </bindings>

// <memory>
var<workgroup> shares: array<vec4<f32>, 64>;
// </memory>

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    // <subgroups>
    // </subgroups>
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) { return; }
    shares[local] = x[index * 64u + local];
    workgroupBarrier();
    for (var width = 32u; width >= 1u; width /= 2u) {
        if local < width {
            shares[local] += shares[local + width];
        }
        workgroupBarrier();
    }
    if local < 1u {
        y[index] = shares[local];
    }
    // </body>
}
