//! Examines the devices of a machine: what they report, whether every family of kernels computes right on them, and how fast
//! they are. `onionskin doctor` prints the report, and its users attach it to issues.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use onionskin::doctor::{DoctorOptions, examine};
//!
//! let report = examine(&DoctorOptions::default(), &mut |step| eprintln!("{step}"))?;
//! std::fs::write("report.md", report.to_markdown())?;
//! assert!(report.passed(), "{report}");
//! # Ok(())
//! # }
//! ```

mod cases;
mod check;
#[cfg(test)]
mod coverage;
mod functions;
mod guard;
mod host;
mod inputs;
mod json;
mod markdown;
mod runner;
mod summary;
mod text;
mod timing;

use std::time::{Duration, Instant};

pub use check::{CheckVerdict, DoctorCheck};
pub use host::HostFacts;
pub use timing::DeviceTiming;

use self::cases::{DoctorCase, all_cases};
use self::host::without_home;
use self::runner::{CheckRunner, describe};
use crate::error::Result;
use crate::gpu::{self, AdapterDetails, DeviceChoice, SubgroupSizes};

/// Options of [`examine`].
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// The device to examine; every adapter if `None`.
    pub device: Option<DeviceChoice>,
    /// Longest time of a check. A check that takes longer has failed.
    pub timeout: Duration,
    /// Only checks whose title, such as `sorting: long rows`, contains this text.
    pub only: Option<String>,
}

impl Default for DoctorOptions {
    fn default() -> DoctorOptions {
        DoctorOptions {
            device: None,
            timeout: Duration::from_secs(30),
            only: None,
        }
    }
}

/// Findings about the devices of a machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DoctorReport {
    /// The machine and this program.
    pub host: HostFacts,
    /// The examined devices.
    pub devices: Vec<DeviceExamination>,
    /// Number of adapters of the machine.
    pub adapters: usize,
}

/// Findings about a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceExamination {
    /// The adapter; `None` for the host.
    pub details: Option<AdapterDetails>,
    /// The reason why the device could not be opened.
    pub error: Option<String>,
    /// Subgroup sizes in kernels; `None` without subgroup operations.
    pub subgroups: Option<SubgroupSizes>,
    /// Times; `None` if they could not be measured, and on the host.
    pub timing: Option<DeviceTiming>,
    /// Contradictions and absurd times, which are no failures; a sentence each.
    pub remarks: Vec<String>,
    /// All checks. On the host, a check that ran has passed.
    pub checks: Vec<DoctorCheck>,
    /// Time of the examination.
    pub elapsed: Duration,
}

/// Examines the devices of this machine. The host is examined if there is no adapter, or if it is chosen. `progress` is told
/// each step.
///
/// # Errors
/// No adapter fits the choice. Failures of devices are part of the report.
pub fn examine(options: &DoctorOptions, progress: &mut dyn FnMut(&str)) -> Result<DoctorReport> {
    let adapters = gpu::adapter_details();
    let count = adapters.len();
    let chosen = match &options.device {
        None => adapters,
        Some(DeviceChoice::Cpu) => Vec::new(),
        Some(choice) if adapters.is_empty() && *choice == DeviceChoice::Auto => Vec::new(),
        Some(choice) => {
            let index = gpu::adapter_index(choice)?;
            adapters.into_iter().skip(index).take(1).collect()
        }
    };
    let cases = chosen_cases(options)?;
    let mut devices: Vec<DeviceExamination> = chosen
        .into_iter()
        .map(|details| DeviceExamination::of(Some(details), &cases, options, progress))
        .collect();
    if devices.is_empty() {
        devices.push(DeviceExamination::of(None, &cases, options, progress));
    }
    Ok(DoctorReport {
        host: HostFacts::read(),
        devices,
        adapters: count,
    })
}

fn chosen_cases(options: &DoctorOptions) -> Result<Vec<DoctorCase>> {
    let mut cases = all_cases()?;
    if let Some(only) = &options.only {
        cases.retain(|case| format!("{}: {}", case.group, case.name).contains(only));
    }
    Ok(cases)
}

impl DoctorReport {
    /// True if every device opened and every check passed or was refused for a reason.
    pub fn passed(&self) -> bool {
        self.devices.iter().all(DeviceExamination::passed)
    }
}

impl DeviceExamination {
    /// True if the device opened and every check passed or was refused for a reason.
    pub fn passed(&self) -> bool {
        self.error.is_none() && self.failures().next().is_none()
    }

    /// Checks that failed or did not run.
    pub fn failures(&self) -> impl Iterator<Item = &DoctorCheck> {
        let is_failure = |check: &&DoctorCheck| {
            matches!(
                check.verdict,
                CheckVerdict::Failed(_) | CheckVerdict::Skipped(_)
            )
        };
        self.checks.iter().filter(is_failure)
    }

    /// Summary of the adapter in a line, such as `0: llvmpipe (software rasteriser, vulkan, llvmpipe Mesa 22.3.6)`.
    pub fn title(&self) -> String {
        let details = self.details.as_ref();
        details.map_or_else(
            || "the host interpreter".into(),
            |details| details.report.to_string(),
        )
    }

    /// Examines an adapter, or the host.
    fn of(
        details: Option<AdapterDetails>,
        cases: &[DoctorCase],
        options: &DoctorOptions,
        progress: &mut dyn FnMut(&str),
    ) -> DeviceExamination {
        let start = Instant::now();
        let choice = details
            .as_ref()
            .map(|details| DeviceChoice::Index(details.report.index));
        let mut found = DeviceExamination {
            details,
            error: None,
            subgroups: None,
            timing: None,
            remarks: Vec::new(),
            checks: Vec::new(),
            elapsed: Duration::ZERO,
        };
        let name = found.title();
        let mut named = |step: &str| progress(&format!("{name}: {step}"));
        let mut runner = CheckRunner::new(choice, options.timeout, &mut named);
        match runner.device() {
            Err(message) => found.error = Some(without_home(&message)),
            Ok(device) => {
                if device.is_some() {
                    found.measure(&mut runner);
                }
                cases.iter().for_each(|case| runner.run(case));
            }
        }
        found.checks = runner.checks;
        found.elapsed = start.elapsed();
        found
    }

    /// Finds out subgroup sizes and times.
    fn measure(&mut self, runner: &mut CheckRunner) {
        match runner.on_device(|device| device.subgroup_sizes()) {
            Ok(sizes) => {
                let contradiction = sizes.as_ref().and_then(SubgroupSizes::contradiction);
                self.remarks.extend(contradiction);
                self.subgroups = sizes;
            }
            Err(failure) => self
                .remarks
                .push(format!("subgroup sizes: {}", describe(&failure))),
        }
        let kind = self.details.as_ref().map(|details| details.report.kind);
        match runner.on_device(|device| DeviceTiming::measure(&device)) {
            Ok(timing) => {
                self.remarks
                    .extend(kind.map(|kind| timing.remarks(kind)).unwrap_or_default());
                self.timing = Some(timing);
            }
            Err(failure) => self.remarks.push(format!("times: {}", describe(&failure))),
        }
    }
}
