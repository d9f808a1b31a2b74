//! Row kernels compared with the host oracle: softmax, norms and other reductions of trailing axes in steps, by each
//! variant; and the fusion of their reductions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use onionskin::dim::Bindings;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Graph, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::op::{ConvAxis, Reduce, ReduceFunction};
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

use samples::distance;

/// Takes a value to reduce along an axis, and factors along that axis.
type Body<'b> = &'b dyn for<'g> Fn(Value<'g>, Value<'g>) -> Vec<Value<'g>>;

/// Builds graphs that reduce a value along an axis, with factors for its elements.
fn graphs(types: [&str; 2], axis: i64) -> Vec<(&'static str, Graph)> {
    let graph = |body: Body| samples::graph(&types, |_, x| body(x[0], x[1]));
    vec![
        ("softmax", graph(&|x, y| vec![(x * y).softmax(axis)])),
        // A driver's compiler can combine the signs wrongly here.
        ("signs", graph(&|x, y| vec![(x * y).softmax(axis).tanh()])),
        (
            "signs, then selected",
            graph(&|x, y| {
                let weights = (x * y).softmax(axis);
                vec![
                    weights.erf(),
                    (weights * 4.0 - 2.0).erf(),
                    (weights * 4.0 - 2.0).tanh(),
                ]
            }),
        ),
        (
            "log_softmax",
            graph(&|x, _| {
                let shifted = x - x.amax(&[axis], true);
                vec![shifted - shifted.exp().sum(&[axis], true).log()]
            }),
        ),
        (
            "layer_norm",
            graph(&|x, y| {
                let rest = x - x.mean(&[axis], true);
                let scale = ((rest * rest).mean(&[axis], true) + 1e-5).rsqrt();
                vec![rest * scale * y + y]
            }),
        ),
        (
            "rms_norm",
            graph(&|x, y| vec![x * ((x * x).mean(&[axis], true) + 1e-5).rsqrt() * y]),
        ),
        (
            "moments in one pass",
            graph(&|x, _| {
                let mean = x.mean(&[axis], false);
                vec![(x * x).mean(&[axis], false) - mean * mean, mean]
            }),
        ),
        (
            "a norm and its moments",
            graph(&|x, _| {
                let mean = x.mean(&[axis], true);
                let scale = (x.var(&[axis], 0.0, true) + 1e-5).rsqrt();
                vec![(x - mean) * scale, mean, scale]
            }),
        ),
        (
            "whole numbers",
            graph(&|x, _| {
                let whole = (x * 10.0).to(onionskin::dtype::DType::I32);
                let largest = x.builder().apply(
                    Reduce {
                        function: ReduceFunction::Max,
                        axes: vec![axis as usize],
                    },
                    vec![whole.into()],
                );
                vec![largest]
            }),
        ),
    ]
}

/// Builds graphs that reduce rows of a length.
fn row_graphs(length: &str) -> Vec<(&'static str, Graph)> {
    let types = [format!("f32[B, {length}]"), format!("f32[{length}]")];
    let types = [types[0].as_str(), types[1].as_str()];
    let group_norm = samples::graph(&types, |_, x| {
        let (x, y) = (x[0], x[1]);
        let (b, s) = (x.size(0), x.size(1));
        let rows = (x * y).reshape(vec![b.clone(), 1.into(), 1.into(), s.clone()]);
        let rest = rows - rows.mean(&[2, 3], true);
        let norm = rest * (rows.var(&[2, 3], 0.0, true) + 1e-5).rsqrt();
        vec![norm.reshape(vec![b, s]) * y]
    });
    let mut graphs = graphs(types, 1);
    graphs.push(("group_norm", group_norm));
    graphs
}

/// Builds graphs that reduce the middle axis of `[pieces, length, columns]`.
fn column_graphs([pieces, length, columns]: [&str; 3]) -> Vec<(&'static str, Graph)> {
    let types = [
        format!("f32[{pieces}, {length}, {columns}]"),
        format!("f32[{length}, 1]"),
    ];
    graphs([&types[0], &types[1]], 1)
}

/// Returns capabilities for each variant that a device can run: by workgroups, by subgroups, and one reduction at a time.
fn row_variants(device: &GpuDevice) -> Vec<Capabilities> {
    let own = device.capabilities();
    let mut variants = vec![
        Capabilities {
            software: false,
            ..own.clone()
        },
        Capabilities {
            software: true,
            subgroups: false,
            subgroup_size: 0,
            ..own.clone()
        },
    ];
    if own.simd_lanes().is_some() {
        variants.push(own.clone());
    }
    variants
}

fn input(shape: &[usize], seed: u64) -> Tensor {
    let numel: usize = shape.iter().product();
    let element = |index: u64| (index.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) % 1000;
    let values = (0..numel as u64).map(|index| element(index) as f32 / 250.0 - 2.0);
    Tensor::from_vec(shape.to_vec(), values.collect()).unwrap()
}

fn check(name: &str, device: &GpuDevice, graph: &Graph, sizes: &[(i64, i64)]) {
    for capabilities in row_variants(device) {
        let plan =
            plan::plan(graph, &capabilities).unwrap_or_else(|error| panic!("{name}: {error}"));
        let options = ProgramOptions::default();
        let program = Program::new(device, plan, &Default::default(), options)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for (rows, length) in sizes {
            let bindings = Bindings::from([("B".into(), *rows), ("S".into(), *length)]);
            let shapes = graph
                .inputs
                .iter()
                .map(|id| graph.ty(*id).sizes(&bindings).unwrap());
            let types = graph.inputs.iter().map(|id| graph.ty(*id).dtype);
            let inputs: Vec<Tensor> = shapes
                .zip(types)
                .zip(3..)
                .map(|((shape, dtype), seed)| input(&shape, seed).cast(dtype).unwrap())
                .collect();
            let expected = interp::run(graph, &BTreeMap::new(), &inputs).unwrap();
            let found = program.run(&inputs).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                let distance = distance(found, expected);
                assert!(
                    distance < 2e-5,
                    "{name} of {rows} rows of {length}: {distance} by {capabilities:?}"
                );
            }
        }
    }
}

#[test]
fn rows_of_any_length_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for (name, graph) in row_graphs("S") {
        check(
            name,
            &device,
            &graph,
            &[(3, 37), (9, 1), (1, 5000), (70, 128)],
        );
    }
}

/// Rows of known length are read as vec4 where possible; short ones by a single invocation.
#[test]
fn rows_of_known_length_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for length in [12, 13, 200, 768, 1024, 1030, 8192] {
        for (name, graph) in row_graphs(&length.to_string()) {
            check(name, &device, &graph, &[(1, length), (11, length)]);
        }
    }
}

/// Columns as vec8, vec4 and scalars, kept in registers or read several times, split or not, and too few for a kernel of
/// their own.
#[test]
fn columns_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for sizes in [
        ["2", "12", "256"],
        ["1", "30", "1024"],
        ["3", "45", "64"],
        ["2", "300", "128"],
        ["4", "129", "63"],
        ["40", "37", "60"],
        ["2", "50", "3"],
        ["3", "S", "64"],
    ] {
        for (name, graph) in column_graphs(sizes) {
            check(name, &device, &graph, &[(1, 33)]);
        }
    }
}

/// Normalises along channels between convolutions, whose images have vec4 channels: an input, an image and the output.
fn normalised_images(channels: &str) -> Graph {
    let types = [
        format!("f32[2, {channels}, 9, 12]"),
        format!("f32[{channels}, {channels}, 1, 1]"),
    ];
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    samples::graph(&types, |_, x| {
        let (x, filter) = (x[0], x[1]);
        let axes = vec![ConvAxis::padded(1, 0); 2];
        let first = x.softmax(1).conv(filter, axes.clone(), 1);
        let rest = first - first.mean(&[1], true);
        let norm = rest * ((rest * rest).mean(&[1], true) + 1e-5).rsqrt();
        vec![norm.conv(filter, axes, 1).softmax(1)]
    })
}

#[test]
fn columns_of_images_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for channels in ["6", "8", "32", "64"] {
        let graph = normalised_images(channels);
        check(channels, &device, &graph, &[(1, 1)]);
    }
}

/// Reductions of all axes, of columns and of channels, with few results, which split reductions compute. The numbers are
/// those of kernels.
fn reductions() -> Vec<(&'static str, Graph, usize)> {
    use ReduceFunction::{Max, Min, Sum};
    let reduce = |ty: &str, function, axes: &[i64]| {
        samples::graph(&[ty], |_, x| vec![x[0].reduce(function, axes, false)])
    };
    vec![
        ("all", reduce("f32[1000000]", Sum, &[]), 2),
        (
            "a prime number of elements",
            reduce("f32[270001]", Sum, &[0]),
            3,
        ),
        ("three rows", reduce("f32[3, 1000, 300]", Max, &[1, 2]), 1),
        ("a short row", reduce("f32[200, 400]", Sum, &[]), 1),
        ("half precision", reduce("f16[700, 400]", Sum, &[]), 2),
        ("brain floats", reduce("bf16[700, 400]", Min, &[]), 2),
        (
            "whole numbers",
            reduce("i32[1, 280000, 1]", Sum, &[0, 1]),
            2,
        ),
        ("few columns", reduce("f32[30000, 3]", Sum, &[0]), 2),
        ("columns as vec8", reduce("f32[1000, 200]", Max, &[0]), 1),
        ("columns as vec4", reduce("f32[1009, 100]", Sum, &[0]), 3),
        ("long columns", reduce("f32[66000, 128]", Max, &[0]), 2),
        ("many columns", reduce("f32[33, 2304]", Min, &[0]), 1),
        ("channels", reduce("f32[4, 12, 40, 40]", Sum, &[0, 2, 3]), 2),
        (
            "a norm",
            samples::graph(&["f32[280000]"], |_, x| {
                vec![(x[0] * x[0]).sum(&[], true).sqrt()]
            }),
            2,
        ),
        (
            "a variance",
            samples::graph(&["f32[280000]"], |_, x| vec![x[0].var(&[0], 1.0, false)]),
            2,
        ),
        (
            "a variance of unequal parts",
            samples::graph(&["f32[270001]"], |_, x| vec![x[0].var(&[0], 1.0, false)]),
            6,
        ),
        (
            "variances of channels",
            samples::graph(&["f32[4, 12, 40, 40]"], |_, x| {
                vec![x[0].var(&[0, 2, 3], 0.0, false)]
            }),
            3,
        ),
        (
            "variances of few columns, far from zero",
            samples::graph(&["f32[30000, 3]"], |_, x| {
                vec![(x[0] + 1000.0).var(&[0], 1.0, false)]
            }),
            3,
        ),
    ]
}

#[test]
fn split_reductions_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for (name, graph, _) in reductions() {
        check(name, &device, &graph, &[(1, 1)]);
    }
}

/// The index of the largest element is that of the first of equals, and of the first NaN if there is one.
#[test]
fn indices_of_the_largest_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for (ty, axis) in [
        ("f32[5, 65]", 1),
        ("f32[2, 1030]", 1),
        ("f16[3, 200]", 1),
        ("i32[70, 9]", 0),
    ] {
        let graph = samples::graph(&[ty], |_, x| {
            vec![x[0].argmax(axis, false), x[0].argmin(axis, false)]
        });
        check(ty, &device, &graph, &[(1, 1)]);
    }
    let graph = samples::graph(&["f32[100]"], |_, x| vec![x[0].argmax(0, false)]);
    for places in [[99, 99], [3, 90], [41, 40], [0, 8]] {
        let mut values = vec![1.0f32; 100];
        for place in places {
            values[place] = f32::NAN;
        }
        let x = Tensor::from_vec(vec![100], values).unwrap();
        for capabilities in row_variants(&device) {
            let plan = plan::plan(&graph, &capabilities).unwrap();
            let options = ProgramOptions::default();
            let program = Program::new(&device, plan, &Default::default(), options).unwrap();
            let found = program.run(std::slice::from_ref(&x)).unwrap();
            let first = places.into_iter().min().unwrap();
            assert_eq!(found[0].to_i64(), [first as i64], "{places:?}");
        }
    }
}

/// A split reduction takes one more kernel, and a further one if its parts are unequal.
#[test]
fn split_reductions_take_one_more_kernel() {
    for (name, graph, count) in reductions() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        assert_eq!(plan.steps.len(), count, "{name}");
    }
}

/// NaN and infinities are found at any position of a row.
#[test]
fn rows_with_nan_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let largest = samples::graph(&["f32[B, 200]"], |_, x| vec![x[0].amax(&[1], false)]);
    let softmax = samples::graph(&["f32[B, 200]"], |_, x| vec![x[0].softmax(-1)]);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values: Vec<f32> = (0..5 * 200).map(|i| (i % 37) as f32 - 18.0).collect();
        for place in [0, 263, 463, 799] {
            values[place] = odd;
        }
        let x = Tensor::from_vec(vec![5, 200], values).unwrap();
        for graph in [&largest, &softmax] {
            let expected = interp::run(graph, &BTreeMap::new(), std::slice::from_ref(&x)).unwrap();
            for capabilities in row_variants(&device) {
                let plan = plan::plan(graph, &capabilities).unwrap();
                let options = ProgramOptions::default();
                let program = Program::new(&device, plan, &Default::default(), options).unwrap();
                let found = program.run(std::slice::from_ref(&x)).unwrap();
                let pairs = found[0].to_f64().into_iter().zip(expected[0].to_f64());
                for (place, (found, expected)) in pairs.enumerate() {
                    let is_same = found == expected || found.is_nan() && expected.is_nan();
                    assert!(
                        is_same || (found - expected).abs() < 2e-5,
                        "{found} for {expected} at {place} with {odd}"
                    );
                }
            }
        }
    }
}

/// One kernel computes each of the graphs.
#[test]
fn rows_are_one_kernel() {
    for device in [samples::capabilities(), samples::rasteriser()] {
        for (name, graph) in row_graphs("S") {
            let plan = plan::plan(&graph, &device).unwrap();
            assert_eq!(plan.steps.len(), 1, "{name}");
        }
    }
}

/// One kernel also computes columns if there are enough of them; images between convolutions are not copied.
#[test]
fn columns_are_one_kernel() {
    for (name, graph) in column_graphs(["4", "300", "64"]) {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        assert_eq!(plan.steps.len(), 1, "{name}");
    }
    let plan = plan::plan(&normalised_images("32"), &samples::rasteriser()).unwrap();
    assert_eq!(plan.steps.len(), 5);
}

/// A batch norm in training: the reductions also write the running statistics and the scale.
fn channel_norm(channels: &str) -> Graph {
    let types = [
        format!("f32[B, {channels}, 3, S]"),
        format!("f32[{channels}]"),
    ];
    samples::graph(&[&types[0], &types[1]], |_, x| {
        let (x, running) = (x[0], x[1]);
        let mean = x.mean(&[0, 2, 3], false);
        let rest = x - mean.unsqueeze(-1).unsqueeze(-1);
        let variance = (rest * rest).mean(&[0, 2, 3], false);
        let scale = (variance + 1e-5).rsqrt() * running;
        vec![
            rest * scale.unsqueeze(-1).unsqueeze(-1),
            running * 0.9 + mean * 0.1,
            running * 0.9 + variance * 0.1,
        ]
    })
}

#[test]
fn reductions_that_write_several_values_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    for channels in ["12", "13", "64", "600"] {
        let graph = channel_norm(channels);
        check(channels, &device, &graph, &[(1, 1), (3, 5), (40, 20)]);
    }
}
