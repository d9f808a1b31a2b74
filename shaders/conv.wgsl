// Convolution: one invocation computes some output channels at some neighbouring positions in registers. Taps outside of
// the input read zero; channels and positions beyond the edge repeat the last ones and are not written.

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
    var sum00 = 0.0;
    for (var tap = 0u; tap < 3u; tap++) {
        let inside = index + tap - 1u < arrayLength(&x);
        sum00 += select(0.0, x[select(0u, index + tap - 1u, inside)], inside);
    }
    y[index] = sum00;
    // </body>
}
