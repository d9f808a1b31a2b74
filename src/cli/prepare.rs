//! `onionskin prepare`: prepares a graph for quantisers and other tools.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::argument_errors::ArgumentErrors;
use super::import::{check_graph, import};
use super::inputs::{Inputs, arguments, check_tensors};
use super::model_args::model_files;
use super::model_file::ModelFileArgs;
use super::overwrite::{Overwrite, REPORT_MARK};
use super::progress_line::ProgressLine;
use super::run_limits::RunLimitOptions;
use super::{Outcome, json_error, output};
use crate::Model;
use crate::error::Result;
use crate::files;
use crate::item::Item;
use crate::pass;
use crate::scalar::Scalar;
use crate::trace::prepare::{PrepareOptions, PrepareReport, Prepared, prepare};

/// Prepare a graph for quantisers and other tools: unique names by module, an instance for each call of a module.
#[derive(Args)]
pub(super) struct PrepareCommand {
    /// A program of torch.export, a TorchScript archive or a JSON graph.
    model: PathBuf,
    #[command(flatten)]
    file: ModelFileArgs,
    /// The JSON file to write; by default the model's name with .prepared.json.
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    example: Inputs,
    /// A tensor file with all arguments, on which the results are compared; by default they are generated.
    #[arg(long = "inputs", value_name = "FILE", conflicts_with_all = ["files", "images", "shapes"])]
    all: Option<PathBuf>,
    /// Leave a module whole, as one node; may be repeated.
    #[arg(long = "leaf", value_name = "PATH")]
    leaves: Vec<String>,
    /// Fix an argument to a number, true or false, and leave out the branches that are not taken then; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    fixed: Vec<(String, Scalar)>,
    /// Give every instance of a module that is called several times parameters of its own.
    #[arg(long)]
    copy_parameters: bool,
    /// Turn weights and states into inputs, and new states into outputs.
    #[arg(long)]
    lift: bool,
    /// Write every rewrite to a file: JSON if its name ends in .json, else text; print a summary.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

fn parse_setting(text: &str) -> Result<(String, Scalar), String> {
    let (name, value) = text.split_once('=').ok_or("this is not NAME=VALUE")?;
    let number = match value {
        "true" => Scalar::Bool(true),
        "false" => Scalar::Bool(false),
        _ => match (value.parse(), value.parse()) {
            (Ok(integer), _) => Scalar::Int(integer),
            (_, Ok(number)) => Scalar::Float(number),
            _ => return Err(format!("{value} is not a number, true or false")),
        },
    };
    Ok((name.to_string(), number))
}

impl PrepareCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let progress = ProgressLine::new(self.json);
        progress.step(format!("reading {}", self.model.display()));
        let path = self.output.clone();
        let path = path.unwrap_or_else(|| self.model.with_extension("prepared.json"));
        let model = self.check(&path)?;
        let module = import(&model, &self.example, &progress)?.with_loaded_weights()?;
        progress.step("preparing the graph, and comparing the results");
        let options = PrepareOptions {
            leaves: self.leaves.clone(),
            fixed: self.fixed.clone(),
            copy_parameters: self.copy_parameters,
            inputs: self.inputs(&model)?,
        };
        let Prepared { mut module, report } = prepare(&module, &options)?;
        if self.lift {
            module = pass::lift(&module);
        }
        module.save(&path)?;
        drop(progress);
        if let Some(path) = &self.report {
            write(path, &report)?;
        }
        self.print(&report, &path)?;
        Ok(Outcome::Success)
    }

    /// Prints the report, or its summary if the report is written to a file.
    fn print(&self, report: &PrepareReport, path: &Path) -> Result<()> {
        if self.json {
            output::line(&json(report)?);
            return Ok(());
        }
        match &self.report {
            None => output::line(report.to_string().trim_end()),
            Some(file) => {
                report.summary().iter().for_each(|line| output::line(line));
                output::line(&format!("{} lists every rewrite", file.display()));
            }
        }
        output::line(&format!("{} is written", path.display()));
        Ok(())
    }

    fn inputs(&self, model: &Model) -> Result<Vec<Item>> {
        match &self.all {
            Some(path) => arguments(path, model),
            None if self.example.is_empty() => Ok(Vec::new()),
            None => self.example.read(model),
        }
    }

    /// Returns the files that this command reads.
    fn read(&self, model: Option<&Model>) -> Vec<PathBuf> {
        let mut read = [model_files(&self.model, model), self.example.paths()].concat();
        read.extend(self.all.clone());
        read
    }

    /// Opens the model and checks all other arguments.
    fn check(&self, path: &Path) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = errors.record(self.file.open(&self.model));
        self.example.check(&mut errors);
        errors.record_all(self.all.iter().map(|path| check_tensors(path)));
        let read = self.read(model.as_ref());
        errors.record(check_graph(&self.overwrite, path, &read));
        let reports = self.report.iter();
        let endings = ["json", "txt"];
        errors.record_all(reports.map(|report| self.overwrite.check(report, &endings, &read)));
        errors.finish(model)
    }
}

/// A JSON report with the mark of this program; see [`Overwrite`].
#[derive(Serialize)]
struct MarkedReport<'a> {
    format: &'static str,
    #[serde(flatten)]
    report: &'a PrepareReport,
}

fn json(report: &PrepareReport) -> Result<String> {
    serde_json::to_string(report).map_err(json_error)
}

fn write(path: &Path, report: &PrepareReport) -> Result<()> {
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let text = if is_json {
        let marked = MarkedReport {
            format: "onionskin report",
            report,
        };
        serde_json::to_string(&marked).map_err(json_error)? + "\n"
    } else {
        format!("{REPORT_MARK}\n{report}")
    };
    files::write(path, text.as_bytes())
}
