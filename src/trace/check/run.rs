use std::fmt;

use serde_json::{Value as Json, json};

use crate::compare::Difference;

/// One set of inputs and what came of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which inputs.
    pub label: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Whose results were compared: `trace and function`.
    pub sides: String,
    /// Every output, where results were compared.
    pub differences: Vec<Difference>,
    /// Why they were not.
    pub note: String,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The results agree, or there is nothing to compare with and the graph runs.
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
            sides: String::new(),
            differences: Vec::new(),
            note,
        }
    }

    /// A run whose results were compared, and whose they are.
    pub fn compared(label: &str, sides: &str, outcome: Outcome, found: Vec<Difference>) -> Run {
        Run {
            sides: sides.to_string(),
            differences: found,
            ..Run::new(label, outcome, String::new())
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

    /// What was compared and found, or why nothing was.
    pub(super) fn result(&self) -> String {
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

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, label) = (self.outcome.name(), &self.label);
        write!(f, "{outcome:<8} {label}: {}", self.result())
    }
}
