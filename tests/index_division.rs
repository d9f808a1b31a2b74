//! The shader library's division of indices in floating point, against the division of integers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use onionskin::dim::Dim;
use onionskin::gpu::FeatureLevel;
use onionskin::shape::TensorType;
use onionskin::trace::{CustomOperator, TracedTensor, trace_fn};
use onionskin::{CompileOptions, Device, Model, Tensor};

mod samples;

const LIBRARY: &str = include_str!("../shaders/lib/index.wgsl");
const MAIN: &str = "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let index = id.x;
    if index >= x0_size(0u) { return; }
    let x = bitcast<u32>(x0[index]);
    let y = bitcast<u32>(x1[index]);
    y0[index] = bitcast<i32>(index_quotient(x, y));
    y1[index] = bitcast<i32>(index_remainder(x, y));
}
";

/// The shader: the library's functions of indices, and an entry point that calls them.
fn shader() -> String {
    let parts = LIBRARY.split("\n\n");
    let functions: Vec<&str> = parts.filter(|part| part.contains("fn index_")).collect();
    assert_eq!(functions.len(), 2);
    functions.join("\n\n") + MAIN
}

fn quotient_and_remainder() -> CustomOperator {
    let host = |operands: &[Tensor]| {
        let [x, y] = [0, 1].map(|number: usize| operands[number].to_f64());
        let divide = |divided: fn(u32, u32) -> u32| {
            let pairs = x.iter().zip(&y);
            let results = pairs.map(|(x, y)| divided(*x as i32 as u32, *y as i32 as u32) as i32);
            Tensor::from_vec([x.len()], results.collect())
        };
        Ok(vec![divide(|x, y| x / y)?, divide(|x, y| x % y)?])
    };
    let workgroups = |types: &[TensorType]| {
        let count = types[0].numel().ceil_div(&Dim::from(64));
        [count, Dim::ONE, Dim::ONE]
    };
    let operator = CustomOperator::new("tests.divide", |types| Ok(types.to_vec()), host);
    operator.with_shader(&shader(), workgroups)
}

/// Powers of two, their neighbours, and others in between.
fn numbers(bits: u32) -> Vec<u32> {
    let near = |bit: u32| {
        let power = 1u32 << bit;
        let other = (power as f64 * 1.618) as u32;
        [power - 1, power, power + 1, other, 3 * (power / 2)]
    };
    let mut numbers: Vec<u32> = (0..bits).flat_map(near).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[test]
fn every_quotient_is_exact() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let dividends = [numbers(32), vec![u32::MAX - 1, u32::MAX]].concat();
    let divisors: Vec<u32> = numbers(30).into_iter().filter(|y| *y > 0).collect();
    let pairs = dividends
        .iter()
        .flat_map(|x| divisors.iter().map(move |y| (*x, *y)));
    let (x, y): (Vec<i32>, Vec<i32>) = pairs.map(|(x, y)| (x as i32, y as i32)).unzip();
    let count = x.len();
    let inputs = [x, y].map(|numbers| TracedTensor::from_vec([count], numbers));
    let operator = quotient_and_remainder();
    let program = move |(x, y): (TracedTensor, TracedTensor)| operator.call(&[&x, &y]);
    let [x, y] = inputs;
    let traced = trace_fn((x.clone(), y.clone()), program).unwrap();
    let expected: Vec<TracedTensor> = traced.call((x.clone(), y.clone())).unwrap();
    let model = Model::from_module(traced.module.clone());
    let session = model.compile(&Device::from(device), &CompileOptions::default());
    let given = [x, y].map(|tensor| tensor.to_host().unwrap());
    let found = session.unwrap().run(&given).unwrap();
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected.to_host().unwrap(), *found);
    }
}
