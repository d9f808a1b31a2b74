//! `onionskin import`: imports an archive as a JSON graph, with its weights in a file beside it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use indicatif::HumanBytes;

use super::argument_errors::ArgumentErrors;
use super::inputs::Inputs;
use super::model_args::model_files;
use super::model_file::ModelFileArgs;
use super::overwrite::Overwrite;
use super::progress_line::ProgressLine;
use super::run_limits::RunLimitOptions;
use super::{Outcome, output};
use crate::Model;
use crate::error::Result;
use crate::files;
use crate::ir::GraphModule;
use crate::tensor::Tensor;

/// Import an archive: write the graph as JSON and the weights as safetensors beside it.
#[derive(Args)]
pub(super) struct ImportCommand {
    /// A program of torch.export or a TorchScript archive.
    model: PathBuf,
    #[command(flatten)]
    file: ModelFileArgs,
    /// The JSON file to write; by default the archive's name with .json.
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    /// Further methods that become graphs beside forward, such as one that resets states; they take no arguments.
    #[arg(long = "method", value_name = "NAME")]
    methods: Vec<String>,
    /// Print a JSON summary.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

impl ImportCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let progress = ProgressLine::new(self.json);
        progress.step(format!("reading {}", self.model.display()));
        let path = self.output.clone();
        let path = path.unwrap_or_else(|| self.model.with_extension("json"));
        let model = self.check(&path)?;
        let module = import_methods(&model, &self.inputs, &self.methods, &progress)?;
        let bytes: usize = module.weights.values().map(Tensor::byte_count).sum();
        progress.step(format!("writing {} of weights", HumanBytes(bytes as u64)));
        module.save(&path)?;
        drop(progress);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let (nodes, weights) = (
            module
                .graphs
                .iter()
                .map(|graph| graph.nodes.len())
                .sum::<usize>(),
            module.weights.len(),
        );
        if self.json {
            output::line(
                &serde_json::json!({"output": path, "nodes": nodes, "weights": weights, "ms": ms})
                    .to_string(),
            );
        } else {
            output::line(&format!(
                "{}: {nodes} nodes, {weights} weights, imported in {ms:.0} ms",
                path.display()
            ));
        }
        Ok(Outcome::Success)
    }
}

impl ImportCommand {
    /// Opens the model, and checks all other arguments.
    fn check(&self, path: &Path) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = errors.record(self.file.open(&self.model));
        self.inputs.check(&mut errors);
        let read = [
            model_files(&self.model, model.as_ref()),
            self.inputs.paths(),
        ]
        .concat();
        errors.record(check_graph(&self.overwrite, path, &read));
        if let Some(model) = &model {
            let methods = self.methods.iter();
            errors.record_all(methods.map(|method| model.signature(method).map(drop)));
        }
        errors.finish(model)
    }
}

/// Checks that a graph may be written. The name of the weights beside it follows from their content, so that no other file has it.
pub(super) fn check_graph(overwrite: &Overwrite, path: &Path, read: &[PathBuf]) -> Result<()> {
    overwrite.check(path, &["json"], read)?;
    if files::is_special(path) {
        let message = "is not a regular file: it gets the graph without the weights";
        output::note(&format!("note: {} {message}", path.display()));
    }
    Ok(())
}

/// Imports a model for the given inputs, or else for the example inputs of its archive. Weights are read when they are used.
pub(super) fn import(
    model: &Model,
    inputs: &Inputs,
    progress: &ProgressLine,
) -> Result<GraphModule> {
    import_methods(model, inputs, &[], progress)
}

fn import_methods(
    model: &Model,
    inputs: &Inputs,
    methods: &[String],
    progress: &ProgressLine,
) -> Result<GraphModule> {
    progress.step("importing the graph");
    // Imported graphs do not depend on inputs.
    let arguments = match inputs.is_empty() || !model.program().can_reimport() {
        true => None,
        false => Some(inputs.examples(model)?),
    };
    model.import_methods_in_place(arguments.as_deref(), methods)
}
