//! Accuracy of functions on a device: of integers they are bitwise equal to the host's, as recorded calls with integers need
//! it, and functions that vanish at zero keep their relative accuracy around it.
//!
//! Only a software device is tested: others may divide and take roots less exactly. Without an adapter the test prints a
//! note and passes; with `REQUIRE_GPU=1` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::BTreeMap;

use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions};
use onionskin::interp;
use onionskin::op::{Unary, UnaryFunction};
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

/// Functions that compensate rounding errors in sums and series. Compilers that reorder sums lose the compensation.
const EXACT: &[UnaryFunction] = &[
    UnaryFunction::Exp,
    UnaryFunction::Expm1,
    UnaryFunction::Log,
    UnaryFunction::Log2,
    UnaryFunction::Log10,
    UnaryFunction::Log1p,
    UnaryFunction::Sin,
    UnaryFunction::Rsqrt,
    UnaryFunction::Sigmoid,
    UnaryFunction::Digamma,
    UnaryFunction::I0e,
    UnaryFunction::I1e,
    UnaryFunction::K0e,
    UnaryFunction::K1e,
    UnaryFunction::AiryAi,
];

/// Functions that are proportional to their operand around zero.
const VANISHING: &[UnaryFunction] = &[
    UnaryFunction::Expm1,
    UnaryFunction::Log1p,
    UnaryFunction::Sin,
    UnaryFunction::Tan,
    UnaryFunction::Asin,
    UnaryFunction::Atan,
    UnaryFunction::Sinh,
    UnaryFunction::Tanh,
    UnaryFunction::Asinh,
    UnaryFunction::Atanh,
    UnaryFunction::Erf,
    UnaryFunction::Erfinv,
];

#[test]
fn functions_of_integers_are_bitwise_equal() {
    let numbers: Vec<f32> = (1..10).map(|k| k as f32).collect();
    check(EXACT, &numbers, 0.0);
}

#[test]
fn functions_that_vanish_at_zero_keep_relative_accuracy() {
    let powers = (-30..0).map(|exponent| 1.37 * 10f32.powi(exponent));
    let numbers: Vec<f32> = powers.flat_map(|x| [x, -x]).collect();
    check(VANISHING, &numbers, 4e-7);
}

/// Checks that functions on a software device differ from the host's by no more than a relative tolerance.
fn check(functions: &[UnaryFunction], numbers: &[f32], tolerance: f64) {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    if !device.capabilities().software {
        println!("skipped: the device is not a software rasteriser");
        return;
    }
    let differences = functions.iter();
    let differences =
        differences.filter_map(|function| difference(&device, *function, numbers, tolerance));
    let failures: Vec<String> = differences.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns a message for the first number at which a function differs.
fn difference(
    device: &GpuDevice,
    function: UnaryFunction,
    numbers: &[f32],
    tolerance: f64,
) -> Option<String> {
    let count = numbers.len();
    let graph = samples::graph(&[&format!("f32[{count}]")], |b, x| {
        vec![b.apply(Unary { function }, vec![x[0].into()])]
    });
    let inputs = [Tensor::from_vec([count], numbers.to_vec()).unwrap()];
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let options = ProgramOptions::default();
    let program = Program::new(device, plan, &Default::default(), options).unwrap();
    let found = program.run(&inputs).unwrap()[0].to_f64();
    let expected = interp::run(&graph, &BTreeMap::new(), &inputs).unwrap()[0].to_f64();
    let mut pairs = numbers.iter().zip(found.into_iter().zip(expected));
    pairs.find_map(|(x, (found, expected))| {
        let name = function.name();
        let difference = (found - expected).abs();
        let agrees = found == expected || difference <= tolerance * expected.abs();
        (!agrees).then(|| format!("{name}({x}) is {found} instead of {expected}"))
    })
}
