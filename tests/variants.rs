//! Variants of contractions and convolutions: each is forced upon graphs of many shapes, agrees with the host oracle, fits
//! WebGPU's default limits and translates to SPIR-V, MSL and HLSL. GPU variants run on any adapter.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dim::Bindings;
use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Definition, Graph};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::choice::KernelVariant;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::Plan;
use onionskin::op::*;
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

use samples::larger_or_nan;

mod variants {
    pub mod attention;
    mod dynamic_schedules;
    pub mod epilogue_loops;
    mod filter_gradients;
    pub mod graphs;
    mod kernel_deduplication;
    mod lanes;
    mod matrices;
    mod packed_words;
    mod winograd;
}

use samples::forced;
use variants::graphs::*;

/// Returns the capabilities of a device, configured as a GPU.
fn as_gpu(device: &GpuDevice) -> Capabilities {
    Capabilities {
        software: false,
        ..device.capabilities().clone()
    }
}

/// Returns a reproducible tensor of numbers around zero.
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

/// Returns the largest difference, in units of the dtype's tolerance.
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
        .fold(0.0, larger_or_nan)
}

/// Runs a plan on a device at two sizes of its symbols. Returns the largest distance from the oracle.
fn worst_error(device: &GpuDevice, graph: &Graph, plan: Plan) -> f64 {
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
    if device.driver().starts_with("llvmpipe") {
        let made = program.statistics();
        assert_eq!(made.kernels_warmed_up, made.pipelines_created);
    }
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
            worst = larger_or_nan(worst, distance(found, expected));
        }
    }
    worst
}

/// True if a plan is within rounding of the oracle, or as close to it as the portable kernels: sums of many terms exceed
/// the tolerances by any kernel.
fn agrees(device: &GpuDevice, graph: &Graph, plan: Plan) -> bool {
    let ours = worst_error(device, graph, plan);
    if ours <= 1.0 {
        return true;
    }
    let (portable, _) = forced(graph, device.capabilities(), KernelVariant::Portable);
    ours <= worst_error(device, graph, portable)
}

/// Forces a variant. Returns the plan, and whether the variant affects it: a step uses it, or steps split a sum.
fn plan_by_variant(
    graph: &Graph,
    capabilities: &Capabilities,
    variant: KernelVariant,
) -> (Plan, bool) {
    let (plan, count) = forced(graph, capabilities, variant);
    let (whole, _) = forced(graph, capabilities, KernelVariant::Portable);
    let is_split = plan.steps.len() > whole.steps.len();
    (plan, count > 0 || is_split)
}

/// Checks every graph by one variant: on the device with its own limits and with WebGPU's, and in all languages. At least
/// `least` of the graphs must admit the variant.
fn check(variant: KernelVariant, graphs: &[(&'static str, Graph)], least: usize) {
    let device = samples::device(FeatureLevel::Full);
    let mut failures = Vec::new();
    let mut admitted = 0;
    for (name, graph) in graphs {
        let name = format!("{variant}, {name}");
        let limits = samples::capabilities();
        let (plan, is_admitted) = plan_by_variant(graph, &limits, variant);
        admitted += usize::from(is_admitted);
        failures.extend(samples::untranslatable(&plan));
        let (plan, _) = plan_by_variant(graph, &samples::with_subgroups(), variant);
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
    check(KernelVariant::WorkgroupTile { side: 32 }, &products(), 16);
    check(
        KernelVariant::WorkgroupTile { side: 32 },
        &convolutions(),
        14,
    );
}

#[test]
fn tiles_of_64_agree() {
    check(KernelVariant::WorkgroupTile { side: 64 }, &products(), 16);
    check(
        KernelVariant::WorkgroupTile { side: 64 },
        &convolutions(),
        14,
    );
}

#[test]
fn tiles_of_128_agree() {
    check(KernelVariant::WorkgroupTile { side: 128 }, &products(), 16);
    check(
        KernelVariant::WorkgroupTile { side: 128 },
        &convolutions(),
        14,
    );
}

#[test]
fn few_rows_agree() {
    check(KernelVariant::Gemv, &products(), 4);
}

#[test]
fn direct_convolutions_agree() {
    check(KernelVariant::DepthwiseDirect, &convolutions(), 3);
}

/// Split reductions of half-precision values have partial sums in single precision.
#[test]
fn split_sums_agree() {
    check(KernelVariant::SplitK { parts: 2 }, &products(), 7);
    check(KernelVariant::SplitK { parts: 2 }, &convolutions(), 9);
}

/// The table chooses a GPU's variant by sizes, and splits long sums that have few tiles.
#[test]
fn the_table_chooses_by_sizes() {
    let limits = samples::capabilities();
    let taken = |left: &str, right: &str| {
        let plan = onionskin::plan::plan(&product(left, right, [false, false]), &limits).unwrap();
        let choices = plan.steps.iter().filter_map(|step| step.choice.clone());
        let names: Vec<String> = choices.map(|choice| choice.variant.to_string()).collect();
        (names.join(", "), plan.steps.len())
    };
    let tile = |side: u32| (KernelVariant::WorkgroupTile { side }.to_string(), 1);
    assert_eq!(taken("f32[4096, 512]", "f32[512, 4096]"), tile(128));
    assert_eq!(taken("f32[512, 512]", "f32[512, 1024]"), tile(64));
    assert_eq!(taken("f32[128, 384]", "f32[384, 1536]"), tile(32));
    assert_eq!(
        taken("f32[1, 768]", "f32[768, 768]"),
        (KernelVariant::Gemv.to_string(), 1)
    );
    assert_eq!(
        taken("f32[64, 4096]", "f32[4096, 64]"),
        (KernelVariant::WorkgroupTile { side: 32 }.to_string(), 2)
    );
    assert_eq!(
        taken("f64[64, 64]", "f64[64, 64]"),
        (KernelVariant::Portable.to_string(), 1)
    );
}

/// The planner's choices for the device, with its weight layouts, agree with the oracle.
#[test]
fn planned_variants_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let mut failures = Vec::new();
    let products = products();
    let products = products.into_iter().map(|(name, x)| (name.to_string(), x));
    let layers = samples::layers::all_networks().into_iter();
    let layers = layers.map(|(name, graph, _)| (name.to_string(), graph));
    let weights = with_weights().into_iter().chain(pools());
    for (name, graph) in weights.chain(products).chain(layers) {
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        if !agrees(&device, &graph, plan) {
            failures.push(format!("{name} differs from the oracle"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
