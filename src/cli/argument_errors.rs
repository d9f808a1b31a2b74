//! Checks of a command's arguments. All errors are reported at once, before anything is imported or compiled.

use std::path::Path;

use super::precision::StorageDtype;
use crate::error::{Error, ErrorKind, Result};
use crate::gpu::{self, DeviceChoice};
use crate::kernel::materialization::Precision;

/// Errors found in a command's arguments.
#[derive(Default)]
pub(super) struct ArgumentErrors(Vec<Error>);

impl ArgumentErrors {
    /// Returns the value of a result, or records its error and returns `None`.
    pub(super) fn record<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.0.push(error)).ok()
    }

    /// Records the errors of several checks.
    pub(super) fn record_all(&mut self, results: impl IntoIterator<Item = Result<()>>) {
        self.0.extend(results.into_iter().filter_map(Result::err));
    }

    /// Returns the value that [`ArgumentErrors::record`] returned, unless an error is recorded. Usage errors come first: the
    /// first error decides the exit code.
    ///
    /// # Errors
    /// All recorded errors, as one.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T> {
        self.0.sort_by_key(|error| error.kind() != ErrorKind::Usage);
        match (Error::all(self.0), value) {
            (Some(error), _) => Err(error),
            (None, Some(value)) => Ok(value),
            (None, None) => Err(Error::internal(
                "a value is missing, though no check failed",
            )),
        }
    }

    /// Checks `--device`, and that the device can store values in the dtype of `--dtype`.
    pub(super) fn check_device(&mut self, name: &str, dtype: Option<&StorageDtype>) {
        let Ok(choice) = name.parse::<DeviceChoice>();
        self.record(gpu::check_choice(&choice));
        let precision = dtype.and_then(|dtype| self.record(dtype.precision()));
        if choice == DeviceChoice::Cpu && precision == Some(Precision::Half) {
            let message = "--dtype f16 works on GPUs only: the host stores f32 values in f32";
            let help = "choose an adapter (see `onionskin devices`), or omit --dtype f16";
            self.0.push(Error::usage(message).help(help));
        }
    }

    /// Checks that `--device` names no device without kernels, as the host is.
    pub(super) fn check_gpu(&mut self, name: &str) {
        let Ok(choice) = name.parse::<DeviceChoice>();
        if choice == DeviceChoice::Cpu {
            let message = "--device cpu: the host has no kernels to measure";
            let help = "choose an adapter; onionskin devices lists them";
            self.0.push(Error::usage(message).help(help));
        }
    }

    /// Checks that the number given for a flag is at least 1.
    pub(super) fn check_positive(&mut self, flag: &str, number: Option<usize>) {
        if number == Some(0) {
            let message = format!("{flag} must be at least 1, not 0");
            self.0
                .push(Error::usage(message).help(format!("give {flag} a number from 1")));
        }
    }
}

/// Checks that the folder of an output file exists.
pub(super) fn check_folder(path: &Path) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            let folder = folder.display();
            let message = format!("{folder}: this folder does not exist");
            Err(Error::usage(message).help(format!("create it: mkdir -p {folder}")))
        }
        _ => Ok(()),
    }
}
