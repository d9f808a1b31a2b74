//! Runs of a check, each with one set of inputs.

use std::fmt;

use serde_json::{Value as Json, json};

use crate::compare::Difference;

/// A run with one set of inputs, and its outcome.
#[derive(Clone, Debug)]
pub struct CheckRun {
    /// Names the set of inputs.
    pub label: String,
    /// The outcome.
    pub outcome: RunOutcome,
    /// Names the two results that were compared: `trace and function`.
    pub sides: String,
    /// One difference for each output, if results were compared.
    pub differences: Vec<Difference>,
    /// Why no results were compared; empty otherwise.
    pub note: String,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The results agree, or there are no reference results and the graph runs.
    Agrees,
    /// The results differ.
    Differs,
    /// The trace refuses the inputs, which the function accepts.
    Refused,
    /// The function refuses the inputs.
    Skipped,
    /// The function, the trace or the second trace failed.
    Failed,
}

impl RunOutcome {
    /// The outcome's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            RunOutcome::Agrees => "ok",
            RunOutcome::Differs => "differs",
            RunOutcome::Refused => "refused",
            RunOutcome::Skipped => "skipped",
            RunOutcome::Failed => "failed",
        }
    }
}

impl CheckRun {
    /// A run without compared results; `note` says why.
    pub fn new(label: &str, outcome: RunOutcome, note: String) -> CheckRun {
        CheckRun {
            label: label.to_string(),
            outcome,
            sides: String::new(),
            differences: Vec::new(),
            note,
        }
    }

    /// A run with compared results; `sides` names the two.
    pub fn compared(
        label: &str,
        sides: &str,
        outcome: RunOutcome,
        differences: Vec<Difference>,
    ) -> CheckRun {
        CheckRun {
            sides: sides.to_string(),
            differences,
            ..CheckRun::new(label, outcome, String::new())
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let outputs: Vec<Json> = self.differences.iter().map(Difference::to_json).collect();
        json!({
            "inputs": self.label,
            "outcome": self.outcome.name(),
            "compared": self.sides,
            "note": self.note,
            "outputs": outputs,
        })
    }

    /// Summarises the comparison, or says why there is none.
    pub(super) fn summary(&self) -> String {
        let largest = self
            .differences
            .iter()
            .max_by(|a, b| a.max_abs.total_cmp(&b.max_abs));
        match largest {
            None => self.note.clone(),
            Some(largest) if !largest.passed() => format!("{} differ: {largest}", self.sides),
            Some(largest) if largest.max_abs == 0.0 => format!("{} are equal", self.sides),
            Some(largest) => format!("{} agree: {largest}", self.sides),
        }
    }
}

impl fmt::Display for CheckRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, label) = (self.outcome.name(), &self.label);
        write!(f, "{outcome:<8} {label}: {}", self.summary())
    }
}
