//! The report as Markdown for an issue.

use std::fmt::Write;

use super::check::{CheckVerdict, DoctorCheck};
use super::summary::{CheckCounts, groups, limits, shortfalls, subgroups};
use super::{DeviceExamination, DoctorReport};

impl DoctorReport {
    /// The report as Markdown: all checks, limits and features of each device, failures first. Its first line begins with
    /// `# written by onionskin`.
    pub fn to_markdown(&self) -> String {
        let mut page = format!("# written by onionskin doctor {}\n\n", self.host.version);
        line(&mut page, &format!("Result: {}.\n", self.verdict()));
        line(&mut page, &format!("- Host: {}", self.host.text()));
        for (name, value) in &self.host.environment {
            line(
                &mut page,
                &format!("- `{name}={}`", value.replace('`', "'")),
            );
        }
        if let Some(help) = self.no_adapter_help() {
            line(&mut page, &format!("- {}", help.replace('\n', "; ")));
        }
        self.devices
            .iter()
            .for_each(|device| device.write_markdown(&mut page));
        page
    }
}

/// Appends a line. Writing to a text cannot fail.
fn line(page: &mut String, text: &str) {
    let _ = writeln!(page, "{text}");
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', "<br>")
}

/// Appends a section that is closed at first.
fn folded(page: &mut String, title: &str, content: &str) {
    line(
        page,
        &format!("\n<details><summary>{title}</summary>\n\n{content}\n</details>"),
    );
}

impl DeviceExamination {
    fn write_markdown(&self, page: &mut String) {
        line(page, &format!("\n## {}\n", self.title()));
        if let Some(error) = &self.error {
            line(
                page,
                &format!("The device did not open:\n\n```text\n{error}\n```"),
            );
        }
        self.facts()
            .iter()
            .for_each(|fact| line(page, &format!("- {fact}")));
        line(page, &format!("- Checks: {}", self.counts_text()));
        self.failures().for_each(|check| check.write_failure(page));
        line(page, "\n| family | checks |\n|---|---|");
        for (group, checks) in groups(&self.checks) {
            line(
                page,
                &format!("| {group} | {} |", CheckCounts::of(checks).text()),
            );
        }
        folded(page, "All checks", &self.check_table());
        if let Some(details) = &self.details {
            let limits = details.limits.iter();
            let limits: String = limits
                .map(|(name, value)| format!("{name} {value}\n"))
                .collect();
            let unused = details.unused_features.join(" ");
            let text =
                format!("```text\n{limits}```\n\nFeatures that Onionskin does not use: {unused}");
            folded(page, "All limits and other features", &text);
        }
    }

    /// Facts about the adapter, its times, and remarks.
    fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(details) = &self.details {
            let report = &details.report;
            let [vendor, device] = details.pci_ids;
            facts.push(format!(
                "Driver: {}, PCI {vendor:04x}:{device:04x}",
                report.driver
            ));
            facts.push(format!(
                "Limits: {}; {}",
                limits(details),
                shortfalls(details)
            ));
            facts.push(format!("Features: {}", report.features.join(" ")));
            facts.push(format!(
                "Subgroups: {}",
                subgroups(details, self.subgroups.as_ref())
            ));
            facts.push(format!("Capabilities: `{:?}`", report.capabilities));
        }
        let times = self.timing.iter().flat_map(|timing| timing.rows());
        facts.extend(times.map(|(name, value)| format!("Time, {name}: {value}")));
        facts.extend(
            self.remarks
                .iter()
                .map(|remark| format!("Remark: {remark}")),
        );
        facts
    }

    fn check_table(&self) -> String {
        let mut table = String::from(
            "| check | result | error | kernels | compile | run |\n|---|---|---|---|---|---|\n",
        );
        for check in &self.checks {
            line(&mut table, &check.row());
        }
        table
    }
}

impl DoctorCheck {
    fn write_failure(&self, page: &mut String) {
        let reason = match &self.verdict {
            CheckVerdict::Failed(reason) => reason,
            CheckVerdict::Skipped(reason) => {
                return line(page, &format!("\nDid not run: {}: {reason}", self.title()));
            }
            _ => return,
        };
        line(
            page,
            &format!("\n### FAILED {}\n\n```text\n{reason}", self.title()),
        );
        line(
            page,
            &format!("kernels: {}\n\n{}```", self.kernels.join(", "), self.graph),
        );
    }

    fn row(&self) -> String {
        let verdict = match &self.verdict {
            CheckVerdict::Passed => "passed".into(),
            CheckVerdict::Failed(_) => "FAILED".into(),
            CheckVerdict::Refused(reason) => format!("refused: {reason}"),
            CheckVerdict::Skipped(_) => "did not run".into(),
        };
        let errors = self.differences.iter().map(|difference| difference.max_abs);
        let error = match self.differences.is_empty() {
            true => String::new(),
            false => format!("{:.1e}", errors.fold(0.0, f64::max)),
        };
        let kernels = self.kernels.join(", ");
        let (title, compile, run) = (self.title(), self.compile, self.run);
        let [title, verdict, kernels] = [title, verdict, kernels].map(|text| cell(&text));
        format!("| {title} | {verdict} | {error} | {kernels} | {compile:.1?} | {run:.1?} |")
    }
}
