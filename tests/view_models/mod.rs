//! Models that tests of the page of `view` open: networks in Rust, written to folders as JSON graphs with their weights.

mod bert;
mod control_flow;
mod large;
mod resnet50;

#[path = "../trace/models/gpt2/network.rs"]
mod gpt2;

use onionskin::trace::check::Traced;
use onionskin::trace::{TraceOptions, TracedTensor, ops, trace, trace_fn, trace_with};

use crate::command::Folder;

/// Writes a network to a folder and returns the path of its graph.
fn saved(folder: &Folder, name: &str, traced: &Traced) -> String {
    traced.module.save(folder.path(name)).unwrap();
    folder.file(name)
}

/// ResNet-50 of torchvision, with 25.6 million weights.
pub fn resnet50(folder: &Folder) -> String {
    let image = ops::zeros([1, 3, 64, 64]);
    let traced = trace(&resnet50::ResNet::new(), image).unwrap();
    saved(folder, "resnet50.json", &traced)
}

/// The encoder of BERT-base with 64 features. Its arguments are named as in Python.
pub fn bert(folder: &Folder) -> String {
    let options = TraceOptions {
        names: vec!["input_ids".into(), "attention_mask".into()],
        ..TraceOptions::default()
    };
    let inputs = (ids(), TracedTensor::from([[1i64, 1, 1, 1, 0]]));
    let traced = trace_with(&bert::Bert::new(100, 12), inputs, &options).unwrap();
    saved(folder, "bert.json", &traced)
}

/// GPT-2 with 64 features and this number of layers.
pub fn gpt2(folder: &Folder, layers: usize) -> String {
    let traced = trace(&gpt2::Wrapper::new(100, layers), ids()).unwrap();
    saved(folder, "gpt2.json", &traced)
}

/// A scripted program with conditions in an unrolled loop.
pub const SCRIPT: &str = "tests/fixtures/cases/models/script_accumulate/model.pt";

/// Inputs of [`SCRIPT`].
pub const SCRIPT_INPUTS: [&str; 4] = ["--shape", "x=f32[2, 5, 6]", "--shape", "limit=f32[]"];

/// A loop, a condition and a scan.
pub fn control_flow(folder: &Folder) -> String {
    let net = control_flow::ControlFlow::new();
    let traced = trace(&net, TracedTensor::from([[0.5f32; 6]; 4])).unwrap();
    saved(folder, "control_flow.json", &traced)
}

/// 104 modules in three levels with 8,008 operators.
pub fn many_modules(folder: &Folder) -> String {
    let net = large::ManyModules::new();
    let traced = trace(&net, TracedTensor::from([[0.5f32; 8]; 2])).unwrap();
    saved(folder, "many_modules.json", &traced)
}

/// 8,000 operators in no module.
pub fn flat(folder: &Folder) -> String {
    let traced = trace_fn(TracedTensor::from([[0.5f32; 8]; 2]), |x: TracedTensor| {
        large::chain(&x, 8000)
    });
    saved(folder, "flat.json", &traced.unwrap())
}

fn ids() -> TracedTensor {
    TracedTensor::from([[2i64, 3, 5, 7, 0]])
}
