//! The variants of contractions and convolutions: each, forced upon graphs of many shapes, agrees with the host oracle, fits
//! WebGPU's default limits and translates to SPIR-V, MSL and HLSL. What is for GPUs runs on whatever adapter there is.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::gpu::{Device, Program, ProgramOptions, Reach};
use onionskin::interp;
use onionskin::ir::{Definition, Graph, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::choice::Variant;
use onionskin::kernel::plan::Plan;
use onionskin::op::*;
use onionskin::pass;
use onionskin::tensor::Tensor;

mod samples;

use samples::forced;

/// A device as a GPU would be that has what this one has.
fn as_gpu(device: &Device) -> Capabilities {
    Capabilities {
        software: false,
        ..device.capabilities().clone()
    }
}

/// A product of matrices with an epilogue, by the types of its operands; each may be read by the other axis.
fn product(left: &str, right: &str, turned: [bool; 2]) -> Graph {
    samples::graph(&[left, right], |_, x| {
        let (a, b) = (turn(x[0], turned[0]), turn(x[1], turned[1]));
        vec![(a.dot(b) * 0.5).relu()]
    })
}

/// A matrix, or the one of which it is the transpose.
fn turn<'g>(value: Value<'g>, turned: bool) -> Value<'g> {
    let rank = value.ty().rank();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(rank - 2, rank - 1);
    if turned { value.permute(axes) } else { value }
}

/// A convolution with an epilogue.
fn convolution(x: &str, filter: &str, axes: &[ConvAxis], groups: i64) -> Graph {
    samples::graph(&[x, filter], |_, x| {
        vec![x[0].conv(x[1], axes.to_vec(), groups).relu()]
    })
}

fn axis(stride: i64, pad: i64, dilation: i64, base_dilation: i64) -> ConvAxis {
    ConvAxis {
        dilation,
        base_dilation,
        ..ConvAxis::padded(stride, pad)
    }
}

fn products() -> Vec<(&'static str, Graph)> {
    let plain = [false, false];
    vec![
        ("whole", product("f32[64, 64]", "f32[64, 64]", plain)),
        (
            "linear",
            product("f32[96, 48]", "f32[72, 48]", [false, true]),
        ),
        (
            "turned left",
            product("f32[48, 96]", "f32[48, 72]", [true, false]),
        ),
        (
            "both turned",
            product("f32[36, 70]", "f32[133, 36]", [true, true]),
        ),
        ("ragged", product("f32[37, 29]", "f32[29, 43]", plain)),
        (
            "quads, no tiles",
            product("f32[140, 20]", "f32[20, 132]", plain),
        ),
        (
            "batched",
            product("f32[3, 2, 33, 18]", "f32[3, 2, 18, 50]", plain),
        ),
        ("symbolic", product("f32[B, S, H]", "f32[B, H, 24]", plain)),
        ("half", product("f16[40, 32]", "f16[32, 36]", plain)),
        ("half, ragged", product("f16[11, 21]", "f16[21, 9]", plain)),
        ("bfloat", product("bf16[20, 40]", "bf16[40, 12]", plain)),
        ("a row", product("f32[1, 300]", "f32[300, 260]", plain)),
        (
            "a row by columns",
            product("f32[1, 256]", "f32[300, 256]", [false, true]),
        ),
        (
            "four rows",
            product("f32[2, 4, 68]", "f32[2, 68, 21]", plain),
        ),
        (
            "three rows by columns",
            product("f32[3, 130]", "f32[70, 130]", [false, true]),
        ),
        ("long", product("f32[20, 2048]", "f32[2048, 24]", plain)),
    ]
}

/// A linear layer, whose weight a device may lay out as it likes.
fn linear(x: &str, weight: &str) -> Graph {
    samples::graph(&[x], |builder, x| {
        let weight = builder.weight("weight", weight.parse().unwrap());
        vec![(x[0].dot(turn(weight, true)) * 0.5).relu()]
    })
}

/// A convolution between others, so that images need not lie as inputs and outputs do.
fn convolution_by_weights(x: &str, filter: &str, axes: &[ConvAxis], groups: i64) -> Graph {
    samples::graph(&[x], |builder, x| {
        let weight = builder.weight("weight", filter.parse().unwrap());
        let y = x[0].exp().conv(weight, axes.to_vec(), groups).relu();
        vec![y, y.sum(&[2], true)]
    })
}

/// Products of every number of rows that shares invocations in another way, with whole and ragged sums and columns.
fn with_weights() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for rows in ["1", "2", "3", "5", "7", "8", "9", "B"] {
        for (depth, columns) in [(64, 64), (32, 21), (132, 40), (130, 33), (35, 70), (29, 36)] {
            let (x, weight) = (
                format!("f32[{rows}, {depth}]"),
                format!("f32[{columns}, {depth}]"),
            );
            graphs.push((format!("{x} by {weight}"), linear(&x, &weight)));
        }
    }
    let plain = |pad| axis(1, pad, 1, 1);
    for (x, filter, groups, axes) in [
        // Few positions.
        ("f32[1, 64, 1, 1]", "f32[24, 64, 1, 1]", 1, plain(0)),
        ("f32[2, 130, 1, 2]", "f32[12, 130, 1, 1]", 1, plain(0)),
        ("f32[1, 132, 2, 2]", "f32[33, 132, 3, 3]", 1, plain(1)),
        // Fewer steps than a round has.
        ("f32[1, 1, 9, 9]", "f32[20, 1, 3, 3]", 1, plain(1)),
        ("f32[2, 2, 5, 9]", "f32[20, 2, 3, 3]", 1, plain(1)),
        ("f32[1, 3, 9, 9]", "f32[40, 3, 7, 7]", 1, axis(2, 3, 1, 1)),
        // Each channel by itself: strips of positions, whole and ragged.
        ("f32[2, 8, 7, 12]", "f32[8, 1, 3, 3]", 8, plain(1)),
        ("f32[2, 8, 9, 5]", "f32[8, 1, 3, 3]", 8, plain(1)),
        ("f32[1, 12, 17, 6]", "f32[12, 1, 3, 3]", 12, plain(0)),
        ("f32[1, 4, 19, 20]", "f32[4, 1, 5, 5]", 4, axis(2, 2, 1, 1)),
        ("f32[1, 4, 15, 17]", "f32[4, 1, 7, 7]", 4, axis(1, 6, 2, 1)),
        ("f32[2, 8, H, S]", "f32[8, 1, 3, 3]", 8, plain(1)),
        ("f32[2, 8, H, S]", "f32[8, 1, 2, 2]", 8, plain(0)),
        ("f32[B, 16, 23]", "f32[16, 1, 4]", 16, plain(3)),
    ] {
        let rank = filter.matches(',').count() - 1;
        let graph = convolution_by_weights(x, filter, &vec![axes; rank], groups);
        graphs.push((format!("{x} by {filter}"), graph));
    }
    graphs
}

fn convolutions() -> Vec<(&'static str, Graph)> {
    let same = [axis(1, 1, 1, 1), axis(1, 1, 1, 1)];
    let one = [axis(1, 0, 1, 1), axis(1, 0, 1, 1)];
    vec![
        (
            "3x3",
            convolution("f32[2, 8, 12, 12]", "f32[16, 8, 3, 3]", &same, 1),
        ),
        (
            "ragged 3x3",
            convolution("f32[2, 5, 9, 11]", "f32[7, 5, 3, 3]", &same, 1),
        ),
        (
            "1x1",
            convolution("f32[1, 32, 8, 8]", "f32[24, 32, 1, 1]", &one, 1),
        ),
        (
            "1x1 of images",
            convolution("f32[3, 20, 6, 6]", "f32[12, 20, 1, 1]", &one, 1),
        ),
        (
            "strided",
            convolution(
                "f32[2, 6, 13, 15]",
                "f32[10, 6, 5, 3]",
                &[axis(2, 2, 1, 1), axis(3, 1, 1, 1)],
                1,
            ),
        ),
        (
            "dilated",
            convolution(
                "f32[1, 6, 17, 16]",
                "f32[9, 6, 3, 3]",
                &[axis(1, 2, 2, 1), axis(1, 3, 3, 1)],
                1,
            ),
        ),
        (
            "grouped",
            convolution("f32[2, 12, 10, 9]", "f32[18, 4, 3, 3]", &same, 3),
        ),
        (
            "transposed",
            convolution(
                "f32[2, 6, 7, 8]",
                "f32[9, 6, 4, 4]",
                &[axis(1, 2, 1, 2), axis(1, 2, 1, 2)],
                1,
            ),
        ),
        (
            "one axis",
            convolution("f32[B, 4, H]", "f32[8, 4, 3]", &[axis(1, 1, 1, 1)], 1),
        ),
        (
            "three axes",
            convolution(
                "f32[1, 3, 5, 6, 7]",
                "f32[6, 3, 3, 3, 3]",
                &[axis(1, 1, 1, 1), axis(1, 1, 1, 1), axis(2, 1, 1, 1)],
                1,
            ),
        ),
        (
            "half",
            convolution("f16[1, 8, 8, 8]", "f16[8, 8, 3, 3]", &same, 1),
        ),
        (
            "depthwise",
            convolution("f32[2, 6, 9, 12]", "f32[6, 1, 3, 3]", &same, 6),
        ),
        (
            "depthwise, strided",
            convolution(
                "f32[2, 5, 11, 13]",
                "f32[5, 1, 3, 3]",
                &[axis(2, 1, 1, 1), axis(2, 1, 1, 1)],
                5,
            ),
        ),
        (
            "depthwise, doubled",
            convolution("f32[2, 4, 9, 8]", "f32[8, 1, 5, 5]", &same, 4),
        ),
    ]
}

/// A reproducible tensor of numbers around zero.
fn tensor(seed: &mut u64, dtype: DType, shape: &[usize]) -> Tensor {
    let mut next = || {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    };
    let values = (0..shape.iter().product())
        .map(|_| next())
        .collect::<Vec<f64>>();
    Tensor::from_f64(dtype, shape, values).unwrap()
}

/// The largest difference, in units of what rounding explains for the dtype.
fn distance(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(
        (found.dtype(), found.shape()),
        (expected.dtype(), expected.shape())
    );
    let (relative, absolute) = match expected.dtype() {
        DType::F16 => (1e-3, 1e-3),
        DType::BF16 => (1.6e-2, 1e-2),
        _ => (1.3e-6, 1e-5),
    };
    let pairs = found.to_f64().into_iter().zip(expected.to_f64());
    pairs
        .map(|(x, y)| (x - y).abs() / (absolute + relative * y.abs()))
        .fold(0.0, worse)
}

/// Runs a plan on a device at two sizes of its symbols: the largest distance from the oracle.
fn error(device: &Device, graph: &Graph, plan: Plan) -> f64 {
    let options = ProgramOptions::default();
    let mut seed = 3;
    let weights = graph.values.iter().filter_map(|value| {
        let Definition::Weight(name) = &value.definition else {
            return None;
        };
        let sizes = value.ty.sizes(&Bindings::new()).unwrap();
        Some((name.clone(), tensor(&mut seed, value.ty.dtype, &sizes)))
    });
    let weights = weights.collect();
    let program = Program::new(device, plan, &weights, options).unwrap();
    let mut worst: f64 = 0.0;
    for (b, s, h) in [(2, 5, 13), (3, 40, 64)] {
        let bindings = Bindings::from([("B".into(), b), ("S".into(), s), ("H".into(), h)]);
        let mut seed = 7;
        let types = graph.inputs.iter().map(|input| graph.ty(*input));
        let inputs: Vec<Tensor> = types
            .map(|ty| tensor(&mut seed, ty.dtype, &ty.sizes(&bindings).unwrap()))
            .collect();
        let expected = interp::run(graph, &weights, &inputs).unwrap();
        let found = program.run(&inputs).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            worst = worse(worst, distance(found, expected));
        }
    }
    worst
}

/// The larger of two distances, of which not-a-number is the largest.
fn worse(x: f64, y: f64) -> f64 {
    if y > x || y.is_nan() { y } else { x }
}

/// True if a plan is as close to the oracle as rounding explains, or as the portable kernels are: sums of many terms round
/// more than tolerances allow, whoever adds them up.
fn agrees(device: &Device, graph: &Graph, plan: Plan) -> bool {
    let ours = error(device, graph, plan);
    if ours <= 1.0 {
        return true;
    }
    let (portable, _) = forced(graph, device.capabilities(), Variant::Portable);
    ours <= error(device, graph, portable)
}

/// A plan by a variant, and whether it makes a difference to it: a step of that variant, or steps for parts of sums.
fn by(graph: &Graph, capabilities: &Capabilities, variant: Variant) -> (Plan, bool) {
    let (plan, count) = forced(graph, capabilities, variant);
    let (whole, _) = forced(graph, capabilities, Variant::Portable);
    let is_split = plan.steps.len() > whole.steps.len();
    (plan, count > 0 || is_split)
}

/// Every graph by one variant: on the device with its limits and with WebGPU's, and in all languages. At least `least` of
/// the graphs admit it.
fn check(variant: Variant, graphs: &[(&'static str, Graph)], least: usize) {
    let device = samples::device(Reach::Whole);
    let mut failures = Vec::new();
    let mut admitted = 0;
    for (name, graph) in graphs {
        let name = format!("{variant}, {name}");
        let limits = samples::capabilities();
        let (plan, is_admitted) = by(graph, &limits, variant);
        admitted += usize::from(is_admitted);
        failures.extend(samples::untranslatable(&plan));
        let (plan, _) = by(graph, &samples::with_subgroups(), variant);
        failures.extend(samples::untranslatable(&plan));
        if let Some(device) = &device {
            let ours = as_gpu(device);
            let small = Capabilities {
                max_invocations: limits.max_invocations,
                max_workgroup_memory: limits.max_workgroup_memory,
                max_storage_buffers: limits.max_storage_buffers,
                ..ours.clone()
            };
            for capabilities in [ours, small] {
                let (plan, _) = forced(graph, &capabilities, variant);
                if !agrees(device, graph, plan) {
                    failures.push(format!("{name} differs from the oracle"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(admitted >= least, "{variant} was admitted {admitted} times");
}

#[test]
fn tiles_of_32_agree() {
    check(Variant::Tile { side: 32 }, &products(), 16);
    check(Variant::Tile { side: 32 }, &convolutions(), 14);
}

#[test]
fn tiles_of_64_agree() {
    check(Variant::Tile { side: 64 }, &products(), 16);
    check(Variant::Tile { side: 64 }, &convolutions(), 14);
}

#[test]
fn tiles_of_128_agree() {
    check(Variant::Tile { side: 128 }, &products(), 16);
    check(Variant::Tile { side: 128 }, &convolutions(), 14);
}

#[test]
fn few_rows_agree() {
    check(Variant::Vector, &products(), 4);
}

#[test]
fn direct_convolutions_agree() {
    check(Variant::Direct, &convolutions(), 3);
}

/// Sums of half precision are split into parts of single precision.
#[test]
fn split_sums_agree() {
    check(Variant::Split { parts: 2 }, &products(), 7);
    check(Variant::Split { parts: 2 }, &convolutions(), 9);
}

/// What the table takes for a GPU: the variant by sizes, and the splitting of long sums that give few tiles.
#[test]
fn the_table_follows_sizes() {
    let limits = samples::capabilities();
    let taken = |left: &str, right: &str| {
        let plan = onionskin::pass::plan(&product(left, right, [false, false]), &limits).unwrap();
        let choices = plan.steps.iter().filter_map(|step| step.choice.clone());
        let names: Vec<String> = choices.map(|choice| choice.variant.to_string()).collect();
        (names.join(", "), plan.steps.len())
    };
    let tile = |side: u32| (Variant::Tile { side }.to_string(), 1);
    assert_eq!(taken("f32[4096, 512]", "f32[512, 4096]"), tile(128));
    assert_eq!(taken("f32[512, 512]", "f32[512, 1024]"), tile(64));
    assert_eq!(taken("f32[128, 384]", "f32[384, 1536]"), tile(32));
    assert_eq!(
        taken("f32[1, 768]", "f32[768, 768]"),
        (Variant::Vector.to_string(), 1)
    );
    assert_eq!(
        taken("f32[64, 4096]", "f32[4096, 64]"),
        (Variant::Tile { side: 32 }.to_string(), 2)
    );
    assert_eq!(
        taken("f64[64, 64]", "f64[64, 64]"),
        (Variant::Portable.to_string(), 1)
    );
}

/// No software rasteriser multiplies matrices by subgroups. What kernels do with such matrices is done by functions here,
/// so that all else about them runs; and the kernels themselves translate, to HLSL excepted, which cannot say it.
#[test]
fn cooperative_matrices_agree() {
    let device = samples::device(Reach::Whole);
    let graphs = [products(), convolutions()].concat();
    for size in [8, 16] {
        let variant = Variant::Matrix { size };
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
                matrices: samples::with_matrices().matrices,
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

/// A kernel whose cooperative matrices of 8×8 elements are rows, one for each of the eight invocations of a subgroup.
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

/// What the device takes for itself, with weights laid out as it likes.
#[test]
fn the_choices_of_the_device_agree() {
    let Some(device) = samples::device(Reach::Whole) else {
        return;
    };
    let mut failures = Vec::new();
    let products = products();
    let products = products.into_iter().map(|(name, x)| (name.to_string(), x));
    let layers = samples::layers().into_iter();
    let layers = layers.map(|(name, graph, _)| (name.to_string(), graph));
    for (name, graph) in with_weights().into_iter().chain(products).chain(layers) {
        let plan = pass::plan(&graph, device.capabilities()).unwrap();
        if !agrees(&device, &graph, plan) {
            failures.push(format!("{name} differs from the oracle"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Convolutions that tiles of 2×2 positions cover, whole and ragged, and those that they do not.
fn in_tiles() -> [Vec<(String, Graph)>; 2] {
    let (plain, uneven) = (
        |pad| axis(1, pad, 1, 1),
        ConvAxis {
            high: 0,
            ..axis(1, 1, 1, 1)
        },
    );
    let named = |(x, filter, axis, groups): (&str, &str, ConvAxis, i64)| {
        let name = format!("{x} by {filter} in {groups} groups, padded by {}", axis.low);
        let rank = filter.matches(',').count() - 1;
        let graph = samples::graph(&[x], |builder, x| {
            let weight = builder.weight("weight", filter.parse().unwrap());
            let y = (x[0] * 0.5)
                .conv(weight, vec![axis.clone(); rank], groups)
                .relu();
            vec![y, y.sum(&[2], true)]
        });
        (name, graph)
    };
    let covered = [
        ("f32[1, 8, 6, 8]", "f32[8, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 9]", "f32[12, 8, 3, 3]", plain(0), 1),
        ("f32[1, 8, 7, 9]", "f32[12, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 8]", "f32[12, 8, 3, 3]", plain(2), 1),
        ("f32[2, 8, 6, 9]", "f32[8, 8, 3, 3]", uneven, 1),
        // More images than one, each of a ragged tile.
        ("f32[3, 16, 5, 6]", "f32[72, 16, 3, 3]", plain(1), 1),
        ("f32[2, 24, 7, 5]", "f32[16, 12, 3, 3]", plain(1), 2),
        // Fewer tiles than rows of a kernel's.
        ("f32[1, 64, 3, 4]", "f32[40, 64, 3, 3]", plain(1), 1),
        ("f32[1, 36, 3, 3]", "f32[4, 36, 3, 3]", plain(0), 1),
        ("f32[1, 132, 9, 9]", "f32[136, 132, 3, 3]", plain(1), 1),
        ("f32[B, 8, H, S]", "f32[8, 8, 3, 3]", plain(1), 1),
        ("f32[B, 8, H, S]", "f32[8, 8, 3, 3]", plain(0), 1),
    ];
    let others = [
        ("f32[1, 8, 7, 7]", "f32[8, 8, 5, 5]", plain(2), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 8, 3, 3]", axis(2, 1, 1, 1), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 8, 3, 3]", axis(1, 2, 2, 1), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 8, 3, 3]", axis(1, 2, 1, 2), 1),
        ("f32[1, 6, 7, 7]", "f32[8, 6, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 7]", "f32[6, 8, 3, 3]", plain(1), 1),
        ("f32[1, 8, 7, 7]", "f32[8, 1, 3, 3]", plain(1), 8),
        ("f32[1, 8, 7]", "f32[8, 8, 3]", plain(1), 1),
        ("f16[1, 8, 7, 7]", "f16[8, 8, 3, 3]", plain(1), 1),
    ];
    [covered.map(named).into(), others.map(named).into()]
}

#[test]
fn convolutions_by_tiles_agree() {
    let [covered, others] = in_tiles();
    for (name, graph) in &others {
        let admitted = pass::admitted(graph, &samples::rasteriser()).unwrap();
        let mut variants = admitted.values().flatten();
        assert!(
            variants.all(|variant| *variant != Variant::Winograd),
            "{name}"
        );
    }
    let device = samples::device(Reach::Whole);
    for (name, graph) in &covered {
        let (plan, count) = forced(graph, &samples::rasteriser(), Variant::Winograd);
        assert_eq!(count, 1, "{name}");
        let failures = samples::untranslatable(&plan);
        assert!(failures.is_empty(), "{name}: {}", failures.join("\n"));
        let Some(device) = device
            .as_ref()
            .filter(|device| device.capabilities().software)
        else {
            continue;
        };
        let (plan, _) = forced(graph, device.capabilities(), Variant::Winograd);
        assert!(
            agrees(device, graph, plan),
            "{name} differs from the oracle"
        );
    }
}

/// A rasteriser takes tiles where the products of many channels are worth their transforms.
#[test]
fn the_table_weighs_tiles() {
    let taken = |x: &str, filter: &str| {
        let graph = convolution_by_weights(x, filter, &[axis(1, 1, 1, 1), axis(1, 1, 1, 1)], 1);
        let plan = pass::plan(&graph, &samples::rasteriser()).unwrap();
        let mut choices = plan.steps.into_iter().filter_map(|step| step.choice);
        choices.next().unwrap().variant
    };
    for (x, filter, variant) in [
        (
            "f32[1, 512, 7, 7]",
            "f32[512, 512, 3, 3]",
            Variant::Winograd,
        ),
        (
            "f32[1, 128, 28, 28]",
            "f32[128, 128, 3, 3]",
            Variant::Winograd,
        ),
        ("f32[1, 16, 56, 56]", "f32[16, 16, 3, 3]", Variant::Lanes),
        ("f32[1, 64, 7, 7]", "f32[64, 64, 3, 3]", Variant::Lanes),
    ] {
        assert_eq!(taken(x, filter), variant, "{x} by {filter}");
    }
}

/// What several convolutions see in the same tiles is made once; a residual is part of the last kernel.
#[test]
fn convolutions_share_tiles() {
    let graph = |other: i64| {
        samples::graph(&["f32[1, 8, 7, 9]"], |builder, x| {
            let weight = |name| builder.weight(name, "f32[8, 8, 3, 3]".parse().unwrap());
            let (x, same) = (x[0].exp(), vec![axis(1, 1, 1, 1); 2]);
            let y = (x.conv(weight("a"), same, 1) + x).relu();
            let z = x.conv(weight("b"), vec![axis(1, other, 1, 1); 2], 1);
            vec![y, y.sum(&[2], true), z]
        })
    };
    let device = samples::device(Reach::Whole);
    for (other, seen) in [(1, 1), (2, 2)] {
        let graph = graph(other);
        let (plan, count) = forced(&graph, &samples::rasteriser(), Variant::Winograd);
        let kernels = plan
            .steps
            .iter()
            .map(|step| &plan.kernels[step.kernel].label);
        let of = |label: &str| kernels.clone().filter(|other| **other == label).count();
        assert_eq!(
            (count, of("winograd_seen"), of("winograd_summed")),
            (2, seen, 2)
        );
        assert_eq!(of("winograd_output"), 2);
        let Some(device) = device
            .as_ref()
            .filter(|device| device.capabilities().software)
        else {
            continue;
        };
        let (plan, _) = forced(&graph, device.capabilities(), Variant::Winograd);
        assert!(agrees(device, &graph, plan), "padded by {other}");
    }
}
