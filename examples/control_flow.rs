//! Control flow in a trace: a condition, a loop and a scan, traced once and run for inputs that take other branches.
//!
//! ```text
//! cargo run --release --example control_flow
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use onionskin::error::Result;
use onionskin::prelude::*;

/// Halves a signal until it is quiet, negates it if its sum is negative, and smooths it.
fn network(signal: TracedTensor) -> Result<(TracedTensor, TracedTensor)> {
    let (quiet, halvings) = while_loop(
        (signal, TracedTensor::scalar(0i64)),
        |(x, _)| x.abs().amax().gt(1.0),
        |(x, count)| (x * 0.5, count + 1),
    )?;
    let upright = cond(&quiet.sum().lt(0.0), || -&quiet, || quiet.clone())?;
    let start = upright.mean() * 0.0;
    let (_, smooth) = scan(start, upright, |state, sample: TracedTensor| {
        let next = state * 0.75 + sample * 0.25;
        (next.clone(), next)
    })?;
    Ok((smooth, halvings))
}

fn main() -> Result<()> {
    let traced = trace_fn(signal(4, 3.0), network)?;
    println!("{}", traced.module);
    let device = Device::auto()?;
    let model = Model::from_module(traced.module);
    let session = model.compile(&device, &CompileOptions::default())?;
    for (length, height) in [(4, 3.0), (6, 0.5), (9, -20.0)] {
        let outputs = session.run(&[signal(length, height).to_host()?])?;
        let (smooth, halvings) = network(signal(length, height))?;
        let wanted = smooth.to_vec::<f32>()?;
        let pairs = outputs[0].to_f32().into_iter().zip(wanted);
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!(
            "{length} samples up to {height}: halved {} times on {device}, {} times without a trace, {error:.1e} apart",
            outputs[1].item()?,
            halvings.to_scalar()?
        );
    }
    Ok(())
}

/// Returns a ramp from zero to a height.
fn signal(length: usize, height: f32) -> TracedTensor {
    let samples = (1..=length).map(|index| height * index as f32 / length as f32);
    TracedTensor::from_vec([length], samples.collect())
}
