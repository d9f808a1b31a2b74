//! `onionskin import`: from an archive to a JSON graph with its weights beside it.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use indicatif::HumanBytes;

use super::activity::Activity;
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
    /// Further methods that become graphs beside forward, such as one that resets states; they take no arguments.
    #[arg(long = "method", value_name = "NAME")]
    methods: Vec<String>,
    /// Print a JSON summary.
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let activity = Activity::new(self.json);
        let module = import_methods(&self.model, &self.inputs, &self.methods, &activity)?;
        let path = self
            .output
            .clone()
            .unwrap_or_else(|| self.model.with_extension("json"));
        let bytes: usize = module
            .weights
            .values()
            .map(|tensor| tensor.bytes().len())
            .sum();
        activity.step(format!("writing {} of weights", HumanBytes(bytes as u64)));
        module.save(&path)?;
        drop(activity);
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
pub(super) fn import(
    path: &std::path::Path,
    inputs: &Inputs,
    activity: &Activity,
) -> Result<Module> {
    import_methods(path, inputs, &[], activity)
}

fn import_methods(
    path: &std::path::Path,
    inputs: &Inputs,
    methods: &[String],
    activity: &Activity,
) -> Result<Module> {
    activity.step(format!("reading {}", path.display()));
    let model = Model::open(path)?;
    activity.step("importing the graph");
    let arguments = match inputs.is_empty() {
        true => None,
        false => Some(inputs.read()?),
    };
    model.import_with_methods(arguments.as_deref(), methods)
}
