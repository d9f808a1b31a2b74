//! The report as text for a terminal.

use std::fmt::{self, Formatter, Result};

use super::check::{CheckVerdict, DoctorCheck};
use super::summary::{CheckCounts, by_reason, groups, limits, shortfalls, subgroups};
use super::{DeviceExamination, DoctorReport};

/// Most names of checks in a line.
const MAX_NAMES: usize = 4;

/// The report in some dozen lines for each device: failures in full, other checks by group.
impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "Onionskin {} on {}", self.host.version, self.host.text())?;
        for (name, value) in &self.host.environment {
            writeln!(f, "  {name}={value}")?;
        }
        if let Some(help) = self.no_adapter_help() {
            writeln!(f, "\n{help}")?;
        }
        for device in &self.devices {
            writeln!(f)?;
            device.write(f)?;
        }
        write!(f, "\n{}", self.verdict())
    }
}

fn row(f: &mut Formatter<'_>, name: &str, value: &str) -> Result {
    writeln!(f, "  {name:<10} {value}")
}

impl DeviceExamination {
    fn write(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{}", self.title())?;
        self.write_adapter(f)?;
        for remark in &self.remarks {
            row(f, "remark", remark)?;
        }
        if let Some(error) = &self.error {
            return writeln!(
                f,
                "  FAILED: the device did not open: {}",
                indented(error, 4)
            );
        }
        row(f, "checks", &self.counts_text())?;
        for (group, checks) in groups(&self.checks) {
            writeln!(f, "    {group:<20} {}", CheckCounts::of(checks).text())?;
        }
        for (reason, names) in by_reason(&self.checks) {
            writeln!(f, "  {}: {}", indented(&reason, 4), shortened(&names))?;
        }
        self.checks.iter().try_for_each(|check| check.write(f))
    }

    fn write_adapter(&self, f: &mut Formatter<'_>) -> Result {
        let Some(details) = &self.details else {
            return Ok(());
        };
        let [vendor, device] = details.pci_ids;
        row(
            f,
            "driver",
            &format!("{}, PCI {vendor:04x}:{device:04x}", details.report.driver),
        )?;
        row(
            f,
            "limits",
            &format!("{}; {}", limits(details), shortfalls(details)),
        )?;
        row(f, "features", &details.report.features.join(" "))?;
        row(f, "subgroups", &subgroups(details, self.subgroups.as_ref()))?;
        let times = self.timing.iter().flat_map(|timing| timing.rows());
        times
            .into_iter()
            .try_for_each(|(name, value)| row(f, name, &value))
    }
}

/// The first names of a list.
fn shortened(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join("; "),
        more => format!("{} and {more} more", shown.join("; ")),
    }
}

impl DoctorCheck {
    /// Writes a check that failed, in full.
    fn write(&self, f: &mut Formatter<'_>) -> Result {
        let CheckVerdict::Failed(reason) = &self.verdict else {
            return Ok(());
        };
        writeln!(f, "  FAILED {}", self.title())?;
        writeln!(f, "    {}", indented(reason, 4))?;
        if !self.kernels.is_empty() {
            writeln!(f, "    kernels {}", self.kernels.join(", "))?;
        }
        writeln!(f, "    {}", indented(self.graph.trim_end(), 4))
    }
}

/// Indents all lines but the first.
fn indented(text: &str, spaces: usize) -> String {
    text.replace('\n', &format!("\n{}", " ".repeat(spaces)))
}
