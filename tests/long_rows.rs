//! Scans, scatters and products along rows that exceed the loop limit of Mesa's rasteriser, compared with the host oracle.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::interp;
use onionskin::ir::Graph;
use onionskin::op::{ScanFunction, ScatterFunction};
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

/// More iterations than a loop may have on Mesa's rasteriser.
const LONG: usize = 70_001;

fn numbers(shape: &[usize]) -> Tensor {
    samples::tensor(shape, 3)
}

fn indices(shape: &[usize], below: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let index = |place: usize| (place * 7919 % below) as i64;
    Tensor::from_vec(shape, (0..count).map(index).collect()).unwrap()
}

/// Compares a graph on the device with the oracle; the tolerance is relative to the largest number.
fn agrees(device: &GpuDevice, graph: &Graph, inputs: &[Tensor], tolerance: f64) {
    let plan = plan::plan(graph, device.capabilities()).unwrap();
    let program = Program::new(device, plan, &TensorMap::new(), ProgramOptions::default()).unwrap();
    let found = program.run(inputs).unwrap();
    let expected = interp::run(graph, &TensorMap::new(), inputs).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.shape(), expected.shape());
        let (found, expected) = (found.to_f64(), expected.to_f64());
        let largest = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        for (place, (x, y)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (x - y).abs() <= tolerance * largest,
                "{place}: {x} is not {y}"
            );
        }
    }
}

#[test]
fn scans_of_long_rows() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let functions = [
        (ScanFunction::Sum, 1e-5),
        (ScanFunction::Max, 0.0),
        (ScanFunction::Min, 0.0),
        (ScanFunction::LogSumExp, 1e-5),
    ];
    for (function, tolerance) in functions {
        for (ty, shape, axis) in [
            ("f32[2, 70001]", vec![2, LONG], 1),
            ("f32[70001, 2]", vec![LONG, 2], 0),
        ] {
            let graph = samples::graph(&[ty], |_, x| vec![x[0].scan(function, axis)]);
            agrees(&device, &graph, &[numbers(&shape)], tolerance);
        }
    }
    let product = samples::graph(&["f32[70001]"], |_, x| {
        vec![(x[0] * 1e-4 + 1.0).scan(ScanFunction::Prod, 0)]
    });
    // Each of the products rounds: n ε / 2 is 4e-3.
    agrees(&device, &product, &[numbers(&[LONG])], 1e-3);
    let whole = samples::graph(&["i64[70001]"], |_, x| {
        vec![x[0].scan(ScanFunction::Sum, 0)]
    });
    agrees(&device, &whole, &[indices(&[LONG], 1000)], 0.0);
}

/// Where subgroups are SIMD lanes, they scan rows together: with a full and a partial last iteration, with stored and computed
/// operands.
#[test]
fn scans_of_rows_by_subgroups() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for shape in [
        vec![3, 64],
        vec![5, 100],
        vec![2, 3, 257],
        vec![1, 1024],
        vec![70, 4096],
    ] {
        let axis = shape.len() - 1;
        for function in [
            ScanFunction::Sum,
            ScanFunction::Max,
            ScanFunction::Min,
            ScanFunction::LogSumExp,
        ] {
            let ty = format!("f32{shape:?}");
            let graph = samples::graph(&[&ty], |_, x| {
                vec![
                    x[0].scan(function, axis as i64),
                    (x[0] * 0.5 - 1.0).scan(function, axis as i64),
                ]
            });
            agrees(&device, &graph, &[numbers(&shape)], 2e-6);
        }
        let ty = format!("i64{shape:?}");
        let graph = samples::graph(&[&ty], |_, x| {
            [ScanFunction::Sum, ScanFunction::Prod, ScanFunction::Max]
                .map(|function| x[0].scan(function, axis as i64))
                .to_vec()
        });
        agrees(&device, &graph, &[indices(&shape, 1000)], 0.0);
    }
}

/// Each step evaluates series in double precision.
#[test]
fn scans_of_expensive_functions() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    if !device.capabilities().float64 {
        println!("skipped: no double precision");
        return;
    }
    for axis in [0, 1] {
        let graph = samples::graph(&["f64[4000, 4000]"], |_, x| {
            vec![
                x[0].narrow(1 - axis, 0, 3)
                    .scan(ScanFunction::LogSumExp, axis),
            ]
        });
        let x = numbers(&[4000, 4000]).cast(DType::F64).unwrap();
        agrees(&device, &graph, &[x], 1e-9);
    }
}

/// A plan scans blocks of rows of any length, independent of the example's.
#[test]
fn scans_of_symbolic_length() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let mut graph = samples::graph(&["f32[B, S]"], |_, x| vec![x[0].scan(ScanFunction::Sum, 1)]);
    graph.hints.insert("S".into(), 5000);
    for length in [1, 1000, 1024, 1025, 5000, LONG] {
        agrees(&device, &graph, &[numbers(&[2, length])], 1e-5);
    }
}

#[test]
fn scatters_of_many_indices_and_into_long_rows() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let functions = [
        ScatterFunction::Set,
        ScatterFunction::Add,
        ScatterFunction::Max,
    ];
    for function in functions {
        for (size, count) in [(50, LONG), (LONG, 50), (40_000, 20_000)] {
            let types = [
                format!("f32[{size}, 2]"),
                format!("i64[{count}, 2]"),
                format!("f32[{count}, 2]"),
            ];
            let types = types.each_ref().map(String::as_str);
            let graph = samples::graph(&types, |_, x| vec![x[0].scatter(0, x[1], x[2], function)]);
            let inputs = [
                numbers(&[size, 2]),
                indices(&[count, 2], size),
                numbers(&[count, 2]),
            ];
            agrees(&device, &graph, &inputs, 1e-5);
        }
    }
}

/// A plan scatters into rows of any length.
#[test]
fn scatters_into_rows_of_symbolic_length() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = samples::graph(&["f32[S, 2]", "i64[9, 2]", "f32[9, 2]"], |_, x| {
        vec![x[0].scatter(0, x[1], x[2], ScatterFunction::Add)]
    });
    for size in [9, 1000, 1 << 15, (1 << 15) + 1, LONG] {
        let inputs = [
            numbers(&[size, 2]),
            indices(&[9, 2], size),
            numbers(&[9, 2]),
        ];
        agrees(&device, &graph, &inputs, 1e-5);
    }
}

#[test]
fn products_of_many_steps() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = samples::graph(&["f32[2, 70001]", "f32[70001, 3]"], |_, x| {
        vec![x[0].dot(x[1])]
    });
    agrees(
        &device,
        &graph,
        &[numbers(&[2, LONG]), numbers(&[LONG, 3])],
        1e-5,
    );
}
