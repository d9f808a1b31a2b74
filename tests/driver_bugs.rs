//! Known miscompilations of drivers: functions that are inlined several times into one kernel, next to others.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::gpu::FeatureLevel;
use onionskin::ir::GraphModule;
use onionskin::nn::GRU;
use onionskin::op::UnaryFunction;
use onionskin::trace::{self, Forward, manual_seed, trace_fn};
use onionskin::{CompileOptions, Device, Model, Tensor};

mod samples;

/// Functions magnify rounding errors of their operands up to this difference; miscompilations are far larger.
const TOLERANCE: f64 = 1e-3;

/// A function of a gated sum, as in a GRU, with four elements per invocation.
fn gated(function: UnaryFunction) -> Option<Model> {
    let text = format!(
        "
graph forward(a: f32[5, 4], b: f32[5, 4], c: f32[5, 4], d: f32[5, 4]) {{
  shifted = add b, c
  gate = sigmoid shifted
  scaled = mul gate, d
  sum = add a, scaled
  y = {} sum
  return y
}}",
        function.name()
    );
    let module: GraphModule = text.parse().ok()?;
    Some(Model::from_module(module))
}

fn numbers(seed: i32) -> Tensor {
    let number = |i: i32| (((i * 7 + seed * 13) % 20) as f32 - 9.5) / 20.0;
    Tensor::from_vec([5, 4], (0..20).map(number).collect()).unwrap()
}

fn run(model: &Model, device: &Device) -> Vec<f64> {
    let session = model.compile(device, &CompileOptions::default()).unwrap();
    let inputs = [1, 2, 3, 4].map(numbers);
    session.run(&inputs).unwrap()[0].to_f64()
}

fn is_near(found: f64, expected: f64) -> bool {
    found == expected
        || (found.is_nan() && expected.is_nan())
        || (found - expected).abs() <= TOLERANCE * (1.0 + expected.abs())
}

#[test]
fn functions_behind_a_gate_agree() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::Gpu) else {
        return;
    };
    let mut wrong = Vec::new();
    let mut tried = 0;
    for function in UnaryFunction::ALL {
        let Some(model) = gated(*function) else {
            continue;
        };
        let (found, expected) = (run(&model, &device), run(&model, &Device::Host));
        let pairs = found.iter().zip(&expected);
        let worst = pairs.filter(|(x, y)| !is_near(**x, **y)).count();
        tried += 1;
        if worst > 0 {
            wrong.push(format!("{}: {worst} of 20", function.name()));
        }
    }
    assert!(tried > 30, "only {tried} functions were tried");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One kernel has many functions: lavapipe (Mesa 22.3) miscompiled its first tanh when tanh had branches.
#[test]
fn a_gru_of_one_step_agrees() {
    let Some(device) = samples::device(FeatureLevel::Full).map(Device::Gpu) else {
        return;
    };
    manual_seed(11);
    let net = GRU::new(2, 4);
    let numbers: Vec<f32> = (0..10).map(|i| (i as f32).sin()).collect();
    let x = trace::TracedTensor::from_vec([1, 5, 2], numbers);
    let run = |x: trace::TracedTensor| net.call(&x).0;
    let expected: Vec<f64> = run(x.clone()).to_vec().unwrap();
    let model = Model::from_module(trace_fn(x.clone(), run).unwrap().module);
    let session = model.compile(&device, &CompileOptions::default()).unwrap();
    let found = session.run(&[x.to_host().unwrap()]).unwrap()[0].to_f64();
    for (found, expected) in found.iter().zip(&expected) {
        assert!(is_near(*found, *expected), "{found} is not {expected}");
    }
}
