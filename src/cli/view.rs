//! `onionskin view`: writes a page with the picture of a model.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanBytes;
use serde_json::Value as Json;

use super::argument_errors::ArgumentErrors;
use super::import::import;
use super::inputs::Inputs;
use super::model_args::model_files;
use super::model_file::ModelFileArgs;
use super::overwrite::Overwrite;
use super::plan::{PlanArgs, graph_sizes, plan_json};
use super::progress_line::ProgressLine;
use super::run_limits::RunLimitOptions;
use super::{Outcome, output};
use crate::Model;
use crate::error::{Error, Result};
use crate::files;
use crate::ir::{Graph, GraphModule, Node};
use crate::pass;
use crate::view::{OverlayFile, ViewOptions, page, to_model_explorer};

/// Write the picture of a model: a page with its modules, operators, weights and kernels, which needs no other file.
#[derive(Args)]
pub(super) struct ViewCommand {
    /// A program of torch.export, a TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    file: ModelFileArgs,
    /// The page to write; by default the model's name with .html.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the graph for Model Explorer too: a .json file that it opens.
    #[arg(long, value_name = "FILE")]
    model_explorer: Option<PathBuf>,
    /// Open the page in the browser.
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    inputs: Inputs,
    /// Show the graph as the planner gets it: after all passes.
    #[arg(long)]
    optimized: bool,
    /// Show measurements or findings over the picture: a file with the output of profile --json, compare --values --json,
    /// check --json or show --plan --json; may be repeated.
    #[arg(long = "overlay", value_name = "FILE")]
    overlays: Vec<PathBuf>,
    /// Don't plan the model: the page shows no kernels, unless an overlay has them.
    #[arg(long)]
    no_plan: bool,
    #[command(flatten)]
    target: PlanArgs,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

impl ViewCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let progress = ProgressLine::new(false);
        progress.step(format!("reading {}", self.model.display()));
        let path = self.output.clone();
        let path = path.unwrap_or_else(|| self.model.with_extension("html"));
        let (model, overlays) = self.check(&path)?;
        let mut module = import(&model, &self.inputs, &progress)?.with_loaded_weights()?;
        if self.optimized {
            progress.step("optimising the graph");
            module = pass::optimize_module(&module)?;
        }
        let options = self.options(&module, overlays, &progress);
        progress.step("drawing");
        let html = page(&module, &file_name(&self.model), &options)?;
        self.write(&path, &html, &module)?;
        drop(progress);
        output::line(&summary(&path, &module, html.len()));
        if self.open {
            open_in_browser(&path)?;
        }
        Ok(Outcome::Success)
    }

    /// Opens the model and the overlays, and checks all other arguments.
    fn check(&self, path: &Path) -> Result<(Model, Vec<OverlayFile>)> {
        let mut errors = ArgumentErrors::default();
        let model = errors.record(self.file.open(&self.model));
        self.inputs.check(&mut errors);
        let overlays = self.overlays.iter();
        let overlays: Vec<Option<OverlayFile>> = overlays
            .map(|path| errors.record(read_overlay(path)))
            .collect();
        let read = [
            model_files(&self.model, model.as_ref()),
            self.inputs.paths(),
            self.overlays.clone(),
        ]
        .concat();
        errors.record(self.overwrite.check(path, &["html"], &read));
        let explorer = self.model_explorer.iter();
        errors.record_all(explorer.map(|path| self.overwrite.check(path, &["json"], &read)));
        self.target.check(&mut errors);
        let model = errors.finish(model)?;
        Ok((model, overlays.into_iter().flatten().collect()))
    }

    /// Adds the plan for the device to the overlays, unless one is there or none is wanted.
    fn options(
        &self,
        module: &GraphModule,
        mut overlays: Vec<OverlayFile>,
        progress: &ProgressLine,
    ) -> ViewOptions {
        let mut facts = Vec::new();
        if !self.no_plan && !overlays.iter().any(OverlayFile::is_plan) {
            progress.step("planning");
            match self.plan(module) {
                Ok(plan) => overlays.extend(OverlayFile::of("", plan)),
                // A model that the device cannot run has a picture, too.
                Err(error) => facts.push(["kernels".to_string(), format!("none: {error}")]),
            }
        }
        ViewOptions {
            overlays,
            source_folders: self.source_folders(),
            facts,
        }
    }

    /// Writes the page and the graph for Model Explorer: both or none.
    fn write(&self, path: &Path, html: &str, module: &GraphModule) -> Result<()> {
        let explorer = self.model_explorer.as_ref();
        let explorer = explorer.map(|path| (path, self.explorer_document(module)));
        let mut files = vec![(path, html.as_bytes())];
        files.extend(
            explorer
                .iter()
                .map(|(path, text)| (path.as_path(), text.as_bytes())),
        );
        files::write_all(&files)
    }

    fn explorer_document(&self, module: &GraphModule) -> String {
        to_model_explorer(module, &file_name(&self.model)).to_string()
    }

    /// Plans the model for the device.
    fn plan(&self, module: &GraphModule) -> Result<Json> {
        let limits = self.file.limits()?;
        let sizes = |graph: &Graph| graph_sizes(&self.inputs, &limits, module, graph);
        plan_json(module, &self.target.open()?, &sizes, None)
    }

    /// The folders from which recorded paths of source files start: the current one, and the model's.
    fn source_folders(&self) -> Vec<PathBuf> {
        let own = self.model.parent().map(Path::to_path_buf);
        [PathBuf::from(".")].into_iter().chain(own).collect()
    }
}

fn read_overlay(path: &Path) -> Result<OverlayFile> {
    let text = files::read(path).map_err(|error| Error::io(path, error))?;
    OverlayFile::parse(&file_name(path), &text)
}

/// The name of a file without its folder.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn summary(path: &Path, module: &GraphModule, bytes: usize) -> String {
    let nodes: usize = module.graphs.iter().map(count_nodes).sum();
    let (path, size) = (path.display(), HumanBytes(bytes as u64));
    format!(
        "{path}: {nodes} nodes, {} weights, {size}",
        module.weights.len()
    )
}

/// Counts the nodes of a graph, with those in the bodies of regions.
fn count_nodes(graph: &Graph) -> usize {
    let bodies = graph.nodes.iter().flat_map(Node::bodies);
    graph.nodes.len() + bodies.map(count_nodes).sum::<usize>()
}

fn open_in_browser(path: &Path) -> Result<()> {
    open::that_detached(path).map_err(|error| {
        let message = format!("no browser opens {}: {error}", path.display());
        Error::usage(message).help("open the file yourself, or leave out --open")
    })
}
