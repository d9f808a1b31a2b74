// Tiles of a convolution of 3x3 taps: one invocation makes the numbers of what a tile sees, or of as many sums its positions
// with what is computed of them. A vector is four channels.

// <bindings>
@group(0) @binding(0) var<storage, read_write> summed: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
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
    let m00 = summed[index];
    let m01 = summed[arrayLength(&y) + index];
    y[index] = m00 + m01;
    // </body>
}
