//! `onionskin bench`: measures first-run time, steady-state latency and memory of a model on a device.

mod cold_start;
mod measurements;
mod peers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use self::measurements::{GpuMeasurements, Measurements};
use self::peers::PeerTimes;
use super::argument_errors::ArgumentErrors;
use super::backward::BackwardArgs;
use super::model_args::ModelArgs;
use super::progress_line::ProgressLine;
use super::run::{check_packed, report_packed};
use super::show::count_calls;
use super::tune::TunedOption;
use super::{Outcome, output};
use crate::dim::Bindings;
use crate::error::Result;
use crate::gpu::{Program, RunInput};
use crate::item::Item;
use crate::model::Session;
use crate::tensor::Tensor;
use crate::{CompileOptions, Model};

/// Number of runs of the graph, and of the profiled graph. The fastest run counts.
const RUNS: usize = 10;

/// Measure a model: time to the first output, latency in the steady state, cost of dispatches, memory.
#[derive(Args)]
pub(super) struct BenchCommand {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    backward: BackwardArgs,
    /// Number of warm-up calls.
    #[arg(long, default_value_t = 3)]
    warm_up: usize,
    /// Smallest number of measured calls.
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Shortest duration of the measurement, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Skip cold starts, which are measured in two further processes, and never with --backward.
    #[arg(long)]
    no_cold: bool,
    /// Times of other runtimes to compare with: a JSON object of milliseconds by name.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Do not check assertions, index ranges and integer division by zero.
    #[arg(long)]
    no_checks: bool,
    #[command(flatten)]
    tuned: TunedOption,
    /// A file of packed weights; see `onionskin run`.
    #[arg(long, value_name = "FILE")]
    packed: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

impl BenchCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let start = Instant::now();
        let (model, peers) = self.check()?;
        let opened = milliseconds(start);
        let arguments = self.model.inputs.read(&model)?;
        let start = Instant::now();
        let device = self.model.device.open()?;
        let progress = ProgressLine::new(self.json);
        progress.step("reading and importing the model");
        let precision = self.model.device.precision()?;
        let model = self.backward.model(model)?;
        let options = CompileOptions {
            variant_overrides: self.tuned.variant_overrides(&device, precision)?,
            packed: self.packed.clone(),
            precision,
            checks: !self.no_checks,
            ..progress.compile_options()
        };
        let session = model.compile(&device, &options)?;
        session.call(&arguments)?;
        let first_output = opened + milliseconds(start);
        progress.step("measuring");
        let (compiled, inputs) = session.compile_for(&arguments)?;
        let on_device = match &compiled.program {
            Some(program) => Some(self.on_device(program, &compiled.bind(&inputs)?, &inputs)?),
            None => None,
        };
        let steady = self.steady(&session, &arguments)?;
        let memory = measurements::memory(&device);
        let cold_starts = match self.no_cold || self.backward.backward {
            true => None,
            false => Some(self.cold_starts(&model, &arguments)?),
        };
        let figures = Measurements {
            device: device.to_string(),
            first_output,
            cold_starts,
            steady,
            operators: count_calls(&compiled.graph),
            on_device,
            memory,
            peers,
        };
        drop(progress);
        report_packed(&session);
        match self.json {
            true => output::line(&figures.json().to_string()),
            false => figures.print(),
        }
        Ok(Outcome::Success)
    }

    /// Opens the model and checks all other arguments. Returns the model and the times of `--against`.
    fn check(&self) -> Result<(Model, PeerTimes)> {
        let mut errors = ArgumentErrors::default();
        let model = self.model.check(&mut errors);
        let peers = self.against.as_deref().map(peers::read).transpose();
        let peers = errors.record(peers).flatten().unwrap_or_default();
        errors.record(self.tuned.check());
        errors.check_positive("--runs", Some(self.runs));
        errors.record_all(self.packed.iter().map(|path| check_packed(path)));
        Ok((errors.finish(model)?, peers))
    }

    /// Measures cold starts in separate processes. Random inputs are passed in a file, because drawing them takes time.
    fn cold_starts(&self, model: &Model, arguments: &[Item]) -> Result<cold_start::ColdStarts> {
        let mut options = self.cold_start_options();
        match self.model.inputs.is_random() {
            false => {
                options.extend(self.model.inputs.command_line_options());
                cold_start::measure(&self.model.path, &options)
            }
            true => {
                let named = model.signature("forward")?.named(arguments);
                cold_start::measure_with_inputs(&self.model.path, &options, &named)
            }
        }
    }

    /// Returns the command-line options of a cold start, without its inputs.
    fn cold_start_options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        options.extend(self.model.file.command_line_options());
        options.extend(self.model.device.command_line_options());
        options.extend(self.tuned.command_line_options());
        if let Some(packed) = &self.packed {
            options.extend(["--packed".into(), packed.into()]);
        }
        if self.no_checks {
            options.push("--no-checks".into());
        }
        options
    }

    /// Measures calls in the steady state. Returns their times in milliseconds, shortest first.
    fn steady(&self, session: &Session, arguments: &[Item]) -> Result<Vec<f64>> {
        for _ in 0..self.warm_up {
            session.call(arguments)?;
        }
        let (started, min_duration) = (
            Instant::now(),
            Duration::try_from_secs_f64(self.seconds).unwrap_or_default(),
        );
        let mut times = Vec::new();
        while times.len() < self.runs.max(1) || started.elapsed() < min_duration {
            let start = Instant::now();
            session.call(arguments)?;
            times.push(milliseconds(start));
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Measures the graph without reading back its outputs, and each of its kernels; takes the fastest of several runs.
    fn on_device(
        &self,
        program: &Program,
        sizes: &Bindings,
        inputs: &[Tensor],
    ) -> Result<GpuMeasurements> {
        let hosted: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        let runs = RUNS.min(self.runs.max(1));
        let mut graph = f64::INFINITY;
        let before = program.statistics();
        for _ in 0..runs {
            let start = Instant::now();
            program.launch_with(sizes, &hosted)?.wait()?;
            graph = graph.min(milliseconds(start));
        }
        let after = program.statistics();
        let mut kernels: Vec<u64> = vec![u64::MAX; program.plan().steps.len()];
        for _ in 0..runs {
            let (_, profile) = program.profile(inputs)?;
            for (least, step) in kernels.iter_mut().zip(&profile.steps) {
                *least = step.nanoseconds.min(*least);
            }
        }
        Ok(GpuMeasurements {
            dispatches: (after.dispatches - before.dispatches) / runs as u64,
            kernels: program.plan().kernels.len(),
            graph_ms: graph,
            kernels_ms: kernels.iter().sum::<u64>() as f64 / 1e6,
            footprint: program.footprint(sizes)?,
            allocated: program.device().allocated_bytes(),
        })
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
