//! `onionskin import`: from an archive to a JSON graph with its weights beside it.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::inputs::Inputs;
use super::{Outcome, output};
use crate::Model;
use crate::error::Result;
use crate::ir::Module;

/// Import an archive: write the graph as JSON and the weights as safetensors beside it.
#[derive(Args)]
pub(super) struct Import {
    /// A TorchScript archive.
    model: PathBuf,
    /// The JSON file to write; by default the archive's name with .json.
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    /// Print a JSON summary.
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let module = import(&self.model, &self.inputs)?;
        let path = self
            .output
            .clone()
            .unwrap_or_else(|| self.model.with_extension("json"));
        module.save(&path)?;
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
        Ok(Outcome::Yes)
    }
}

/// Opens a model and imports it for the inputs that were given, or for those that the archive remembers.
pub(super) fn import(path: &std::path::Path, inputs: &Inputs) -> Result<Module> {
    let model = Model::open(path)?;
    if inputs.is_empty() {
        model.import()
    } else {
        model.import_for(&inputs.read()?)
    }
}
