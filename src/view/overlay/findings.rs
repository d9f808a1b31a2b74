//! Findings of a check, from `onionskin check --json`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::values::ValueIndex;
use super::{Mark, Overlay, OverlayFile, Scale, other_model};
use crate::error::{Result, SourcePlace};
use crate::view::hierarchy::Hierarchy;

#[derive(Deserialize)]
struct CheckDocument {
    graph: String,
    verdict: String,
    findings: Vec<FoundProblem>,
}

impl CheckDocument {
    fn summary(&self, file: &OverlayFile) -> String {
        let findings = match self.findings.len() {
            1 => "1 finding".to_string(),
            count => format!("{count} findings"),
        };
        format!("{}: {findings}{}", self.verdict, origin(file))
    }
}

#[derive(Deserialize)]
struct FoundProblem {
    id: String,
    severity: String,
    message: String,
    #[serde(default)]
    place: SourcePlace,
    value: Option<String>,
    #[serde(default)]
    details: Vec<String>,
}

/// The overlay; its findings become a field of the page's data.
pub(super) fn overlay(
    file: &OverlayFile,
    hierarchy: &Hierarchy,
    index: &ValueIndex,
    data: &mut Json,
) -> Result<Vec<Overlay>> {
    let document: CheckDocument = file.fields()?;
    let mut entries = hierarchy.boxes.iter().filter(|own| own.parent.is_none());
    if !entries.any(|entry| entry.label == document.graph) {
        return Err(other_model(file));
    }
    let mut overlay = Overlay {
        id: "findings",
        title: "Findings",
        scale: Scale::Severity,
        note: document.summary(file),
        legend: Default::default(),
        marks: Default::default(),
        details: Default::default(),
    };
    let mut findings = Vec::new();
    for finding in &document.findings {
        let boxes = finding.boxes(&document.graph, hierarchy, index);
        for own in &boxes {
            finding.mark(*own, hierarchy, &mut overlay);
        }
        findings.push(finding.json(&boxes));
    }
    data["findings"] = findings.into();
    Ok(vec![overlay])
}

fn origin(file: &OverlayFile) -> String {
    match file.origin("") {
        origin if origin.is_empty() => origin,
        origin => format!(", {origin}"),
    }
}

impl FoundProblem {
    /// The operators that the finding is about: that of its value, or else those of its line.
    fn boxes(&self, graph: &str, hierarchy: &Hierarchy, index: &ValueIndex) -> Vec<usize> {
        let is_here = |own: &usize| {
            let place = hierarchy.node(*own).map(|node| &node.place);
            place.is_some_and(|place| place.location == self.place.location)
        };
        if let Some(value) = &self.value {
            let found = index.find(graph, value);
            let here: Vec<usize> = found.iter().copied().filter(is_here).collect();
            // Values of two branches may have one name. Their lines differ.
            return if here.is_empty() {
                found.to_vec()
            } else {
                here
            };
        }
        match self.place.location {
            Some(_) => (0..hierarchy.boxes.len()).filter(is_here).collect(),
            None => Vec::new(),
        }
    }

    fn level(&self) -> f64 {
        match self.severity.as_str() {
            "error" => 3.0,
            "warning" => 2.0,
            _ => 1.0,
        }
    }

    /// Marks an operator and the boxes around it, unless they have the mark of a worse finding.
    fn mark(&self, own: usize, hierarchy: &Hierarchy, overlay: &mut Overlay) {
        let mark = Mark {
            level: self.level(),
            text: self.id.clone(),
        };
        for index in std::iter::once(own).chain(hierarchy.ancestors(own)) {
            let known = overlay.marks.entry(index).or_insert_with(|| mark.clone());
            if known.level < mark.level {
                *known = mark.clone();
            }
        }
    }

    fn json(&self, boxes: &[usize]) -> Json {
        let place = (!self.place.is_unknown()).then(|| self.place.to_string());
        json!({
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "place": place,
            "details": self.details,
            "boxes": boxes,
        })
    }
}
