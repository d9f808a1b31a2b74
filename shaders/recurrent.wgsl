// Recurrent layer: a workgroup computes all steps of some rows of the batch, in one direction. An invocation computes four
// neighbouring units of each row at a time. The hidden state is double-buffered in workgroup memory: one half has the units
// of the previous step, the other those of the current step.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
// </bindings>

// <memory>
var<workgroup> hidden: array<vec4<f32>, 32>;
// </memory>

// <size>
@compute @workgroup_size(16)
// </size>
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) / 16u { return; }
    hidden[local] = vec4<f32>();
    workgroupBarrier();
    for (var step = 0u; step < 16u; step++) {
        var sum = x[step * 16u + local];
        for (var k = 0u; k < 16u; k++) {
            sum += hidden[step % 2u * 16u + k];
        }
        hidden[(step + 1u) % 2u * 16u + local] = sum;
        y[step * 16u + local] = sum;
        workgroupBarrier();
    }
    // </body>
}
