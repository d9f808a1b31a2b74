//! Recorded times of others.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Milliseconds by name, in the order of the file: `{"PyTorch": 11.6, "ncnn": 67}`.
///
/// # Errors
/// The file cannot be read, or is no JSON object of positive numbers.
pub(super) fn read(path: &Path) -> Result<Vec<(String, f64)>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let object: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| Error::format(format!("{}: {error}", path.display())))?;
    let time = |(name, value): (&String, &Value)| match value.as_f64().filter(|ms| *ms > 0.0) {
        Some(ms) => Ok((name.clone(), ms)),
        None => Err(Error::format(format!(
            "{}: {name} is {value}, no time in milliseconds",
            path.display()
        ))),
    };
    object.iter().map(time).collect()
}
