//! Cooperative matrices, which no adapter of the test machines supports: a test emulates them.

use onionskin::gpu::FeatureLevel;
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::plan::Kernel;

use crate::samples;
use crate::*;

/// No software rasteriser supports cooperative matrices. Functions emulate them here, so that the rest of the kernels runs.
/// The kernels translate to all languages except HLSL, which lacks cooperative matrices.
#[test]
fn cooperative_matrices_agree() {
    let device = samples::device(FeatureLevel::Full);
    let graphs = [products(), convolutions()].concat();
    for size in [8, 16] {
        let variant = KernelVariant::CooperativeMatrix { size };
        let mut admitted = 0;
        for (number, (name, graph)) in graphs.iter().enumerate() {
            let (plan, count) = forced(graph, &samples::with_matrices(), variant);
            let failures = samples::untranslatable(&plan);
            assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
            admitted += count;
            let Some(device) = &device else { continue };
            let is_run = size == 8 && number % 3 == 0;
            if !is_run || device.capabilities().subgroup_size != 8 {
                continue;
            }
            let capabilities = Capabilities {
                cooperative_matrices: samples::with_matrices().cooperative_matrices,
                ..as_gpu(device)
            };
            let (mut plan, _) = forced(graph, &capabilities, variant);
            for kernel in &mut plan.kernels {
                kernel.wgsl = emulated(&kernel.wgsl);
            }
            assert!(agrees(device, graph, plan), "{name} by {variant}");
        }
        assert!(admitted >= 25, "{variant} was admitted {admitted} times");
    }
}

/// Factors stored in half precision are multiplied in it; an input in single precision is not rounded for it.
#[test]
fn factors_stored_in_half_precision_are_multiplied_as_they_are() {
    let all = samples::with_matrices();
    let units = all.cooperative_matrices.iter().copied();
    let capabilities = Capabilities {
        cooperative_matrices: units.filter(|unit| unit.half).collect(),
        float16: true,
        ..all
    };
    let graph = samples::graph(&["f32[48, 64]"], |b, x| {
        let weight = |name| b.weight(name, "f32[64, 64]".parse().unwrap());
        let hidden = x[0].dot(weight("first")).relu();
        vec![hidden.dot(weight("second").permute([1, 0])).relu()]
    });
    let variant = KernelVariant::CooperativeMatrix { size: 16 };
    for (precision, expected) in [(Precision::Half, 1), (Precision::Single, 0)] {
        let (plan, count) = samples::forced_in(precision, &graph, &capabilities, variant);
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        let is_of_halves = |kernel: &&Kernel| kernel.wgsl.contains("coop_mat16x16<f16, A>");
        let of_halves = plan.kernels.iter().filter(is_of_halves).count();
        assert_eq!((count, of_halves), (expected, expected), "{precision:?}");
    }
}

/// Rewrites a kernel: each of the eight invocations of a subgroup holds a row of an 8×8 cooperative matrix.
fn emulated(wgsl: &str) -> String {
    let size = 8;
    if !wgsl.contains("coop_mat") {
        return wgsl.to_string();
    }
    let text = wgsl.replace("enable wgpu_cooperative_matrix;\n", "");
    let (head, main) = text.split_once("@compute").unwrap();
    let start = "    lane = local % 8u;\n    let index =";
    let mut main = format!("@compute{main}")
        .replace("    let index =", start)
        .replace("coopMultiplyAdd(", "multiply_add(")
        .replace("coopStoreT(", "store_tile(")
        .replace(&format!("coop_mat{size}x{size}<f32, C>"), "Whole")
        .replace("&tile[", "(");
    for scalar in ["f16", "f32"] {
        for (role, array) in [("A", "left"), ("B", "right")] {
            let load = format!("coopLoadT<coop_mat{size}x{size}<{scalar}, {role}>>(&{array}[");
            main = main.replace(&load, &format!("load_{array}(("));
        }
    }
    let is_access = |line: &str| line.contains("load_") || line.contains("store_tile");
    let lines = main.lines().map(|line| match is_access(line) {
        true => line.replace("],", "),"),
        false => line.to_string(),
    });
    let main = lines.collect::<Vec<_>>().join("\n");
    let functions = "\
struct Whole { low: vec4<f32>, high: vec4<f32> }
var<private> lane: u32;

fn load_left(start: u32, stride: u32) -> Whole {
    let at = start + lane * stride;
    let low = vec4(f32(left[at]), f32(left[at + 1u]), f32(left[at + 2u]), f32(left[at + 3u]));
    let high = vec4(f32(left[at + 4u]), f32(left[at + 5u]), f32(left[at + 6u]), f32(left[at + 7u]));
    return Whole(low, high);
}

fn load_right(start: u32, stride: u32) -> Whole {
    let at = start + lane * stride;
    let low = vec4(f32(right[at]), f32(right[at + 1u]), f32(right[at + 2u]), f32(right[at + 3u]));
    let high = vec4(f32(right[at + 4u]), f32(right[at + 5u]), f32(right[at + 6u]), f32(right[at + 7u]));
    return Whole(low, high);
}

fn add_row(c: Whole, number: f32, b: Whole, row: u32) -> Whole {
    let low = c.low + number * subgroupShuffle(b.low, row);
    return Whole(low, c.high + number * subgroupShuffle(b.high, row));
}

fn multiply_add(a: Whole, b: Whole, c: Whole) -> Whole {
    var sum = c;
    sum = add_row(sum, a.low[0], b, 0u);
    sum = add_row(sum, a.low[1], b, 1u);
    sum = add_row(sum, a.low[2], b, 2u);
    sum = add_row(sum, a.low[3], b, 3u);
    sum = add_row(sum, a.high[0], b, 4u);
    sum = add_row(sum, a.high[1], b, 5u);
    sum = add_row(sum, a.high[2], b, 6u);
    sum = add_row(sum, a.high[3], b, 7u);
    return sum;
}

fn store_tile(whole: Whole, start: u32, stride: u32) {
    let at = start + lane * stride;
    tile[at] = whole.low[0];
    tile[at + 1u] = whole.low[1];
    tile[at + 2u] = whole.low[2];
    tile[at + 3u] = whole.low[3];
    tile[at + 4u] = whole.high[0];
    tile[at + 5u] = whole.high[1];
    tile[at + 6u] = whole.high[2];
    tile[at + 7u] = whole.high[3];
}

";
    [head, functions, &main].concat()
}
