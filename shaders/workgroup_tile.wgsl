// Matrix product: a workgroup computes a tile of the result. It reads both factors in blocks along K: all invocations load
// the next block into workgroup memory while they compute with the current one. There the left factor is stored by K and
// four rows, the right one by K and four columns, so that each invocation loads its rows and columns as vectors. Rows and
// columns beyond the edge repeat the last ones and are not written; K indices beyond the end are zero.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
// </bindings>

// <memory>
var<workgroup> left: array<vec4<f32>, 128>;
var<workgroup> right: array<vec4<f32>, 128>;

@compute @workgroup_size(64)
// </memory>
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) { return; }
    left[local] = x[local];
    right[local] = x[local + 64u];
    workgroupBarrier();
    var sum = vec4<f32>();
    for (var k = 0u; k < 16u; k++) {
        sum += left[k * 4u][0] * right[k * 4u];
    }
    y[index] = sum[0];
    // </body>
}
