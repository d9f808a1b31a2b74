//! The report of a check: findings and runs.

use std::fmt;

use serde_json::{Value as Json, json};

use super::check_run::{CheckRun, RunOutcome};
use super::{AllowList, Finding, Id, Severity, SubjectKind};
use crate::error::Error;
use crate::ir::Graph;
use crate::symbols::with_example_sizes;

/// The report of a check. `Display` writes it as text.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The graph that was checked.
    pub graph: Graph,
    /// All runs in order.
    pub runs: Vec<CheckRun>,
    /// The findings in order, without suppressed ones.
    pub findings: Vec<Finding>,
    /// Number of suppressed findings.
    pub suppressed: usize,
    /// Names the results of the program that the check compared with, if they are not calls: `recorded outputs of 2 sets`.
    pub program: Option<String>,
    subject_kind: SubjectKind,
    /// Numeric differences are errors.
    strict: bool,
    /// Findings to suppress.
    allow: AllowList,
}

/// Overall result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Neither errors nor warnings.
    Passed,
    /// Warnings, but no errors.
    Warned,
    /// Errors.
    Failed,
}

impl Verdict {
    /// The verdict's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Warned => "warned",
            Verdict::Failed => "failed",
        }
    }
}

impl CheckReport {
    /// An empty report on a graph. With `strict`, numeric differences are errors. Findings that `allow` covers are only
    /// counted.
    pub fn new(
        graph: Graph,
        subject_kind: SubjectKind,
        strict: bool,
        allow: AllowList,
    ) -> CheckReport {
        CheckReport {
            graph,
            runs: Vec::new(),
            findings: Vec::new(),
            suppressed: 0,
            program: None,
            subject_kind,
            strict,
            allow,
        }
    }

    /// Adds findings without a run.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings
            .into_iter()
            .for_each(|finding| self.add(finding, ""));
    }

    /// Adds a finding about the run `label`. If the report has the finding already, it only gets the label as a further
    /// detail.
    pub fn add(&mut self, mut finding: Finding, label: &str) {
        if self.allow.covers(&finding) {
            self.suppressed += 1;
            return;
        }
        finding.message = with_example_sizes(&finding.message, &self.graph.hints);
        if self.strict && is_numeric(finding.id) {
            finding = finding.at_least(Severity::Error);
        }
        let is_placed = !finding.place.is_unknown() || finding.value.is_some();
        let is_same_finding = |other: &&mut Finding| {
            (other.id, &other.place, &other.value) == (finding.id, &finding.place, &finding.value)
                && (is_placed || other.message == finding.message)
        };
        match self
            .findings
            .iter_mut()
            .find(is_same_finding)
            .filter(|_| !label.is_empty())
        {
            Some(known) => {
                known.severity = known.severity.max(finding.severity);
                known.details.push(format!("also with {label}"));
            }
            None => {
                let with = (!label.is_empty()).then(|| format!("with {label}"));
                finding.details.splice(0..0, with);
                self.push_or_fold(finding);
            }
        }
    }

    /// Adds a finding, or counts it if it repeats another one at the same line.
    fn push_or_fold(&mut self, finding: Finding) {
        let is_repeated = |known: &&mut Finding| known.is_repeated_by(&finding);
        match self.findings.iter_mut().find(is_repeated) {
            Some(known) => {
                known.severity = known.severity.max(finding.severity);
                known.repeats.push(finding.place.module);
                known.repeats.extend(finding.repeats);
            }
            None => self.findings.push(finding),
        }
    }

    /// Adds a failed run of the function, the trace or another step named by `what`.
    pub fn add_failure(&mut self, what: &str, label: &str, error: &Error) {
        let id = error.kind().id();
        let finding = Finding::new(Id::RunFailed, format!("{what} failed: {}", error.message()));
        let finding = finding.details([format!("{id} {}", error.kind().title())]);
        let finding = finding.details(error.context().iter().map(|frame| format!("at {frame}")));
        let help = error.advice().map(|help| format!("help: {help}"));
        self.add(finding.details(help), label);
        let note = format!("{what}: {}", error.message());
        self.runs
            .push(CheckRun::new(label, RunOutcome::Failed, note));
    }

    /// True unless a finding is an error.
    pub fn passed(&self) -> bool {
        self.verdict() != Verdict::Failed
    }

    /// The overall result.
    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Error) => Verdict::Failed,
            Some(Severity::Warning) => Verdict::Warned,
            Some(Severity::Note) | None => Verdict::Passed,
        }
    }

    /// Lines that name the comparison that was not made, and how to make it.
    pub fn limits(&self) -> Vec<String> {
        self.subject_kind.limits(self.program.as_deref())
    }

    /// Number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// The findings, most severe first.
    pub fn by_severity(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    /// The report as a JSON object, marked by `"format": "onionskin-check-1"`. Findings have `value` and `place` where they
    /// are known.
    pub fn to_json(&self) -> Json {
        let runs: Vec<Json> = self.runs.iter().map(CheckRun::to_json).collect();
        json!({
            "format": "onionskin-check-1",
            "graph": self.graph.name,
            "passed": self.passed(),
            "verdict": self.verdict().name(),
            "limits": self.limits(),
            "strict": self.strict,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "notes": self.count(Severity::Note),
            "suppressed": self.suppressed,
            "findings": self.by_severity(),
            "runs": runs,
        })
    }

    /// One line with the numbers of errors, warnings, notes and suppressed findings.
    pub fn summary(&self) -> String {
        let count = |severity, one: &str| match self.count(severity) {
            1 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        };
        let mut text = [
            count(Severity::Error, "error"),
            count(Severity::Warning, "warning"),
            count(Severity::Note, "note"),
        ]
        .join(", ");
        if self.suppressed > 0 {
            text += &format!(", {} suppressed", self.suppressed);
        }
        text
    }
}

/// True for findings about numeric differences.
fn is_numeric(id: Id) -> bool {
    matches!(
        id,
        Id::OutputsDiffer | Id::RepeatDiffers | Id::UnstableFunction | Id::ExportDiffers
    )
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.by_severity() {
            writeln!(f, "{finding}")?;
        }
        let plural = if self.runs.len() == 1 { "" } else { "s" };
        writeln!(f, "{}: {} run{plural}", self.graph.name, self.runs.len())?;
        for run in &self.runs {
            writeln!(f, "  {run}")?;
        }
        write!(f, "{}: {}", self.verdict().name(), self.summary())?;
        let mut limits = self.limits().into_iter();
        limits.try_for_each(|line| write!(f, "\n{line}"))
    }
}
