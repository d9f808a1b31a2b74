//! Invalid plans, inputs and devices return errors.

use onionskin::dim::Dim;
use onionskin::dtype::DType;
use onionskin::error::{Error, ErrorKind, SourcePlace};
use onionskin::gpu::{GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::kernel::capabilities::StorageType;
use onionskin::kernel::plan::{Flow, FlowKind, Plan, SlotId, SlotKind, StepBlock, TripCount};
use onionskin::symbols::{Guard, Relation};

use super::plans::*;

fn fail(device: &GpuDevice, plan: Plan) -> Error {
    Program::new(device, plan, &TensorMap::new(), ProgramOptions::default()).unwrap_err()
}

#[test]
fn bad_wgsl_names_the_kernel_and_the_fault() {
    let Some(device) = device() else { return };
    let mut plan = chain(2, &[symbol("B")]);
    plan.kernels[0].wgsl = plan.kernels[0]
        .wgsl
        .replace("sizes[0].x", "sizes[0].nonsense");
    plan.kernels[1].wgsl = plan.kernels[1].wgsl.replace("fn main", "fn other");
    plan.kernels[1].label = "second".into();
    let error = fail(&device, plan.clone());
    assert_eq!(error.kind(), ErrorKind::Device);
    let text = error.to_string();
    assert!(
        text.contains("affine_f32") && text.contains("nonsense"),
        "{text}"
    );
    assert!(text.contains("second") && text.contains("main"), "{text}");
    assert_eq!(error.iter().count(), 2);
    // A failed program is compiled again; its failure is not cached.
    fail(&device, plan);
}

#[test]
fn bindings_that_do_not_fit_the_shader_are_an_error() {
    let Some(device) = device() else { return };
    let mut plan = chain(2, &[symbol("B")]);
    plan.kernels[0].bindings.swap(0, 1);
    let error = fail(&device, plan);
    assert!(error.message().contains("affine_f32"), "{error}");
}

#[test]
fn too_large_bindings_name_the_slot_and_the_node() {
    let Some(device) = portable_device() else {
        return;
    };
    let program = program(&device, chain(3, &[symbol("B"), Dim::from(1i64 << 20)]));
    let sizes = [("B".into(), 40)].into();
    let error = program.footprint(&sizes).unwrap_err();
    assert_eq!((error.kind(), error.iter().count()), (ErrorKind::Plan, 4));
    let temporary = error.iter().nth(2).unwrap().to_string();
    assert!(
        temporary.starts_with("t1 takes 167772160 bytes"),
        "{temporary}"
    );
    assert!(temporary.contains("node1, in (layer1)"), "{temporary}");
    assert!(temporary.contains("binds at most 134217728"), "{temporary}");
    assert!(error.advice().is_some());
    assert!(program.launch_with(&sizes, &[]).is_err());
    assert!(program.footprint(&[("B".into(), i64::MAX)].into()).is_err());
}

#[test]
fn large_arenas_are_split_over_buffers() {
    let Some(device) = portable_device() else {
        return;
    };
    // Three values of 100 MiB live at once; buffers hold 256 MiB.
    let n = 25 << 20;
    let mut plan = chain(2, &[Dim::from(n)]);
    let shape = plan.slots[0].shape.clone();
    let temporary = |name: &str, first, last| {
        let kind = SlotKind::Temporary { first, last };
        slot(name, DType::F32, StorageType::F32, &shape, kind)
    };
    let weight = SlotKind::Weight("w".into());
    plan.slots = vec![
        slot("w", DType::F32, StorageType::F32, &shape, weight),
        temporary("a", 0, 3),
        temporary("b", 1, 2),
        temporary("c", 2, 3),
        slot("y", DType::F32, StorageType::F32, &shape, SlotKind::Output),
    ];
    plan.kernels.push(add());
    let n = Dim::from(n);
    plan.steps = vec![
        step(0, &[0, 1], &n),
        step(1, &[1, 2], &n),
        step(2, &[1, 2, 3], &n),
        step(2, &[1, 3, 4], &n),
    ];
    (plan.inputs, plan.outputs) = (Vec::new(), vec![SlotId(4)]);
    // The steps dispatch nothing: computing so much would take a software rasteriser seconds.
    for step in &mut plan.steps {
        step.sizes = vec![Dim::from(64i64)];
        step.workgroups = onionskin::kernel::plan::Workgroups::Linear(Dim::ONE);
    }
    let numbers = vec![1f32; 25 << 20];
    let weight = onionskin::tensor::Tensor::from_vec([numbers.len()], numbers).unwrap();
    let weights = TensorMap::from([("w".to_owned(), weight)]);
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    let y = program.run(&[]).unwrap().remove(0);
    // a = 3, b = 7, c = a + b, y = a + c
    let y: &[f32] = y.as_slice().unwrap();
    assert!(y[..64].iter().all(|y| *y == 13.0), "{:?}", &y[..64]);
}

#[test]
fn all_errors_of_a_plan_are_reported_at_once() {
    let Some(device) = portable_device() else {
        return;
    };
    let mut plan = chain(3, &[symbol("B")]);
    let weight = |name: &str| SlotKind::Weight(name.into());
    let shape = [Dim::from(2i64)];
    plan.slots
        .push(slot("w", DType::F32, StorageType::F32, &shape, weight("w")));
    plan.slots
        .push(slot("h", DType::F16, StorageType::F16, &shape, weight("h")));
    plan.steps[0].sizes.clear();
    plan.steps.push(step(1, &[1, 3], &symbol("B")));
    let error = fail(&device, plan);
    let text = error.to_string();
    assert_eq!(error.iter().count(), 4, "{text}");
    assert!(text.contains("the weight w is missing"), "{text}");
    assert!(text.contains("h is planned as f16"), "{text}");
    assert!(text.contains("t0 outside of its lifetime"), "{text}");
}

/// Control flow must be ordered among the steps, and its conditions are scalars.
#[test]
fn invalid_control_flow_is_an_error() {
    let Some(device) = device() else { return };
    let block = |steps: std::ops::Range<usize>, flows| StepBlock { steps, flows };
    let repeat = |again: Option<SlotId>, body| Flow {
        kind: FlowKind::Loop {
            trips: TripCount::Size(Dim::from(2i64)),
            initial_condition: None,
            next_condition: again,
            body,
        },
        nodes: vec!["loop".into()],
        place: SourcePlace::default(),
    };
    let with = |flows| Plan {
        flows,
        ..chain(3, &[symbol("B")])
    };
    let fine = repeat(None, block(1..2, Vec::new()));
    program(&device, with(vec![fine.clone()]));
    let outside = repeat(None, block(2..9, Vec::new()));
    let around = repeat(None, block(0..1, vec![fine.clone()]));
    let unknown = repeat(Some(SlotId(99)), block(0..1, Vec::new()));
    for flows in [
        vec![outside],
        vec![around],
        vec![unknown],
        vec![fine.clone(), fine],
    ] {
        assert_eq!(fail(&device, with(flows)).kind(), ErrorKind::Internal);
    }
    let error = fail(
        &device,
        with(vec![repeat(Some(SlotId(1)), block(0..1, Vec::new()))]),
    );
    assert!(
        error.message().contains("t0 is not a live scalar"),
        "{error}"
    );
}

#[test]
fn plans_with_invalid_indices_are_errors() {
    let Some(device) = device() else { return };
    let mut plan = chain(2, &[symbol("B")]);
    plan.outputs = vec![SlotId(99)];
    assert_eq!(fail(&device, plan).kind(), ErrorKind::Internal);
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let Some(device) = device() else { return };
    let mut plan = chain(2, &[symbol("B"), Dim::from(3i64)]);
    plan.guards.push(Guard {
        left: symbol("B"),
        relation: Relation::LessEqual,
        right: Dim::from(4i64),
        place: SourcePlace::default(),
    });
    let program = program(&device, plan);
    let x = |rows: usize, columns: usize| {
        floats(vec![0.0; rows * columns])
            .reshape([rows, columns])
            .unwrap()
    };
    let fail = |inputs: &[_]| program.run(inputs).unwrap_err().to_string();
    assert!(fail(&[]).contains("0 inputs given"));
    let text = fail(&[floats([0.0; 3])]);
    assert_eq!(text, "input x is f32[3]; the program expects f32[B, 3]");
    assert!(fail(&[x(2, 4)]).contains("f32[2, 4]"));
    assert!(fail(&[x(2, 3).cast(DType::I32).unwrap()]).contains("i32[2, 3]"));
    assert!(fail(&[x(5, 3)]).contains("B <= 4"));
    program.run(&[x(4, 3)]).unwrap();
}

#[test]
fn a_lost_device_is_an_error() {
    let Some(device) = device() else { return };
    let program = program(&device, chain(2, &[symbol("B")]));
    program.run(&[floats([1.0])]).unwrap();
    device.wgpu().destroy();
    let error = program.run(&[floats([1.0])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    let error = program.run(&[floats([1.0, 2.0])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
}
