//! `onionskin compare`: compares a device with the oracle or with recorded outputs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::argument_errors::ArgumentErrors;
use super::inputs::{check_tensors, read_in_order};
use super::model_args::ModelArgs;
use super::precision::ToleranceOptions;
use super::progress_line::ProgressLine;
use super::{Outcome, output};
use crate::compare::{Difference, Tolerance, compare};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::model::{DivergenceSearch, SearchOptions, SearchProgress, first_divergence};
use crate::{CompileOptions, Device, Model, Session};

/// Compare a device with the oracle, or with recorded outputs.
#[derive(Args)]
pub(super) struct CompareCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// A file with the expected outputs in order; by default the oracle computes them.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    /// Don't look for the first value that differs.
    #[arg(long)]
    no_search: bool,
    /// How long to look for the first value that differs, in seconds; the oracle computes all values up to it.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        conflicts_with = "no_search"
    )]
    search_limit: u64,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

impl CompareCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let model = self.check()?;
        let arguments = self.model.inputs.read(&model)?;
        let progress = ProgressLine::with_lines(self.json);
        let options = CompileOptions {
            precision: self.model.device.precision()?,
            ..progress.compile_options()
        };
        let tolerance = self.tolerance.tolerance(options.precision);
        progress.step("reading and importing the model");
        let device = self.model.device.open()?;
        let session = model.compile(&device, &options)?;
        progress.step(format!("running on {device}"));
        let got = session.call(&arguments)?;
        progress.step(match self.against {
            Some(_) => "reading the expected outputs",
            None => "computing the expected outputs",
        });
        let expected = self.expected(&model, &arguments)?;
        let differences = match self.against {
            Some(_) => compare(&Item::Tuple(tensors(&got)), &expected, tolerance),
            None => compare(&got, &expected, tolerance),
        };
        let passed = differences.iter().all(Difference::passed);
        // The search compares with the oracle, and the host device is the oracle.
        let skips_search = passed || self.no_search || matches!(device, Device::Host);
        let search = match skips_search {
            true => None,
            false => Some(self.search(&session, &arguments, tolerance, &progress)?),
        };
        drop(progress);
        self.print(&device, &differences, search.as_ref());
        Ok(if passed {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }

    /// Opens the model, and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = self.model.check(&mut errors);
        errors.record_all(self.against.iter().map(|path| check_tensors(path)));
        errors.record(self.tolerance.check());
        errors.finish(model)
    }

    fn search(
        &self,
        session: &Session,
        arguments: &[Item],
        tolerance: Tolerance,
        progress: &ProgressLine,
    ) -> Result<DivergenceSearch> {
        progress.step("looking for the first value that differs");
        let progress = |search| progress.search_progress(search);
        let options = SearchOptions {
            limit: Some(Duration::from_secs(self.search_limit)),
            progress: Some(&progress),
        };
        session.reset();
        first_divergence(session, arguments, tolerance, options)
    }

    fn expected(&self, model: &Model, arguments: &[Item]) -> Result<Item> {
        let Some(path) = &self.against else {
            return model
                .compile(&Device::Host, &CompileOptions::default())?
                .call(arguments);
        };
        let tensors = read_in_order(path)?;
        if tensors.is_empty() {
            return Err(Error::usage(format!("{} holds no tensors", path.display())));
        }
        Ok(Item::Tuple(tensors))
    }

    fn print(
        &self,
        device: &Device,
        differences: &[Difference],
        search: Option<&DivergenceSearch>,
    ) {
        let against = if self.against.is_some() {
            "recorded outputs"
        } else {
            "the oracle"
        };
        if self.json {
            output::line(&json(device, differences, search).to_string());
            return;
        }
        output::line(&format!("{device} against {against}"));
        for difference in differences {
            let verdict = if difference.passed() { "ok  " } else { "DIFF" };
            output::line(&output::colourize(&format!("  {verdict} {difference}")));
        }
        match search {
            Some(DivergenceSearch::Found(found)) => {
                output::line(&format!("against the oracle, {found}"))
            }
            Some(DivergenceSearch::Stopped(SearchProgress { done, total })) => {
                let limit = self.search_limit;
                let line = format!(
                    "the values of the first {done} of {total} nodes agree with the oracle; the search ended after {limit} s"
                );
                output::line(&line);
                output::line(
                    "  help: --search-limit gives it more seconds, --no-search leaves it out",
                );
            }
            Some(DivergenceSearch::Agreement) => {
                output::line("every value that the device keeps agrees with the oracle")
            }
            None => {}
        }
    }
}

fn tensors(item: &Item) -> Vec<Item> {
    item.tensors()
        .into_iter()
        .cloned()
        .map(Item::Tensor)
        .collect()
}

fn json(
    device: &Device,
    differences: &[Difference],
    search: Option<&DivergenceSearch>,
) -> serde_json::Value {
    let outputs: Vec<_> = differences.iter().map(Difference::to_json).collect();
    let found = match search {
        Some(DivergenceSearch::Found(found)) => Some(found.to_json()),
        _ => None,
    };
    let stopped = matches!(search, Some(DivergenceSearch::Stopped(_)));
    serde_json::json!({"device": device.to_string(), "outputs": outputs, "first_divergence": found, "search_stopped": stopped})
}
