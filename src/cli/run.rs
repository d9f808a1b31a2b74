//! `onionskin run`: runs a model on inputs; prints a summary of its outputs or writes them to a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::activity::Activity;
use super::faults::{Faults, check_folder};
use super::inputs::Inputs;
use super::overwrite::Overwrite;
use super::precision::Dtype;
use super::tune::Tuned;
use super::values::{Top, describe, ends_in_softmax, item_json};
use super::{Outcome, output};
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::item::Item;
use crate::tensor::Tensor;
use crate::{CompileOptions, Device, Model, Session, tensor_file};

/// Run a model on inputs.
#[derive(Args)]
pub(super) struct Run {
    /// A TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Go on where the model asserts, indexes out of range or divides integers by zero.
    #[arg(long)]
    no_checks: bool,
    #[command(flatten)]
    dtype: Dtype,
    #[command(flatten)]
    tuned: Tuned,
    /// Weights as a GPU holds them, which a later start uploads as they are: taken from this file, and written to it if it has
    /// them not.
    #[arg(long, value_name = "FILE")]
    packed: Option<PathBuf>,
    /// Write the outputs to a .npy, .npz or .safetensors file.
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    top: Top,
    /// Print the outputs as JSON.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let model = self.check()?;
        let arguments = self.inputs.read(&model)?;
        let device = Device::open(&self.device)?;
        let activity = Activity::new(self.json);
        activity.step("importing the model");
        let precision = self.dtype.precision()?;
        let options = CompileOptions {
            choices: self.tuned.choices(&device, precision)?,
            packed: self.packed.clone(),
            precision,
            checks: !self.no_checks,
            ..activity.compile_options()
        };
        let session = model.compile(&device, &options)?;
        self.check_count(&session)?;
        activity.step("running");
        let result = session.call(&arguments)?;
        drop(activity);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let outputs = named_outputs(&result);
        if let Some(path) = &self.output {
            tensor_file::write(path, &outputs)?;
        }
        if self.json {
            output::line(&serde_json::json!({"device": device.to_string(), "ms": ms, "output": item_json(&result)}).to_string());
            return Ok(Outcome::Yes);
        }
        output::note(&format!("on {device}, {ms:.0} ms from archive to numbers"));
        tell_packed(&session);
        for (path, leaf) in result.leaves() {
            let text = format!("output{path}: {}", describe(leaf));
            output::line(&output::painted(&text));
        }
        if let Some((_, tensor)) = outputs.first() {
            let ends_in_softmax = session
                .variants()
                .iter()
                .any(|made| ends_in_softmax(&made.graph));
            self.top.print(tensor, ends_in_softmax)?;
        }
        Ok(Outcome::Yes)
    }

    /// Opens the model and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut faults = Faults::default();
        let model = faults.keep(Model::open(&self.model));
        self.inputs.check(&mut faults);
        faults.check_device(&self.device, Some(&self.dtype));
        faults.keep(self.tuned.check());
        self.top.check(&mut faults);
        faults.keep_all(self.packed.iter().map(|path| check_packed(path)));
        if let Some(path) = &self.output {
            let read = self.read(model.as_ref());
            let endings = ["npy", "npz", "safetensors"];
            faults.keep(self.overwrite.check(path, &endings, &read));
        }
        faults.end(model)
    }

    /// Checks that the output file can hold all outputs, if their number is known before the run.
    fn check_count(&self, session: &Session) -> Result<()> {
        let is_one = self.output.as_ref().is_some_and(|path| {
            let ending = path.extension().unwrap_or_default();
            ending.eq_ignore_ascii_case("npy")
        });
        let variants = session.variants();
        let mut counts = variants.iter().map(|variant| variant.graph.result_count());
        match counts.find(|count| is_one && *count != 1) {
            Some(count) => {
                let message = format!("the model has {count} outputs, and a .npy file holds one");
                Err(Error::usage(message).help("write a .npz or a .safetensors file"))
            }
            None => Ok(()),
        }
    }

    /// Returns the files that this command reads.
    fn read(&self, model: Option<&Model>) -> Vec<PathBuf> {
        let labels = self.top.labels().into_iter().cloned();
        let mut read = files(&self.model, model);
        read.extend(self.inputs.paths());
        read.into_iter()
            .chain(labels)
            .chain(self.packed.clone())
            .collect()
    }
}

/// Returns the files of a model, or the given path if the model could not be opened.
pub(super) fn files(path: &Path, model: Option<&Model>) -> Vec<PathBuf> {
    match model {
        Some(model) => model.files().to_vec(),
        None => vec![path.to_path_buf()],
    }
}

/// Checks that `--packed` names a new file or a file of packed weights.
pub(super) fn check_packed(path: &Path) -> Result<()> {
    check_folder(path)?;
    match path.exists() && FileKind::of(path)? != FileKind::Safetensors {
        true => {
            let message = format!("{} holds no packed weights", path.display());
            Err(Error::usage(message).help("name a new file, which this run writes"))
        }
        false => Ok(()),
    }
}

/// Prints whether the file of packed weights was used or written.
pub(super) fn tell_packed(session: &Session) {
    if let Some(report) = session.packed() {
        output::note(&report.to_string());
    }
}

/// Returns the tensors of a result with names for a file: `output`, or `output_0`, `output_1` ….
pub(super) fn named_outputs(result: &Item) -> Vec<(String, Tensor)> {
    let tensors = result.tensors();
    let name = |index: usize| {
        if tensors.len() == 1 {
            "output".to_string()
        } else {
            format!("output_{index}")
        }
    };
    tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| (name(index), (*tensor).clone()))
        .collect()
}
