//! Arguments of the commands that run a model: the model, its inputs, the device and how the device stores values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use super::argument_errors::ArgumentErrors;
use super::inputs::Inputs;
use super::model_file::ModelFileArgs;
use super::precision::StorageDtype;
use super::run_limits::RunLimitOptions;
use crate::error::Result;
use crate::kernel::materialization::Precision;
use crate::{Device, Model};

/// A model with one set of inputs and a device.
#[derive(Args)]
pub(super) struct ModelArgs {
    /// A program of torch.export, a TorchScript archive or a JSON graph.
    #[arg(id = "model", value_name = "MODEL")]
    pub(super) path: PathBuf,
    #[command(flatten)]
    pub(super) file: ModelFileArgs,
    #[command(flatten)]
    pub(super) inputs: Inputs,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

impl ModelArgs {
    /// Opens the model and checks all arguments that do not depend on the contents of the inputs.
    pub(super) fn check(&self, errors: &mut ArgumentErrors) -> Option<Model> {
        let model = errors.record(self.file.open(&self.path));
        self.inputs.check(errors);
        self.device.check(errors);
        model
    }

    /// Like [`ModelArgs::check`], for commands that measure kernels: the host device has none.
    pub(super) fn check_gpu(&self, errors: &mut ArgumentErrors) -> Option<Model> {
        let model = self.check(errors);
        self.device.check_gpu(errors);
        model
    }

    /// Returns the files that a run reads: those of the model, if it could be opened, and those of its inputs.
    pub(super) fn paths(&self, model: Option<&Model>) -> Vec<PathBuf> {
        [model_files(&self.path, model), self.inputs.paths()].concat()
    }
}

/// Returns the files of a model, or the given path if the model could not be opened.
pub(super) fn model_files(path: &Path, model: Option<&Model>) -> Vec<PathBuf> {
    match model {
        Some(model) => model.files().to_vec(),
        None => vec![path.to_path_buf()],
    }
}

/// `--device` and `--dtype`.
#[derive(Args)]
pub(super) struct DeviceArgs {
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name.
    #[arg(
        id = "device",
        long = "device",
        default_value = "auto",
        value_name = "DEVICE"
    )]
    pub(super) name: String,
    #[command(flatten)]
    dtype: StorageDtype,
}

impl DeviceArgs {
    /// Checks that there is such a device, and that it can store values in the given dtype.
    pub(super) fn check(&self, errors: &mut ArgumentErrors) {
        errors.check_device(&self.name, Some(&self.dtype));
    }

    /// Checks that the device runs kernels: the host device has none.
    fn check_gpu(&self, errors: &mut ArgumentErrors) {
        errors.check_gpu(&self.name);
    }

    pub(super) fn open(&self) -> Result<Device> {
        Device::open(&self.name)
    }

    pub(super) fn precision(&self) -> Result<Precision> {
        self.dtype.precision()
    }

    /// Returns the options for the command line of another process.
    pub(super) fn command_line_options(&self) -> [OsString; 2] {
        [
            format!("--device={}", self.name).into(),
            self.dtype.command_line_option().into(),
        ]
    }
}
