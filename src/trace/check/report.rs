use std::fmt;

use serde_json::{Value as Json, json};

use super::{Allow, Finding, Id, Severity};
use crate::compare::Difference;
use crate::error::Error;
use crate::ir::Graph;

/// What a check found. `Display` is the report as text.
#[derive(Clone, Debug)]
pub struct Report {
    /// The graph that was checked.
    pub graph: Graph,
    /// Everything that was run, in order.
    pub runs: Vec<Run>,
    /// What was found, in order, without what is suppressed.
    pub findings: Vec<Finding>,
    /// How many findings are suppressed.
    pub suppressed: usize,
    strict: bool,
    allow: Allow,
}

/// One set of inputs and what came of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which inputs.
    pub label: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Every output, where results were compared.
    pub differences: Vec<Difference>,
    /// Why they were not.
    pub note: String,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The results agree.
    Agrees,
    /// They differ.
    Differs,
    /// The trace does not take the inputs.
    Refused,
    /// The function does not take them either.
    Skipped,
    /// Something failed.
    Failed,
}

impl Outcome {
    /// As it is written in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Agrees => "ok",
            Outcome::Differs => "differs",
            Outcome::Refused => "refused",
            Outcome::Skipped => "skipped",
            Outcome::Failed => "failed",
        }
    }
}

impl Run {
    /// A run whose results were not compared, and why.
    pub fn new(label: &str, outcome: Outcome, note: String) -> Run {
        Run {
            label: label.to_string(),
            outcome,
            differences: Vec::new(),
            note,
        }
    }

    /// A run whose results were compared.
    pub fn compared(label: &str, outcome: Outcome, differences: Vec<Difference>) -> Run {
        Run {
            differences,
            ..Run::new(label, outcome, String::new())
        }
    }

    fn to_json(&self) -> Json {
        let outputs: Vec<Json> = self.differences.iter().map(Difference::to_json).collect();
        json!({"inputs": self.label, "outcome": self.outcome.name(), "note": self.note, "outputs": outputs})
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}", self.outcome.name(), self.label)?;
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        let largest = self
            .differences
            .iter()
            .max_by(|a, b| a.max_abs.total_cmp(&b.max_abs));
        match largest {
            Some(difference) if difference.passed() && difference.max_abs == 0.0 => {
                write!(f, ": equal")
            }
            Some(difference) => write!(f, ": {difference}"),
            None => Ok(()),
        }
    }
}

impl Report {
    /// A report on a graph without findings yet. With `strict`, differences of numbers are errors; what `allow` covers is
    /// counted only.
    pub fn new(graph: Graph, strict: bool, allow: Allow) -> Report {
        Report {
            graph,
            runs: Vec::new(),
            findings: Vec::new(),
            suppressed: 0,
            strict,
            allow,
        }
    }

    /// Adds findings that belong to no run.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings
            .into_iter()
            .for_each(|finding| self.add(finding, ""));
    }

    /// Adds a finding about a run. One that was made already, for other inputs, is only told of these.
    pub fn add(&mut self, mut finding: Finding, label: &str) {
        if self.allow.covers(&finding) {
            self.suppressed += 1;
            return;
        }
        if self.strict && is_numeric(finding.id) {
            finding = finding.at_least(Severity::Error);
        }
        let is_placed = !finding.place.is_unknown() || finding.value.is_some();
        let same = |other: &&mut Finding| {
            (other.id, &other.place, &other.value) == (finding.id, &finding.place, &finding.value)
                && (is_placed || other.message == finding.message)
        };
        match self
            .findings
            .iter_mut()
            .find(same)
            .filter(|_| !label.is_empty())
        {
            Some(known) => {
                known.severity = known.severity.max(finding.severity);
                known.details.push(format!("also with {label}"));
            }
            None => {
                let with = (!label.is_empty()).then(|| format!("with {label}"));
                finding.details.splice(0..0, with);
                self.findings.push(finding);
            }
        }
    }

    /// Adds a failure of the function, a trace, or something else that was run.
    pub fn fail(&mut self, what: &str, label: &str, error: &Error) {
        let id = error.kind().id();
        let finding = Finding::new(Id::RunFailed, format!("{what} failed: {}", error.message()));
        let finding = finding.details([format!("{id} {}", error.kind().title())]);
        let finding = finding.details(error.trail().iter().map(|frame| format!("at {frame}")));
        let help = error.advice().map(|help| format!("help: {help}"));
        self.add(finding.details(help), label);
        let note = format!("{what}: {}", error.message());
        self.runs.push(Run::new(label, Outcome::Failed, note));
    }

    /// True if there is no error among the findings.
    pub fn passed(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// Findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// The worst findings first.
    pub fn by_severity(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    /// The report as a JSON object.
    pub fn to_json(&self) -> Json {
        let runs: Vec<Json> = self.runs.iter().map(Run::to_json).collect();
        json!({
            "graph": self.graph.name,
            "passed": self.passed(),
            "strict": self.strict,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "notes": self.count(Severity::Note),
            "suppressed": self.suppressed,
            "findings": self.by_severity(),
            "runs": runs,
        })
    }

    /// Errors, warnings, notes and suppressed findings in a line.
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

/// True for findings about numbers that differ.
fn is_numeric(id: Id) -> bool {
    matches!(
        id,
        Id::OutputsDiffer | Id::RepeatDiffers | Id::UnstableFunction
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.by_severity() {
            writeln!(f, "{finding}")?;
        }
        let plural = if self.runs.len() == 1 { "" } else { "s" };
        writeln!(f, "{}: {} run{plural}", self.graph.name, self.runs.len())?;
        for run in &self.runs {
            writeln!(f, "  {run}")?;
        }
        write!(f, "{}", self.summary())
    }
}
