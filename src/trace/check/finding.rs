use std::fmt;

use serde::Serialize;

use super::catalog::{Id, Severity};
use crate::error::{Place, without_calls};

/// Places of one finding that are listed; the rest is counted.
const LISTED: usize = 5;

/// Something that was found about a trace, by the tracer or by the checker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub id: Id,
    /// How bad it is; the catalogue's word unless the case at hand is worse.
    pub severity: Severity,
    /// One line in lower case without full stop.
    pub message: String,
    /// Where in the user's model.
    #[serde(skip_serializing_if = "Place::is_unknown")]
    pub place: Place,
    /// Name of the value in the graph that it is about, behind those of the regions that it stands in: `steps/x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Further lines: figures, differences, other places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl Finding {
    /// A finding with the catalogue's severity.
    pub fn new(id: Id, message: impl Into<String>) -> Finding {
        Finding {
            id,
            severity: id.entry().severity,
            message: message.into(),
            place: Place::default(),
            value: None,
            details: Vec::new(),
        }
    }

    /// Says where it is.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Finding {
        self.place = place.clone();
        self
    }

    /// Names the value that it is about.
    #[must_use]
    pub fn value(self, name: impl Into<String>) -> Finding {
        self.about(Some(name.into()))
    }

    /// Names the value that it is about, if it is about one.
    #[must_use]
    pub fn about(mut self, value: Option<String>) -> Finding {
        self.value = value;
        self
    }

    /// Adds lines beneath.
    #[must_use]
    pub fn details<T: Into<String>>(mut self, lines: impl IntoIterator<Item = T>) -> Finding {
        self.details.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Makes it as bad as this, unless it is worse already.
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
        Ok(())
    }
}

/// One finding for all that say the same, with their places.
pub fn grouped(found: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<(Finding, Vec<Place>)> = Vec::new();
    for finding in found {
        let same = |(other, _): &&mut (Finding, Vec<Place>)| {
            (other.id, &other.message) == (finding.id, &finding.message)
        };
        match groups.iter_mut().find(same) {
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

fn with_places(finding: Finding, places: &[Place]) -> Finding {
    let listed = places
        .iter()
        .take(LISTED)
        .map(|place| format!("and at {place}"));
    let finding = finding.details(listed);
    match places.len().saturating_sub(LISTED) {
        0 => finding,
        more => finding.details([format!("and at {more} more places")]),
    }
}

/// Findings that the user does not want to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    rules: Vec<(String, Option<String>)>,
}

impl Allow {
    /// Suppresses what the rules name: `W0201` everywhere, `W0201@model.py` in a file, `W0201@model.py:12` at a line,
    /// `W0201@encoder.0` in a module. Files and modules match by their ends and beginnings.
    pub fn new<T: AsRef<str>>(rules: impl IntoIterator<Item = T>) -> Allow {
        let mut allow = Allow::default();
        rules.into_iter().for_each(|rule| allow.add(rule.as_ref()));
        allow
    }

    /// The id that a rule names, as it was written.
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
                    .is_none_or(|place| is_in(&finding.place, place))
        })
    }
}

/// True if a place lies in a file, at a line, or in a module.
fn is_in(place: &Place, wanted: &str) -> bool {
    let is_below = |path: &str| {
        let rest = path.strip_prefix(wanted);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let in_module = is_below(&place.module) || is_below(&without_calls(&place.module));
    let ends = |text: &str| {
        let rest = text.strip_suffix(wanted);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let in_file = place
        .location
        .as_ref()
        .is_some_and(|location| ends(&location.file) || ends(&location.to_string()));
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
        Finding::new(Id::HostRead, "x").at(&Place {
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
            assert!(Allow::new([rule]).covers(&finding()), "{rule}");
        }
        for rule in [
            "W0202",
            "W0201@del.py",
            "W0201@model.py:1",
            "W0201@encoder.01",
            "W0201@enc",
        ] {
            assert!(!Allow::new([rule]).covers(&finding()), "{rule}");
        }
    }
}
