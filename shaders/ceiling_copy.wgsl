// Roofline: copies vectors; neighbouring invocations copy neighbouring vectors.

@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> sizes: array<vec4<u32>, 1>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = (workgroup.y * workgroups.x + workgroup.x) * 64u + local;
    if index < sizes[0].x {
        y[index] = x[index];
    }
}
