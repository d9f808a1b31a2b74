//! Verification of gradients: `onionskin verify --backward` and `model::verify_backward`.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod command;

use command::onionskin;
use onionskin::compare::Tolerance;
use onionskin::dtype::DType;
use onionskin::gpu::adapters;
use onionskin::grad::Loss;
use onionskin::ir::{GraphModule, Weights};
use onionskin::item::Item;
use onionskin::model::{Culprit, Verification, verify_backward};
use onionskin::{CompileOptions, Device, Model, Tensor};

const DIGITS: &str = "examples/digits/digits.pt";
const EXACT: Tolerance = Tolerance {
    rtol: 0.0,
    atol: 0.0,
};

/// Verifies a graph on the host, with a vector of two numbers.
fn verified(graph: &str, loss: Option<&Loss>) -> onionskin::error::Result<Vec<Verification>> {
    let module = GraphModule {
        graphs: vec![graph.parse().unwrap()],
        weights: Weights::default(),
        ..GraphModule::default()
    };
    let x: Item = Tensor::full(DType::F32, [2], 1.5).unwrap().into();
    let options = CompileOptions::default();
    let model = Model::from_module(module);
    verify_backward(&model, &Device::Host, &options, &[vec![x]], EXACT, loss)
}

const TWO_OUTPUTS: &str = "graph forward(x: f32[2]) -> (f32[2], f32[]) {\n  a = aten.sin x\n  \
                           b = aten.sum x\n  return a, b\n}";

#[test]
fn gradients_of_a_network_are_compared() {
    let (code, text, error) = onionskin(&["verify", DIGITS, "--backward", "--device", "cpu"]);
    assert_eq!(code, 0, "{text}{error}");
    for name in ["image", "features.0.weight", "classify.bias"] {
        let line = format!("ok   against the oracle: gradient of {name}: equal");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn a_gradient_that_differs_names_its_node() {
    if adapters().is_empty() {
        println!("no adapter here: gradients were not verified on a device");
        return;
    }
    let (code, text, error) = onionskin(&["verify", DIGITS, "--backward"]);
    assert_eq!(code, 0, "{text}{error}");
    let model = Model::open(DIGITS).unwrap();
    let device = Device::open("auto").unwrap();
    let sets: Vec<Vec<Item>> = Vec::new();
    let options = CompileOptions::default();
    let found = verify_backward(&model, &device, &options, &sets, EXACT, None).unwrap();
    let [verification] = found.as_slice() else {
        panic!("{found:?}");
    };
    let is_gradient = |name: &str| name.starts_with("gradient of ");
    let gradients = verification.against_oracle.iter();
    assert!(
        gradients
            .filter(|one| is_gradient(&one.path))
            .any(|one| !one.passed())
    );
    assert!(matches!(verification.culprit, Some(Culprit::Device(_))));
}

#[test]
fn several_outputs_need_a_loss() {
    let error = verified(TWO_OUTPUTS, None).unwrap_err().to_string();
    assert!(
        error.contains("forward has 2 outputs of floats: output.0, output.1"),
        "{error}"
    );
    for loss in ["sum", "mean", "output:output.1"] {
        let found = verified(TWO_OUTPUTS, Some(&loss.parse().unwrap())).unwrap();
        assert!(found.iter().all(Verification::passed), "{found:?}");
        let names = found.iter().flat_map(|one| &one.against_calls);
        assert!(
            names.into_iter().any(|one| one.path == "gradient of x"),
            "{found:?}"
        );
    }
}

#[test]
fn a_loss_is_one_number_and_has_a_name() {
    let loss = "output:output.0".parse().unwrap();
    let error = verified(TWO_OUTPUTS, Some(&loss)).unwrap_err().to_string();
    assert!(error.contains("is not one float"), "{error}");
    let (code, _, error) = onionskin(&["verify", DIGITS, "--backward", "--loss", "median"]);
    assert_eq!(code, 2);
    assert!(error.contains("is not sum, mean or output:NAME"), "{error}");
}
