//! Tests of the libtorch front end: functions are traced and checked, tensors converted, and results are Onionskin's.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and print the checks that they skip"
)]

use onionskin::cases::{self, Case, CaseArchive};
use onionskin::compare::{Difference, Tolerance, compare};
use onionskin::dtype::DType;
use onionskin::error::{ErrorKind, Result};
use onionskin::item::Item;
use onionskin::scalar::Scalar;
use onionskin::tensor::Tensor;
use onionskin::trace::check::{CheckOptions, Subject, check_trace, evaluate};
use onionskin::trace::libtorch::{
    LibtorchFunction, LibtorchProgram, from_libtorch, to_libtorch, trace,
};
use tch::nn::{self, Module};

fn ramp(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let data = (0..count).map(|index| index as f64 / 4.0 - 1.0).collect();
    Tensor::from_f64(DType::F32, shape, data).unwrap()
}

#[test]
fn tensors_round_trip() {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8};
    for dtype in [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64] {
        for shape in [vec![], vec![3], vec![2, 0], vec![2, 1, 4]] {
            let count = shape.iter().product::<usize>() as i64;
            let data = (0..count)
                .map(|index| if dtype == Bool { index % 2 } else { index })
                .collect();
            let tensor = Tensor::from_i64(DType::I64, shape, data)
                .unwrap()
                .cast(dtype)
                .unwrap();
            let there = to_libtorch(&tensor).unwrap();
            assert_eq!(from_libtorch(&there).unwrap(), tensor);
        }
    }
    let turned = to_libtorch(&ramp(&[2, 3])).unwrap().transpose(0, 1);
    let found = from_libtorch(&turned).unwrap();
    assert_eq!(found.shape(), [3, 2]);
    assert_eq!(found.to_f64(), [-1.0, -0.25, -0.75, 0.0, -0.5, 0.25]);
    let complex = tch::Tensor::zeros([2], (tch::Kind::ComplexFloat, tch::Device::Cpu));
    assert_eq!(
        from_libtorch(&complex).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn functions_are_traced_and_checked() {
    let function = LibtorchFunction::new(|inputs: &[tch::Tensor]| {
        let (x, y) = (&inputs[0], &inputs[1]);
        let taken = x.relu().sum_dim_intlist([1i64].as_slice(), false, None);
        vec![
            x.matmul(y).softmax(-1, None),
            x.ge(0.0),
            taken,
            x.sum(None),
            x.shallow_clone(),
        ]
    });
    let arguments = vec![Item::Tensor(ramp(&[2, 3])), Item::Tensor(ramp(&[3, 4]))];
    let traced = function.trace(&arguments).unwrap();
    let graph = traced.module.graph("forward").unwrap();
    assert_eq!((graph.inputs.len(), graph.outputs.len()), (2, 5));
    let report = check_trace(
        &function,
        &traced,
        &CheckOptions {
            inputs: vec![arguments],
            ..CheckOptions::default()
        },
    )
    .unwrap();
    assert!(report.passed(), "{report}");
    assert!(report.runs.len() > 3, "{report}");
}

/// The checker finds a branch on a value, which a trace freezes.
#[test]
fn frozen_decisions_are_found() {
    let function = LibtorchFunction::new(|inputs: &[tch::Tensor]| {
        let x = &inputs[0];
        let total = x.sum(None).double_value(&[]);
        vec![if total > 0.0 { x * 2.0 } else { x * -1.0 }]
    });
    let arguments = vec![Item::Tensor(ramp(&[3, 4]))];
    let traced = function.trace(&arguments).unwrap();
    let options = CheckOptions {
        inputs: vec![arguments],
        strict: true,
        ..CheckOptions::default()
    };
    let report = check_trace(&function, &traced, &options).unwrap();
    assert!(!report.passed(), "{report}");
}

#[test]
fn modules_are_traced() {
    let mut variables = nn::VarStore::new(tch::Device::Cpu);
    let root = variables.root();
    let net = nn::seq()
        .add(nn::linear(&root / "fc1", 3, 8, Default::default()))
        .add_fn(|x| x.relu())
        .add(nn::linear(&root / "fc2", 8, 2, Default::default()));
    let function = LibtorchFunction::of_module(&net);
    let arguments = [Item::Tensor(ramp(&[4, 3]))];
    let error = function.trace(&arguments).unwrap_err();
    assert!(
        error.advice().is_some_and(|help| help.contains("freeze")),
        "{error}"
    );
    variables.freeze();
    let traced = function.trace(&arguments).unwrap();
    assert_eq!(traced.module.weights.len(), 4);
    let graph = traced.module.graph("forward").unwrap();
    let got = evaluate(graph, &traced.module, &arguments).unwrap();
    let expected = net.forward(&to_libtorch(&ramp(&[4, 3])).unwrap());
    let expected = Item::Tensor(from_libtorch(&expected).unwrap());
    let differences = compare(&got, &expected, CLOSE);
    assert!(
        differences.iter().all(Difference::passed),
        "{differences:?}"
    );
}

const CLOSE: Tolerance = Tolerance {
    rtol: 1e-5,
    atol: 1e-6,
};

/// A failure of the function is an error, and tracing works afterwards.
#[test]
fn failures_are_errors() {
    let bad = |inputs: &[tch::Tensor]| vec![inputs[0].matmul(&inputs[0])];
    let error = trace(&[ramp(&[2, 3])], bad).unwrap_err();
    assert!(
        error.message().contains("shapes cannot be multiplied"),
        "{error}"
    );
    assert!(!error.message().contains('\n'), "{error}");
    let good = trace(&[ramp(&[2, 3])], |inputs| vec![inputs[0].tanh()]).unwrap();
    assert_eq!(good.module.graphs[0].nodes.len(), 1);
    assert_eq!(
        LibtorchFunction::new(bad)
            .call(&[Item::None])
            .unwrap_err()
            .kind(),
        ErrorKind::Usage
    );
    assert!(LibtorchProgram::from_bytes(b"no archive").is_err());
}

/// Part of the error for arguments that `tch` cannot pass to libtorch: it has no type for a list of tuples.
const NOT_GIVEN: &str = "instead found type 'List[Any]'";

/// libtorch returns the recorded outputs of every case.
#[test]
fn libtorch_returns_the_recorded_outputs() {
    let mut agree = 0;
    let mut not_given = Vec::new();
    for found in cases::find(std::path::Path::new("tests/fixtures/cases")).unwrap() {
        let case = found.load().unwrap();
        match replay(&case) {
            Ok(differences) => {
                assert!(
                    differences.iter().all(Difference::passed),
                    "{}: {differences:?}",
                    found.name
                );
                agree += 1;
            }
            Err(error) if error.message().contains(NOT_GIVEN) => not_given.push(found.name),
            Err(error) => panic!("{}: {error}", found.name),
        }
    }
    assert!(agree > 100, "{agree} cases");
    let containers = ["containers-script-1.13.1", "control-script-2.6.0"];
    assert_eq!(not_given, containers.map(|name| format!("programs/{name}")));
}

fn replay(case: &Case) -> Result<Vec<Difference>> {
    let program = match &case.archive {
        CaseArchive::Path(path) => LibtorchProgram::open(path),
        CaseArchive::Bytes(bytes) => LibtorchProgram::from_bytes(bytes),
    }?;
    let mut differences = Vec::new();
    for set in &case.sets {
        for method in &set.before {
            program.call(method, &[])?;
        }
        for call in &set.calls {
            let got = program.call(&call.method, &call.inputs)?;
            differences.extend(compare(&got, &call.output, set.tolerance));
        }
    }
    Ok(differences)
}

#[test]
fn structures_are_passed() {
    let case = cases::find(std::path::Path::new(
        "tests/fixtures/cases/models/tuple_inputs",
    ));
    let case = case.unwrap()[0].load().unwrap();
    let CaseArchive::Path(path) = &case.archive else {
        panic!("the case is in a folder");
    };
    let program = LibtorchProgram::open(path).unwrap();
    let error = program
        .call("forward", &[Item::Number(Scalar::Int(1))])
        .unwrap_err();
    assert!(error.message().starts_with("libtorch: "), "{error}");
    assert!(program.call("no_method", &[]).is_err());
}
