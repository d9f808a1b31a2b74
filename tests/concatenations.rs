//! Concatenations of many values: each operand is written in place by its producer, or copied by a kernel of its own. The
//! device is compared with the host oracle at several sizes from one plan, and the plans are checked.
//!
//! Without an adapter the tests print a note and pass; with `REQUIRE_GPU=1` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::dim::{Bindings, Dim};
use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, GpuDevice, Keep, Program, ProgramOptions, TensorMap};
use onionskin::interp;
use onionskin::ir::{Builder, Graph, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::{Access, Plan, SlotId, SlotKind};
use onionskin::op::ConvAxis;
use onionskin::pass::{self};
use onionskin::plan::{self, PlanOptions};
use onionskin::shape::TensorType;
use onionskin::tensor::Tensor;

mod samples;

use samples::tensor;

/// Builds a graph with example sizes for the planner's tables.
fn graph(
    types: &[&str],
    body: impl for<'g> Fn(&'g Builder, &[Value<'g>]) -> Vec<Value<'g>>,
) -> Graph {
    let mut graph = samples::graph(types, |b, x| body(b, x));
    graph.hints = sizes(1, 100, 1);
    graph
}

fn sizes(b: i64, l: i64, s: i64) -> Bindings {
    Bindings::from([("B".into(), b), ("L".into(), l), ("S".into(), s)])
}

/// A KV cache of three layers: each layer appends to its keys and values, and an attention reads them.
fn kv_caches(head: usize) -> Graph {
    let cache = format!("f32[3, 2, B, 4, L, {head}]");
    let new = format!("f32[B, 4, S, {head}]");
    graph(&[&cache, &new], |b, x| {
        let mut kept = Vec::new();
        let mut read = x[1];
        for layer in 0..3i64 {
            let of = |side: i64| x[0].select(0, layer).select(0, side);
            let key = b.concat(&[of(0), read * 0.5], 2);
            let value = b.concat(&[of(1), read + 1.0], 2);
            let scores = read.dot(key.permute([0, 1, 3, 2])) * 0.01;
            read = scores.dot(value) * 0.01;
            kept.push(b.stack(&[key, value], 0));
        }
        vec![b.stack(&kept, 0), read]
    })
}

/// Six operands, of which one is an input, one occurs twice and one is also an output.
fn shared_operands() -> Graph {
    graph(&["f32[256, 64]", "f32[64]"], |b, x| {
        let y = x[0] * x[1];
        let z = x[0] + x[1];
        let w = x[0].relu();
        vec![b.concat(&[x[0], y, z, w, w, x[0] * 2.0], 0), z]
    })
}

/// Columns written one after the other, as by in-place writes. Layers share kernels, which read the start of the written
/// column from a size; it can be negative.
fn column_writes() -> Graph {
    graph(&["f32[3, 4]"], |b, x| {
        let mut y = x[0].pad(&[0.into(), 0.into()], &[0.into(), 4.into()], 0) * 0.0;
        for column in 0..4 {
            let number = x[0].narrow(1, column, 1);
            for (at, number) in [(2 * column, number), (2 * column + 1, number * number)] {
                let (front, behind) = (y.narrow(1, 0, at), y.narrow(1, at + 1, 7 - at));
                let parts = [front, number, behind].into_iter();
                let parts: Vec<Value> = parts.filter(|part| !part.size(1).is(0)).collect();
                y = b.concat(&parts, 1);
            }
        }
        vec![y]
    })
}

/// Five operands joined along rows, which are not contiguous in the result, and five whose offsets are not aligned.
fn unaligned_operands(rows: &str) -> Graph {
    let x = format!("f32[{rows}, 60]");
    graph(&[&x], |b, x| {
        let factors = [1.0, 2.0, 3.0, 4.0, 5.0];
        let many = factors.map(|factor| x[0] * factor);
        vec![b.concat(&many, 1), b.concat(&many, 0)]
    })
}

/// Twenty states of `numbers` elements, each computed from the last: more than a kernel binds buffers. The last state is
/// also an output in another shape.
fn unrolled_recurrence(numbers: i64) -> Graph {
    let types = [
        format!("f32[20, {numbers}]"),
        format!("f32[{numbers}, {numbers}]"),
    ];
    graph(&types.each_ref().map(String::as_str), |b, x| {
        let mut states: Vec<Value> = Vec::new();
        for step in 0..20 {
            let given = x[0].narrow(0, step, 1);
            states.push(match states.last() {
                Some(state) => (state.dot(x[1]) * 0.01 + given).tanh(),
                None => given.tanh(),
            });
        }
        let last = states[19].reshape(vec![1.into(), 1.into(), numbers.into()]);
        vec![b.concat(&states, 0), last]
    })
}

fn graphs() -> Vec<(&'static str, Graph)> {
    vec![
        ("states", unrolled_recurrence(64)),
        ("states of odd numbers", unrolled_recurrence(50)),
        ("caches", kv_caches(64)),
        ("caches of odd heads", kv_caches(33)),
        ("shared operands", shared_operands()),
        ("columns", column_writes()),
        ("scattered", unaligned_operands("401")),
        ("scattered in odd numbers", unaligned_operands("2*L + 201")),
    ]
}

fn planned(graph: &Graph, capabilities: &Capabilities, precision: Precision) -> Plan {
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    plan::plan_with_options(graph, capabilities, &options).unwrap()
}

fn check(device: &GpuDevice, keep: Keep, precision: Precision) {
    let tolerance = match precision {
        Precision::Single => 1e-5,
        _ => 1e-2,
    };
    for (name, graph) in graphs() {
        let plan = planned(&graph, device.capabilities(), precision);
        let options = ProgramOptions {
            keep,
            ..ProgramOptions::default()
        };
        let program = Program::new(device, plan, &TensorMap::new(), options).unwrap();
        for sizes in [sizes(1, 100, 1), sizes(2, 7, 3)] {
            let types = graph.inputs.iter().map(|input| graph.ty(*input));
            let inputs = (1..).zip(types);
            let inputs: Vec<Tensor> = inputs
                .map(|(seed, ty)| tensor(&ty.sizes(&sizes).unwrap(), seed))
                .collect();
            let expected = interp::run(&graph, &TensorMap::new(), &inputs).unwrap();
            let found = program.run(&inputs).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.shape(), expected.shape(), "{name}");
                let pairs = found.to_f64().into_iter().zip(expected.to_f64());
                let worst = pairs.fold(0.0, |worst: f64, (x, y)| worst.max((x - y).abs()));
                assert!(worst < tolerance, "{name} at {sizes:?} is wrong by {worst}");
            }
        }
    }
}

#[test]
fn concatenations_agree_with_the_oracle() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    check(&device, Keep::Outputs, Precision::Single);
    check(&device, Keep::Everything, Precision::Single);
    check(&device, Keep::Outputs, Precision::Half);
}

#[test]
fn concatenations_agree_within_portable_limits() {
    let Some(device) = samples::device(FeatureLevel::Portable) else {
        return;
    };
    check(&device, Keep::Outputs, Precision::Single);
    check(&device, Keep::Outputs, Precision::Half);
}

/// Returns the number of steps whose kernels concatenate, and the number of slots that are parts of others.
fn concat_counts(plan: &Plan) -> (usize, usize) {
    let steps = plan.steps.iter();
    let labels = steps.map(|step| plan.kernels[step.kernel].label.as_str());
    let parts = plan.slots.iter();
    let parts = parts.filter(|slot| matches!(slot.kind, SlotKind::Subview { .. }));
    (
        labels.filter(|label| label.contains("concat")).count(),
        parts.count(),
    )
}

/// Concatenations of each layer are parts of the output of all layers: six operands in three pairs.
#[test]
fn caches_are_written_into_the_output() {
    for precision in [Precision::Single, Precision::Half] {
        for device in [samples::capabilities(), samples::rasteriser()] {
            let plan = planned(&kv_caches(64), &device, precision);
            assert_eq!(concat_counts(&plan), (6, 9));
            let whole = plan.outputs[0];
            let slots = plan.slots.iter();
            let mut parts = slots.filter(|slot| matches!(slot.kind, SlotKind::Subview { .. }));
            assert!(parts.all(|slot| slot.layout == plan.slots[whole.0].layout));
            assert_eq!(plan.slots[whole.0].kind, SlotKind::Output);
        }
    }
}

/// Products read a layer's keys and values in the output as textures.
#[test]
fn products_read_parts_of_an_output_as_textures() {
    let plan = planned(&kv_caches(64), &samples::rasteriser(), Precision::Single);
    let is_part = |slot: &SlotId| matches!(plan.slots[slot.0].kind, SlotKind::Subview { .. });
    let read = plan.steps.iter().flat_map(|step| {
        let accesses = &plan.kernels[step.kernel].bindings;
        let bindings = step.bindings.iter().zip(accesses);
        bindings
            .filter(|(slot, access)| is_part(slot) && matches!(access, Access::AliasedTexture(_)))
    });
    assert_eq!(read.count(), 6);
}

/// Operands that cannot be written in place take a kernel each, or one kernel if they are few.
#[test]
fn operands_that_are_not_in_place_are_copied_by_kernels() {
    let device = samples::rasteriser();
    let count = |graph: &Graph| concat_counts(&planned(graph, &device, Precision::Single));
    assert_eq!(count(&shared_operands()), (6, 0));
    assert_eq!(count(&unaligned_operands("401")), (10, 0));
    assert_eq!(count(&unaligned_operands("7")), (2, 0));
}

/// Operands are written in place where the offset alignment of bindings permits it.
#[test]
fn operands_are_in_place_if_their_offsets_are_aligned() {
    let graph = graph(&["f32[7, 48]", "f32[48, 48]"], |b, x| {
        let y = x[0].dot(x[1]);
        vec![b.concat(&[y, y.dot(x[1])], 0)]
    });
    for (offset_alignment, expected) in [(256, (1, 0)), (64, (0, 2))] {
        let device = Capabilities {
            offset_alignment,
            ..samples::rasteriser()
        };
        let found = concat_counts(&planned(&graph, &device, Precision::Single));
        assert_eq!(found, expected, "{offset_alignment}");
    }
}

/// Operands that are stored in any case are written in place, even if they are small.
#[test]
fn stored_operands_are_written_in_place() {
    let graph = graph(&["f32[16, 64]", "f32[64, 64]"], |b, x| {
        let (y, z) = (x[0].dot(x[1]), x[0].sum(&[0], false));
        let z = z.reshape(vec![1.into(), 64.into()]);
        vec![b.concat(&[y, z], 0)]
    });
    for device in [samples::capabilities(), samples::rasteriser()] {
        assert_eq!(
            concat_counts(&planned(&graph, &device, Precision::Single)),
            (0, 2)
        );
    }
}

/// All states are written in place, also the last one, which only the output reads. Otherwise most of them share a kernel.
#[test]
fn states_share_kernels() {
    let device = samples::rasteriser();
    let plan = |numbers| planned(&unrolled_recurrence(numbers), &device, Precision::Single);
    assert_eq!(concat_counts(&plan(64)), (0, 20));
    let odd = plan(50);
    assert_eq!(concat_counts(&odd), (20, 0));
    let labels = odd.kernels.iter().map(|kernel| kernel.label.as_str());
    let texts = labels.filter(|label| label.contains("concat")).count();
    assert!(texts <= 4, "{texts} texts");
}

/// Names and shapes of filters.
const FILTERS: [(&str, [usize; 4]); 5] = [
    ("first", [16, 8, 3, 3]),
    ("second", [16, 16, 3, 3]),
    ("third", [16, 32, 3, 3]),
    ("fourth", [16, 48, 3, 3]),
    ("last", [8, 128, 1, 1]),
];

/// A convolution by one of the filters, with a pointwise epilogue.
fn layer<'g>(b: &'g Builder, place: usize, x: Value<'g>) -> Value<'g> {
    let (name, shape) = FILTERS[place];
    let axis = ConvAxis::padded(1, (shape[2] / 2) as i64);
    let filter = b.weight(name, TensorType::new(DType::F32, shape));
    let scale = 1.0 / (shape[1] * shape[2] * shape[3]) as f64;
    (x.conv(filter, vec![axis; 2], 1) * scale.sqrt()).relu()
}

/// Halves an image by maxima of 2 × 2 elements and enlarges it again.
fn downscale_and_enlarge(x: Value) -> Value {
    let in_places = |size: i64| {
        let sizes = [16, 16, size, 16, size].map(Dim::from);
        [&[x.size(0)], sizes.as_slice()].concat()
    };
    let small = x.reshape(in_places(2)).amax(&[3, 5], true);
    small.expand(in_places(2)).reshape(x.shape())
}

/// Images concatenated along channels, as in a DenseNet: each layer reads all layers before it. The last one reads them
/// again, with both halves of an image, an enlarged image and further pointwise values.
fn concatenated_images(count: usize) -> Graph {
    let graph = graph(&[&format!("f32[{count}, 8, 32, 32]")], |b, x| {
        let first = layer(b, 0, x[0]);
        let second = layer(b, 1, first);
        let third = layer(b, 2, b.concat(&[first, second], 1));
        let fourth = layer(b, 3, b.concat(&[first, second, third], 1));
        let halves = [0, 8].map(|at| fourth.narrow(1, at, 8));
        let more =
            [downscale_and_enlarge(fourth), first, second, third].map(|x| (x * x + x).sigmoid());
        let all = [&[first, second, third], halves.as_slice(), &more].concat();
        vec![layer(b, 4, b.concat(&all, 1))]
    });
    pass::optimize(&graph).unwrap()
}

fn with_buffer_limit(buffers: u32, device: &Capabilities) -> Capabilities {
    Capabilities {
        max_storage_buffers: buffers,
        ..device.clone()
    }
}

/// An operand without elements is never read, not even at a constant index, which would be out of bounds.
#[test]
fn empty_operands_are_not_read() {
    let graph = samples::graph(&["f32[1, 1]"], |b, x| {
        let none = x[0].slice(0, Some(Dim::ZERO), Some(Dim::ZERO), 1);
        let stored = none.dot(x[0]).softmax(-1);
        vec![
            b.concat(&[x[0] + 1.0, stored, none * 2.0], 0),
            b.concat(&[none, x[0] * 2.0], 0),
        ]
    });
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let plan = planned(&graph, device.capabilities(), Precision::Single);
    let program = Program::new(&device, plan, &TensorMap::new(), ProgramOptions::default());
    let inputs = [tensor(&[1, 1], 5)];
    let found = program.unwrap().run(&inputs).unwrap();
    let expected = interp::run(&graph, &TensorMap::new(), &inputs).unwrap();
    assert_eq!(found, expected);
}

/// A single image needs no copies: ten slots are parts of others. In a batch of two, channels of an image are not
/// contiguous: a kernel copies all operands, or one kernel each if they exceed the bindings.
#[test]
fn images_are_written_where_convolutions_read_them() {
    let found = |(count, buffers)| {
        let device = with_buffer_limit(buffers, &samples::rasteriser());
        concat_counts(&planned(
            &concatenated_images(count),
            &device,
            Precision::Single,
        ))
    };
    let cases = [(1, 6), (2, 16), (2, 6)];
    assert_eq!(cases.map(found), [(0, 10), (3, 0), (8, 0)]);
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let weights: TensorMap = (1..)
        .zip(FILTERS)
        .map(|(seed, (name, shape))| (name.to_string(), tensor(&shape, seed)))
        .collect();
    for (count, precision, tolerance) in [
        (1, Precision::Single, 1e-4),
        (2, Precision::Single, 1e-4),
        (1, Precision::Half, 2e-2),
        (2, Precision::Half, 2e-2),
    ] {
        let (graph, inputs) = (concatenated_images(count), [tensor(&[count, 8, 32, 32], 9)]);
        for buffers in [6, 16] {
            let plan = planned(
                &graph,
                &with_buffer_limit(buffers, device.capabilities()),
                precision,
            );
            let program = Program::new(&device, plan, &weights, ProgramOptions::default());
            let found = program.unwrap().run(&inputs).unwrap();
            let expected = interp::run(&graph, &weights, &inputs).unwrap();
            let distance = samples::distance(&found[0], &expected[0]);
            assert!(distance < tolerance, "{count} in {precision:?}: {distance}");
        }
    }
}
