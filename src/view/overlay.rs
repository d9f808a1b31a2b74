//! Overlays: measurements and findings about boxes, from the JSON documents of other commands.

mod compare;
mod findings;
mod plan;
mod profile;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use self::values::ValueIndex;
use super::hierarchy::Hierarchy;
use crate::error::{Error, Result};

/// Marks of boxes, which the page shows as colours and short texts.
#[derive(Debug)]
struct Overlay {
    /// Short name in links and tests: `time`.
    id: &'static str,
    title: &'static str,
    /// How the levels of the marks become colours.
    scale: Scale,
    /// The origin of the numbers.
    note: String,
    /// Texts at the two ends of the scale.
    legend: [String; 2],
    marks: BTreeMap<usize, Mark>,
    /// Lines for the details of a box: a name and a text.
    details: BTreeMap<usize, Vec<[String; 2]>>,
}

/// Meaning of the level of a mark.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// From 0 to 1, from cold to hot.
    Heat,
    /// 1 for notes, 2 for warnings, 3 for errors.
    Severity,
    /// The number of a kernel.
    Kernel,
}

/// The mark of a box.
#[derive(Clone, Debug)]
struct Mark {
    level: f64,
    text: String,
}

impl Overlay {
    fn json(&self) -> Json {
        let scale = match self.scale {
            Scale::Heat => "heat",
            Scale::Severity => "severity",
            Scale::Kernel => "kernel",
        };
        let marks = self.marks.iter();
        let marks = marks.map(|(index, mark)| (index.to_string(), json!([mark.level, mark.text])));
        json!({
            "id": self.id,
            "title": self.title,
            "scale": scale,
            "note": self.note,
            "legend": self.legend,
            "marks": marks.collect::<serde_json::Map<_, _>>(),
            "details": self.details,
        })
    }
}

/// A document of another command, which a page shows over the picture.
#[derive(Clone, Debug)]
pub struct OverlayFile {
    /// Name of the file, for the page; empty if it comes from no file.
    name: String,
    kind: OverlayKind,
    document: Json,
}

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OverlayKind {
    Profile,
    Compare,
    Check,
    Plan,
}

/// Formats of the documents, their kinds, and the commands that write them.
const FORMATS: [(&str, OverlayKind, &str); 4] = [
    (
        "onionskin-profile-1",
        OverlayKind::Profile,
        "onionskin profile --json",
    ),
    (
        "onionskin-compare-1",
        OverlayKind::Compare,
        "onionskin compare --values --json",
    ),
    (
        "onionskin-check-1",
        OverlayKind::Check,
        "onionskin check --json",
    ),
    (
        "onionskin-plan-1",
        OverlayKind::Plan,
        "onionskin show --plan --json",
    ),
];

impl OverlayFile {
    /// Reads a document that another command wrote.
    ///
    /// # Errors
    /// The text is not JSON, or not a document that pages show.
    pub fn parse(name: &str, text: &[u8]) -> Result<OverlayFile> {
        let shown = shown_name(name);
        let commands = FORMATS.map(|(_, _, command)| command).join(", ");
        let help = format!("write the file with one of: {commands}");
        let document: Json = serde_json::from_slice(text)
            .map_err(|error| Error::format(format!("{shown} is not JSON: {error}")).help(&help))?;
        OverlayFile::of(name, document).ok_or_else(|| {
            Error::format(format!("{shown} holds nothing that a picture shows")).help(&help)
        })
    }

    /// Takes a document by its field `format`; `None` if pages show no such documents.
    pub fn of(name: &str, document: Json) -> Option<OverlayFile> {
        let format = document.get("format")?.as_str()?;
        let found = FORMATS.iter().find(|(known, ..)| *known == format);
        found.map(|(_, kind, _)| OverlayFile {
            name: name.to_string(),
            kind: *kind,
            document,
        })
    }

    /// True for plans, which a page otherwise has none of.
    pub fn is_plan(&self) -> bool {
        self.kind == OverlayKind::Plan
    }

    /// Reads the fields of the document that an overlay needs.
    fn fields<T: DeserializeOwned>(&self) -> Result<T> {
        let command = FORMATS.iter().find(|(_, kind, _)| *kind == self.kind);
        let command = command.map_or("", |(_, _, command)| command);
        T::deserialize(&self.document).map_err(|error| {
            let name = self.shown_name();
            let message = format!("{name} is not as {command} writes it: {error}");
            Error::format(message).help(format!("write it again with {command}"))
        })
    }

    /// The name of the file in messages.
    fn shown_name(&self) -> &str {
        shown_name(&self.name)
    }

    /// The origin of the numbers, for the legend.
    fn origin(&self, device: &str) -> String {
        let device = match device {
            "" => String::new(),
            device => format!("on {device}"),
        };
        match (self.name.as_str(), device.as_str()) {
            ("", device) => device.to_string(),
            (name, "") => format!("from {name}"),
            (name, device) => format!("{device}, from {name}"),
        }
    }
}

/// Adds the overlays of the documents to the data of a page.
///
/// # Errors
/// A document lacks fields, or names no value of the model.
pub(super) fn add_overlays(
    data: &mut Json,
    hierarchy: &Hierarchy,
    files: &[OverlayFile],
) -> Result<()> {
    let index = ValueIndex::of(hierarchy);
    let mut files: Vec<&OverlayFile> = files.iter().collect();
    files.sort_by_key(|file| file.kind);
    let mut overlays = Vec::new();
    for file in files {
        let found = match file.kind {
            OverlayKind::Profile => profile::overlay(file, hierarchy, &index)?,
            OverlayKind::Compare => compare::overlay(file, &index)?,
            OverlayKind::Check => findings::overlay(file, hierarchy, &index, data)?,
            OverlayKind::Plan => plan::overlays(file, hierarchy, &index, data)?,
        };
        overlays.extend(found.iter().map(Overlay::json));
    }
    data["overlays"] = overlays.into();
    Ok(())
}

/// The error for a document about another model.
fn other_model(file: &OverlayFile) -> Error {
    let name = file.shown_name();
    Error::format(format!("{name} names no value of this model"))
        .help("write it again with this model and these inputs, or leave it out")
}

/// The name of a file in messages; documents that come from no file have no name.
fn shown_name(name: &str) -> &str {
    if name.is_empty() {
        "the document"
    } else {
        name
    }
}
