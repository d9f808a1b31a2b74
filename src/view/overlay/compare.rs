//! Error of each value against a reference, from `onionskin compare --values --json`.

use serde::Deserialize;

use super::values::ValueIndex;
use super::{Mark, Overlay, OverlayFile, Scale, other_model};
use crate::error::{Error, Result};

/// Relative errors of these sizes are the ends of the scale: the precision of `f32`, and all digits.
const SCALE: [f64; 2] = [1e-7, 1.0];

#[derive(Deserialize)]
struct CompareDocument {
    device: String,
    #[serde(default = "forward")]
    graph: String,
    values: Option<Vec<ComparedValue>>,
}

fn forward() -> String {
    "forward".to_string()
}

#[derive(Deserialize)]
struct ComparedValue {
    value: String,
    passed: bool,
    incomparable: Option<String>,
    max_abs_error: Option<f64>,
    max_rel_error: Option<f64>,
    wrong: usize,
    numel: usize,
}

pub(super) fn overlay(file: &OverlayFile, index: &ValueIndex) -> Result<Vec<Overlay>> {
    let document: CompareDocument = file.fields()?;
    let Some(values) = &document.values else {
        let message = format!("{} compares only the outputs", file.name);
        return Err(Error::format(message).help("write it with onionskin compare --values --json"));
    };
    let mut overlay = Overlay {
        id: "error",
        title: "Error",
        scale: Scale::Heat,
        note: format!(
            "relative error against the oracle, {}",
            file.origin(&document.device)
        ),
        legend: ["0".to_string(), "100 %".to_string()],
        marks: Default::default(),
        details: Default::default(),
    };
    for value in values {
        for found in index.find(&document.graph, &value.value) {
            overlay.marks.insert(*found, value.mark());
            overlay.details.insert(*found, value.details());
        }
    }
    match overlay.marks.is_empty() && !values.is_empty() {
        true => Err(other_model(file)),
        false => Ok(vec![overlay]),
    }
}

impl ComparedValue {
    /// The level is the logarithm of the relative error.
    fn mark(&self) -> Mark {
        let [low, high] = SCALE.map(f64::log10);
        let error = self.max_rel_error.unwrap_or(f64::INFINITY);
        let level = match self.incomparable.is_some() || self.max_rel_error.is_none() {
            true => 1.0,
            false => ((error.log10() - low) / (high - low)).clamp(0.0, 1.0),
        };
        let text = match (self.passed, self.max_rel_error) {
            (true, Some(0.0)) => "equal".to_string(),
            (true, Some(error)) => format!("{error:.0e}"),
            (false, Some(error)) => format!("✗ {error:.0e}"),
            _ => "✗".to_string(),
        };
        Mark { level, text }
    }

    fn details(&self) -> Vec<[String; 2]> {
        let number = |number: Option<f64>| number.map(|number| format!("{number:.3e}"));
        let wrong = (self.wrong > 0).then(|| format!("{} of {}", self.wrong, self.numel));
        let lines = [
            ("max abs", number(self.max_abs_error)),
            ("max rel", number(self.max_rel_error)),
            ("beyond tolerance", wrong),
            ("incomparable", self.incomparable.clone()),
        ];
        let lines = lines.into_iter();
        lines
            .filter_map(|(name, text)| Some([name.to_string(), text?]))
            .collect()
    }
}
