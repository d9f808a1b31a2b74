//! Sessions on a device: which graphs they compile for which sizes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod samples;

use onionskin::gpu::{Input, Reach};
use onionskin::ir::Module;
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
