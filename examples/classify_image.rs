//! Classifies an image with a traced network.
//!
//! ```text
//! cargo run --release --example classify_image
//! cargo run --release --example classify_image -- squeezenet.pt cat.jpg labels.txt
//! ```
//!
//! Without arguments it reads one of the handwritten digits in `examples/digits`.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::path::PathBuf;

use image::imageops::FilterType;
use onionskin::{CompileOptions, Device, Model, Tensor, gpu};

/// ImageNet's mean and standard deviation by channel.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

fn main() -> Result<(), Box<dyn Error>> {
    gpu::widen_vectors(); // where Mesa's rasteriser is all there is
    let digits = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/digits"));
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (model, input, labels) = match arguments.as_slice() {
        [] => (
            digits.join("digits.pt"),
            digit(&digits.join("images/12_is_6.png"))?,
            digits.join("labels.txt"),
        ),
        [model, image, labels] => (model.clone(), photograph(image)?, labels.clone()),
        _ => return Err("usage: classify_image [MODEL IMAGE LABELS]".into()),
    };
    let device = Device::auto()?;
    let session = Model::open(model)?.compile(&device, &CompileOptions::default())?;
    let outputs = session.run(&[input])?;
    let scores = outputs.first().ok_or("the network has no output")?.to_f32();
    let labels = std::fs::read_to_string(labels)?;
    println!("on {device}");
    for (class, probability) in softmax(&scores).into_iter().take(5) {
        println!(
            "{:5.1} %  {}",
            probability * 100.0,
            labels.lines().nth(class).unwrap_or("?")
        );
    }
    Ok(())
}

/// Reads a gray scan of 8 × 8 pixels, with ink from 0 to 240.
fn digit(path: &std::path::Path) -> Result<Tensor, Box<dyn Error>> {
    let pixels = image::open(path)?.to_luma8().into_raw();
    Ok(Tensor::from_vec(
        [1, 1, 8, 8],
        pixels
            .into_iter()
            .map(|pixel| f32::from(pixel) / 240.0)
            .collect(),
    )?)
}

/// Reads a photograph as torchvision's networks take it: 224 × 224 pixels, one plane per channel.
fn photograph(path: &std::path::Path) -> Result<Tensor, Box<dyn Error>> {
    let image = image::open(path)?
        .resize_exact(224, 224, FilterType::Triangle)
        .to_rgb8();
    let plane = |channel: usize| {
        let normalize = move |pixel: &image::Rgb<u8>| {
            (f32::from(pixel.0[channel]) / 255.0 - MEAN[channel]) / DEVIATION[channel]
        };
        image.pixels().map(normalize)
    };
    Ok(Tensor::from_vec(
        [1, 3, 224, 224],
        (0..3).flat_map(plane).collect(),
    )?)
}

/// Returns classes with their probabilities, the most probable first.
fn softmax(scores: &[f32]) -> Vec<(usize, f32)> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
    let mut ranked: Vec<(usize, f32)> = scores
        .iter()
        .map(|score| (score - largest).exp() / total)
        .enumerate()
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked
}
