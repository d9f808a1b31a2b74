//! Recorded times of other runtimes.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::files;

/// Milliseconds of other runtimes, by name.
pub(super) type PeerTimes = Vec<(String, f64)>;

/// Reads milliseconds by name, in the order of the file: `{"PyTorch": 11.6, "ncnn": 67}`.
///
/// # Errors
/// The file cannot be read, or is not a JSON object of positive numbers.
pub(super) fn read(path: &Path) -> Result<PeerTimes> {
    // The error for a missing file lists similarly named files.
    FileKind::of(path)?;
    let text = files::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let object: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
        let message = format!("{} is not a JSON object of times: {error}", path.display());
        Error::format(message).help("write milliseconds by name: {\"PyTorch\": 11.6}")
    })?;
    let time = |(name, value): (&String, &Value)| match value.as_f64().filter(|ms| *ms > 0.0) {
        Some(ms) => Ok((name.clone(), ms)),
        None => Err(Error::format(format!(
            "{}: {name} is {value}; expected a positive number of milliseconds",
            path.display()
        ))),
    };
    object.iter().map(time).collect()
}
