//! `onionskin demo`: a trained network reads handwritten digits, from its archive to numbers, with nothing to download.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::faults::Faults;
use super::overwrite::Overwrite;
use super::values::{probabilities, ranked};
use super::{Outcome, output};
use crate::compare::{Tolerance, compare_tensors};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor_file::{safetensors, write_whole};
use crate::{CompileOptions, Device, Model};

/// Read handwritten digits: import an archive, write its JSON, run it on the device, compare with PyTorch.
#[derive(Args)]
pub(super) struct Demo {
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
const EXPECTED: &[u8] = include_bytes!("../../examples/digits/expected.safetensors");
const LABELS: &str = include_str!("../../examples/digits/labels.txt");

/// The held-back images by what they show.
macro_rules! images {
    ($($name:literal => $digit:literal),* $(,)?) => {
        const IMAGES: &[(usize, &[u8])] =
            &[$(($digit, include_bytes!(concat!("../../examples/digits/images/", $name, ".png")))),*];
    };
}

images! {
    "00_is_0" => 0, "01_is_0" => 0, "02_is_1" => 1, "03_is_1" => 1, "04_is_2" => 2, "05_is_2" => 2, "06_is_3" => 3,
    "07_is_3" => 3, "08_is_4" => 4, "09_is_4" => 4, "10_is_5" => 5, "11_is_5" => 5, "12_is_6" => 6, "13_is_6" => 6,
    "14_is_7" => 7, "15_is_7" => 7, "16_is_8" => 8, "17_is_8" => 8, "18_is_9" => 9, "19_is_9" => 9,
}

/// Side of an image in pixels, and the pixel value of full ink.
const SIDE: usize = 8;
const INK: f32 = 240.0;
/// Images in a row of the terminal.
const ROW: usize = 10;

impl Demo {
    pub(super) fn run(&self) -> Result<Outcome> {
        let mut faults = Faults::default();
        faults.check_device(&self.device, None);
        faults.end(Some(()))?;
        std::fs::create_dir_all(&self.output).map_err(|error| Error::io(&self.output, error))?;
        let archive = self.output.join("digits.pt");
        let graph = archive.with_extension("json");
        self.overwrite.check(&graph, &["json"], &[])?;
        self.write_archive(&archive)?;
        let device = step("open the device", || Device::open(&self.device))?;
        step("import the archive, write the JSON", || {
            Model::open(&archive)?.import()?.save(&graph)
        })?;
        let session = step("compile the JSON for the device", || {
            Model::open(&graph)?.compile(&device, &CompileOptions::default())
        })?;
        let images = [images()?];
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
        let right = show(logits);
        let expected = safetensors::parse(EXPECTED)?;
        let expected = expected
            .iter()
            .find(|(name, _)| name == "logits")
            .map(|(_, tensor)| tensor);
        let expected =
            expected.ok_or_else(|| Error::internal("the recorded outputs are missing"))?;
        let difference = compare_tensors(
            "logits",
            logits,
            expected,
            Tolerance {
                rtol: 1.3e-6,
                atol: 1e-4,
            },
        );
        output::line(&format!(
            "{right} of {} read as labelled; against PyTorch: {difference}",
            IMAGES.len()
        ));
        Ok(if difference.passed() && first == again {
            Outcome::Yes
        } else {
            Outcome::No
        })
    }
}

impl Demo {
    /// Writes the archive, unless it is there already.
    fn write_archive(&self, path: &Path) -> Result<()> {
        if std::fs::read(path).is_ok_and(|found| found == ARCHIVE) {
            return Ok(());
        }
        self.overwrite.check(path, &["pt"], &[])?;
        write_whole(path, ARCHIVE)
    }
}

/// Runs a step and says how long it took.
fn step<T>(name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = run()?;
    output::line(&format!(
        "{:>9.1} ms  {name}",
        start.elapsed().as_secs_f64() * 1e3
    ));
    Ok(result)
}

/// All images as `f32[20, 1, 8, 8]`, ink from 0 to 1.
fn images() -> Result<Tensor> {
    let mut data = Vec::new();
    for (_, png) in IMAGES {
        data.extend(pixels(png)?.into_iter().map(|pixel| f32::from(pixel) / INK));
    }
    Tensor::from_vec([IMAGES.len(), 1, SIDE, SIDE], data)
}

fn pixels(png: &[u8]) -> Result<Vec<u8>> {
    let image =
        image::load_from_memory(png).map_err(|error| Error::format(format!("image: {error}")))?;
    Ok(image.to_luma8().into_raw())
}

/// Prints the images with what the network reads, and returns how many are right.
fn show(logits: &Tensor) -> usize {
    let labels: Vec<&str> = LABELS.lines().collect();
    let scores = logits.to_f64();
    let answers: Vec<(usize, f64)> = scores
        .chunks(labels.len().max(1))
        .filter_map(|row| {
            let class = ranked(row).first().copied()?;
            Some((class, *probabilities(row).get(class)?))
        })
        .collect();
    for (images, answers) in IMAGES.chunks(ROW).zip(answers.chunks(ROW)) {
        let pictures: Vec<Vec<u8>> = images
            .iter()
            .map(|(_, png)| pixels(png).unwrap_or_default())
            .collect();
        for line in 0..SIDE / 2 {
            output::line(
                &pictures
                    .iter()
                    .map(|picture| half_blocks(picture, line))
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
        let caption = |((digit, _), (class, probability)): (&(usize, &[u8]), &(usize, f64))| {
            let mark = if digit == class { "" } else { "!" };
            format!(
                "{:<8}",
                format!("{class} {:.0}%{mark}", probability * 100.0)
            )
        };
        output::line(
            &images
                .iter()
                .zip(answers)
                .map(caption)
                .collect::<Vec<_>>()
                .join(" "),
        );
    }
    IMAGES
        .iter()
        .zip(&answers)
        .filter(|((digit, _), (class, _))| digit == class)
        .count()
}

/// Two rows of pixels as one line of text.
fn half_blocks(picture: &[u8], line: usize) -> String {
    let ink = |row: usize, column: usize| {
        picture
            .get(row * SIDE + column)
            .is_some_and(|pixel| *pixel >= 96)
    };
    let block = |column: usize| match (ink(2 * line, column), ink(2 * line + 1, column)) {
        (true, true) => '█',
        (true, false) => '▀',
        (false, true) => '▄',
        (false, false) => ' ',
    };
    (0..SIDE).map(block).collect()
}
