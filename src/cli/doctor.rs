//! `onionskin doctor`: examines devices, and writes a report for an issue.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::argument_errors::ArgumentErrors;
use super::overwrite::Overwrite;
use super::progress_line::ProgressLine;
use super::run_limits::parse_seconds;
use super::{Outcome, output};
use crate::doctor::{DoctorOptions, DoctorReport, examine};
use crate::error::Result;
use crate::files;

/// Examine devices: compute every family of kernels, compare with the host, measure, and write a report for an issue.
///
/// Exit codes: 0 everything that ran is right, 1 a check failed or a device did not open, 2 wrong usage, 3 anything else.
#[derive(Args)]
pub(super) struct DoctorCommand {
    /// The device: auto, cpu, gpu, software, an adapter's index or a part of its name. By default all adapters.
    #[arg(long)]
    device: Option<String>,
    /// Only checks whose title, such as "sorting: long rows", contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seconds after which a check has failed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    timeout: Duration,
    /// Write everything to a Markdown file, to attach to an issue.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overwrite: Overwrite,
}

impl DoctorCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.check()?;
        let progress = ProgressLine::new(self.json);
        let choice = |name: &String| {
            let Ok(choice) = name.parse();
            choice
        };
        let options = DoctorOptions {
            device: self.device.as_ref().map(choice),
            timeout: self.timeout,
            only: self.only.clone(),
        };
        let report = examine(&options, &mut |step| progress.step(step))?;
        drop(progress);
        if let Some(path) = &self.report {
            files::write(path, report.to_markdown().as_bytes())?;
        }
        self.print(&report);
        Ok(match report.passed() {
            true => Outcome::Success,
            false => Outcome::Failure,
        })
    }

    /// Checks the arguments.
    fn check(&self) -> Result<()> {
        let mut errors = ArgumentErrors::default();
        if let Some(name) = &self.device {
            errors.check_device(name, None);
        }
        if let Some(path) = &self.report {
            errors.record(self.overwrite.check(path, &["md"], &[]));
        }
        errors.finish(Some(()))
    }

    fn print(&self, report: &DoctorReport) {
        if self.json {
            return output::line(&report.to_json().to_string());
        }
        output::line(&output::colourize(&report.to_string()));
        output::line(&advice(self.report.as_deref()));
    }
}

/// Says how to report a fault.
fn advice(report: Option<&Path>) -> String {
    let issue = match env!("CARGO_PKG_REPOSITORY") {
        "" => String::from("an issue"),
        repository => format!("an issue at {repository}/issues"),
    };
    match report {
        Some(path) => format!("to report a fault, attach {} to {issue}", path.display()),
        None => format!(
            "to report a fault, run onionskin doctor --report doctor.md and attach the file to {issue}"
        ),
    }
}
