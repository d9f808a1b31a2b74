//! Cold starts: time from the start of a process to its end, with one run of the model.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor_file;

/// Milliseconds that whole processes take.
pub(super) struct ColdStarts {
    /// With empty kernel caches: Onionskin's, and the driver's where it is Mesa's, whose cache can be moved.
    pub(super) nothing_cached: f64,
    /// With the caches that the first process filled.
    pub(super) cached: f64,
}

/// Measures two processes that run the model one after the other, with the options of `onionskin run`.
pub(super) fn measure(model: &Path, options: &[OsString]) -> Result<ColdStarts> {
    let cache = TemporaryFolder(
        std::env::temp_dir().join(format!("onionskin-bench-{}", std::process::id())),
    );
    Ok(ColdStarts {
        nothing_cached: time_process(model, options, &cache.0)?,
        cached: time_process(model, options, &cache.0)?,
    })
}

/// Like [`measure`], for input tensors given by name.
pub(super) fn measure_with_inputs(
    model: &Path,
    options: &[OsString],
    inputs: &[(String, Tensor)],
) -> Result<ColdStarts> {
    let name = format!("onionskin-bench-{}-inputs", std::process::id());
    let folder = TemporaryFolder(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder.0).map_err(|error| Error::io(&folder.0, error))?;
    let file = folder.0.join("inputs.safetensors");
    tensor_file::write(&file, inputs)?;
    let given = ["--input".into(), file.into_os_string()];
    measure(model, &[options, &given].concat())
}

/// A folder that is removed when this is dropped.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn time_process(model: &Path, options: &[OsString], cache: &Path) -> Result<f64> {
    let this = std::env::current_exe();
    let this = this.map_err(|error| {
        Error::internal(format!("cannot find the path of this program: {error}"))
    })?;
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
        false => Err(Error::internal(
            "the model fails in a new process: run `onionskin run` with the same options",
        )
        .help(String::from_utf8_lossy(&output.stderr).trim().to_string())),
    }
}
