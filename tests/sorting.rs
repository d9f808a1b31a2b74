//! Sorting compared with the host oracle: whole rows in one kernel and merged runs, along every axis, of every dtype, with
//! equal elements and NaN.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::BTreeSet;

use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::interp;
use onionskin::ir::Graph;
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::layout::Layout;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::Plan;
use onionskin::plan::{self, PlanOptions};
use onionskin::tensor::Tensor;

mod samples;

/// Sorts in both orders; the outputs are values and indices.
fn sorts(ty: &str, axis: i64) -> Graph {
    samples::graph(&[ty], |_, x| {
        let (up, down) = (x[0].sort(axis, false), x[0].sort(axis, true));
        vec![up.0, up.1, down.0, down.1]
    })
}

/// Returns numbers of which many are equal; floats include NaN and infinities.
fn numbers(dtype: DType, shape: &[usize]) -> Tensor {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = f64::from(seed >> 22) - 512.0;
        match seed >> 13 & 63 {
            0 if dtype.is_float() => f64::NAN,
            1 if dtype.is_float() => f64::INFINITY,
            2 if dtype.is_float() => f64::NEG_INFINITY,
            _ if dtype.is_float() => number / 8.0,
            _ => number,
        }
    };
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| next()).collect();
    Tensor::from_f64(dtype, shape, values).unwrap()
}

/// Returns the device's capabilities, those of a GPU, and the least ones.
fn device_families(own: &Capabilities) -> [Capabilities; 3] {
    let gpu = Capabilities {
        software: false,
        ..own.clone()
    };
    let least = Capabilities {
        int64: false,
        float16: false,
        subgroups: false,
        ..gpu.clone()
    };
    [own.clone(), gpu, least]
}

fn agrees(device: &GpuDevice, graph: &Graph, plan: Plan, x: &Tensor, what: &str) {
    let program = Program::new(device, plan, &TensorMap::new(), ProgramOptions::default()).unwrap();
    let found = program.run(std::slice::from_ref(x)).unwrap();
    let expected = interp::run(graph, &TensorMap::new(), std::slice::from_ref(x)).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        // Compared by bits: NaN differs from itself.
        assert_eq!(found.bytes(), expected.bytes(), "{what}");
    }
}

/// Returns the labels of a plan's steps, and the number of distinct kernels.
fn steps(plan: &Plan) -> (Vec<&str>, usize) {
    let steps = || plan.steps.iter().map(|step| step.kernel);
    let labels = steps().map(|kernel| plan.kernels[kernel].label.as_str());
    let texts: BTreeSet<usize> = steps().collect();
    (labels.collect(), texts.len())
}

#[test]
fn every_row_is_sorted_as_the_oracle_does() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let shapes: [(&[usize], usize); 10] = [
        (&[20, 0], 1),
        (&[9, 40], 1),
        (&[17, 64, 3], 1),
        (&[5, 256], 1),
        (&[5, 257], 1),
        (&[4, 1000], 1),
        (&[1, 4097], 1),
        (&[700, 3], 0),
        (&[2, 513, 5], 1),
        (&[20_000], 0),
    ];
    for dtype in [DType::F32, DType::F16, DType::I32, DType::I64, DType::U8] {
        for (shape, axis) in shapes {
            let x = numbers(dtype, shape);
            let graph = sorts(&format!("{dtype}{shape:?}"), axis as i64);
            for (number, capabilities) in device_families(device.capabilities()).iter().enumerate()
            {
                let plan = plan::plan(&graph, capabilities).unwrap();
                let what = format!("{dtype} {shape:?} along {axis}, {number}");
                agrees(&device, &graph, plan, &x, &what);
            }
        }
    }
}

/// Top-k in both orders: of short rows, of long rows in parts, and for a `k` so large that rows are sorted.
#[test]
fn topk_agrees_with_the_oracle() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let shapes: [(&[usize], usize, usize); 9] = [
        (&[0, 1000], 1, 3),
        (&[9, 40], 1, 3),
        (&[70, 1000], 1, 10),
        (&[1, 4099], 1, 7),
        (&[3000, 5], 0, 1),
        (&[2, 513, 5], 1, 64),
        (&[4, 300], 1, 65),
        (&[6], 0, 6),
        (&[70_000], 0, 2),
    ];
    for dtype in [
        DType::F32,
        DType::F16,
        DType::F64,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Bool,
    ] {
        for (shape, axis, k) in shapes {
            let graph = samples::graph(&[&format!("{dtype}{shape:?}")], |_, x| {
                let of = |largest| x[0].topk(k, axis as i64, largest);
                let (least, most) = (of(false), of(true));
                vec![least.0, least.1, most.0, most.1]
            });
            let x = numbers(dtype, shape);
            for (number, capabilities) in device_families(device.capabilities()).iter().enumerate()
            {
                let plan = plan::plan(&graph, capabilities).unwrap();
                let what = format!("{k} of {dtype} {shape:?} along {axis}, {number}");
                agrees(&device, &graph, plan, &x, &what);
            }
        }
    }
}

/// Rows may have any length that is at least `k`.
#[test]
fn topk_of_symbolic_length() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = |example: i64| {
        let mut graph = samples::graph(&["f32[3, S]"], |_, x| {
            let (values, indices) = x[0].topk(4, 1, true);
            vec![values * 2.0, indices]
        });
        graph.hints.insert("S".into(), example);
        graph
    };
    for (example, first) in [(20, "topk"), (5000, "sort_runs")] {
        let graph = graph(example);
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        assert_eq!(steps(&plan).0[0], first, "{example}");
        for length in [4, 5, 63, 5000] {
            let x = numbers(DType::F32, &[3, length]);
            let what = format!("{length} by {example}");
            agrees(&device, &graph, plan.clone(), &x, &what);
        }
    }
}

/// Zeros of both signs compare equal and keep their signs.
#[test]
fn zeros_keep_their_order_and_sign() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = samples::graph(&["f32[7]"], |_, x| {
        let (values, indices) = x[0].topk(5, 0, true);
        vec![values, indices]
    });
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let x = Tensor::from_vec([7], vec![-0.0f32, 0.0, -1.0, -0.0, 1.0, 0.0, -1e-30]).unwrap();
    agrees(&device, &graph, plan, &x, "zeros");
}

/// Rows must have at least `k` elements.
#[test]
fn topk_of_more_than_the_length_is_an_error() {
    let of = |k| samples::try_graph(&["f32[2, 3]"], |_, x| vec![x[0].topk(k, 1, true).0]);
    assert!(of(3).is_some() && of(4).is_none());
}

/// A plan sorts rows of any length, independent of the example's.
#[test]
fn rows_of_symbolic_length_are_merged_at_once() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let mut graph = sorts("f32[4, S]", 1);
    graph.hints.insert("S".into(), 1000);
    for capabilities in device_families(device.capabilities()) {
        let plan = plan::plan(&graph, &capabilities).unwrap();
        let (labels, texts) = steps(&plan);
        let row = ["sort_runs", "merge_runs", "merge_runs", "merge_all_runs"];
        assert_eq!((labels, texts), ([row, row].concat(), 6));
        let wrong = samples::untranslatable(&plan);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for length in [1, 31, 128, 129, 1000, 1024, 3001] {
            let x = numbers(DType::F32, &[4, length]);
            agrees(&device, &graph, plan.clone(), &x, &format!("{length}"));
        }
    }
}

/// Runs have a minimum length, however short the example's rows are.
#[test]
fn short_rows_of_symbolic_length_take_few_runs() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let mut graph = sorts("f32[90, S]", 1);
    graph.hints.insert("S".into(), 65);
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let row = ["sort_runs", "merge_all_runs"];
    assert_eq!(steps(&plan).0, [row, row].concat());
    for length in [1, 65, 300] {
        let x = numbers(DType::F32, &[90, length]);
        agrees(&device, &graph, plan.clone(), &x, &format!("{length}"));
    }
}

/// Long rows are sorted in runs, and one kernel serves all merges, each of which doubles the runs. One kernel sorts short
/// rows, few rows, and rows of unknown length.
#[test]
fn long_rows_are_sorted_in_runs() {
    let graph = |ty: &str| samples::graph(&[ty], |_, x| vec![x[0].sort(-1, false).0]);
    let plan = |ty: &str| plan::plan(&graph(ty), &samples::capabilities()).unwrap();
    let long = plan("f32[8, 1025]");
    let (labels, texts) = steps(&long);
    let merges = ["merge_runs"; 6];
    assert_eq!(labels, [["sort_runs"].as_slice(), &merges].concat());
    assert_eq!(texts, 2);
    for step in &long.steps {
        assert_eq!(step.work.writes.len(), 2);
    }
    let wholes = [
        ("f32[5000, 64]", "topk"),
        ("f32[15, 64]", "sort"),
        ("f32[1, 400]", "sort"),
        ("f32[8, S]", "sort"),
    ];
    for (whole, kernel) in wholes {
        assert_eq!(steps(&plan(whole)), (vec![kernel], 1), "{whole}");
    }
    assert_eq!(steps(&plan("f32[5000, 65]")).0.len(), 3);
    let wrong = samples::untranslatable(&long);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sorting reads a computed value, and other kernels read its result. Runs stay in single precision.
#[test]
fn sorting_between_other_kernels() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = samples::graph(&["f32[16, 600]"], |_, x| {
        let (values, indices) = (x[0] * 2.0 + 1.0).sort(1, true);
        let most = values.narrow(1, 0, 8) * 0.5;
        let picked = x[0].gather(1, indices.narrow(1, 0, 8));
        vec![most, picked]
    });
    let x = Tensor::from_f64(
        DType::F32,
        [16, 600],
        (0..9600)
            .map(|i| f64::from(i * 7919 % 1024))
            .collect::<Vec<f64>>(),
    );
    let x = x.unwrap();
    for precision in [Precision::Single, Precision::Half] {
        let options = PlanOptions {
            precision,
            ..PlanOptions::default()
        };
        let plan = plan::plan_with_options(&graph, device.capabilities(), &options).unwrap();
        let runs = plan.slots.iter();
        let runs = runs.filter(|slot| matches!(slot.layout, Layout::SortedRuns(_)));
        assert!(runs.clone().count() >= 10 && runs.clone().all(|slot| !slot.storage.is_half()));
        let what = format!("{precision:?}");
        agrees(&device, &graph, plan, &x, &what);
    }
}
