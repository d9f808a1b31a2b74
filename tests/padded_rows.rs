//! Values with padded rows, compared with the host oracle, for every kind of reader and every source of inputs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::BTreeMap;

use onionskin::gpu::{FeatureLevel, Keep, Program, ProgramOptions, RunInput};
use onionskin::interp;
use onionskin::ir::{Graph, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::layout::Layout;
use onionskin::kernel::materialization::Precision;
use onionskin::kernel::plan::{Plan, SlotKind};
use onionskin::plan::{self, PlanOptions};
use onionskin::tensor::Tensor;

mod samples;

use samples::distance;

const SHAPES: [&[usize]; 3] = [&[40, 128], &[128, 256], &[256, 48]];

/// Two products whose left factors, an input and a temporary, have further readers of every kind.
fn graph() -> Graph {
    let types = SHAPES.map(|shape| format!("f32{shape:?}"));
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    samples::graph(&types, |b, x| {
        let (x, first, second) = (x[0], x[1], x[2]);
        let rows = x.matmul(first).tanh();
        let heads = rows.reshape(vec![40.into(), 4.into(), 64.into()]);
        let joined = b.concat(&[rows, rows * 2.0], 0);
        vec![
            rows.matmul(second),
            x.matmul(first).sum(&[1], false),
            x.softmax(1),
            x.sum(&[0], false) + 1.0,
            rows.softmax(1),
            rows.amax(&[0], false),
            rows.permute([1, 0]) + 1.0,
            rows.slice(1, Some(3.into()), Some(250.into()), 2) * 2.0,
            heads.permute([1, 0, 2]) * 3.0,
            heads.sum(&[1], false),
            joined.sort(1, false).0,
            joined.flip(&[1]),
            rows.topk(3, 1, true).0,
        ]
    })
}

fn plan(capabilities: &Capabilities, precision: Precision) -> Plan {
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    plan::plan_with_options(&graph(), capabilities, &options).unwrap()
}

/// Returns the slots with padded rows: the index of an input, or `None` for a temporary.
fn padded_slots(plan: &Plan) -> Vec<Option<usize>> {
    let is_padded = |layout: &Layout| matches!(layout, Layout::Padded { .. });
    let slots = plan.slots.iter().filter(|slot| is_padded(&slot.layout));
    let kinds = slots.map(|slot| match slot.kind {
        SlotKind::Input(number) => Some(number),
        _ => None,
    });
    kinds.collect()
}

#[test]
fn left_factors_are_padded_on_a_rasteriser() {
    let plan_of = |capabilities| plan(&capabilities, Precision::Single);
    let on_rasteriser = plan_of(samples::rasteriser());
    assert_eq!(padded_slots(&on_rasteriser), [Some(0), None]);
    assert_eq!(padded_slots(&plan_of(samples::capabilities())), []);
}

#[test]
fn all_readers_of_padded_rows_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let inputs: Vec<Tensor> = SHAPES
        .iter()
        .zip(1..)
        .map(|(shape, seed)| samples::tensor(shape, seed))
        .collect();
    let expected = interp::run(&graph(), &BTreeMap::new(), &inputs).unwrap();
    for (precision, tolerance) in [(Precision::Single, 2e-5), (Precision::Half, 2e-2)] {
        for keep in [Keep::Outputs, Keep::Everything] {
            let plan = plan(device.capabilities(), precision);
            let is_padded = !padded_slots(&plan).is_empty();
            assert_eq!(is_padded, device.capabilities().simd_lanes().is_some());
            let options = ProgramOptions {
                keep,
                ..ProgramOptions::default()
            };
            let program = Program::new(&device, plan, &BTreeMap::new(), options).unwrap();
            let run = program
                .launch(&inputs.iter().map(RunInput::from).collect::<Vec<_>>())
                .unwrap();
            for (found, expected) in run.read().unwrap().iter().zip(&expected) {
                let distance = distance(found, expected);
                assert!(distance < tolerance, "{distance} by {precision:?}");
            }
            if keep == Keep::Everything {
                let kept = run.slot(&graph().value(graph().inputs[0]).name).unwrap();
                assert_eq!(kept, inputs[0]);
            }
        }
    }
}

/// A concatenation of many values takes a kernel for each, and all write into the padded operand of a product.
#[test]
fn concatenations_of_many_are_padded() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let own = device.capabilities();
    let few = Capabilities {
        max_storage_buffers: 8,
        ..own.clone()
    };
    let graph = samples::graph(&["f32[160, 32]", "f32[512, 48]"], |b, x| {
        let part = |k| (x[0] * f64::from(k)).softmax(1);
        let parts: Vec<Value> = (0..16).map(part).collect();
        vec![b.concat(&parts, 1).matmul(x[1])]
    });
    let inputs = [
        samples::tensor(&[160, 32], 7),
        samples::tensor(&[512, 48], 8),
    ];
    let expected = interp::run(&graph, &BTreeMap::new(), &inputs).unwrap();
    for capabilities in [own, &few] {
        let plan = plan::plan(&graph, capabilities).unwrap();
        assert_eq!(!padded_slots(&plan).is_empty(), own.simd_lanes().is_some());
        let is_concat = |label: &str| label.starts_with("concat");
        let steps = plan.steps.iter();
        let concats = steps.filter(|step| is_concat(&plan.kernels[step.kernel].label));
        assert_eq!(concats.count(), 16);
        let options = ProgramOptions::default();
        let program = Program::new(&device, plan, &BTreeMap::new(), options).unwrap();
        let found = program.run(&inputs).unwrap();
        assert!(distance(&found[0], &expected[0]) < 2e-5);
    }
}

/// A padded input that another program wrote is copied row by row.
#[test]
fn inputs_on_the_device_are_copied_row_by_row() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let double = samples::graph(&["f32[40, 128]"], |_, x| vec![x[0] * 2.0]);
    let inputs: Vec<Tensor> = SHAPES
        .iter()
        .zip(4..)
        .map(|(shape, seed)| samples::tensor(shape, seed))
        .collect();
    let doubled = interp::run(&double, &BTreeMap::new(), &inputs[..1]).unwrap();
    let given = [&doubled[..], &inputs[1..]].concat();
    let expected = interp::run(&graph(), &BTreeMap::new(), &given).unwrap();
    let program =
        |plan| Program::new(&device, plan, &BTreeMap::new(), ProgramOptions::default()).unwrap();
    let first = program(plan::plan(&double, device.capabilities()).unwrap());
    let made = first.launch(&[RunInput::Host(&inputs[0])]).unwrap();
    let made = made.outputs().remove(0);
    let second = program(plan(device.capabilities(), Precision::Single));
    let run = second.launch(&[
        RunInput::Device(&made),
        RunInput::Host(&inputs[1]),
        RunInput::Host(&inputs[2]),
    ]);
    for (found, expected) in run.unwrap().read().unwrap().iter().zip(&expected) {
        assert!(distance(found, expected) < 2e-5);
    }
}
