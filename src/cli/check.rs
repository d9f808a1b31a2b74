//! `onionskin check`: checks a model's trace, other input sizes, and a device against a reference.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::argument_errors::ArgumentErrors;
use super::inputs::{InputSets, check_tensors, read_in_order};
use super::model_args::{DeviceArgs, model_files};
use super::model_file::ModelFileArgs;
use super::overwrite::Overwrite;
use super::precision::{ToleranceOptions, widen_for_storage};
use super::progress_line::ProgressLine;
use super::run_limits::RunLimitOptions;
use super::{Outcome, libtorch, output};
use crate::Model;
use crate::cases::{self, CaseArchive};
use crate::compare::Tolerance;
use crate::error::{Error, Result};
use crate::files;
use crate::item::Item;
use crate::model::{DeviceReference, check};
use crate::trace::check::{AllowList, CheckOptions, CheckReport, SubjectKind, example, explain};
use crate::trace::program::MethodSubject;

/// Check a model: values that its trace froze, random numbers, other input sizes; compare a device with a reference.
///
/// Exit codes: 0 no errors were found (warnings may have been), 1 errors were found, 2 wrong usage, 3 anything else.
#[derive(Args)]
pub(super) struct CheckCommand {
    /// A program of torch.export, a TorchScript archive, a JSON graph, or a recorded case.
    model: PathBuf,
    /// An export of the same module (.pt2) to compare the model with: results, sizes, branches.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    #[command(flatten)]
    file: ModelFileArgs,
    #[command(flatten)]
    sets: InputSets,
    #[command(flatten)]
    device: DeviceArgs,
    /// The reference that the device is compared with.
    #[arg(long, value_enum, default_value_t = Against::Oracle)]
    against: Against,
    /// A file with the expected outputs of a set, in order, for --against recorded; may be repeated.
    #[arg(long, value_name = "FILE")]
    expected: Vec<PathBuf>,
    /// The entry graph.
    #[arg(long, default_value = "forward")]
    entry: String,
    /// Differences of numbers between traces are errors.
    #[arg(long)]
    strict: bool,
    /// Don't try other sizes than those of the inputs.
    #[arg(long)]
    given_only: bool,
    /// Skip a run with other inputs once a loop has more rounds; by default 100 times those with the given inputs, and at
    /// least 1000.
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(i64).range(1..))]
    max_rounds: Option<i64>,
    /// Suppress findings: an id, also at a file, line or module (`W0211@model.py:12`); may be repeated.
    #[arg(long, value_name = "ID[@PLACE]")]
    allow: Vec<String>,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// Write the report as an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    pub(super) limits: RunLimitOptions,
}

/// Reference that the device is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// The interpreter on the host.
    Oracle,
    /// Outputs that were recorded: those of a case, or --expected.
    Recorded,
    /// PyTorch itself.
    Libtorch,
}

/// The files that a check reads as models.
struct OpenedFiles {
    /// None if the model is part of a recorded case.
    model: Option<Model>,
    export: Option<Model>,
}

/// A model with its inputs, their expected outputs and the tolerance.
struct CheckedModel {
    model: Model,
    archive: CaseArchive,
    sets: Vec<Vec<Item>>,
    expected: Vec<Item>,
    tolerance: Tolerance,
}

impl CheckCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        let OpenedFiles { model, export } = self.check()?;
        let subject = self.checked_model(model)?;
        let device = self.device.open()?;
        let options = CheckOptions {
            inputs: subject.sets,
            entry: Some(self.entry.clone()),
            strict: self.strict,
            perturb: !self.given_only,
            max_rounds: self.max_rounds,
            allow: AllowList::new(&self.allow),
            ..CheckOptions::default()
        };
        let reference = DeviceReference {
            device: &device,
            expected: match self.against {
                Against::Oracle => None,
                Against::Recorded => Some(("recorded outputs", &*subject.expected)),
                Against::Libtorch => Some(("libtorch", &*subject.expected)),
            },
            precision: self.device.precision()?,
            tolerance: self.tolerance.or_defaults(subject.tolerance),
        };
        let progress = ProgressLine::new(self.json);
        progress.step("checking");
        let mut report = check(&subject.model, &options, &reference)?;
        report.program = self.expected_source(options.inputs.len());
        if let Some(export) = &export {
            progress.step("comparing with the export");
            let [trace, export] = [&subject.model, export].map(|model| self.method(model));
            report = report.against_export(&trace, &export, &options, &subject.expected)?;
        }
        drop(progress);
        self.print(&report)?;
        Ok(if report.passed() {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }

    /// The checked method of a model.
    fn method<'a>(&'a self, model: &'a Model) -> MethodSubject<'a> {
        MethodSubject {
            program: model.program(),
            name: &self.entry,
        }
    }

    /// Opens the export to compare with.
    fn open_export(&self) -> Result<Option<Model>> {
        let Some(path) = &self.export else {
            return Ok(None);
        };
        let export = self.file.open(path)?;
        if export.program().kind() != SubjectKind::Export {
            let message = format!("{} is no exported program", path.display());
            let help = "--export takes a .pt2 that torch.export.save wrote; the trace is the model";
            return Err(Error::usage(message).help(help));
        }
        Ok(Some(export))
    }

    /// Opens the model, unless it is part of a recorded case, and the export, and checks all other arguments.
    fn check(&self) -> Result<OpenedFiles> {
        let mut errors = ArgumentErrors::default();
        let model = match is_case(&self.model) {
            true => Ok(None),
            false => self.file.open(&self.model).map(Some),
        };
        let model = errors.record(model);
        let opened = model.as_ref().and_then(Option::as_ref);
        let export = errors.record(self.open_export());
        self.sets.check(&mut errors);
        self.device.check(&mut errors);
        errors.record(self.tolerance.check());
        errors.record_all(self.expected.iter().map(|path| check_tensors(path)));
        if !self.expected.is_empty() && self.against != Against::Recorded {
            let error = Error::usage("--expected is for --against recorded, which is not given");
            errors.record::<()>(Err(error.help("add --against recorded")));
        }
        for model in opened.into_iter().chain(export.iter().flatten()) {
            errors.record(model.signature(&self.entry));
        }
        let ids = self.allow.iter();
        errors.record_all(ids.map(|rule| explain(AllowList::id(rule)).map(drop)));
        if let Some(path) = &self.html {
            let files = model_files(&self.model, opened);
            let export = self.export.iter().cloned().collect();
            let read = [files, export, self.sets.paths(), self.expected.clone()].concat();
            errors.record(self.overwrite.check(path, &["html"], &read));
        }
        if self.against == Against::Libtorch {
            errors.record(libtorch::check());
        }
        let files = model.map(|model| OpenedFiles {
            model,
            export: export.flatten(),
        });
        errors.finish(files)
    }

    /// Describes the source of the program's expected results. `None` for libtorch: it runs the archive, as Onionskin does.
    fn expected_source(&self, sets: usize) -> Option<String> {
        let plural = if sets == 1 { "" } else { "s" };
        let recorded = self.against == Against::Recorded;
        recorded.then(|| format!("recorded outputs for {sets} set{plural} of inputs"))
    }

    fn checked_model(&self, model: Option<Model>) -> Result<CheckedModel> {
        let precision = self.device.precision()?;
        let mut subject = match model {
            None => {
                let recorded = load_recorded(&self.model, &self.file)?;
                CheckedModel {
                    tolerance: widen_for_storage(recorded.tolerance, precision),
                    ..recorded
                }
            }
            Some(model) => {
                let results = self
                    .expected
                    .iter()
                    .map(|path| Ok(result_of_outputs(read_in_order(path, model.limits())?)))
                    .collect::<Result<_>>()?;
                CheckedModel {
                    archive: CaseArchive::Path(self.model.clone()),
                    sets: self.sets.read(&model, std::slice::from_ref(&self.entry))?,
                    model,
                    expected: results,
                    tolerance: self.tolerance.tolerance(precision),
                }
            }
        };
        if self.against == Against::Libtorch {
            if subject.sets.is_empty() {
                let module = subject.model.import_method(&self.entry, None)?;
                subject.sets.push(example(module.graph(&self.entry)?)?);
            }
            subject.expected = libtorch::results(&subject.archive, &self.entry, &subject.sets)?;
        }
        if self.against == Against::Recorded && subject.expected.len() != subject.sets.len() {
            let (sets, expected) = (subject.sets.len(), subject.expected.len());
            return Err(Error::usage(format!(
                "expected one recorded output for each set of inputs: {sets} sets, {expected} recorded outputs"
            ))
            .help("give --expected for every set of inputs, or check a recorded case"));
        }
        Ok(subject)
    }

    fn print(&self, report: &CheckReport) -> Result<()> {
        if let Some(path) = &self.html {
            let title = self.model.file_name().unwrap_or(self.model.as_os_str());
            let page = report.to_html(&title.to_string_lossy())?;
            files::write(path, page.as_bytes())?;
        }
        output::line(&if self.json {
            report.to_json().to_string()
        } else {
            output::colourize(&report.to_string())
        });
        Ok(())
    }
}

fn is_case(path: &Path) -> bool {
    path.join("case.json").is_file() || path.extension().is_some_and(|extension| extension == "zip")
}

/// Loads the model of a case with its recorded calls of `forward`.
fn load_recorded(path: &Path, file: &ModelFileArgs) -> Result<CheckedModel> {
    let cases = cases::find(path)?;
    let first = cases
        .first()
        .ok_or_else(|| Error::usage(format!("{} holds no case", path.display())))?;
    let case = first.load()?;
    let model = match &case.archive {
        CaseArchive::Path(path) => file.open(path)?,
        CaseArchive::Bytes(bytes) => Model::from_bytes_with(bytes.to_vec(), &file.limits()?)?,
    };
    let mut subject = CheckedModel {
        model,
        archive: case.archive,
        sets: Vec::new(),
        expected: Vec::new(),
        tolerance: Tolerance {
            rtol: 0.0,
            atol: 0.0,
        },
    };
    for set in case.sets.into_iter().filter(|set| set.before.is_empty()) {
        subject.tolerance.rtol = subject.tolerance.rtol.max(set.tolerance.rtol);
        subject.tolerance.atol = subject.tolerance.atol.max(set.tolerance.atol);
        for call in set
            .calls
            .into_iter()
            .filter(|call| call.method == "forward")
        {
            subject.sets.push(call.inputs);
            subject.expected.push(call.output);
        }
    }
    Ok(subject)
}

/// Combines outputs into a result: a single output is the result itself, several are a tuple.
fn result_of_outputs(mut outputs: Vec<Item>) -> Item {
    match (outputs.len(), outputs.pop()) {
        (1, Some(output)) => output,
        (_, last) => {
            outputs.extend(last);
            Item::Tuple(outputs)
        }
    }
}
