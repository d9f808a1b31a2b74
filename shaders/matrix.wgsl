// Matrix product with cooperative matrices: a workgroup of four subgroups computes a tile of the result, each subgroup a
// quarter. The factors are read block by block into workgroup memory. At the end the tile is stored there too, and written
// with the epilogue applied to each element. Elements beyond an edge are not written.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
// </bindings>

// <memory>
var<workgroup> left: array<f32, 1024>;
var<workgroup> right: array<f32, 1024>;
var<workgroup> tile: array<f32, 4096>;

@compute @workgroup_size(128)
// </memory>
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) { return; }
    left[local] = x[local];
    right[local] = x[local + 128u];
    workgroupBarrier();
    tile[subgroup * 32u + local % 32u] = left[local] * right[local];
    workgroupBarrier();
    y[index * 128u + local] = tile[local];
    // </body>
}
