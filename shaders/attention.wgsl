// Attention on a device whose subgroups are the lanes of a SIMD vector. An invocation has some queries, and keeps their
// state in registers: the largest score so far, the sum of exponentials relative to it, and the weighted sum of values
// (online softmax). A subgroup reads keys and values in blocks: each invocation loads a part of a block and broadcasts it to
// the others in turn. If a block has a larger score, the sums so far are rescaled.

// <bindings>
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
// </bindings>

// <size>
@compute @workgroup_size(8)
// </size>
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = workgroup.y * workgroups.x + workgroup.x;
    // <body>
    if index >= arrayLength(&y) { return; }
    var largest = -3.4e38;
    var total = 0.0;
    var output = 0.0;
    for (var block = 0u; block < 16u; block++) {
        let part = x[block * 8u + local];
        for (var key = 0u; key < 8u; key++) {
            let score = subgroupShuffle(part, key);
            let next = max(largest, score);
            let kept = exp(largest - next);
            let weight = exp(score - next);
            largest = next;
            total = total * kept + weight;
            output = output * kept + weight * score;
        }
    }
    y[index] = output / total;
    // </body>
}
