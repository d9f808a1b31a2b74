//! Trains the reader of digits from random weights on a device, and reads the scans that were held back.
//!
//! ```text
//! cargo run --release --example train_digits -- [FOLDER]
//! ```
//!
//! Writes `digits.json` with its weights beside it, `digits.safetensors` with the names of PyTorch's state dict, and
//! `loss.svg` into the folder, by default one for temporary files.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use onionskin::error::{Error, Result};
use onionskin::prelude::*;
use onionskin::train::{AdamW, CrossEntropyLoss, LrScheduler, OneCycleLR, TrainOptions, Trainer};

use network::Digits;

#[path = "digits/loss_curve.rs"]
mod loss_curve;
#[path = "digits/network.rs"]
mod network;

const EPOCHS: usize = 12;
const BATCH: usize = 64;
/// Accuracy on the scans that were held back, below which the example fails.
const MIN_ACCURACY: f64 = 0.97;

/// Scans of digits with their labels.
struct Scans {
    /// Ink of each pixel from 0 to 1, 64 for each scan.
    ink: Vec<f32>,
    labels: Vec<i64>,
}

impl Scans {
    /// Reads the scans to train with, and those that are held back.
    fn read(path: &Path) -> Result<[Scans; 2]> {
        let tensors = nn::load(path)?;
        let tensor = |name: &str| {
            let missing = || Error::input(format!("{} has no {name}", path.display()));
            tensors.get(name).ok_or_else(missing)
        };
        let ink = tensor("ink")?.to_f64();
        let labels = tensor("labels")?.to_f64();
        let is_held_back = tensor("is_held_back")?.to_f64();
        let part = |wanted: f64| {
            let rows = ink.chunks(64).zip(&labels).zip(&is_held_back);
            let rows = rows.filter(|(_, is_held_back)| **is_held_back == wanted);
            let (mut ink, mut part) = (Vec::new(), Vec::new());
            for ((pixels, label), _) in rows {
                ink.extend(pixels.iter().map(|ink| (ink / 16.0) as f32));
                part.push(*label as i64);
            }
            Scans { ink, labels: part }
        };
        Ok([part(0.0), part(1.0)])
    }

    /// Images and labels of some scans.
    fn batch(&self, indices: &[usize]) -> Result<[Tensor; 2]> {
        let ink = indices
            .iter()
            .flat_map(|index| self.ink.chunks(64).nth(*index));
        let ink = ink.flatten().copied().collect();
        let labels = indices
            .iter()
            .filter_map(|index| self.labels.get(*index).copied());
        Ok([
            Tensor::from_vec([indices.len(), 1, 8, 8], ink)?,
            Tensor::from_vec([indices.len()], labels.collect())?,
        ])
    }
}

/// Numbers from 0 to `count`, in an order that a seed determines.
fn shuffled(count: usize, seed: &mut u64) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        // Knuth's linear congruential generator of 64 bits.
        *seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        indices.swap(last, (*seed >> 33) as usize % (last + 1));
    }
    indices
}

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

/// The part of the scans that a session reads correctly.
fn accuracy(session: &Session, scans: &Scans) -> Result<f64> {
    let all: Vec<usize> = (0..scans.labels.len()).collect();
    let [images, _] = scans.batch(&all)?;
    let logits = session.run(&[images])?.remove(0).to_f32();
    let answers = logits.chunks(10).map(largest);
    let correct = answers
        .zip(&scans.labels)
        .filter(|(answer, label)| *answer as i64 == **label);
    Ok(correct.count() as f64 / scans.labels.len() as f64)
}

/// Index of the largest number.
fn largest(numbers: &[f32]) -> usize {
    let numbers = numbers.iter().enumerate();
    let largest = numbers.max_by(|(_, a), (_, b)| a.total_cmp(b));
    largest.map_or(0, |(index, _)| index)
}

fn main() -> Result<()> {
    let default = std::env::temp_dir().join("onionskin-digits");
    let folder = std::env::args().nth(1).map_or(default, PathBuf::from);
    std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
    let scans = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits/scans.safetensors");
    let [seen, held_back] = Scans::read(&scans)?;

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
