//! Recordings of the commands that the device executes for each case.

use std::path::Path;

use super::CaseVerdict;
use crate::Device;
use crate::error::{Error, Result};

/// Writes the commands of a case that passed to `NUMBER-NAME.json` and `.bin` in a folder. A recording that cannot be written
/// fails the case.
pub(super) fn write_recording(
    folder: &Path,
    number: usize,
    device: &Device,
    verdict: CaseVerdict,
) -> CaseVerdict {
    if !verdict.passed {
        return verdict;
    }
    let name = format!("{number:04}-{}", verdict.name.replace('/', "-"));
    match write(&folder.join(name), device) {
        Ok(()) => verdict,
        Err(error) => CaseVerdict {
            passed: false,
            reason: Some(error.to_string()),
            ..verdict
        },
    }
}

fn write(stem: &Path, device: &Device) -> Result<()> {
    let recording = match device {
        Device::Gpu(device) => device.recording(),
        Device::Host => None,
    };
    let missing = || Error::internal("the device does not record its commands");
    recording.ok_or_else(missing)?.write(stem)
}
