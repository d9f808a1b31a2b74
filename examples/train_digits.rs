//! Trains the reader of digits from random weights on a device, and reads the scans that were held back.
//!
//! ```text
//! cargo run --release --example train_digits -- [FOLDER]
//! ```
//!
//! Writes `digits.json` with its weights beside it, `digits.safetensors` with the names of PyTorch's state dict, and
//! `loss.svg` into the folder, by default one for temporary files.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use onionskin::error::{Error, Result};
use onionskin::prelude::*;
use onionskin::train::{AdamW, CrossEntropyLoss, LrScheduler, OneCycleLR, TrainOptions, Trainer};

use network::Digits;
use scans::{Scans, accuracy, shuffled};

#[path = "digits/loss_curve.rs"]
mod loss_curve;
#[path = "digits/network.rs"]
mod network;
#[path = "digits/scans.rs"]
mod scans;

const EPOCHS: usize = 12;
const BATCH: usize = 64;
/// Accuracy on the scans that were held back, below which the example fails.
const MIN_ACCURACY: f64 = 0.97;

/// Trains the network and returns the loss of each step.
fn train(network: &Digits, scans: &Scans, device: &Device) -> Result<(Trainer, Vec<f64>)> {
    network.train();
    let example = TracedTensor::from_vec([BATCH, 1, 8, 8], vec![0.5f32; BATCH * 64]);
    let traced = trace(network, example)?;
    let optimizer = AdamW {
        weight_decay: 1e-2,
        ..AdamW::default()
    };
    let options = TrainOptions::new(CrossEntropyLoss::default(), optimizer);
    let mut trainer = Trainer::new(&Model::from_module(traced.module), device, options)?;
    let steps = EPOCHS * (scans.labels.len() / BATCH);
    let schedule = OneCycleLR::new(1e-2, steps as u64);
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (mut losses, mut seed) = (Vec::new(), 7);
    for _ in 0..EPOCHS {
        for batch in shuffled(scans.labels.len(), &mut seed).chunks_exact(BATCH) {
            trainer.set_learning_rate(schedule.learning_rate(0.0, losses.len() as u64));
            let loss = trainer.step(&scans.batch(batch)?)?;
            losses.push(loss);
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((trainer, losses))
}

fn main() -> Result<()> {
    let default = std::env::temp_dir().join("onionskin-digits");
    let folder = std::env::args().nth(1).map_or(default, PathBuf::from);
    std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
    let [seen, held_back] = Scans::read()?;

    let device = Device::auto()?;
    manual_seed(7);
    let network = Digits::new();
    let start = Instant::now();
    let (trainer, losses) = train(&network, &seen, &device)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{} steps in {seconds:.1} s on {device}", trainer.steps());

    // The trained network in evaluation mode: its batch norms use the statistics of the training.
    let mut values = state_dict(&network)?;
    values.extend(trainer.state_dict()?);
    load_state_dict(&network, &values)?;
    network.eval();
    let traced = trace(
        &network,
        TracedTensor::from_vec([2, 1, 8, 8], vec![0.5f32; 128]),
    )?;
    traced.module.save(folder.join("digits.json"))?;
    trainer.save(folder.join("digits.safetensors"))?;
    loss_curve::write(&folder.join("loss.svg"), &losses)?;

    let session =
        Model::open(folder.join("digits.json"))?.compile(&device, &CompileOptions::default())?;
    let accuracy = accuracy(&session, &held_back)?;
    println!(
        "reads {:.2} % of {} held-back digits correctly",
        100.0 * accuracy,
        held_back.labels.len()
    );
    println!(
        "saved digits.json, digits.safetensors and loss.svg in {}",
        folder.display()
    );
    match accuracy >= MIN_ACCURACY {
        true => Ok(()),
        false => Err(Error::internal(format!(
            "less than {:.0} %",
            100.0 * MIN_ACCURACY
        ))),
    }
}
