//! `onionskin test`: replays recorded cases and counts failures.
//!
//! Cases run in worker processes, so that a case that crashes or hangs fails alone. A worker reads the number of a case from
//! its standard input and answers with a line of JSON.

mod gradients;
mod platform;
mod recording;
mod replay;
mod worker;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::argument_errors::ArgumentErrors;
use super::model_args::DeviceArgs;
use super::model_file::ModelFileArgs;
use super::progress_line::ProgressLine;
use super::{Outcome, json_error, libtorch, output};
use crate::cases::{self, CaseArchive, CaseRef};
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::gpu::{DeviceChoice, DeviceOptions, TranslatedKernel};
use crate::wildcard;
use crate::{Device, Model};

use platform::PlatformArgs;
use recording::write_recording;
use replay::run_case;
use worker::Worker;

/// Replay recorded cases and count how many agree with PyTorch.
#[derive(Args)]
pub(super) struct TestCommand {
    /// A folder of cases (with ops/, programs/ and models/, or one of these), or one case.
    folder: PathBuf,
    #[command(flatten)]
    file: ModelFileArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// The reference that the device is compared with; libtorch itself is compared with the recorded outputs, too.
    #[arg(long, value_enum, default_value_t = Against::Recorded)]
    against: Against,
    /// Only cases whose name contains the pattern; `*` stands for any text.
    #[arg(long)]
    only: Option<String>,
    /// Print a JSON object per line: one for each case, and then the counts.
    #[arg(long)]
    json: bool,
    /// Worker processes; by default one for each processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds after which a case has failed.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Also write every kernel in SPIR-V, MSL and HLSL, and count them; a case whose kernel cannot be written fails.
    #[arg(long)]
    translate: bool,
    /// Write the kernels of --translate into a folder: HASH.wgsl, .spv, .hlsl and .msl.
    #[arg(long, value_name = "FOLDER", requires = "translate")]
    kernels: Option<PathBuf>,
    #[command(flatten)]
    platform: PlatformArgs,
    /// Record the device's commands for each case that passes into a folder, for replays on other implementations of WebGPU:
    /// NUMBER-NAME.json, and the data in .bin.
    #[arg(long, value_name = "FOLDER", requires = "portable")]
    record: Option<PathBuf>,
    /// Compare gradients in place of outputs, with those that examples/record_gradients.py wrote into a folder, or record.py
    /// --gradients beside the cases. Only cases that have some.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["against", "record"])]
    gradients: Option<PathBuf>,
    #[arg(long, hide = true)]
    worker: bool,
}

/// Reference that the device is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// The outputs that were recorded.
    Recorded,
    /// PyTorch itself.
    Libtorch,
}

/// Result of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CaseVerdict {
    name: String,
    kind: String,
    passed: bool,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    max_abs_error: Option<f64>,
    ms: f64,
}

/// Answer of a worker for a case.
#[derive(Serialize, Deserialize)]
struct WorkerAnswer {
    verdict: CaseVerdict,
    /// Kernels that the worker translated for the first time.
    translated: BTreeSet<TranslatedKernel>,
}

#[derive(Default, Serialize)]
struct PassCounts {
    passed: usize,
    failed: usize,
}

/// Number of distinct kernels by the language that they were translated to.
#[derive(Serialize)]
struct KernelCounts {
    spirv: usize,
    msl: usize,
    hlsl: usize,
    /// Kernels in double precision, which have no MSL.
    double_precision: usize,
}

impl KernelCounts {
    fn of(translated: &BTreeSet<TranslatedKernel>) -> KernelCounts {
        let (all, msl) = (
            translated.len(),
            translated.iter().filter(|kernel| kernel.msl).count(),
        );
        KernelCounts {
            spirv: all,
            msl,
            hlsl: all,
            double_precision: all - msl,
        }
    }
}

impl fmt::Display for KernelCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelCounts {
            spirv, msl, hlsl, ..
        } = self;
        write!(
            f,
            "kernels translated: {spirv} to SPIR-V, {hlsl} to HLSL, {msl} to MSL"
        )?;
        match self.double_precision {
            0 => Ok(()),
            double => write!(
                f,
                "; {double} compute in double precision, which MSL does not have"
            ),
        }
    }
}

/// Results of all cases.
#[derive(Default)]
struct CaseResults {
    verdicts: Vec<(usize, CaseVerdict)>,
    translated: BTreeSet<TranslatedKernel>,
}

impl TestCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let mut cases = self.check()?;
        if let Some(pattern) = &self.only {
            cases.retain(|case| matches_pattern(pattern, &case.name));
        }
        if cases.is_empty() {
            return Err(
                Error::usage(format!("there are no cases in {}", self.folder.display()))
                    .help("record some with examples/record.py, or loosen --only"),
            );
        }
        if self.worker {
            return self.serve_cases(&cases);
        }
        for folder in [&self.kernels, &self.record].into_iter().flatten() {
            std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        let outcomes = self.supervise(&cases)?;
        let verdicts: Vec<CaseVerdict> = outcomes
            .verdicts
            .into_iter()
            .map(|(_, verdict)| verdict)
            .collect();
        self.summarise(&verdicts, &outcomes.translated)
    }

    /// Finds the cases and checks all other arguments.
    fn check(&self) -> Result<Vec<CaseRef>> {
        let mut errors = ArgumentErrors::default();
        let found = FileKind::of(&self.folder).and_then(|_| cases::find(&self.folder));
        let cases = errors.record(found.and_then(|found| self.with_gradients(found)));
        self.device.check(&mut errors);
        errors.check_positive("--jobs", self.jobs);
        if self.against == Against::Libtorch {
            errors.record(libtorch::check());
        }
        errors.finish(cases)
    }

    /// The cases that have gradients, if these are to be compared; else all.
    fn with_gradients(&self, mut cases: Vec<CaseRef>) -> Result<Vec<CaseRef>> {
        let Some(folder) = &self.gradients else {
            return Ok(cases);
        };
        FileKind::of(folder)?;
        let mut has_gradients = Vec::new();
        for case in &cases {
            has_gradients.push(!case.gradients(folder)?.is_empty());
        }
        let mut has_gradients = has_gradients.into_iter();
        cases.retain(|_| has_gradients.next().unwrap_or(false));
        Ok(cases)
    }

    /// Opens the archive of a case.
    fn open(&self, archive: &CaseArchive) -> Result<Model> {
        match archive {
            CaseArchive::Path(path) => self.file.open(path),
            CaseArchive::Bytes(bytes) => {
                Model::from_bytes_with(bytes.to_vec(), &self.file.limits()?)
            }
        }
    }

    fn open_device(&self) -> Result<Device> {
        let Ok(choice) = self.device.name.parse::<DeviceChoice>();
        let device = Device::with_options(DeviceOptions {
            record: self.record.is_some(),
            translate: self.translate,
            kernels: self.kernels.clone(),
            ..self.platform.device_options(choice)?
        })?;
        match device {
            Device::Host if self.translate => Err(Error::usage(
                "the host interpreter has no kernels to translate",
            )
            .help("leave out --translate, or choose another --device")),
            Device::Host if self.record.is_some() => Err(Error::usage(
                "the host interpreter has no commands to record",
            )
            .help("leave out --record, or choose another --device")),
            device => Ok(device),
        }
    }

    /// Runs cases by number until standard input ends.
    fn serve_cases(&self, cases: &[CaseRef]) -> Result<Outcome> {
        let mut device = self.open_device()?;
        let mut known = BTreeSet::new();
        for line in std::io::stdin().lines() {
            let line = line.map_err(|error| Error::io("standard input", error))?;
            let number = line.trim().parse::<usize>().ok();
            let numbered = number.and_then(|number| Some((number, cases.get(number)?)));
            let (number, case) =
                numbered.ok_or_else(|| Error::usage(format!("{line:?} is not a case number")))?;
            if self.record.is_some() {
                // A recording begins when its device is opened.
                device = self.open_device()?;
            }
            let mut verdict = run_case(case, &device, self);
            if let Some(folder) = &self.record {
                verdict = write_recording(folder, number, &device, verdict);
            }
            let all = match &device {
                Device::Gpu(device) => device.translated(),
                Device::Host => BTreeSet::new(),
            };
            let translated = &all - &known;
            known = all;
            let answer = WorkerAnswer {
                verdict,
                translated,
            };
            output::line(&serde_json::to_string(&answer).map_err(json_error)?);
        }
        Ok(Outcome::Success)
    }

    fn supervise(&self, cases: &[CaseRef]) -> Result<CaseResults> {
        self.open_device()?;
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(available).clamp(1, cases.len());
        let next = Mutex::new(0..cases.len());
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let progress = ProgressLine::new(self.json);
        progress.begin_count(cases.len(), "cases");
        let outcomes = Mutex::new(CaseResults::default());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    let mut worker = None;
                    while let Some(index) = take() {
                        let Some(case) = cases.get(index) else { break };
                        let answer = self.ask(&mut worker, index, case);
                        progress.advance();
                        if self.json {
                            print_json(&answer.verdict);
                        }
                        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                        outcomes.verdicts.push((index, answer.verdict));
                        outcomes.translated.extend(answer.translated);
                    }
                });
            }
        });
        drop(progress);
        let mut outcomes = outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        outcomes.verdicts.sort_by_key(|(index, _)| *index);
        Ok(outcomes)
    }

    /// Runs a case in a worker. A worker that dies or hangs is replaced, and the case fails.
    fn ask(&self, worker: &mut Option<Worker>, index: usize, case: &CaseRef) -> WorkerAnswer {
        let start = Instant::now();
        let answer = Worker::get_or_start(worker, self)
            .and_then(|worker| worker.ask(index, Duration::from_secs(self.timeout)));
        answer.unwrap_or_else(|error| {
            *worker = None;
            let verdict = CaseVerdict {
                name: case.name.clone(),
                kind: kind_name(case).to_string(),
                passed: false,
                reason: Some(error.to_string()),
                max_abs_error: None,
                ms: start.elapsed().as_secs_f64() * 1e3,
            };
            WorkerAnswer {
                verdict,
                translated: BTreeSet::new(),
            }
        })
    }

    fn summarise(
        &self,
        verdicts: &[CaseVerdict],
        translated: &BTreeSet<TranslatedKernel>,
    ) -> Result<Outcome> {
        let mut by_kind = std::collections::BTreeMap::<&str, PassCounts>::new();
        let mut total = PassCounts::default();
        for verdict in verdicts {
            for counts in [by_kind.entry(&verdict.kind).or_default(), &mut total] {
                *(if verdict.passed {
                    &mut counts.passed
                } else {
                    &mut counts.failed
                }) += 1;
            }
        }
        let kernels = self.translate.then(|| KernelCounts::of(translated));
        if self.json {
            let mut summary = serde_json::json!({"passed": total.passed, "failed": total.failed, "by_kind": by_kind});
            if let Some(kernels) = &kernels {
                summary["kernels"] = serde_json::json!(kernels);
            }
            output::line(&summary.to_string());
        } else {
            for verdict in verdicts.iter().filter(|verdict| !verdict.passed) {
                output::line(&format!(
                    "FAILED {}: {}",
                    verdict.name,
                    verdict.reason.as_deref().unwrap_or("?")
                ));
            }
            for (kind, counts) in &by_kind {
                output::line(&format!(
                    "{kind:>8}: {} of {} passed",
                    counts.passed,
                    counts.passed + counts.failed
                ));
            }
            output::line(&format!("{} passed, {} failed", total.passed, total.failed));
            if let Some(kernels) = &kernels {
                output::line(&kernels.to_string());
            }
        }
        Ok(if total.failed == 0 {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }
}

fn print_json(verdict: &CaseVerdict) {
    if let Ok(line) = serde_json::to_string(verdict) {
        output::line(&line);
    }
}

fn kind_name(case: &CaseRef) -> &'static str {
    case.kind.singular()
}

/// True if a name contains a pattern in which `*` stands for any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    wildcard::matches(&format!("*{pattern}*"), name)
}
