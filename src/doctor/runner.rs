//! Runs the checks on a device, whatever happens to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::gpu::{DeviceChoice, GpuDevice};
use crate::kernel::choice::KernelVariant;

use super::cases::DoctorCase;
use super::check::{CheckVerdict, ComputedCase, DoctorCheck, PreparedCase};
use super::guard::{WorkFailure, guarded};
use super::host::without_home;

/// Number of checks that may not end in time, or openings of the device that may fail, before the others are skipped.
const MAX_INTERRUPTIONS: usize = 3;

/// Runs checks one after the other, on a device that is opened again after a check that lost it or did not end.
pub(super) struct CheckRunner<'a> {
    /// The device; none for checks of the host alone.
    choice: Option<DeviceChoice>,
    device: Option<GpuDevice>,
    /// Longest time of a check.
    limit: Duration,
    interruptions: usize,
    pub(super) checks: Vec<DoctorCheck>,
    /// Told the name of each check before it runs.
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> CheckRunner<'a> {
    /// A runner on an adapter, or on the host.
    pub(super) fn new(
        choice: Option<DeviceChoice>,
        limit: Duration,
        progress: &'a mut dyn FnMut(&str),
    ) -> CheckRunner<'a> {
        CheckRunner {
            choice,
            device: None,
            limit,
            interruptions: 0,
            checks: Vec::new(),
            progress,
        }
    }

    /// The device, which is opened first if it is not open.
    ///
    /// # Errors
    /// The device cannot be opened; the message says why.
    pub(super) fn device(&mut self) -> Result<Option<GpuDevice>, String> {
        let Some(choice) = self.choice.clone() else {
            return Ok(None);
        };
        if self.device.is_none() {
            let opened = guarded(self.limit, || GpuDevice::open(choice));
            self.interruptions += usize::from(opened.is_err());
            self.device = Some(opened.map_err(|failure| describe(&failure))?);
        }
        Ok(self.device.clone())
    }

    /// Runs work that uses the device.
    ///
    /// # Errors
    /// The device cannot be opened, or the work fails; the message says why.
    pub(super) fn on_device<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(GpuDevice) -> Result<T> + Send + 'static,
    ) -> Result<T, WorkFailure> {
        let device = self
            .device()
            .and_then(|device| device.ok_or_else(no_device));
        let device = device.map_err(|message| WorkFailure::Failed(Error::device(message)))?;
        let result = guarded(self.limit, || work(device));
        if let Err(failure) = &result {
            self.recover(failure);
        }
        result
    }

    /// Closes a device that is lost or may hang, so that it is opened again.
    fn recover(&mut self, failure: &WorkFailure) {
        let timed_out = matches!(failure, WorkFailure::TimedOut(_));
        self.interruptions += usize::from(timed_out);
        let is_lost = |device: &GpuDevice| {
            let device = device.clone();
            // A poll notices a loss, which is its error.
            let is_lost = guarded(self.limit, move || {
                Ok(device.poll(None).is_err() || device.is_lost())
            });
            is_lost.unwrap_or(true)
        };
        if timed_out || self.device.as_ref().is_some_and(is_lost) {
            self.device = None;
        }
    }

    /// Runs a case by the kernels that the planner chooses, and then by every other variant that the device admits.
    pub(super) fn run(&mut self, case: &DoctorCase) {
        (self.progress)(&format!("{}: {}", case.group, case.name));
        let prepared = match self.prepare(case) {
            Ok(prepared) => Arc::new(prepared),
            Err(verdict) => return self.add(case, None, verdict),
        };
        if self.choice.is_none() {
            return self.add(case, None, CheckVerdict::Passed);
        }
        let used = self.run_variant(&prepared, None);
        let admitted = prepared.clone();
        let admitted = self.on_device(move |device| admitted.admitted(device.capabilities()));
        for variant in admitted.unwrap_or_default().difference(&used) {
            self.run_variant(&prepared, Some(*variant));
        }
    }

    /// Draws the inputs and computes the results on the host.
    fn prepare(&self, case: &DoctorCase) -> Result<PreparedCase, CheckVerdict> {
        if self.interruptions >= MAX_INTERRUPTIONS {
            let why = "too many checks did not end in time, or the device did not open";
            return Err(CheckVerdict::Skipped(why.into()));
        }
        let (case, limit) = (case.clone(), self.limit);
        let prepared = guarded(limit, move || PreparedCase::new(case));
        prepared
            .map_err(|failure| CheckVerdict::Failed(format!("on the host: {}", describe(&failure))))
    }

    /// Runs a case by a variant, or by those that the planner chooses. Returns the variants of its kernels.
    fn run_variant(
        &mut self,
        prepared: &Arc<PreparedCase>,
        variant: Option<KernelVariant>,
    ) -> BTreeSet<KernelVariant> {
        let work = prepared.clone();
        match self.on_device(move |device| work.compute(&device, variant)) {
            Ok(None) => BTreeSet::new(),
            Ok(Some(computed)) => self.add_computed(prepared, variant, computed),
            Err(failure) => {
                self.add(&prepared.case, variant, verdict_of(&failure));
                BTreeSet::new()
            }
        }
    }

    fn add_computed(
        &mut self,
        prepared: &PreparedCase,
        variant: Option<KernelVariant>,
        computed: ComputedCase,
    ) -> BTreeSet<KernelVariant> {
        let differences = prepared.compare(&computed);
        let failed = differences.iter().filter(|difference| !difference.passed());
        let failed: Vec<String> = failed.map(ToString::to_string).collect();
        let verdict = match failed.is_empty() {
            true => CheckVerdict::Passed,
            false => CheckVerdict::Failed(failed.join("\n")),
        };
        self.add(&prepared.case, variant, verdict);
        if let Some(check) = self.checks.last_mut() {
            check.differences = differences;
            check.kernels = computed.kernels;
            check.compile = computed.compile;
            check.run = computed.run;
        }
        computed.variants
    }

    fn add(&mut self, case: &DoctorCase, variant: Option<KernelVariant>, verdict: CheckVerdict) {
        let variant = variant.map_or_else(String::new, |variant| format!(", by {variant}"));
        self.checks.push(DoctorCheck {
            group: case.group,
            name: format!("{}{variant}", case.name),
            verdict,
            differences: Vec::new(),
            kernels: Vec::new(),
            compile: Duration::ZERO,
            run: Duration::ZERO,
            graph: case.text().unwrap_or_default(),
        });
    }
}

fn no_device() -> String {
    "the host has no device to open".into()
}

/// A device that cannot plan a graph lacks something, which is not a fault.
fn verdict_of(failure: &WorkFailure) -> CheckVerdict {
    match failure {
        WorkFailure::Failed(error) if error.kind() == ErrorKind::Plan => {
            CheckVerdict::Refused(without_home(error.message()))
        }
        failure => CheckVerdict::Failed(describe(failure)),
    }
}

/// Says in a line why work gave no result.
pub(super) fn describe(failure: &WorkFailure) -> String {
    match failure {
        WorkFailure::Failed(error) => without_home(&error.to_string()),
        WorkFailure::Panicked(message) => format!("a panic: {}", without_home(message)),
        WorkFailure::TimedOut(limit) => format!("it did not end within {limit:?}"),
    }
}
