//! Cold starts: from the start of a process to its end with the first output.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor_file;

/// Milliseconds of whole processes.
pub(super) struct Starts {
    /// The caches of kernels are empty: the driver's as far as Mesa lets it be moved, and Onionskin's.
    pub(super) nothing_cached: f64,
    /// With what the first left there.
    pub(super) cached: f64,
}

/// Runs the model in two processes, one after the other, with the options of `onionskin run`.
pub(super) fn starts(model: &Path, options: &[OsString]) -> Result<Starts> {
    let cache = Cache(std::env::temp_dir().join(format!("onionskin-bench-{}", std::process::id())));
    Ok(Starts {
        nothing_cached: start(model, options, &cache.0)?,
        cached: start(model, options, &cache.0)?,
    })
}

/// As [`starts`], on tensors by the names of their inputs.
pub(super) fn starts_with(
    model: &Path,
    options: &[OsString],
    inputs: &[(String, Tensor)],
) -> Result<Starts> {
    let name = format!("onionskin-bench-{}-inputs", std::process::id());
    let folder = Cache(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder.0).map_err(|error| Error::io(&folder.0, error))?;
    let file = folder.0.join("inputs.safetensors");
    tensor_file::write(&file, inputs)?;
    let given = ["--input".into(), file.into_os_string()];
    starts(model, &[options, &given].concat())
}

/// A folder that is removed in the end.
struct Cache(PathBuf);

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(model: &Path, options: &[OsString], cache: &Path) -> Result<f64> {
    let this = std::env::current_exe();
    let this =
        this.map_err(|error| Error::internal(format!("this program has no path: {error}")))?;
    let start = Instant::now();
    let output = Command::new(&this)
        .arg("run")
        .args(options)
        .arg("--")
        .arg(model)
        .env("MESA_SHADER_CACHE_DIR", cache)
        .env("ONIONSKIN_CACHE", cache)
        .output()
        .map_err(|error| Error::io(&this, error))?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    match output.status.success() {
        true => Ok(ms),
        false => Err(
            Error::internal("the model does not run in a process of its own")
                .help(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        ),
    }
}
