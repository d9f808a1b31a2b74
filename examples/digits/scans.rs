//! The scans of digits that `train.py` writes, and how well a network reads them.

use std::path::Path;

use onionskin::error::{Error, Result};
use onionskin::prelude::*;

/// Scans of digits with their labels.
pub struct Scans {
    /// Ink of each pixel from 0 to 1, 64 for each scan.
    ink: Vec<f32>,
    /// The digits.
    pub labels: Vec<i64>,
}

impl Scans {
    /// Reads the scans to train with, and those that are held back.
    pub fn read() -> Result<[Scans; 2]> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits/scans.safetensors");
        let tensors = nn::load(&path)?;
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
    pub fn batch(&self, indices: &[usize]) -> Result<[Tensor; 2]> {
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
pub fn shuffled(count: usize, seed: &mut u64) -> Vec<usize> {
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

/// The part of the scans that a session reads correctly.
pub fn accuracy(session: &Session, scans: &Scans) -> Result<f64> {
    let all: Vec<usize> = (0..scans.labels.len()).collect();
    let [images, _] = scans.batch(&all)?;
    let logits = session.run(&[images])?.remove(0).to_f32();
    let answers = logits.chunks(logits.len() / all.len()).map(largest);
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
