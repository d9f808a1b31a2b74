//! Random small graphs on a device: whatever the planner fuses, merges, shares or stores, outputs are exactly the host's.
//!
//! All numbers are multiples of 1/4 between -8 and 8, whose sums and products are exact in any order.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod random;
mod samples;

use onionskin::dtype::DType;
use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions};
use onionskin::interp;
use onionskin::ir::{Builder, Graph, Value};
use onionskin::op::{ConvAxis, ReduceFunction, ScanFunction};
use onionskin::pass;
use onionskin::plan;
use onionskin::tensor::Tensor;
use random::Random;

/// Types of the inputs: two matrices, a right factor, an image, and filters of a 1×1 convolution.
const INPUTS: [&str; 5] = [
    "f32[4, 8]",
    "f32[4, 8]",
    "f32[8, 8]",
    "f32[1, 8, 4, 2]",
    "f32[8, 8, 1, 1]",
];

/// Maps a value back to multiples of 1/4 between -8 and 8.
fn bounded(x: Value) -> Value {
    (x.clamp(Some((-8.0).into()), Some(8.0.into())) * 4.0).floor() * 0.25
}

/// An expression that is too expensive to be computed twice.
fn expensive(x: Value) -> Value {
    (0..4).fold(x, |x, _| bounded(x * 1.5 - 0.25))
}

fn random_graph(random: &mut Random) -> Graph {
    let builder = Builder::new("f");
    let names = ["x", "y", "m", "image", "filter"].into_iter().zip(INPUTS);
    let inputs = names.map(|(name, ty)| builder.input(name, ty.parse().unwrap()));
    let inputs: Vec<Value> = inputs.collect();
    let mut values = inputs[..4].to_vec();
    for _ in 0..3 + random.below(14) {
        let x = random.pick(&values);
        let alike: Vec<Value> = values
            .iter()
            .copied()
            .filter(|y| same_type(*y, x))
            .collect();
        let y = random.pick(&alike);
        let value = random_value(&builder, random, x, y, &inputs);
        if elements(value) <= 512 {
            values.push(value);
        }
    }
    let computed = &values[4..];
    let picked = (0..4).map(|_| random.pick(computed).id());
    let outputs: Vec<_> = picked.collect();
    builder.finish(&outputs, Vec::new(), None).unwrap()
}

fn elements(x: Value) -> i64 {
    x.numel().as_const().unwrap()
}

fn same_type(x: Value, y: Value) -> bool {
    x.shape() == y.shape() && x.dtype() == y.dtype()
}

/// Adds a random value that reads two values of one type.
fn random_value<'g>(
    builder: &'g Builder,
    random: &mut Random,
    x: Value<'g>,
    y: Value<'g>,
    inputs: &[Value<'g>],
) -> Value<'g> {
    let rank = x.rank();
    let axis = random.below(rank) as i64;
    let is_image = x.shape() == inputs[3].shape();
    match random.below(18) {
        0 | 1 => expensive(x),
        2 => bounded(x + y),
        3 => bounded(x * y),
        4 => bounded(x - y).relu(),
        5 => x.lt(y).where_(x, -y),
        6 => x.transpose(axis, random.below(rank) as i64),
        7 => x.reshape(vec![x.numel()]),
        8 if elements(x) % 4 == 0 => x.reshape(vec![4.into(), x.numel().floor_div(&4.into())]),
        9 if !x.shape()[axis as usize].is(1) => x.narrow(axis, 1, 1),
        10 => x.flip(&[axis]),
        11 => builder.concat(&[x, y], axis),
        12 => bounded(x.sum(&[axis], rank == 1 || random.below(2) == 0)),
        13 => bounded(x - x.reduce(ReduceFunction::Max, &[axis], true)),
        14 => x.floor().to(DType::I64).to(DType::F32),
        15 if x.shape().last().is_some_and(|size| size.is(8)) => bounded(x.matmul(inputs[2])),
        16 if is_image => {
            let single = || ConvAxis::padded(1, 0);
            bounded(x.conv(inputs[4], vec![single(), single()], 1))
        }
        17 => bounded(x.scan(ScanFunction::Sum, axis)),
        _ => bounded(x * 0.5 + y),
    }
}

fn inputs(random: &mut Random) -> Vec<Tensor> {
    let tensor = |ty: &str| {
        let (sizes, quarters) = (shape(ty), |_| (random.below(33) as f64 - 16.0) / 4.0);
        let data = (0..sizes.iter().product()).map(quarters).collect();
        Tensor::from_f64(DType::F32, sizes, data).unwrap()
    };
    INPUTS.map(tensor).into()
}

fn shape(ty: &str) -> Vec<usize> {
    let ty: onionskin::shape::TensorType = ty.parse().unwrap();
    ty.sizes(&Default::default()).unwrap()
}

/// Returns the difference between a device and the host, with the graph; `None` if they agree.
fn difference(device: &GpuDevice, graph: &Graph, inputs: &[Tensor]) -> Option<String> {
    let expected = interp::run(graph, &Default::default(), inputs).unwrap();
    let optimized = pass::optimize(graph).unwrap();
    let found = plan::plan(&optimized, device.capabilities())
        .and_then(|plan| Program::new(device, plan, &Default::default(), ProgramOptions::default()))
        .and_then(|program| program.run(inputs));
    let found = match found {
        Ok(found) => found,
        Err(error) => return Some(format!("{error}\n{graph}")),
    };
    let pairs = expected.iter().zip(&found).enumerate();
    let mut wrong = pairs.filter(|(_, (expected, found))| expected.to_f64() != found.to_f64());
    wrong.next().map(|(index, (expected, found))| {
        format!("output {index}: {expected:?} became {found:?}\n{graph}")
    })
}

fn agrees(reach: FeatureLevel, seed: u64, rounds: usize) {
    let Some(device) = samples::device(reach) else {
        return;
    };
    let mut random = Random(seed);
    for round in 0..rounds {
        let graph = random_graph(&mut random);
        if let Some(difference) = difference(&device, &graph, &inputs(&mut random)) {
            panic!("round {round}: {difference}");
        }
    }
}

#[test]
fn outputs_equal_the_hosts() {
    agrees(FeatureLevel::Full, 0x5eed_0f0a_11f0_0d01, 300);
}

#[test]
fn outputs_equal_the_hosts_on_any_device() {
    agrees(FeatureLevel::Portable, 0x5eed_0f0a_11f0_0d02, 100);
}
