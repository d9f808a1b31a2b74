//! The catalog of findings: for each stable id its cause, an example and the cure. `onionskin explain` prints it.
//!
//! Ids never change and are never reused. `W…` is a warning or a note, `E…` an error. The first two digits are the layer, as
//! in the ids of [`ErrorKind`]: `02` the traced program, `07` results.

mod errors;
mod results;
mod tracer;

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::{Error, ErrorKind, Result};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information only.
    Note,
    /// The trace may give wrong results for other inputs.
    Warning,
    /// The trace gives wrong results.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// Origin of a checked graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FrontEnd {
    /// An archive that PyTorch traced or scripted.
    Archive,
    /// A function or module in Rust, traced by [`trace`](crate::trace).
    Rust,
    /// A function that libtorch traces in this process.
    Libtorch,
    /// A graph that was imported before.
    Json,
}

impl FrontEnd {
    /// All front ends.
    pub const ALL: &'static [FrontEnd] = &[
        FrontEnd::Archive,
        FrontEnd::Rust,
        FrontEnd::Libtorch,
        FrontEnd::Json,
    ];
    /// Front ends whose function can be called and traced again.
    const WITH_FUNCTIONS: &'static [FrontEnd] = &[FrontEnd::Rust, FrontEnd::Libtorch];
    /// Front ends whose results are compared with those of another trace or import.
    const WITH_OTHER_IMPORTS: &'static [FrontEnd] =
        &[FrontEnd::Archive, FrontEnd::Rust, FrontEnd::Libtorch];
    /// Front ends whose graphs distinguish constants from weights.
    const WITH_CONSTANTS: &'static [FrontEnd] =
        &[FrontEnd::Archive, FrontEnd::Libtorch, FrontEnd::Json];
    /// Front ends that open a model from a file.
    const FILES: &'static [FrontEnd] = &[FrontEnd::Archive, FrontEnd::Json];
}

impl fmt::Display for FrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrontEnd::Archive => "archive",
            FrontEnd::Rust => "Rust",
            FrontEnd::Libtorch => "libtorch",
            FrontEnd::Json => "JSON",
        })
    }
}

/// The explanation of an id.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CatalogEntry {
    /// The stable id: `W0201`.
    pub code: &'static str,
    /// Short title.
    pub title: &'static str,
    /// Default severity.
    pub severity: Severity,
    /// Front ends whose graphs may have the problem.
    pub front_ends: &'static [FrontEnd],
    /// Cause of the problem.
    pub cause: &'static str,
    /// Code or a command that shows the problem.
    pub example: &'static str,
    /// Remedy; for a program in PyTorch if that of a Rust program is another.
    pub cure: &'static str,
    /// Remedy for a program in Rust, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rust_cure: Option<&'static str>,
}

impl CatalogEntry {
    /// The front ends as text: `archive, JSON`; `any` for all.
    pub fn found_in(&self) -> String {
        let names = self.front_ends.iter().map(ToString::to_string);
        match self.front_ends.len() == FrontEnd::ALL.len() {
            true => "any".to_string(),
            false => names.collect::<Vec<String>>().join(", "),
        }
    }
}

impl fmt::Display for CatalogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} ({})", self.code, self.title, self.severity)?;
        writeln!(f, "found in graphs of: {}", self.found_in())?;
        writeln!(f, "\n{}\n\nExample:\n", self.cause)?;
        for line in self.example.lines() {
            writeln!(f, "{}", format!("    {line}").trim_end())?;
        }
        writeln!(f, "\nCure: {}", self.cure)?;
        match self.rust_cure {
            Some(cure) => writeln!(f, "\nCure in Rust: {cure}"),
            None => Ok(()),
        }
    }
}

/// Defines [`Id`] with the explanation of each variant.
macro_rules! ids {
    ($($(#[doc = $doc:literal])* $name:ident => $entry:path,)*) => {
        /// Kind of a finding. [`Id::code`] is the stable id that users see.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Id {
            $($(#[doc = $doc])* $name,)*
        }

        impl Id {
            /// All ids, by code.
            pub const ALL: &'static [Id] = &[$(Id::$name,)*];

            /// The explanation.
            pub fn entry(self) -> &'static CatalogEntry {
                match self {
                    $(Id::$name => &$entry,)*
                }
            }
        }
    };
}

ids! {
    /// The traced program read a tensor's value.
    HostRead => tracer::HOST_READ,
    /// A symbolic size was read as a number.
    FrozenSize => tracer::FROZEN_SIZE,
    /// A loop over an axis of symbolic size was unrolled.
    DynamicIteration => tracer::DYNAMIC_ITERATION,
    /// A tensor from outside the trace became a constant.
    CapturedConstant => tracer::CAPTURED_CONSTANT,
    /// A tensor made from host data became a constant.
    DataConstructor => tracer::DATA_CONSTRUCTOR,
    /// A number in the graph equals a size of an input.
    SizeLiteral => tracer::SIZE_LITERAL,
    /// The program names a device.
    FrozenDevice => tracer::FROZEN_DEVICE,
    /// An operator draws random numbers.
    RandomNode => tracer::RANDOM_NODE,
    /// Batch normalisation was recorded in training mode.
    TrainingMode => tracer::TRAINING_MODE,
    /// The graph reads all elements of an axis of symbolic size one by one.
    UnrolledAxis => tracer::UNROLLED_AXIS,
    /// A constant has the shape or the number of rows of an example input.
    ConstantOfExample => tracer::CONSTANT_OF_EXAMPLE,
    /// A number in the graph has all digits of an `f32` element.
    ReadNumber => tracer::READ_NUMBER,
    /// The graph's results differ from the function's.
    OutputsDiffer => results::OUTPUTS_DIFFER,
    /// The results of a second trace differ from the function's.
    RepeatDiffers => results::REPEAT_DIFFERS,
    /// The function gives different results for the same inputs.
    UnstableFunction => results::UNSTABLE_FUNCTION,
    /// A trace with other inputs gives another graph.
    PathDependsOnInput => results::PATH_DEPENDS_ON_INPUT,
    /// The trace refuses sizes that the function accepts.
    SizeRefused => results::SIZE_REFUSED,
    /// Elements beyond the example's size do not change the result.
    IgnoredTail => results::IGNORED_TAIL,
    /// An output's first size is fixed to the example's batch size.
    FixedBatch => results::FIXED_BATCH,
    /// The model refuses an empty batch.
    EmptyRefused => results::EMPTY_REFUSED,
    /// An input changes no output.
    UnreadInput => results::UNREAD_INPUT,
    /// All elements of an output are NaN.
    NotANumber => results::NOT_A_NUMBER,
    /// No output has a gradient for a parameter.
    NoGradient => results::NO_GRADIENT,
    /// The gradient of a parameter is not finite.
    GradientNotFinite => results::GRADIENT_NOT_FINITE,
    /// The results of a trace differ from those of an export.
    ExportDiffers => results::EXPORT_DIFFERS,
    /// A trace and an export take inputs of different sizes.
    ExportSizes => results::EXPORT_SIZES,
    /// A trace or an export has one branch, or a fixed number of rounds, where the other decides when it runs.
    FrozenRegion => results::FROZEN_REGION,
    /// Two traces with the same inputs differ.
    GraphsDiffer => results::GRAPHS_DIFFER,
    /// Constants of two traces with the same inputs differ.
    ConstantsDiffer => results::CONSTANTS_DIFFER,
    /// The function, the graph or the second trace failed.
    RunFailed => results::RUN_FAILED,
    /// An output does not depend on any input.
    NoDependence => results::NO_DEPENDENCE,
    /// A device's results differ from the reference; the id of [`ErrorKind::Mismatch`].
    DeviceDiffers => errors::MISMATCH,
}

impl Id {
    /// The stable id: `W0201`.
    pub fn code(self) -> &'static str {
        self.entry().code
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// Returns all explanations, including those of [`ErrorKind`], sorted by layer and code.
pub fn entries() -> Vec<&'static CatalogEntry> {
    let findings = Id::ALL.iter().map(|id| id.entry());
    let kinds = ErrorKind::ALL.iter().map(|kind| errors::entry(*kind));
    let mut entries: Vec<&CatalogEntry> = findings.chain(kinds).collect();
    entries.sort_by_key(|entry| (&entry.code[1..], entry.code));
    entries.dedup();
    entries
}

/// Retired ids with the reason. They stay known, since users suppress them.
const RETIRED: &[(&str, &str)] = &[(
    "W0213",
    "it reported element types in the program, which cannot be distinguished from intended ones",
)];

/// Returns the explanation of an id, in upper or lower case.
///
/// # Errors
/// There is no such id; the help lists the ids of its layer.
pub fn explain(code: &str) -> Result<&'static CatalogEntry> {
    let wanted = code.trim().to_uppercase();
    let entries = entries();
    if let Some(entry) = entries.iter().find(|entry| entry.code == wanted) {
        return Ok(entry);
    }
    if let Some((code, why)) = RETIRED.iter().find(|(code, _)| *code == wanted) {
        return Err(Error::usage(format!("{code} is retired: {why}")));
    }
    let is_of_layer = |entry: &&&CatalogEntry| wanted.get(..3) == entry.code.get(..3);
    let same_layer: Vec<&str> = entries
        .iter()
        .filter(is_of_layer)
        .map(|entry| entry.code)
        .collect();
    let help = match same_layer.as_slice() {
        [] => "onionskin explain lists all ids".to_string(),
        codes => format!("the ids of this layer are {}", codes.join(", ")),
    };
    Err(Error::usage(format!("there is no finding {code}")).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_explained() {
        let entries = entries();
        for pair in entries.windows(2) {
            assert_ne!(pair[0].code, pair[1].code);
        }
        for entry in entries {
            assert!(RETIRED.iter().all(|(code, _)| *code != entry.code));
            let is_error = entry.severity == Severity::Error;
            assert_eq!(entry.code.starts_with('E'), is_error, "{}", entry.code);
            assert!(!entry.cause.is_empty() && !entry.example.is_empty() && !entry.cure.is_empty());
        }
    }

    #[test]
    fn rust_users_get_no_advice_in_names_of_python() {
        let python = [
            "model.",
            "torch",
            "len(",
            "int(",
            "item()",
            "x.size(",
            "register_buffer",
        ];
        for entry in entries() {
            let is_of_archives = entry.front_ends == [FrontEnd::Archive];
            if !entry.front_ends.contains(&FrontEnd::Rust) || is_of_archives {
                continue;
            }
            let is_layer_of_traces = ["W02", "W07", "E07"].contains(&&entry.code[..3]);
            let cure = entry.rust_cure.unwrap_or(entry.cure);
            let found = python.iter().find(|name| cure.contains(**name));
            assert_eq!(found.filter(|_| is_layer_of_traces), None, "{}", entry.code);
        }
    }

    #[test]
    fn unknown_ids_name_their_neighbours() {
        assert_eq!(explain(" w0201").unwrap().code, "W0201");
        let error = explain("W0299").unwrap_err();
        assert!(error.advice().unwrap().contains("W0201"));
    }
}
