//! Subgroups that are SIMD lanes: eight, or sixteen if an environment variable sets Mesa's vector width before it is loaded.

use std::process::Command;

use onionskin::gpu::FeatureLevel;

use crate::samples;
use crate::*;

/// Environment variable with the driver's vector width in bits.
const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";

/// Returns the device if its subgroups are SIMD lanes.
fn rasteriser() -> Option<GpuDevice> {
    let device = samples::device(FeatureLevel::Full)?;
    if device.capabilities().simd_lanes().is_none() {
        println!("skipped: subgroups are not SIMD lanes");
        return None;
    }
    Some(device)
}

/// Reductions of rows that invocations share, with lengths that fill the last iteration fully and partly.
fn rows() -> Vec<(&'static str, Graph)> {
    let rows = |name, ty: &'static str| {
        let graph = samples::graph(&[ty], |_, x| {
            let y = x[0].exp();
            vec![
                y / y.sum(&[1], true),
                x[0].argmax(1, false),
                x[0].amax(&[1], false),
            ]
        });
        (name, graph)
    };
    vec![
        rows("rows of 64", "f32[5, 64]"),
        rows("rows of 130", "f32[37, 130]"),
        rows("rows of 2000", "f32[2, 2000]"),
        rows("rows of S", "f32[B, S]"),
    ]
}

#[test]
fn lanes_agree() {
    let Some(device) = rasteriser() else { return };
    if std::env::var(WIDTH).is_ok_and(|width| width == "512") {
        assert_eq!(device.capabilities().simd_lanes(), Some(16));
    }
    let attention = crate::variants::attention::graphs();
    let epilogues = crate::variants::epilogue_loops::graphs();
    let graphs = [products(), convolutions(), rows(), attention, epilogues].concat();
    let differs = |(name, graph): &&(&str, Graph)| {
        let plan = plan::plan(graph, device.capabilities()).unwrap();
        let agrees = agrees(&device, graph, plan);
        (!agrees).then(|| println!("{name} differs from the oracle"));
        !agrees
    };
    assert_eq!(graphs.iter().filter(differs).count(), 0);
}

/// Tile shapes for large batches, run on small ones: of many rows, and of four to twelve columns.
#[test]
fn tiles_for_much_work_agree() {
    let Some(device) = rasteriser() else { return };
    let strided = [axis(2, 1, 1, 1), axis(2, 1, 1, 1)];
    let one = [axis(1, 0, 1, 1), axis(1, 0, 1, 1)];
    let mut reasons = String::new();
    for (x, filter, axes) in [
        ("f32[B, 16, 7, 8]", "f32[60, 16, 3, 3]", &strided),
        ("f32[B, 3, 13, 14]", "f32[40, 3, 3, 3]", &strided),
        ("f32[B, 24, 7, 7]", "f32[72, 24, 1, 1]", &one),
        ("f32[B, 24, 8, 7]", "f32[20, 24, 1, 1]", &one),
        ("f32[B, 24, 7, 5]", "f32[13, 24, 1, 1]", &one),
        ("f32[B, 16, 5, 7]", "f32[16, 16, 3, 3]", &strided),
    ] {
        let graph = convolution_by_weights(x, filter, axes, 1);
        let mut many = graph.clone();
        many.hints.insert("B".into(), 100_000);
        let plan = plan::plan(&many, device.capabilities()).unwrap();
        let choices = plan.steps.iter().filter_map(|step| step.choice.as_ref());
        reasons.extend(choices.map(|choice| format!("{x}: {choice}\n")));
        assert!(agrees(&device, &graph, plan), "{x} differs from the oracle");
    }
    let shapes = match device.capabilities().simd_lanes() {
        Some(8) => [
            "tiles of 18 rows in 2 bands, 12 columns per invocation",
            "tiles of 28 rows in 2 bands, 8 columns per invocation",
            "tiles of 36 rows in 2 bands, 4 columns per invocation",
        ],
        _ => [
            "tiles of 52 rows in 4 bands, 12 columns per invocation",
            "tiles of 56 rows in 4 bands, 8 columns per invocation",
            "tiles of 36 rows in 4 bands, 4 columns per invocation",
        ],
    };
    for shape in shapes {
        assert!(reasons.contains(shape), "{shape}: {reasons}");
    }
}

/// Rows that are neighbours in memory share a load, as K elements that are neighbours do.
#[test]
fn neighbouring_rows_share_loads() {
    let Some(device) = rasteriser() else { return };
    let loads = |left: &str, is_transposed: bool| {
        let graph = product(left, "f32[64, 96]", [is_transposed, false]);
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        assert!(plan.kernels[0].wgsl.contains("var sum0_0"), "no tile");
        plan.kernels[0].wgsl.matches("= textureLoad(").count()
    };
    let by_k = loads("f32[128, 64]", false);
    assert!(by_k > 0);
    assert_eq!(loads("f32[64, 128]", true), by_k);
}

/// Tiles also serve convolutions by filters that are not weights, and by weights in groups whose channels are not a multiple
/// of four; but not those with few output channels.
#[test]
fn convolutions_by_patches_agree() {
    let Some(device) = rasteriser() else { return };
    let same = [axis(1, 1, 1, 1), axis(1, 2, 1, 1)];
    let thirds = convolution_by_weights("f32[B, 9, 8, 8]", "f32[18, 3, 3, 3]", &same, 3);
    let cut = convolution(
        "f32[2, 6, 9, 10]",
        "f32[8, 6, 3, 3]",
        &[axis(1, -1, 1, 1), axis(2, 1, 1, 1)],
        1,
    );
    let mut taken = Vec::new();
    let others = [("groups of three channels", thirds), ("cut", cut)];
    for (name, graph) in convolutions().into_iter().chain(others) {
        let (plan, count) =
            samples::forced(&graph, device.capabilities(), KernelVariant::ImagePatches);
        assert!(
            agrees(&device, &graph, plan),
            "{name} differs from the oracle"
        );
        taken.extend((count > 0).then_some(name));
    }
    assert!(taken.len() >= 12, "{taken:?}");
}

/// Runs the tests above in a process whose driver has vectors of sixteen lanes.
#[test]
fn sixteen_lanes_agree() {
    if rasteriser().is_none() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    let names = [
        "lanes_agree",
        "tiles_for_much_work_agree",
        "convolutions_by_patches_agree",
    ];
    tests.args(names.map(|name| format!("variants::lanes::{name}")));
    tests.args(["--exact", "--nocapture"]);
    let output = tests.env(WIDTH, "512").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("3 passed"),
        "{text}"
    );
}
