//! `onionskin run`: runs a model on inputs; prints a summary of its outputs or writes them to a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::argument_errors::{ArgumentErrors, check_folder};
use super::backward::BackwardArgs;
use super::model_args::ModelArgs;
use super::overwrite::Overwrite;
use super::progress_line::ProgressLine;
use super::results::{TopEntries, describe, ends_in_softmax, item_json};
use super::tune::TunedOption;
use super::{Outcome, output};
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::item::Item;
use crate::tensor::Tensor;
use crate::{CompileOptions, Model, Session, tensor_file};

/// Run a model on inputs.
#[derive(Args)]
pub(super) struct RunCommand {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    backward: BackwardArgs,
    /// Do not check assertions, index ranges and integer division by zero.
    #[arg(long)]
    no_checks: bool,
    #[command(flatten)]
    tuned: TunedOption,
    /// File of packed weights, in the GPU's layout: a later start uploads them without conversion. Weights that the file lacks
    /// are added to it.
    #[arg(long, value_name = "FILE")]
    packed: Option<PathBuf>,
    /// Write the outputs to a .npy, .npz or .safetensors file.
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    top: TopEntries,
    /// Print the outputs as JSON.
    #[arg(long)]
    json: bool,
}

impl RunCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let model = self.check()?;
        let arguments = self.model.inputs.read(&model)?;
        let device = self.model.device.open()?;
        let progress = ProgressLine::new(self.json);
        progress.step("importing the model");
        let model = self.backward.model(model)?;
        let precision = self.model.device.precision()?;
        let options = CompileOptions {
            variant_overrides: self.tuned.variant_overrides(&device, precision)?,
            packed: self.packed.clone(),
            precision,
            checks: !self.no_checks,
            ..progress.compile_options()
        };
        let session = model.compile(&device, &options)?;
        self.check_count(&session)?;
        progress.step("running");
        let result = session.call(&arguments)?;
        drop(progress);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let outputs = named_outputs(&result);
        if let Some(path) = &self.output {
            tensor_file::write(path, &outputs)?;
        }
        if self.json {
            output::line(&serde_json::json!({"device": device.to_string(), "ms": ms, "output": item_json(&result)}).to_string());
            return Ok(Outcome::Success);
        }
        output::note(&format!("on {device}, {ms:.0} ms from archive to numbers"));
        report_packed(&session);
        for (path, leaf) in result.leaves() {
            let text = format!("output{path}: {}", describe(leaf));
            output::line(&output::colourize(&text));
        }
        if let Some((_, tensor)) = outputs.first() {
            let ends_in_softmax = session
                .compiled_graphs()
                .iter()
                .any(|compiled| ends_in_softmax(&compiled.graph));
            self.top.print(tensor, ends_in_softmax)?;
        }
        Ok(Outcome::Success)
    }

    /// Opens the model and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = self.model.check(&mut errors);
        errors.record(self.tuned.check());
        self.top.check(&mut errors);
        errors.record_all(self.packed.iter().map(|path| check_packed(path)));
        if let Some(path) = &self.output {
            let read = self.read(model.as_ref());
            let endings = ["npy", "npz", "safetensors"];
            errors.record(self.overwrite.check(path, &endings, &read));
        }
        errors.finish(model)
    }

    /// Checks that the output file can hold all outputs, if their number is known before the run.
    fn check_count(&self, session: &Session) -> Result<()> {
        let is_one = self.output.as_ref().is_some_and(|path| {
            let ending = path.extension().unwrap_or_default();
            ending.eq_ignore_ascii_case("npy")
        });
        let compiled = session.compiled_graphs();
        let mut counts = compiled
            .iter()
            .map(|compiled| compiled.graph.result_count());
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
        let read = self.model.paths(model);
        read.into_iter()
            .chain(labels)
            .chain(self.packed.clone())
            .collect()
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
pub(super) fn report_packed(session: &Session) {
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
