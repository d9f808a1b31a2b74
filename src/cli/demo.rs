//! `onionskin demo`: a trained network reads handwritten digits, with nothing to download.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Deserialize;

use super::argument_errors::ArgumentErrors;
use super::overwrite::Overwrite;
use super::results::{descending_order, probabilities};
use super::{Outcome, output};
use crate::compare::{Tolerance, compare_tensors};
use crate::error::{Error, Result};
use crate::files;
use crate::tensor::Tensor;
use crate::tensor_file::safetensors;
use crate::{CompileOptions, Device, Model};

/// Read handwritten digits: import an archive, write its JSON, run it on the device, compare with PyTorch.
#[derive(Args)]
pub(super) struct DemoCommand {
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name.
    #[arg(long, default_value = "auto")]
    device: String,
    /// The folder that the archive and its JSON are written to.
    #[arg(short, long, default_value = "out/demo")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
}

const ARCHIVE: &[u8] = include_bytes!("../../examples/digits/digits.pt");
/// Images that were not trained on, `input`, and PyTorch's outputs for them, `logits`.
const RECORDED: &[u8] = include_bytes!("../../examples/digits/expected.safetensors");
/// Record of the training, with the label of each image.
const TRAINING_RECORD: &str = include_str!("../../examples/digits/expected.json");
const LABELS: &str = include_str!("../../examples/digits/labels.txt");

/// Height and width of an image in pixels.
const IMAGE_SIZE: usize = 8;
/// Smallest ink value, of 0 to 1, for which a pixel is printed.
const INK_THRESHOLD: f64 = 0.4;
/// Number of images in a row of the terminal.
const IMAGES_PER_ROW: usize = 10;

impl DemoCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let mut errors = ArgumentErrors::default();
        errors.check_device(&self.device, None);
        errors.finish(Some(()))?;
        let (archive, graph) = self.paths()?;
        let recorded = RecordedImages::read()?;
        let device = step("open the device", || Device::open(&self.device))?;
        step("import the archive, write the JSON", || {
            Model::open(&archive)?.import()?.save(&graph)
        })?;
        let session = step("compile the JSON for the device", || {
            Model::open(&graph)?.compile(&device, &CompileOptions::default())
        })?;
        let images = [recorded.images.clone()];
        let first = step("first run, 20 images", || session.run(&images))?;
        let again = step("second run", || session.run(&images))?;
        let logits = again
            .first()
            .ok_or_else(|| Error::internal("the network has no output"))?;
        output::line(&format!(
            "on {device}; {} and {} written",
            archive.display(),
            graph.display()
        ));
        let agrees = recorded.report(logits);
        Ok(if agrees && first == again {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }

    /// Writes the archive and returns its path and that of the graph, which may be written.
    fn paths(&self) -> Result<(PathBuf, PathBuf)> {
        std::fs::create_dir_all(&self.output).map_err(|error| Error::io(&self.output, error))?;
        let archive = self.output.join("digits.pt");
        let graph = archive.with_extension("json");
        self.overwrite.check(&graph, &["json"], &[])?;
        self.write_archive(&archive)?;
        Ok((archive, graph))
    }

    /// Writes the archive, unless the file already holds it.
    fn write_archive(&self, path: &Path) -> Result<()> {
        if files::read(path).is_ok_and(|found| found == ARCHIVE) {
            return Ok(());
        }
        self.overwrite.check(path, &["pt"], &[])?;
        files::write(path, ARCHIVE)
    }
}

/// Runs a step and prints how long it took.
fn step<T>(name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = run()?;
    output::line(&format!(
        "{:>9.1} ms  {name}",
        start.elapsed().as_secs_f64() * 1e3
    ));
    Ok(result)
}

/// Images that the network was not trained on, and PyTorch's results for them.
struct RecordedImages {
    /// `f32[20, 1, 8, 8]`, ink from 0 to 1.
    images: Tensor,
    /// `f32[20, 10]`.
    logits: Tensor,
    /// The digit that each image shows.
    digits: Vec<usize>,
}

impl RecordedImages {
    fn read() -> Result<RecordedImages> {
        let tensors = safetensors::parse(RECORDED)?;
        let tensor = |name: &str| {
            let found = tensors.iter().find(|(other, _)| other == name);
            found
                .map(|(_, tensor)| tensor.clone())
                .ok_or_else(|| Error::internal(format!("no tensor `{name}` is recorded")))
        };
        Ok(RecordedImages {
            images: tensor("input")?,
            logits: tensor("logits")?,
            digits: digits()?,
        })
    }

    /// Prints the images with the digits that the network reads, and the difference to PyTorch. Returns whether they agree.
    fn report(&self, logits: &Tensor) -> bool {
        let right = self.show(&answers(logits));
        let tolerance = Tolerance {
            rtol: 1.3e-6,
            atol: 1e-4,
        };
        let difference = compare_tensors("logits", logits, &self.logits, tolerance);
        output::line(&format!(
            "{right} of {} read as labelled; against PyTorch: {difference}",
            self.digits.len()
        ));
        difference.passed()
    }

    /// Prints the images with the answers, and returns how many are right.
    fn show(&self, answers: &[(usize, f64)]) -> usize {
        let ink = self.images.to_f64();
        let images: Vec<&[f64]> = ink.chunks(IMAGE_SIZE * IMAGE_SIZE).collect();
        let captions: Vec<String> = answers.iter().zip(&self.digits).map(caption).collect();
        for (images, captions) in images
            .chunks(IMAGES_PER_ROW)
            .zip(captions.chunks(IMAGES_PER_ROW))
        {
            for line in 0..IMAGE_SIZE / 2 {
                let blocks: Vec<String> = images
                    .iter()
                    .map(|image| half_blocks(image, line))
                    .collect();
                output::line(&blocks.join(" "));
            }
            output::line(&captions.join(" "));
        }
        let pairs = answers.iter().zip(&self.digits);
        pairs
            .filter(|((answer, _), digit)| answer == *digit)
            .count()
    }
}

/// Reads the labels of the images from the record of the training.
fn digits() -> Result<Vec<usize>> {
    #[derive(Deserialize)]
    struct TrainingRecord {
        images: Vec<Labelled>,
    }
    #[derive(Deserialize)]
    struct Labelled {
        label: usize,
    }
    let summary: TrainingRecord =
        serde_json::from_str(TRAINING_RECORD).map_err(super::json_error)?;
    Ok(summary.images.iter().map(|image| image.label).collect())
}

/// Returns the most probable class of each row of logits, with its probability.
fn answers(logits: &Tensor) -> Vec<(usize, f64)> {
    let scores = logits.to_f64();
    let classes = LABELS.lines().count().max(1);
    let answer = |row: &[f64]| {
        let class = descending_order(row).first().copied()?;
        Some((class, *probabilities(row).get(class)?))
    };
    scores.chunks(classes).filter_map(answer).collect()
}

/// Formats an answer as wide as an image; `!` marks a wrong one.
fn caption(((answer, probability), digit): (&(usize, f64), &usize)) -> String {
    let mark = if answer == digit { "" } else { "!" };
    let text = format!("{answer} {:.0}%{mark}", probability * 100.0);
    format!("{text:<IMAGE_SIZE$}")
}

/// Formats two rows of pixels as one line of text.
fn half_blocks(image: &[f64], line: usize) -> String {
    let is_dark = |row: usize, column: usize| {
        image
            .get(row * IMAGE_SIZE + column)
            .is_some_and(|ink| *ink >= INK_THRESHOLD)
    };
    let block = |column: usize| match (is_dark(2 * line, column), is_dark(2 * line + 1, column)) {
        (true, true) => '█',
        (true, false) => '▀',
        (false, true) => '▄',
        (false, false) => ' ',
    };
    (0..IMAGE_SIZE).map(block).collect()
}
