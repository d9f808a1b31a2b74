//! Sessions on a device: which graphs they compile for which sizes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod samples;

use onionskin::gpu::{Input, Reach};
use onionskin::ir::{Builder, Module};
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

/// Made for two rows, and right for two and more.
const DOUBLE: &str = "
graph forward(x: f32[B, 3]) {
  size B = 2
  guard 2 <= B
  y = mul x, 2.0
  return y
}";

fn session(options: &CompileOptions) -> Option<Session> {
    let module: Module = DOUBLE.parse().unwrap();
    let device = Device::Gpu(samples::device(Reach::default())?);
    Some(
        Model::from_module(module)
            .compile(&device, options)
            .unwrap(),
    )
}

fn rows(count: usize) -> Tensor {
    let numbers: Vec<f32> = (0..count * 3).map(|i| i as f32).collect();
    Tensor::from_vec([count, 3], numbers).unwrap()
}

fn doubled(x: &Tensor) -> Vec<f64> {
    x.to_f64().into_iter().map(|x| 2.0 * x).collect()
}

fn graphs(session: &Session) -> Vec<String> {
    let variants = session.variants().into_iter();
    let shape = |variant: &onionskin::model::Variant| {
        let graph = &variant.graph;
        graph.ty(graph.inputs[0]).to_string()
    };
    variants.map(|variant| shape(&variant)).collect()
}

#[test]
fn the_sizes_of_the_example_are_compiled_first_and_all_others_when_there_are_others() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    assert_eq!(graphs(&session), ["f32[2, 3]"]);
    for count in [2, 5, 2, 7] {
        let x = rows(count);
        let y = session.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(y[0].to_f64(), doubled(&x));
    }
    assert_eq!(graphs(&session), ["f32[2, 3]", "f32[B, 3]"]);
}

#[test]
fn a_launch_compiles_for_all_sizes_too() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    let x = rows(4);
    let run = session.launch(&[Input::Host(&x)]).unwrap();
    assert_eq!(run.read().unwrap()[0].to_f64(), doubled(&x));
    assert_eq!(graphs(&session).len(), 2);
}

#[test]
fn a_graph_for_all_sizes_can_be_asked_for() {
    let options = CompileOptions {
        static_shapes: false,
        ..CompileOptions::default()
    };
    let Some(session) = session(&options) else {
        return;
    };
    session.run(&[rows(2)]).unwrap();
    session.run(&[rows(3)]).unwrap();
    assert_eq!(graphs(&session), ["f32[B, 3]"]);
}

#[test]
fn a_call_that_fits_no_sizes_hears_of_the_graph_for_all() {
    let Some(session) = session(&CompileOptions::default()) else {
        return;
    };
    let error = session.run(&[rows(1)]).unwrap_err();
    assert!(error.to_string().contains("2 <= B"), "{error}");
    assert_eq!(graphs(&session).len(), 1);
}

/// Made for two rows; the weight is transposed on the way to the device.
fn product() -> Module {
    let builder = Builder::new("forward");
    let x = builder.input("x", "f32[B, 24]".parse().unwrap());
    let weight = builder.weight("w", "f32[40, 24]".parse().unwrap());
    let id = x.dot(weight.transpose(0, 1)).id();
    let mut graph = builder.finish(&[id], Vec::new(), None).unwrap();
    graph.hints.insert("B".into(), 2);
    let numbers = (0..40 * 24).map(|i| (i % 17) as f32);
    let weight = Tensor::from_vec([40, 24], numbers.collect()).unwrap();
    Module {
        graphs: vec![graph],
        weights: [("w".to_owned(), weight)].into(),
        states: Vec::new(),
    }
}

#[test]
fn graphs_for_other_sizes_share_the_weights_on_the_device() {
    let Some(device) = samples::device(Reach::default()) else {
        return;
    };
    let model = Model::from_module(product());
    let session = model.compile(&Device::Gpu(device), &CompileOptions::default());
    let session = session.unwrap();
    let uploaded = |variant: &onionskin::model::Variant| {
        let program = variant.program.as_ref().unwrap();
        program.statistics().bytes_uploaded
    };
    let first = uploaded(&session.variants()[0]);
    assert!(40 * 24 * 4 <= first, "{first} bytes");
    let x = Tensor::from_vec([5, 24], vec![1f32; 5 * 24]).unwrap();
    let found = session.run(std::slice::from_ref(&x)).unwrap();
    let module = product();
    let expected = onionskin::interp::run(&module.graphs[0], &module.weights, &[x]).unwrap();
    assert_eq!(found[0].to_f64(), expected[0].to_f64());
    let variants = session.variants();
    assert_eq!(variants.len(), 2);
    assert_eq!(uploaded(&variants[1]), 5 * 24 * 4, "the input alone");
    // What was made for the device can be made again.
    let names: Vec<String> = variants[1].weights().unwrap().keys().cloned().collect();
    assert_eq!(names, ["w.folded"]);
}
