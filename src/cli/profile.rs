//! `onionskin profile`: times of a run by kernel, by module and by source line, compared with the device's peak
//! arithmetic and memory rates.

mod page;
mod tables;
mod timeline;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use self::tables::{ProfileReport, ProfileRow, StepMeasurement, table};
use super::argument_errors::ArgumentErrors;
use super::backward::BackwardArgs;
use super::model_args::ModelArgs;
use super::overwrite::Overwrite;
use super::progress_line::ProgressLine;
use super::tune::TunedOption;
use super::{Outcome, output};
use crate::error::{Error, Result};
use crate::files;
use crate::gpu::{Clock, Profile};
use crate::ir::Graph;
use crate::{CompileOptions, Model};

/// Number of runs. The fastest counts for each step.
const RUNS: usize = 10;

/// Show where a model's time on a device goes.
#[derive(Args)]
pub(super) struct ProfileCommand {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    backward: BackwardArgs,
    #[command(flatten)]
    tuned: TunedOption,
    /// Lines of a table, at most.
    #[arg(long, default_value_t = 20)]
    top: usize,
    /// Print a JSON object: ceilings, tables, and the nodes, time and work of each step.
    #[arg(long)]
    json: bool,
    /// Write the fastest run as a trace for Perfetto or Chrome.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page with the timeline of the fastest run and all tables; it needs no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

impl ProfileCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let model = self.check()?;
        let arguments = self.model.inputs.read(&model)?;
        let device = self.model.device.open()?;
        let progress = ProgressLine::new(self.json);
        progress.step("importing the model");
        let model = self.backward.model(model)?;
        let precision = self.model.device.precision()?;
        let options = CompileOptions {
            variant_overrides: self.tuned.variant_overrides(&device, precision)?,
            precision,
            ..progress.compile_options()
        };
        let session = model.compile(&device, &options)?;
        let (compiled, inputs) = session.compile_for(&arguments)?;
        let Some(program) = &compiled.program else {
            return Err(Error::usage("the host has no kernels to measure")
                .help("choose an adapter; onionskin devices lists them"));
        };
        progress.step("measuring the device");
        let ceilings = program.device().ceilings()?;
        progress.step("measuring");
        let mut profiles = Vec::new();
        for _ in 0..RUNS {
            profiles.push(program.profile(&inputs)?.1);
        }
        let sizes = compiled.bind(&inputs)?;
        let measured =
            ProfileReport::new(&compiled.graph.name, program, profiles, ceilings, &sizes)?;
        self.write(&measured, &compiled.graph)?;
        drop(progress);
        self.report(&measured);
        Ok(Outcome::Success)
    }

    /// Opens the model and checks all other arguments.
    fn check(&self) -> Result<Model> {
        let mut errors = ArgumentErrors::default();
        let model = self.model.check_gpu(&mut errors);
        errors.record(self.tuned.check());
        let read = self.model.paths(model.as_ref());
        let trace = self.trace.iter().map(|path| (path, "json"));
        let html = self.html.iter().map(|path| (path, "html"));
        let written = trace.chain(html);
        errors
            .record_all(written.map(|(path, ending)| self.overwrite.check(path, &[ending], &read)));
        errors.finish(model)
    }

    /// Writes the requested files: all or none.
    fn write(&self, measured: &ProfileReport, graph: &Graph) -> Result<()> {
        let name = self
            .model
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let trace = self
            .trace
            .as_ref()
            .map(|path| (path, timeline::trace(measured).to_string()));
        let html = self.html.as_ref();
        let html = html.map(|path| Ok((path, page::page(&name, measured, graph)?)));
        let html = html.transpose()?;
        let files: Vec<(&PathBuf, String)> = trace.into_iter().chain(html).collect();
        let files: Vec<(&Path, &[u8])> = files
            .iter()
            .map(|(path, text)| (path.as_path(), text.as_bytes()))
            .collect();
        files::write_all(&files)
    }

    fn report(&self, measured: &ProfileReport) {
        if self.json {
            return output::line(&json(measured).to_string());
        }
        heading(measured).iter().for_each(|line| output::line(line));
        for (title, rows) in measured.tables() {
            let lines = table(title, &rows, self.top);
            lines.iter().for_each(|line| output::line(line));
        }
    }
}

/// Returns the lines above the tables: the device, its ceilings, and the meaning of a column.
fn heading(measured: &ProfileReport) -> Vec<String> {
    let ceilings = &measured.ceilings;
    let mut lines = vec![
        format!("on {}, by {}", measured.device, clock(&measured.fastest)),
        format!("the device reaches {ceilings}"),
    ];
    if let Some(kernel) = &measured.ceiling_exceeded_by {
        lines.push(format!(
            "(raised above the measured rates of f32 arithmetic and copies, which {kernel} exceeded most)"
        ));
    }
    lines.push(
        "of ceiling: the least time at these rates, as a share of the time taken".to_string(),
    );
    lines
}

fn clock(profile: &Profile) -> &'static str {
    match profile.clock {
        Clock::Device => "the device's clock",
        Clock::Host => "the host's clock, waiting for each kernel",
    }
}

/// Returns the tables and the steps of the plan as a JSON object.
fn json(measured: &ProfileReport) -> Value {
    let ceilings = &measured.ceilings;
    let mut object = json!({
        "format": "onionskin-profile-1",
        "graph": measured.graph,
        "device": measured.device,
        "clock": clock(&measured.fastest),
        "ceilings": {
            "gflops": ceilings.arithmetic,
            "gb_per_s": ceilings.memory(),
            "cache_gb_per_s": ceilings.cache(),
            "reached_by": measured.ceiling_exceeded_by,
        },
    });
    for (title, rows) in measured.tables() {
        object[format!("{title}s")] = rows.iter().map(ProfileRow::json).collect();
    }
    object["steps"] = measured.steps.iter().map(StepMeasurement::json).collect();
    object
}
