//! Lines that both forms of the report print.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::gpu::{AdapterDetails, SubgroupSizes};

use super::check::{CheckVerdict, DoctorCheck};
use super::{DeviceExamination, DeviceTiming, DoctorReport, HostFacts};

/// Number of checks by their verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckCounts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) refused: usize,
    pub(super) skipped: usize,
}

impl CheckCounts {
    pub(super) fn of<'a>(checks: impl IntoIterator<Item = &'a DoctorCheck>) -> CheckCounts {
        let mut counts = CheckCounts::default();
        for check in checks {
            *match check.verdict {
                CheckVerdict::Passed => &mut counts.passed,
                CheckVerdict::Failed(_) => &mut counts.failed,
                CheckVerdict::Refused(_) => &mut counts.refused,
                CheckVerdict::Skipped(_) => &mut counts.skipped,
            } += 1;
        }
        counts
    }

    /// `64 passed, 1 FAILED, 2 refused`
    pub(super) fn text(self) -> String {
        let counts = [
            (self.passed, "passed"),
            (self.failed, "FAILED"),
            (self.refused, "refused"),
            (self.skipped, "did not run"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        match counts.is_empty() {
            true => "none".into(),
            false => counts.join(", "),
        }
    }
}

/// Checks by group, in the order in which they ran.
pub(super) fn groups(checks: &[DoctorCheck]) -> Vec<(&'static str, Vec<&DoctorCheck>)> {
    let mut groups: Vec<(&'static str, Vec<&DoctorCheck>)> = Vec::new();
    for check in checks {
        match groups.last_mut() {
            Some((group, checks)) if *group == check.group => checks.push(check),
            _ => groups.push((check.group, vec![check])),
        }
    }
    groups
}

/// Names of checks that were refused or did not run, by the reason.
pub(super) fn by_reason(checks: &[DoctorCheck]) -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for check in checks {
        let reason = match &check.verdict {
            CheckVerdict::Refused(reason) => format!("refused, since {reason}"),
            CheckVerdict::Skipped(reason) => format!("did not run, since {reason}"),
            CheckVerdict::Passed | CheckVerdict::Failed(_) => continue,
        };
        names.entry(reason).or_default().push(check.title());
    }
    names
}

impl DoctorCheck {
    /// Group and name: `matrix products: square, by portable`.
    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.group, self.name)
    }
}

impl HostFacts {
    /// `linux x86_64, 2 processors, 7.8 GiB of memory, avx2 fma`
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} {}", self.system, self.architecture);
        if self.processors > 0 {
            text += &format!(", {} processors", self.processors);
        }
        if let Some(memory) = self.memory {
            text += &format!(", {:.1} GiB of memory", memory as f64 / f64::from(1 << 30));
        }
        match self.vectors.is_empty() {
            true => text,
            false => format!("{text}, {}", self.vectors.join(" ")),
        }
    }
}

/// The limits that planning depends on, and those below WebGPU's defaults.
pub(super) fn limits(details: &AdapterDetails) -> String {
    let limits = &details.report.capabilities;
    format!(
        "{} MiB a binding, {} MiB a buffer, {} bindings a kernel, {} invocations, {} KiB shared memory",
        limits.max_binding_size >> 20,
        limits.max_buffer_size >> 20,
        limits.max_storage_buffers,
        limits.max_invocations,
        limits.max_workgroup_memory >> 10,
    )
}

/// Limits below WebGPU's defaults, each with the default.
pub(super) fn shortfalls(details: &AdapterDetails) -> String {
    let below = details.shortfalls.iter();
    let below =
        below.map(|limit| format!("{} {} (default {})", limit.name, limit.found, limit.default));
    let below: Vec<String> = below.collect();
    match below.is_empty() {
        true => "all of WebGPU's defaults are met".into(),
        false => format!("below WebGPU's defaults: {}", below.join(", ")),
    }
}

/// `8 invocations in a kernel; the driver reports 4 to 8`
pub(super) fn subgroups(details: &AdapterDetails, sizes: Option<&SubgroupSizes>) -> String {
    let [smallest, largest] = details.subgroup_sizes;
    let reported = match (smallest, largest) {
        (0, 0) => "the driver reports no size".into(),
        (smallest, largest) if smallest == largest => format!("the driver reports {smallest}"),
        _ => format!("the driver reports {smallest} to {largest}"),
    };
    let Some(sizes) = sizes else {
        return format!("no subgroup operations; {reported}");
    };
    let read: Vec<String> = sizes.read.iter().map(ToString::to_string).collect();
    format!("{} invocations in a kernel; {reported}", read.join(" or "))
}

impl DeviceTiming {
    /// Times as a list of name and value.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let gigabytes = |rate: f64| format!("{:.1} GB/s", rate / 1e9);
        let clock = if self.has_timestamps {
            "the device's timestamps"
        } else {
            "the host's clock"
        };
        let rate = self.product_rate();
        let rate = rate.map_or_else(
            || "no time".into(),
            |rate| format!("{:.1} GFLOP/s", rate / 1e9),
        );
        let side = DeviceTiming::SIDE;
        vec![
            (
                "round trip",
                format!("{:.1?} for a kernel on one element", self.round_trip),
            ),
            (
                "transfers",
                format!(
                    "{} up, {} down",
                    gigabytes(self.upload),
                    gigabytes(self.download)
                ),
            ),
            ("peak", self.ceilings.to_string()),
            (
                "product",
                format!(
                    "{rate} by {clock}; {:.1?} for {side}x{side} by {side}x{side} with transfers, {:.1?} on the host",
                    self.product, self.product_on_host
                ),
            ),
        ]
    }
}

impl DeviceExamination {
    /// Counts of checks, and the times that they took.
    pub(super) fn counts_text(&self) -> String {
        let compile: Duration = self.checks.iter().map(|check| check.compile).sum();
        let counts = CheckCounts::of(&self.checks).text();
        match self.details {
            None => format!("{counts} in {:.1?}, without a comparison", self.elapsed),
            Some(_) => format!(
                "{counts} in {:.1?}, compilation {compile:.1?}",
                self.elapsed
            ),
        }
    }
}

impl DoctorReport {
    /// The help for a machine without adapters.
    pub(super) fn no_adapter_help(&self) -> Option<&'static str> {
        (self.adapters == 0).then_some(
            "no adapter found; models run on the host interpreter (--device cpu)\non Debian, `apt-get install \
             mesa-vulkan-drivers` installs a software rasteriser",
        )
    }

    /// The sentence that ends a report.
    pub(super) fn verdict(&self) -> String {
        let checks = self.devices.iter().flat_map(|device| &device.checks);
        let counts = CheckCounts::of(checks);
        let closed = self.devices.iter().filter(|device| device.error.is_some());
        let counted = [
            (counts.failed, "check", "failed"),
            (counts.skipped, "check", "did not run"),
            (closed.count(), "device", "did not open"),
        ];
        let counted = counted.iter().filter(|(count, ..)| *count > 0);
        let counted: Vec<String> = counted
            .map(|(count, noun, what)| {
                let plural = if *count == 1 { "" } else { "s" };
                format!("{count} {noun}{plural} {what}")
            })
            .collect();
        match counted.is_empty() {
            true => "everything that ran is right".into(),
            false => counted.join(", "),
        }
    }
}
