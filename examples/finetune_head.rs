//! Replaces the last layer of a traced network and trains it: the reader of digits learns to tell odd digits from even ones.
//!
//! ```text
//! cargo run --release --example finetune_head
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::Path;

use onionskin::error::{Error, Result};
use onionskin::prelude::*;
use onionskin::train::{Adam, CrossEntropyLoss, TrainOptions, Trainer, replace_weights};

use scans::{Scans, accuracy, shuffled};

#[path = "digits/scans.rs"]
mod scans;

const EPOCHS: usize = 6;
const BATCH: usize = 64;
/// Accuracy on the scans that were held back, below which the example fails.
const MIN_ACCURACY: f64 = 0.95;

/// The scans with 1 for odd digits and 0 for even ones.
fn odd_or_even(mut scans: Scans) -> Scans {
    for label in &mut scans.labels {
        *label %= 2;
    }
    scans
}

fn main() -> Result<()> {
    let [seen, held_back] = Scans::read()?.map(odd_or_even);
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits/digits.pt");
    let module = Model::open(archive)?.import_method("forward", None)?;

    // A layer for two classes in place of that for ten.
    manual_seed(7);
    let head = state_dict(&nn::Linear::new(128, 2))?.into_iter();
    let head = head.map(|(name, tensor)| (format!("classify.{name}"), tensor));
    let module = replace_weights(&module, head.collect())?;

    let device = Device::auto()?;
    let optimizer = Adam {
        lr: 1e-2,
        ..Adam::default()
    };
    let mut options = TrainOptions::new(CrossEntropyLoss::default(), optimizer);
    options.parameters = vec!["classify.*".to_string()];
    let mut trainer = Trainer::new(&Model::from_module(module), &device, options)?;
    println!(
        "training {} on {device}",
        trainer.parameter_names().join(", ")
    );
    let mut seed = 7;
    for epoch in 1..=EPOCHS {
        let mut loss = 0.0;
        let order = shuffled(seen.labels.len(), &mut seed);
        let batches = order.chunks_exact(BATCH);
        let count = batches.len() as f64;
        for batch in batches {
            loss += trainer.step(&seen.batch(batch)?)? / count;
        }
        println!("epoch {epoch}: mean loss {loss:.4}");
    }

    let trained = Model::from_module(trainer.trained_module()?);
    let session = trained.compile(&device, &CompileOptions::default())?;
    let accuracy = accuracy(&session, &held_back)?;
    let count = held_back.labels.len();
    println!(
        "tells {:.2} % of {count} held-back digits correctly",
        100.0 * accuracy
    );
    match accuracy >= MIN_ACCURACY {
        true => Ok(()),
        false => Err(Error::internal(format!(
            "less than {:.0} %",
            100.0 * MIN_ACCURACY
        ))),
    }
}
