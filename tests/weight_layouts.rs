//! Graphs whose factors are weights, which a device may store in other layouts. The device is compared with the host oracle
//! at several sizes from one plan, including values between kernels.
//!
//! Without an adapter the tests print a note and pass; with `REQUIRE_GPU=1` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dim::Bindings;
use onionskin::gpu::{FeatureLevel, GpuDevice, Keep, Program, ProgramOptions, RunInput, TensorMap};
use onionskin::interp;
use onionskin::ir::{Builder, Graph, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::layout::Layout;
use onionskin::op::ConvAxis;
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

use samples::tensor;

fn axis(stride: i64, padding: i64, dilation: i64) -> ConvAxis {
    ConvAxis {
        dilation,
        ..ConvAxis::padded(stride, padding)
    }
}

/// The axis of a transposed convolution.
fn transposed_axis(base_dilation: i64, padding: i64) -> ConvAxis {
    ConvAxis {
        base_dilation,
        ..ConvAxis::padded(1, padding)
    }
}

/// A convolution by a weight of this type, with a bias for each channel.
fn conv<'g>(
    b: &'g Builder,
    x: Value<'g>,
    name: &str,
    filter: &str,
    axes: &[ConvAxis],
    groups: i64,
) -> Value<'g> {
    let ty: onionskin::shape::TensorType = filter.parse().unwrap();
    let mut shape = vec![1.into(); axes.len() + 1];
    shape[0] = ty.shape[0].clone();
    let bias = format!("f32[{}]", ty.shape[0]).parse().unwrap();
    let bias = b.weight(&format!("{name}_bias"), bias).reshape(shape);
    x.conv(b.weight(name, ty), axes.to_vec(), groups) + bias
}

/// Max pooling with windows of 3 × 3 and stride 2.
fn pool(x: Value) -> Value {
    x.unfold(2, 3, 2, 1).unfold(3, 3, 2, 1).amax(&[4, 5], false)
}

fn graphs() -> Vec<(&'static str, Graph)> {
    let images = |types: &[&str], body: for<'g> fn(&'g Builder, Value<'g>) -> Vec<Value<'g>>| {
        samples::graph(types, move |b, x| body(b, x[0]))
    };
    vec![
        (
            "linear",
            images(&["f32[B, S, 24]"], |b, x| {
                let weight = b.weight("w", "f32[40, 24]".parse().unwrap());
                let bias = b.weight("b", "f32[40]".parse().unwrap());
                vec![(x.matmul(weight.transpose(0, 1)) + bias).relu()]
            }),
        ),
        (
            "ragged linear",
            images(&["f32[S, 21]"], |b, x| {
                vec![x.dot(b.weight("w", "f32[21, 37]".parse().unwrap()))]
            }),
        ),
        (
            "convolutions and a pool",
            images(&["f32[B, 3, S, 19]"], |b, x| {
                let axes = [axis(2, 2, 1), axis(2, 2, 1)];
                let y = conv(b, x, "first", "f32[22, 3, 5, 5]", &axes, 1).relu();
                let axes = [axis(1, 1, 1), axis(1, 1, 1)];
                let z = conv(b, pool(y), "second", "f32[40, 22, 3, 3]", &axes, 1);
                vec![z.relu().sum(&[2, 3], false)]
            }),
        ),
        (
            "a residual, dilation and a concatenation",
            images(&["f32[B, 8, S, S]"], |b, x| {
                let wide = [axis(1, 2, 2), axis(1, 2, 2)];
                let y = conv(b, x, "a", "f32[8, 8, 3, 3]", &wide, 1).relu();
                let same = [axis(1, 1, 1), axis(1, 1, 1)];
                let z = (conv(b, y, "b", "f32[8, 8, 3, 3]", &same, 1) + y).relu();
                let both = b.concat(&[y, z], 1);
                let one = [axis(1, 0, 1), axis(1, 0, 1)];
                vec![conv(b, both, "c", "f32[5, 16, 1, 1]", &one, 1)]
            }),
        ),
        (
            "concatenations within each other",
            nested("f32[1, 1, 8, 24]"),
        ),
        ("concatenations of images", nested("f32[B, 1, S, 11]")),
        (
            "groups and channels by themselves",
            images(&["f32[B, 16, S, 9]"], |b, x| {
                let same = [axis(1, 1, 1), axis(1, 1, 1)];
                let y = conv(b, x, "a", "f32[24, 8, 3, 3]", &same, 2).relu();
                let far = [axis(2, 1, 1), axis(2, 1, 1)];
                let z = conv(b, y, "b", "f32[24, 1, 3, 3]", &far, 24).relu();
                let one = [axis(1, 0, 1), axis(1, 0, 1)];
                vec![conv(b, z, "c", "f32[6, 24, 1, 1]", &one, 1).sum(&[2, 3], false)]
            }),
        ),
        (
            "signals",
            images(&["f32[B, 5, S]"], |b, x| {
                let y = conv(b, x, "a", "f32[18, 5, 3]", &[axis(1, 1, 1)], 1).relu();
                vec![conv(b, y, "b", "f32[4, 18, 2]", &[axis(2, 0, 1)], 1)]
            }),
        ),
        (
            "volumes",
            images(&["f32[B, 3, S, 6, 7]"], |b, x| {
                let same = [axis(1, 1, 1), axis(1, 1, 1), axis(1, 1, 1)];
                let y = conv(b, x, "a", "f32[12, 3, 3, 3, 3]", &same, 1).relu();
                let far = [axis(1, 0, 1), axis(2, 1, 1), axis(2, 1, 1)];
                vec![conv(b, y, "b", "f32[6, 12, 1, 3, 3]", &far, 1) + 1.0]
            }),
        ),
        (
            "spread images",
            images(&["f32[B, 8, S, 5]"], |b, x| {
                let far = [transposed_axis(2, 1), transposed_axis(3, 2)];
                let y = conv(b, x, "a", "f32[12, 8, 3, 4]", &far, 1).relu();
                let apart = [transposed_axis(2, 0), transposed_axis(1, 1)];
                vec![conv(b, y, "b", "f32[8, 6, 2, 3]", &apart, 2)]
            }),
        ),
    ]
}

/// Nested concatenations of convolutions; one part has other readers, and a padded pool reads the last one.
fn nested(x: &str) -> Graph {
    samples::graph(&[x], |b, x| {
        let same = [axis(1, 1, 1), axis(1, 1, 1)];
        let y = conv(b, x[0], "a", "f32[8, 1, 3, 3]", &same, 1).relu();
        let z = conv(b, y, "b", "f32[12, 8, 3, 3]", &same, 1).relu();
        let two = b.concat(&[y, z], 1);
        let w = conv(b, two, "c", "f32[6, 20, 3, 3]", &same, 1).relu() + 1.0;
        let three = b.concat(&[two, w], 1);
        let border = [0, 0, 1, 1].map(|size| size.into());
        let low = three.pad(&border, &border, f64::NEG_INFINITY);
        vec![conv(b, pool(low), "d", "f32[4, 26, 3, 3]", &same, 1)]
    })
}

fn weights(graph: &Graph) -> TensorMap {
    let named = graph.weights().enumerate();
    named
        .map(|(seed, (name, id))| {
            let sizes = graph.ty(id).sizes(&Bindings::new()).unwrap();
            (name.to_owned(), tensor(&sizes, seed + 3))
        })
        .collect()
}

/// Returns the largest difference, relative to the largest number.
fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.shape(), expected.shape());
    let expected = expected.to_f64();
    let largest = expected
        .iter()
        .fold(1e-6, |largest: f64, x| largest.max(x.abs()));
    let pairs = found.to_f64().into_iter().zip(&expected);
    pairs.fold(0.0, |worst: f64, (x, y)| worst.max((x - y).abs())) / largest
}

fn check(device: &GpuDevice, keep: Keep) {
    for (name, graph) in graphs() {
        let weights = weights(&graph);
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        let options = ProgramOptions {
            keep,
            ..ProgramOptions::default()
        };
        let program = Program::new(device, plan, &weights, options).unwrap();
        for (b, s) in [(2, 13), (1, 8), (3, 30)] {
            let sizes = Bindings::from([("B".into(), b), ("S".into(), s)]);
            let inputs: Vec<Tensor> = graph
                .inputs
                .iter()
                .map(|input| tensor(&graph.ty(*input).sizes(&sizes).unwrap(), 1))
                .collect();
            let expected = interp::run(&graph, &weights, &inputs).unwrap();
            let hosted: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
            let run = program.launch(&hosted).unwrap();
            for (found, expected) in run.read().unwrap().iter().zip(&expected) {
                let worst = difference(found, expected);
                assert!(worst < 2e-6, "{name} at {b}, {s} is wrong by {worst}");
            }
            if keep == Keep::Everything {
                compare_slots(name, &graph, &weights, &inputs, &run);
            }
        }
    }
}

/// Checks that values between kernels are read back row-major, whatever their layout.
fn compare_slots(
    name: &str,
    graph: &Graph,
    weights: &TensorMap,
    inputs: &[Tensor],
    run: &onionskin::gpu::Run,
) {
    let mut all = graph.clone();
    let made = graph.nodes.iter().flat_map(|node| node.results.iter());
    all.outputs = made.copied().collect();
    let expected = interp::run(&all, weights, inputs).unwrap();
    for (id, expected) in all.outputs.iter().zip(&expected) {
        let slot = &graph.value(*id).name;
        if let Ok(found) = run.slot(slot) {
            let worst = difference(&found, expected);
            assert!(worst < 2e-6, "{slot} of {name} is wrong by {worst}");
        }
    }
}

#[test]
fn weights_in_any_layout_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    check(&device, Keep::Outputs);
    check(&device, Keep::Everything);
}

#[test]
fn weights_agree_within_portable_limits() {
    let Some(device) = samples::device(FeatureLevel::Portable) else {
        return;
    };
    check(&device, Keep::Outputs);
}

/// An embedding whose table is also the weight of the last linear layer, as in language models; and an elementwise reader of
/// a weight.
fn shared_table() -> Graph {
    samples::graph(&["i64[S]"], |b, x| {
        let table = b.weight("table", "f32[301, 24]".parse().unwrap());
        let bias = b.weight("bias", "f32[301]".parse().unwrap());
        let y = table.index_select(0, x[0]);
        vec![y.dot(table.transpose(0, 1)) + bias, table * 0.5]
    })
}

/// Every family of kernels reads weights that are split into chunks because bindings are small.
#[test]
fn weights_in_pieces_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = shared_table();
    let mut weights = weights(&graph);
    weights.insert("table".into(), tensor(&[301, 24], 5));
    let rows = Tensor::from_vec([5], vec![300i64, 0, 127, 128, 211]).unwrap();
    let expected = interp::run(&graph, &weights, std::slice::from_ref(&rows)).unwrap();
    for software in [device.capabilities().software, false] {
        for limit in [10_000, 20_000] {
            let capabilities = Capabilities {
                software,
                max_binding_size: limit,
                ..device.capabilities().clone()
            };
            let plan = plan::plan(&graph, &capabilities).unwrap();
            let is_piece = |layout: &Layout| matches!(layout, Layout::Chunk { .. });
            let pieces = plan.slots.iter().filter(|slot| is_piece(&slot.layout));
            assert_eq!(pieces.count() as u64, 28_896_u64.div_ceil(limit));
            let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
            let found = program
                .launch(&[RunInput::Host(&rows)])
                .unwrap()
                .read()
                .unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                let worst = difference(found, expected);
                assert!(worst < 2e-6, "bindings of {limit} bytes: wrong by {worst}");
            }
        }
    }
}

/// A product by a weight that is transposed for the device.
fn product() -> Graph {
    samples::graph(&["f32[B, 24]"], |b, x| {
        let weight = b.weight("w", "f32[40, 24]".parse().unwrap());
        vec![x[0].dot(weight.transpose(0, 1))]
    })
}

#[test]
fn equal_weights_are_uploaded_once_and_others_kept_apart() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let graph = product();
    let options = ProgramOptions::default();
    let x = tensor(&[3, 24], 1);
    let run = |weight: &Tensor| {
        let weights = TensorMap::from([("w".to_owned(), weight.clone())]);
        let plan = plan::plan(&graph, device.capabilities()).unwrap();
        let program = Program::new(&device, plan, &weights, options.clone()).unwrap();
        let uploaded = program.statistics().bytes_uploaded;
        let found = program.run(std::slice::from_ref(&x)).unwrap();
        let expected = interp::run(&graph, &weights, std::slice::from_ref(&x)).unwrap();
        assert!(difference(&found[0], &expected[0]) < 2e-6);
        (uploaded, program)
    };
    let weight = tensor(&[40, 24], 2);
    let (first, program) = run(&weight);
    assert!(40 * 24 * 4 <= first, "{first} bytes");
    // Another tensor with equal elements.
    let copy = Tensor::from_vec([40, 24], weight.to_f32()).unwrap();
    assert_eq!(run(&copy).0, 0);
    // Equal name and type, other elements.
    assert_eq!(run(&tensor(&[40, 24], 3)).0, first);
    // Weights that no program uses are released.
    drop(program);
    assert_eq!(run(&weight).0, first);
}

/// Images between convolutions keep the vec4 channel layout; only the input is converted.
#[test]
fn images_keep_the_vec4_layout_on_a_rasteriser() {
    for (name, graph) in graphs() {
        let plan = plan::plan(&graph, &samples::rasteriser()).unwrap();
        let copies = plan
            .slots
            .iter()
            .filter(|slot| slot.name.ends_with(" as vec4"));
        assert!(copies.count() <= 1, "{name} copies values between kernels");
        let portable = plan::plan(&graph, &samples::capabilities()).unwrap();
        let is_linear = |layout: &Layout| *layout == Layout::Linear;
        assert!(portable.slots.iter().all(|slot| is_linear(&slot.layout)));
    }
}

/// Convolutions write into the concatenated image, and a pool reads padding itself. Channels whose offset is not a multiple
/// of four are copied.
#[test]
fn concatenations_are_written_in_place() {
    let labels = |graph: &Graph| -> Vec<String> {
        let plan = plan::plan(graph, &samples::rasteriser()).unwrap();
        let labels = plan.kernels.iter().map(|kernel| kernel.label.clone());
        labels.collect()
    };
    let is_copied = |graph: &Graph| {
        let mut labels = labels(graph).into_iter();
        labels.any(|label| label.contains("concat") || label.contains("pad"))
    };
    assert!(!is_copied(&nested("f32[1, 1, 8, 24]")));
    let ragged = samples::graph(&["f32[1, 8, 8, 24]"], |b, x| {
        let same = [axis(1, 1, 1), axis(1, 1, 1)];
        let y = conv(b, x[0], "a", "f32[6, 8, 3, 3]", &same, 1).relu();
        let z = conv(b, x[0], "b", "f32[8, 8, 3, 3]", &same, 1).relu();
        vec![conv(
            b,
            b.concat(&[y, z], 1),
            "c",
            "f32[4, 14, 3, 3]",
            &same,
            1,
        )]
    });
    assert!(is_copied(&ragged));
}
