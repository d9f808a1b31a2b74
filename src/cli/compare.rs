//! `onionskin compare`: compares a device with the oracle or with recorded outputs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value as Json, json};

use super::argument_errors::ArgumentErrors;
use super::inputs::{check_tensors, read_in_order};
use super::model_args::ModelArgs;
use super::precision::ToleranceOptions;
use super::progress_line::ProgressLine;
use super::{Outcome, output};
use crate::compare::{Difference, Tolerance, compare};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::model::{
    ComparedValue, DivergenceSearch, SearchOptions, SearchProgress, ValueComparison,
    compare_values, first_divergence,
};
use crate::{CompileOptions, Device, Model, Session};

/// Lines of the table of values.
const LISTED_VALUES: usize = 20;

/// Compare a device with the oracle, or with recorded outputs.
#[derive(Args)]
pub(super) struct CompareCommand {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// A file with the expected outputs in order; by default the oracle computes them.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    /// Compare every value that the device keeps with the oracle's, not only the outputs. Values within the bodies of
    /// conditions and loops are left out, and so are values that were fused into kernels. The exit code tells of the outputs.
    #[arg(long)]
    values: bool,
    /// Don't look for the first value that differs.
    #[arg(long, conflicts_with = "values")]
    no_search: bool,
    /// How long to compare values or to look for the first one that differs, in seconds; the oracle computes all values up to
    /// it.
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
        self.check_keeps_values(&device)?;
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
        let against = self.against_oracle(&session, &arguments, tolerance, passed, &progress)?;
        drop(progress);
        self.print(&options.entry, &device, &differences, &against);
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

    /// Refuses `--values` on the host.
    fn check_keeps_values(&self, device: &Device) -> Result<()> {
        if self.values && matches!(device, Device::Host) {
            let message = "--values compares a device with the oracle, and the host is the oracle";
            return Err(
                Error::usage(message).help("choose an adapter; onionskin devices lists them")
            );
        }
        Ok(())
    }

    /// Compares values between inputs and outputs, or looks for the first one that differs.
    fn against_oracle(
        &self,
        session: &Session,
        arguments: &[Item],
        tolerance: Tolerance,
        passed: bool,
        progress: &ProgressLine,
    ) -> Result<OracleComparison> {
        // The search compares with the oracle, and the host device is the oracle.
        let skips_search = passed || self.no_search || matches!(session.device(), Device::Host);
        if !self.values && skips_search {
            return Ok(OracleComparison::None);
        }
        let what = match self.values {
            true => "comparing values",
            false => "looking for the first value that differs",
        };
        progress.step(what);
        let progress = |search| progress.search_progress(what, search);
        let options = SearchOptions {
            limit: Some(Duration::from_secs(self.search_limit)),
            progress: Some(&progress),
        };
        session.reset();
        Ok(match self.values {
            true => {
                OracleComparison::Values(compare_values(session, arguments, tolerance, options)?)
            }
            false => {
                OracleComparison::Search(first_divergence(session, arguments, tolerance, options)?)
            }
        })
    }

    fn expected(&self, model: &Model, arguments: &[Item]) -> Result<Item> {
        let Some(path) = &self.against else {
            return model
                .compile(&Device::Host, &CompileOptions::default())?
                .call(arguments);
        };
        let tensors = read_in_order(path, model.limits())?;
        if tensors.is_empty() {
            return Err(Error::usage(format!("{} holds no tensors", path.display())));
        }
        Ok(Item::Tuple(tensors))
    }

    fn print(
        &self,
        graph: &str,
        device: &Device,
        differences: &[Difference],
        found: &OracleComparison,
    ) {
        let against = if self.against.is_some() {
            "recorded outputs"
        } else {
            "the oracle"
        };
        if self.json {
            output::line(&json(graph, device, differences, found).to_string());
            return;
        }
        output::line(&format!("{device} against {against}"));
        for difference in differences {
            let verdict = if difference.passed() { "ok  " } else { "DIFF" };
            output::line(&output::colourize(&format!("  {verdict} {difference}")));
        }
        match found {
            OracleComparison::None => {}
            OracleComparison::Values(values) => {
                let lines = value_table(values);
                lines.iter().for_each(|line| output::line(line));
                self.print_stopped(values.stopped, "were compared", "the comparison", "");
            }
            OracleComparison::Search(DivergenceSearch::Found(found)) => {
                output::line(&format!("against the oracle, {found}"))
            }
            OracleComparison::Search(DivergenceSearch::Stopped(progress)) => {
                let without = ", --no-search leaves it out";
                self.print_stopped(
                    Some(*progress),
                    "agree with the oracle",
                    "the search",
                    without,
                );
            }
            OracleComparison::Search(DivergenceSearch::Agreement) => {
                output::line("every value that the device keeps agrees with the oracle")
            }
        }
    }

    /// Prints that the time limit ended the comparison or the search, if it did, and the remedies.
    fn print_stopped(&self, stopped: Option<SearchProgress>, done: &str, what: &str, help: &str) {
        let Some(progress) = stopped else {
            return;
        };
        let (count, total, limit) = (progress.done, progress.total, self.search_limit);
        output::line(&format!(
            "the values of the first {count} of {total} nodes {done}; {what} ended after {limit} s"
        ));
        output::line(&format!(
            "  help: --search-limit gives it more seconds{help}"
        ));
    }
}

/// Comparison of values other than the outputs with the oracle.
enum OracleComparison {
    /// Not asked for, or not needed.
    None,
    /// Search for the first value that differs.
    Search(DivergenceSearch),
    /// Comparison of all values that the device keeps.
    Values(ValueComparison),
}

impl OracleComparison {
    /// The first value that differs, as a JSON object, if one was found.
    fn first_divergence(&self) -> Option<Json> {
        match self {
            OracleComparison::Search(DivergenceSearch::Found(found)) => Some(found.to_json()),
            OracleComparison::Values(values) => {
                values.first_divergence().map(|found| found.to_json())
            }
            _ => None,
        }
    }

    /// True if the time limit passed.
    fn is_stopped(&self) -> bool {
        match self {
            OracleComparison::Search(search) => matches!(search, DivergenceSearch::Stopped(_)),
            OracleComparison::Values(values) => values.stopped.is_some(),
            OracleComparison::None => false,
        }
    }

    fn values(&self) -> Option<Vec<Json>> {
        match self {
            OracleComparison::Values(values) => {
                Some(values.values.iter().map(ComparedValue::to_json).collect())
            }
            _ => None,
        }
    }
}

/// Formats the worst values as a table, and the first value that differs.
fn value_table(found: &ValueComparison) -> Vec<String> {
    let values = found.worst_first();
    let shown = values.len().min(LISTED_VALUES);
    let mut lines = vec![
        format!(
            "values that the device keeps, against the oracle: {shown} of {}, the worst first",
            values.len()
        ),
        "    max abs    max rel               wrong  value".to_string(),
    ];
    lines.extend(values.iter().take(shown).map(|value| value_line(value)));
    lines.extend(
        found
            .first_divergence()
            .map(|found| format!("against the oracle, {found}")),
    );
    lines
}

/// Formats a value: its largest differences, the number of wrong elements, its name and its place.
fn value_line(
    ComparedValue {
        site, difference, ..
    }: &ComparedValue,
) -> String {
    if let Some(why) = &difference.incomparable {
        return format!("  {site}: {why}");
    }
    let wrong = format!("{} of {}", difference.wrong, difference.numel);
    format!(
        "  {:>9.3e}  {:>9.3e}  {wrong:>18}  {site}",
        difference.max_abs, difference.max_rel
    )
}

fn tensors(item: &Item) -> Vec<Item> {
    item.tensors()
        .into_iter()
        .cloned()
        .map(Item::Tensor)
        .collect()
}

fn json(
    graph: &str,
    device: &Device,
    differences: &[Difference],
    found: &OracleComparison,
) -> Json {
    let outputs: Vec<Json> = differences.iter().map(Difference::to_json).collect();
    json!({
        "format": "onionskin-compare-1",
        "graph": graph,
        "device": device.to_string(),
        "outputs": outputs,
        "first_divergence": found.first_divergence(),
        "search_stopped": found.is_stopped(),
        "values": found.values(),
    })
}
