//! A network written in Rust, with the weights that PyTorch trained: traced, saved, and run on a device.
//!
//! ```text
//! cargo run --release --example trace_digits
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::Path;

use onionskin::error::Result;
use onionskin::ir::Weights;
use onionskin::prelude::*;

use network::Digits;

#[path = "digits/network.rs"]
mod network;

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits");
    let network = Digits::new();
    load_state_dict(&network, &nn::load(folder.join("digits.pt"))?)?;

    let example = TracedTensor::from_vec([2, 1, 8, 8], vec![0.5f32; 128]);
    let traced = trace(&network, example)?;
    println!("{}", traced.module);

    let path = std::env::temp_dir().join("digits_in_rust.json");
    traced.module.save(&path)?;
    println!("saved as {}, with the weights beside it", path.display());

    let device = Device::auto()?;
    let session = Model::open(&path)?.compile(&device, &CompileOptions::default())?;
    let recorded: Weights = nn::load(folder.join("expected.safetensors"))?;
    let logits = session.run(&[recorded["input"].clone()])?;
    let pairs = logits[0]
        .to_f32()
        .into_iter()
        .zip(recorded["logits"].to_f32());
    let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let digits: Vec<usize> = logits[0].to_f32().chunks(10).map(largest).collect();
    println!("{device} reads {digits:?}, {error:.1e} from PyTorch's numbers");
    Ok(())
}

/// Returns the index of the largest number.
fn largest(numbers: &[f32]) -> usize {
    let numbered = numbers.iter().enumerate();
    let largest = numbered.max_by(|a, b| a.1.total_cmp(b.1));
    largest.map_or(0, |(index, _)| index)
}
