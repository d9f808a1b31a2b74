//! Models that reject values: on the host and on a device a run fails with PyTorch's message, the node and the user's line.
//!
//! Without an adapter the tests print a note and test the host alone; with `REQUIRE_GPU=1` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod samples;

use onionskin::error::{Error, ErrorKind, Result};
use onionskin::gpu::{FeatureLevel, RunInput};
use onionskin::ir::GraphModule;
use onionskin::item::Item;
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

/// A graph of one call, inputs that it rejects with their message, and inputs that it accepts.
struct Case {
    signature: &'static str,
    call: &'static str,
    refused: Vec<Tensor>,
    message: &'static str,
    taken: Vec<Tensor>,
}

fn case(
    signature: &'static str,
    call: &'static str,
    refused: Vec<Tensor>,
    message: &'static str,
    taken: Vec<Tensor>,
) -> Case {
    Case {
        signature,
        call,
        refused,
        message,
        taken,
    }
}

fn ints<const N: usize>(shape: [usize; N], numbers: &[i64]) -> Tensor {
    Tensor::from_vec(shape, numbers.to_vec()).unwrap()
}

fn floats<const N: usize>(shape: [usize; N]) -> Tensor {
    let numel = shape.iter().product::<usize>();
    Tensor::from_vec(shape, (1..=numel).map(|number| number as f32).collect()).unwrap()
}

fn cases() -> Vec<Case> {
    let x = || floats([2, 5]);
    let index = |numbers: &[i64]| ints([1, numbers.len()], numbers);
    let vector = |numbers: &[i64]| ints([numbers.len()], numbers);
    vec![
        case(
            "x: f32[2, 5], i: i64[1, 3]",
            "f32[1, 3] = aten.gather x, 1, i",
            vec![x(), index(&[1, 7, 0])],
            "index 7 is out of bounds for dimension 1 with size 5",
            vec![x(), index(&[0, 4, 2])],
        ),
        case(
            "x: f32[2, 5], i: i64[1, 3]",
            "f32[1, 3] = aten.gather x, 1, i",
            vec![x(), index(&[1, -1, 0])],
            "index -1 is out of bounds for dimension 1 with size 5",
            vec![x(), index(&[0, 4, 2])],
        ),
        case(
            "x: f32[2, 5], i: i64[3]",
            "f32[2, 3] = aten.index_select x, 1, i",
            vec![x(), vector(&[0, 1, 5])],
            "index 5 is out of bounds for dimension 1 with size 5",
            vec![x(), vector(&[0, 1, 4])],
        ),
        case(
            "x: f32[9, 8], i: i64[3]",
            "f32[3, 8] = aten.embedding x, i",
            vec![floats([9, 8]), vector(&[8, 9, 0])],
            "index out of range in self: index 9, 9 rows",
            vec![floats([9, 8]), vector(&[8, 0, 0])],
        ),
        case(
            "x: f32[2, 5], i: i64[2], j: i64[2]",
            "f32[2] = aten.index.Tensor x, [i, j]",
            vec![x(), vector(&[0, 1]), vector(&[-6, -1])],
            "index -6 is out of bounds for dimension 1 with size 5",
            vec![x(), vector(&[0, -2]), vector(&[4, -5])],
        ),
        case(
            "x: f32[2, 5], i: i64[2], v: f32[2, 5]",
            "f32[2, 5] = aten.index_put x, [i], v",
            vec![x(), vector(&[0, 2]), x()],
            "index 2 is out of bounds for dimension 0 with size 2",
            vec![x(), vector(&[0, -1]), x()],
        ),
        case(
            "x: f32[2, 5], i: i64[3]",
            "f32[3] = aten.take x, i",
            vec![x(), vector(&[0, 9, -11])],
            "out of range: tried to access index -11 on a tensor of 10 elements",
            vec![x(), vector(&[0, 9, -10])],
        ),
        case(
            "x: f32[2, 5], i: i64[1, 2], v: f32[1, 2]",
            "f32[2, 5] = aten.scatter.src x, 1, i, v",
            vec![x(), index(&[5, 0]), floats([1, 2])],
            "index 5 is out of bounds for dimension 1 with size 5",
            vec![x(), index(&[4, 0]), floats([1, 2])],
        ),
        case(
            "x: f32[2, 5], i: i64[1, 2], v: f32[1, 2]",
            "f32[2, 5] = aten.scatter_add x, 1, i, v",
            vec![x(), index(&[-2, 0]), floats([1, 2])],
            "index -2 is out of bounds for dimension 1 with size 5",
            vec![x(), index(&[4, 4]), floats([1, 2])],
        ),
        case(
            "x: f32[2, 5], i: i64[1], v: f32[2, 1]",
            "f32[2, 5] = aten.index_copy x, 1, i, v",
            vec![x(), vector(&[5]), floats([2, 1])],
            "index 5 is out of bounds for dimension 1 with size 5",
            vec![x(), vector(&[3]), floats([2, 1])],
        ),
        case(
            "i: i64[3]",
            "i64[3, 4] = aten.one_hot i, 4",
            vec![vector(&[0, -1, 2])],
            "Class values must be non-negative and smaller than num_classes: class -1 of 4",
            vec![vector(&[0, 3, 2])],
        ),
        case(
            "x: i64[3], y: i64[3]",
            "i64[3] = aten.floor_divide x, y",
            vec![vector(&[7, -7, 1]), vector(&[2, 0, 1])],
            "ZeroDivisionError",
            vec![vector(&[7, -7, 1]), vector(&[2, 2, -1])],
        ),
        case(
            "x: i64[3], y: i32[3]",
            "i64[3] = aten.remainder.Tensor x, y",
            vec![
                vector(&[7, -7, 1]),
                Tensor::from_vec([3], vec![2i32, 0, 1]).unwrap(),
            ],
            "ZeroDivisionError",
            vec![
                vector(&[7, -7, 1]),
                Tensor::from_vec([3], vec![2i32, 4, -3]).unwrap(),
            ],
        ),
        case(
            "x: f32[2, 5], i: i64[2]",
            "f32[] = aten.nll_loss x, i",
            vec![x(), vector(&[0, 5])],
            "Target 5 is out of bounds",
            vec![x(), vector(&[-100, 4])],
        ),
    ]
}

impl Case {
    fn model(&self) -> Model {
        let Case {
            signature, call, ..
        } = self;
        let (ty, call) = call.split_once(" = ").unwrap();
        let text = format!(
            "graph forward({signature}) -> {ty} {{\n  out: {ty} = {call}  @ model.py:7 (table)\n  return out\n}}"
        );
        let module: GraphModule = text.parse().unwrap();
        Model::from_module(module)
    }
}

fn devices() -> Vec<Device> {
    let gpu = samples::device(FeatureLevel::Full).map(Device::Gpu);
    std::iter::once(Device::Host).chain(gpu).collect()
}

fn session(model: &Model, device: &Device, checks: bool) -> Session {
    let options = CompileOptions {
        checks,
        ..CompileOptions::default()
    };
    model.compile(device, &options).unwrap()
}

/// Returns the error of a run that must fail.
fn run_error(result: Result<Vec<Tensor>>) -> Error {
    let error = result.expect_err("the run was not refused");
    assert_eq!(error.kind(), ErrorKind::Raised, "{error}");
    error
}

fn steps(session: &Session) -> usize {
    let variants = session.compiled_graphs();
    let programs = variants
        .iter()
        .filter_map(|variant| variant.program.as_ref());
    programs.map(|program| program.plan().steps.len()).sum()
}

#[test]
fn rejected_values_are_errors_with_pytorchs_message_and_line() {
    for device in devices() {
        for case in cases() {
            let session = session(&case.model(), &device, true);
            let call = case.call;
            for _ in 0..2 {
                let error = run_error(session.run(&case.refused));
                assert_eq!(error.message(), case.message, "{call} on {device}");
                assert!(error.to_string().contains("model.py:7 (table)"), "{error}");
                // The next run starts without the fault of this one.
                session.run(&case.taken).unwrap();
            }
        }
    }
}

#[test]
fn accepted_values_agree_with_the_host() {
    for case in cases() {
        let results = devices()
            .iter()
            .map(|device| {
                session(&case.model(), device, true)
                    .run(&case.taken)
                    .unwrap()
            })
            .collect::<Vec<_>>();
        let mut others = results.iter().skip(1);
        assert!(others.all(|other| *other == results[0]), "{}", case.call);
    }
}

#[test]
fn checks_cost_no_dispatch_and_can_be_left_out() {
    let Some(gpu) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let device = Device::Gpu(gpu);
    for case in cases() {
        let [with, without] = [true, false].map(|checks| session(&case.model(), &device, checks));
        assert_eq!(steps(&with), steps(&without), "{}", case.call);
        assert!(without.run(&case.refused).is_ok(), "{}", case.call);
        let plans = without.compiled_graphs();
        let mut programs = plans.iter().filter_map(|variant| variant.program.as_ref());
        assert!(programs.all(|program| program.plan().runtime_checks.is_none()));
    }
}

#[test]
fn indices_from_iota_are_not_checked() {
    let text = "graph forward(x: f32[4, 5]) -> f32[4, 5] {
  i = iota dtype=i64, shape=[4], axis=0
  j = aten.remainder.Scalar i, 4
  y = aten.index_select x, 0, j
  k = aten.argmax y, 1, true
  z = aten.gather y, 1, k
  w = add y, y
  return w
}";
    let module: GraphModule = text.parse().unwrap();
    let Some(gpu) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let session = session(&Model::from_module(module), &Device::Gpu(gpu), true);
    session.run(&[floats([4, 5])]).unwrap();
    for variant in session.compiled_graphs() {
        assert!(
            variant
                .program
                .as_ref()
                .unwrap()
                .plan()
                .runtime_checks
                .is_none()
        );
    }
}

/// A kernel computes two embeddings; the fault of the earlier node is reported, though it is the second operand of the sum.
#[test]
fn the_fault_of_the_first_node_is_reported() {
    let text = "graph forward(x: f32[9, 8], i: i64[3], j: i64[3]) -> f32[3, 8] {
  a: f32[3, 8] = aten.embedding x, i  @ model.py:1
  b: f32[3, 8] = aten.embedding x, j  @ model.py:2
  y: f32[3, 8] = aten.add.Tensor b, a
  return y
}";
    let module: GraphModule = text.parse().unwrap();
    let model = Model::from_module(module);
    for device in devices() {
        let session = session(&model, &device, true);
        let told = |i: &[i64], j: &[i64]| {
            let inputs = [floats([9, 8]), ints([3], i), ints([3], j)];
            run_error(session.run(&inputs)).to_string()
        };
        assert!(told(&[0, 9, 1], &[11, 0, 0]).contains("model.py:1"));
        assert!(told(&[0, 8, 1], &[11, 0, 0]).contains("model.py:2"));
    }
}

/// Messages are those of the same calls in PyTorch.
#[test]
fn containers_raise_as_in_pytorch() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/archives/container_errors.pt"
    );
    let model = Model::open(path).unwrap();
    let x = Item::Tensor(floats([2]));
    let expected = [
        ("remove", "list.remove(x): x not in list"),
        ("pop", "KeyError: b"),
        ("delete", "KeyError: b"),
        ("no_step", "List slice should have non-zero step"),
        ("no_separator", "ValueError: empty separator"),
    ];
    assert!(
        model
            .import_method("forward", Some(std::slice::from_ref(&x)))
            .is_ok()
    );
    for (method, message) in expected {
        let error = model
            .import_method(method, Some(std::slice::from_ref(&x)))
            .unwrap_err();
        assert_eq!(error.message(), message);
        assert!(error.to_string().contains("make_archives.py:"), "{error}");
    }
}

fn raises() -> Model {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/archives/raises.pt"
    );
    Model::open(path).unwrap()
}

/// The messages are PyTorch's for the same inputs.
#[test]
fn exceptions_of_a_script_are_kept_in_branches_and_loops() {
    let vector = |numbers: &[f32]| Tensor::from_vec([2], numbers.to_vec()).unwrap();
    let count = |count: i64| ints([], &[count]);
    for device in devices() {
        let session = session(&raises(), &device, true);
        let run = |x: &[f32], trips: i64, index: [i64; 2]| {
            session.run(&[vector(x), count(trips), ints([2], &index)])
        };
        let found = run(&[1.0, 2.0], 3, [0, 1]).unwrap();
        assert_eq!(found[0].to_f64(), [8.0, 16.0]);
        let refused: [(&[f32], i64, [i64; 2], &str); 6] = [
            (
                &[1.0, -2.0],
                3,
                [0, 1],
                "AssertionError: x must be positive",
            ),
            (&[1.0, 2.0], 7, [0, 1], "ValueError: too large"),
            (&[11.0, 20.0], 1, [1, 0], "AssertionError: large at first"),
            (&[0.5, 0.25], 2, [0, 0], "AssertionError: a round too many"),
            (&[1.0, 2.0], 0, [0, 0], "ZeroDivisionError"),
            (
                &[1.0, 2.0],
                1,
                [2, 0],
                "index 2 is out of bounds for dimension 0 with size 2",
            ),
        ];
        for (x, trips, index, message) in refused {
            let error = run_error(run(x, trips, index));
            assert!(error.message().contains(message), "{error}");
            // PyTorch implements `//` in a script of its own, which is the reported line.
            let place = match message {
                "ZeroDivisionError" => "<string>:3",
                _ => "make_archives.py:",
            };
            assert!(error.to_string().contains(place), "{error}");
        }
        assert!(run(&[1.0, 2.0], 3, [0, 1]).is_ok());
    }
}

#[test]
fn a_launch_reports_faults_on_request() {
    let Some(gpu) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let case = cases().remove(3);
    let session = session(&case.model(), &Device::Gpu(gpu), true);
    let launch = |inputs: &[Tensor]| {
        let inputs: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        session.launch(&inputs).unwrap()
    };
    let run = launch(&case.refused);
    assert_eq!(run.check().unwrap_err().message(), case.message);
    assert_eq!(run.read().unwrap_err().message(), case.message);
    let run = launch(&case.taken);
    run.check().unwrap();
    run.read().unwrap();
    let waited = pollster::block_on(session.run_async(&case.refused));
    assert_eq!(waited.unwrap_err().message(), case.message);
}
