//! Findings, and rules that suppress them.

use std::fmt;

use serde::Serialize;

use super::catalog::{Id, Severity};
use crate::error::{SourcePlace, without_call_numbers};

/// Largest number of places that a finding lists. Further places are counted.
const MAX_LISTED_PLACES: usize = 5;

/// A problem of a trace that the tracer or the checker found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Kind of the problem.
    pub id: Id,
    /// Severity: the catalog's for this id, or a higher one.
    pub severity: Severity,
    /// One line in lower case without a full stop.
    pub message: String,
    /// Place in the user's model.
    #[serde(skip_serializing_if = "SourcePlace::is_unknown")]
    pub place: SourcePlace,
    /// Name of the graph's value, prefixed by the names of the enclosing regions: `steps/x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Further lines: figures, differences, other places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Modules of further findings of this kind at this line; empty paths for findings outside of modules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<String>,
}

impl Finding {
    /// A finding with the catalog's severity.
    pub fn new(id: Id, message: impl Into<String>) -> Finding {
        Finding {
            id,
            severity: id.entry().severity,
            message: message.into(),
            place: SourcePlace::default(),
            value: None,
            details: Vec::new(),
            repeats: Vec::new(),
        }
    }

    /// True if another finding says the same of the same line, but for numbers and the module.
    pub(super) fn is_repeated_by(&self, other: &Finding) -> bool {
        let words = |message: &str| {
            message
                .chars()
                .filter(|c| c.is_alphabetic())
                .collect::<String>()
        };
        self.id == other.id
            && self.place.location.is_some()
            && self.place.location == other.place.location
            && words(&self.message) == words(&other.message)
    }

    /// The line about further findings at this line: how many, and in which modules.
    fn repeats_line(&self) -> Option<String> {
        let mut modules: Vec<&str> = Vec::new();
        for module in &self.repeats {
            if !module.is_empty()
                && *module != self.place.module
                && !modules.contains(&module.as_str())
            {
                modules.push(module);
            }
        }
        let listed = modules.iter().take(MAX_LISTED_PLACES).copied();
        let mut listed = listed.collect::<Vec<&str>>().join(", ");
        if modules.len() > MAX_LISTED_PLACES {
            listed += " …";
        }
        let line = format!("and {} more at the same line", self.repeats.len());
        match (self.repeats.len(), listed.as_str()) {
            (0, _) => None,
            (_, "") => Some(line),
            (_, listed) => Some(format!("{line}, in {listed}")),
        }
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, place: &SourcePlace) -> Finding {
        self.place = place.clone();
        self
    }

    /// Sets the name of the value.
    #[must_use]
    pub fn with_value_name(self, name: impl Into<String>) -> Finding {
        self.with_value(Some(name.into()))
    }

    /// Sets or clears the name of the value.
    #[must_use]
    pub fn with_value(mut self, value: Option<String>) -> Finding {
        self.value = value;
        self
    }

    /// Adds further lines.
    #[must_use]
    pub fn details<T: Into<String>>(mut self, lines: impl IntoIterator<Item = T>) -> Finding {
        self.details.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Raises the severity to at least this one.
    #[must_use]
    pub fn at_least(mut self, severity: Severity) -> Finding {
        self.severity = self.severity.max(severity);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, id, title) = (self.severity, self.id, self.id.entry().title);
        write!(f, "{severity}[{id}] {title}: {}", self.message)?;
        if !self.place.is_unknown() {
            write!(f, "\n  at {}", self.place)?;
        }
        for line in self.details.iter().flat_map(|detail| detail.lines()) {
            write!(f, "\n  {line}")?;
        }
        match self.repeats_line() {
            Some(line) => write!(f, "\n  {line}"),
            None => Ok(()),
        }
    }
}

/// Keeps the first lines, and counts the others in one more.
pub fn fold_lines(mut lines: Vec<String>, what: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LISTED_PLACES);
    lines.truncate(MAX_LISTED_PLACES);
    lines.extend((more > 0).then(|| format!("and {more} more {what}")));
    lines
}

/// Folds findings that repeat an earlier one in the same module.
pub fn fold_repeated(findings: Vec<Finding>) -> Vec<Finding> {
    let mut folded: Vec<Finding> = Vec::new();
    for finding in findings {
        let is_repeated = |known: &&mut Finding| {
            known.place.module == finding.place.module && known.is_repeated_by(&finding)
        };
        match folded.iter_mut().find(is_repeated) {
            Some(known) => known.repeats.push(finding.place.module),
            None => folded.push(finding),
        }
    }
    folded
}

/// Merges findings with equal id and message into one that lists their places.
pub fn merge_equal(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<(Finding, Vec<SourcePlace>)> = Vec::new();
    for finding in findings {
        let is_equal = |(other, _): &&mut (Finding, Vec<SourcePlace>)| {
            (other.id, &other.message) == (finding.id, &finding.message)
        };
        match groups.iter_mut().find(is_equal) {
            Some((first, places))
                if first.place != finding.place && !places.contains(&finding.place) =>
            {
                places.push(finding.place);
            }
            Some(_) => {}
            None => groups.push((finding, Vec::new())),
        }
    }
    groups
        .into_iter()
        .map(|(finding, places)| with_places(finding, &places))
        .collect()
}

/// Adds lines for the places of merged findings.
fn with_places(finding: Finding, places: &[SourcePlace]) -> Finding {
    let listed = places
        .iter()
        .take(MAX_LISTED_PLACES)
        .map(|place| format!("and at {place}"));
    let finding = finding.details(listed);
    match places.len().saturating_sub(MAX_LISTED_PLACES) {
        0 => finding,
        more => finding.details([format!("and at {more} more places")]),
    }
}

/// Rules for findings that the user suppresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    /// Ids, each with the file, line or module in which it is suppressed; none for everywhere.
    rules: Vec<(String, Option<String>)>,
}

impl AllowList {
    /// Parses rules: `W0201` suppresses an id everywhere, `W0201@model.py` in a file, `W0201@model.py:12` at a line,
    /// `W0201@encoder.0` in a module. A file matches by the end of its path, a module by the beginning.
    pub fn new<T: AsRef<str>>(rules: impl IntoIterator<Item = T>) -> AllowList {
        let mut allow = AllowList::default();
        rules.into_iter().for_each(|rule| allow.add(rule.as_ref()));
        allow
    }

    /// The id in a rule, as written.
    pub fn id(rule: &str) -> &str {
        let (id, _) = rule.split_once('@').unwrap_or((rule, ""));
        id.trim()
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: &str) {
        let (id, place) = rule.split_once('@').unwrap_or((rule, ""));
        let place = Some(place.to_string()).filter(|place| !place.is_empty());
        self.rules.push((id.trim().to_uppercase(), place));
    }

    /// True if a finding is suppressed.
    pub fn covers(&self, finding: &Finding) -> bool {
        self.rules.iter().any(|(id, place)| {
            id == finding.id.code()
                && place
                    .as_ref()
                    .is_none_or(|place| matches_place(&finding.place, place))
        })
    }
}

/// True if a place is in the wanted file, line or module.
fn matches_place(place: &SourcePlace, wanted: &str) -> bool {
    let is_inside = |path: &str| {
        let rest = path.strip_prefix(wanted);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let in_module = is_inside(&place.module) || is_inside(&without_call_numbers(&place.module));
    let matches_end = |text: &str| {
        let rest = text.strip_suffix(wanted);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let in_file = place
        .location
        .as_ref()
        .is_some_and(|location| matches_end(&location.file) || matches_end(&location.to_string()));
    in_module || in_file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Location;

    fn finding() -> Finding {
        let location = Location {
            file: "/home/a/model.py".into(),
            line: 12,
        };
        Finding::new(Id::HostRead, "x").at(&SourcePlace {
            module: "encoder.0.mlp".into(),
            location: Some(location),
        })
    }

    #[test]
    fn rules_cover_places() {
        for rule in [
            "W0201",
            "w0201@model.py",
            "W0201@a/model.py:12",
            "W0201@encoder.0",
        ] {
            assert!(AllowList::new([rule]).covers(&finding()), "{rule}");
        }
        for rule in [
            "W0202",
            "W0201@del.py",
            "W0201@model.py:1",
            "W0201@encoder.01",
            "W0201@enc",
        ] {
            assert!(!AllowList::new([rule]).covers(&finding()), "{rule}");
        }
    }
}
