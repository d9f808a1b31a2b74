//! Findings of the trace checker for classic mistakes: functions whose trace computes something else.
//!
//! ```text
//! cargo run --release --example check_a_bad_trace
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::cell::RefCell;
use std::collections::BTreeMap;

use onionskin::compare::Tolerance;
use onionskin::error::Result;
use onionskin::kernel::materialization::Precision;
use onionskin::model::{self, Device, DeviceReference, Model};
use onionskin::nn::{Dropout, Linear, Sequential};
use onionskin::trace::check::CheckOptions;
use onionskin::trace::{Forward, Module, TracedTensor, Tree, arguments, freeze, trace_fn_checked};

fn vector(values: &[f32]) -> TracedTensor {
    TracedTensor::from_vec([values.len()], values.to_vec())
}

fn check<I: Tree, O: Tree>(title: &str, inputs: I, function: impl Fn(I) -> O) -> Result<()> {
    let (_, report) = trace_fn_checked(inputs, function, &CheckOptions::default())?;
    println!("== {title}\n{report}\n");
    Ok(())
}

fn main() -> Result<()> {
    check(
        "a branch on values",
        vector(&[1.0, 2.0]),
        |x: TracedTensor| match x.sum().gt(0.0).to_bool() {
            Ok(true) => x * 2.0,
            _ => -x,
        },
    )?;

    let memory: RefCell<Option<TracedTensor>> = RefCell::default();
    check(
        "a memoised attribute",
        vector(&[1.0, 2.0]),
        |x: TracedTensor| {
            let mut memory = memory.borrow_mut();
            &x + memory.get_or_insert_with(|| x.exp()).clone()
        },
    )?;

    check(
        "a value that becomes a constant",
        vector(&[1.0, 2.0]),
        |x: TracedTensor| {
            let largest = x.amax().to_scalar().map_or(1.0, |scalar| scalar.to_f64());
            x / largest
        },
    )?;

    check(
        "a mean by a frozen length",
        vector(&[1.0, 2.0, 6.0]),
        |x: TracedTensor| {
            let length = freeze(&x.dim(0)).unwrap_or(1);
            x.sum() / length
        },
    )?;

    let network = Sequential::new()
        .add(Linear::new(4, 4))
        .add(Dropout::new(0.5));
    network.train();
    let x = TracedTensor::from_vec([1, 4], vec![1f32, 2.0, 3.0, 4.0]);
    check("dropout in training", x, |x: TracedTensor| network.call(x))?;

    let inputs = ["left", "right"].map(|side| (side.to_string(), vector(&[1.0, 2.0])));
    type Sides = BTreeMap<String, TracedTensor>;
    check(
        "a map in and out, which is fine",
        BTreeMap::from(inputs),
        |x: Sides| BTreeMap::from([("sum".to_string(), &x["left"] + &x["right"])]),
    )?;
    check_archive("a frozen device, in an archive of PyTorch")
}

/// Checks an archive: a program in Python, unlike one in Rust, may name the device on which it was traced.
fn check_archive(title: &str) -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/archives");
    let model = Model::open(format!("{folder}/on_another_device.pt"))?;
    let reference = DeviceReference {
        device: &Device::Host,
        precision: Precision::Single,
        expected: None,
        tolerance: Tolerance {
            rtol: 1e-5,
            atol: 1e-6,
        },
    };
    let options = CheckOptions {
        inputs: vec![arguments(&vector(&[1.0, 2.0, 3.0]))?],
        ..CheckOptions::default()
    };
    let report = model::check(&model, &options, &reference)?;
    println!("== {title}\n{report}\n");
    Ok(())
}
