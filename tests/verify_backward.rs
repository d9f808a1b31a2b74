//! Verification of gradients: `onionskin verify --backward` and `model::verify_backward`.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod command;

use std::path::Path;

use command::{Folder, onionskin};
use onionskin::compare::Tolerance;
use onionskin::dtype::DType;
use onionskin::gpu::adapters;
use onionskin::grad::Loss;
use onionskin::ir::{GraphModule, Weights};
use onionskin::item::Item;
use onionskin::model::{BackwardOptions, Culprit, Verification, verify_backward};
use onionskin::{CompileOptions, Device, Model, Tensor, tensor_file};

const DIGITS: &str = "examples/digits/digits.pt";
const EXACT: Tolerance = Tolerance {
    rtol: 0.0,
    atol: 0.0,
};

/// Verifies a graph on the host, with a vector of two numbers.
fn verified(graph: &str, loss: Option<&Loss>) -> onionskin::error::Result<Vec<Verification>> {
    let backward = BackwardOptions {
        loss: loss.cloned(),
        ..BackwardOptions::default()
    };
    let module = GraphModule {
        graphs: vec![graph.parse().unwrap()],
        weights: Weights::default(),
        ..GraphModule::default()
    };
    let x: Item = Tensor::full(DType::F32, [2], 1.5).unwrap().into();
    let options = CompileOptions::default();
    let model = Model::from_module(module);
    verify_backward(
        &model,
        &Device::Host,
        &options,
        &[vec![x]],
        EXACT,
        &backward,
    )
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

/// The gradients of a run have the names of the parameters, and computing modules again changes no number.
#[test]
fn a_run_has_the_gradients_of_all_parameters() {
    let run = |options: &[&str]| {
        let arguments = [
            "run",
            DIGITS,
            "--random",
            "--device",
            "cpu",
            "--backward",
            "--json",
        ];
        let (code, text, error) = onionskin(&[&arguments[..], options].concat());
        assert_eq!(code, 0, "{text}{error}");
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        found["output"].to_string()
    };
    let text = run(&[]);
    let model = Model::open(DIGITS).unwrap();
    let module = model.import_method("forward", None).unwrap();
    assert_eq!(module.parameters.len(), 14);
    for name in &module.parameters {
        assert!(text.contains(&format!("{name:?}:")), "{name} in {text}");
    }
    assert!(!text.contains("running_mean"), "{text}");
    assert_eq!(run(&["--recompute", "features"]), text);
    assert_ne!(run(&["--loss", "mean"]), text);
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
    let (options, backward) = (CompileOptions::default(), BackwardOptions::default());
    let found = verify_backward(&model, &device, &options, &sets, EXACT, &backward).unwrap();
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

#[test]
fn entries_without_gradients_are_verified_forward() {
    let graph = |text: &str| text.parse().unwrap();
    let count = "graph count(x: f32[2]) -> i64[] {\n  a = aten.argmax x\n  return a\n}";
    let forward = "graph forward(x: f32[2]) -> f32[] {\n  a = aten.sum x\n  return a\n}";
    let verified = |graphs| {
        let module = GraphModule {
            graphs,
            ..GraphModule::default()
        };
        let (options, backward) = (CompileOptions::default(), BackwardOptions::default());
        let model = Model::from_module(module);
        verify_backward(&model, &Device::Host, &options, &[], EXACT, &backward)
    };
    let found = verified(vec![graph(forward), graph(count)]).unwrap();
    assert!(found.iter().all(Verification::passed), "{found:?}");
    let have_gradients: Vec<bool> = found.iter().map(|one| one.has_gradients).collect();
    assert_eq!(have_gradients, [true, false]);
    let error = verified(vec![graph(count)]).unwrap_err().to_string();
    assert!(
        error.contains("no entry has an output of floats"),
        "{error}"
    );
}

/// Verifies a copy of a recorded case, whose gradients `change` may change.
fn verified_record(name: &str, change: impl Fn(&mut (String, Tensor))) -> (i32, String, String) {
    let folder = Folder::new(name);
    let case = "tests/fixtures/cases/models/dynamic_batch";
    for file in std::fs::read_dir(case).unwrap() {
        let file = file.unwrap();
        folder.copy(file.path(), file.file_name().to_str().unwrap());
    }
    let recorded = "tests/fixtures/gradients/models/dynamic_batch.safetensors";
    let mut gradients = tensor_file::read(Path::new(recorded)).unwrap();
    gradients.iter_mut().for_each(change);
    tensor_file::write(&folder.path("gradients.safetensors"), &gradients).unwrap();
    let (archive, case) = (folder.file("model.pt"), folder.file(""));
    let arguments = ["verify", &archive, "--backward", "--recorded", &case];
    onionskin(&[&arguments[..], &["--device", "cpu"]].concat())
}

#[test]
fn gradients_are_compared_with_recorded_ones() {
    let (code, text, error) = verified_record("recorded-gradients", |_| ());
    assert_eq!(code, 0, "{text}{error}");
    for set in 1..=3 {
        assert!(text.contains(&format!("forward, inputs {set},")), "{text}");
    }
    for name in ["image", "net.0.weight", "classify.bias"] {
        let line = format!("ok   against PyTorch's record: gradient of {name}: ");
        assert_eq!(text.matches(&line).count(), 3, "{text}");
    }
}

#[test]
fn the_first_gradient_that_differs_from_the_record_is_named() {
    let (code, text, error) = verified_record("changed-gradients", |(name, tensor)| {
        if ["1/param/net.0.weight", "1/param/net.5.weight"].contains(&name.as_str()) {
            let doubled = tensor.to_f32().iter().map(|x| x * 2.0).collect();
            *tensor = Tensor::from_vec(tensor.shape(), doubled).unwrap();
        }
    });
    assert_eq!(code, 1, "{text}{error}");
    assert_eq!(text.matches("DIFF").count(), 2, "{text}");
    let (_, culprit) = text
        .split_once("in the order of the backward pass")
        .unwrap();
    let mut lines = culprit.lines().skip(1);
    let (gradient, reader) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(gradient.contains("gradient of net.5.weight: "), "{text}");
    assert!(
        reader.contains("the value's last reader: ") && reader.contains("conv"),
        "{text}"
    );
    assert!(reader.contains("net.5"), "{text}");
}

#[test]
fn a_record_is_needed_and_fits_the_model() {
    let without = "tests/fixtures/cases/models/dynamic_batch";
    let arguments = [
        "verify",
        DIGITS,
        "--backward",
        "--device",
        "cpu",
        "--recorded",
        without,
    ];
    let (code, _, error) = onionskin(&arguments);
    assert_eq!(code, 2);
    assert!(error.contains("has no recorded gradients"), "{error}");
}
