//! The crate's error type: a kind by layer, a message, and the context in which it occurred.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

/// Returns the message of a panic payload.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the panic has no message")
}

/// Result of every fallible function of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The layer that found the fault, with a stable id (`E0301`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `E0101`: an archive, pickle, JSON, tensor file or image is malformed.
    Format,
    /// `E0102`: a file could not be read or written.
    Io,
    /// `E0201`: the serialised source of an archive does not parse or evaluate.
    Source,
    /// `E0301`: an operator, type or feature is not supported.
    Unsupported,
    /// `E0401`: operands of an operator do not match (shape, dtype, attribute).
    Operator,
    /// `E0402`: a graph breaks a rule of the IR.
    Verify,
    /// `E0501`: inputs do not match the graph's signature.
    Input,
    /// `E0502`: the program raised an error: an assertion, an index out of range, an integer divided by zero.
    Raised,
    /// `E0503`: a time limit is over, or the call was cancelled; see [`crate::RunOptions`].
    Interrupted,
    /// `E0504`: a run would take more memory on the host than it may; see [`crate::RunOptions`].
    Memory,
    /// `E0601`: no plan can be made for the device (limits, dtypes).
    Plan,
    /// `E0602`: the device failed or refused.
    Device,
    /// `E0701`: outputs differ from what was expected.
    Mismatch,
    /// `E0801`: a command line or option is wrong.
    Usage,
    /// `E0901`: the crate broke one of its own guarantees; please report it.
    Internal,
}

impl ErrorKind {
    /// All kinds, by id.
    pub const ALL: &'static [ErrorKind] = &[
        ErrorKind::Format,
        ErrorKind::Io,
        ErrorKind::Source,
        ErrorKind::Unsupported,
        ErrorKind::Operator,
        ErrorKind::Verify,
        ErrorKind::Input,
        ErrorKind::Raised,
        ErrorKind::Interrupted,
        ErrorKind::Memory,
        ErrorKind::Plan,
        ErrorKind::Device,
        ErrorKind::Mismatch,
        ErrorKind::Usage,
        ErrorKind::Internal,
    ];

    /// Stable id, shown in front of every message.
    pub fn id(self) -> &'static str {
        match self {
            ErrorKind::Format => "E0101",
            ErrorKind::Io => "E0102",
            ErrorKind::Source => "E0201",
            ErrorKind::Unsupported => "E0301",
            ErrorKind::Operator => "E0401",
            ErrorKind::Verify => "E0402",
            ErrorKind::Input => "E0501",
            ErrorKind::Raised => "E0502",
            ErrorKind::Interrupted => "E0503",
            ErrorKind::Memory => "E0504",
            ErrorKind::Plan => "E0601",
            ErrorKind::Device => "E0602",
            ErrorKind::Mismatch => "E0701",
            ErrorKind::Usage => "E0801",
            ErrorKind::Internal => "E0901",
        }
    }

    /// Short description of the kind.
    pub fn title(self) -> &'static str {
        match self {
            ErrorKind::Format => "malformed data",
            ErrorKind::Io => "file error",
            ErrorKind::Source => "bad source in archive",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Operator => "bad operands",
            ErrorKind::Verify => "invalid graph",
            ErrorKind::Input => "inputs do not match",
            ErrorKind::Raised => "the model raised an error",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Memory => "not enough memory",
            ErrorKind::Plan => "cannot plan for this device",
            ErrorKind::Device => "device error",
            ErrorKind::Mismatch => "outputs differ",
            ErrorKind::Usage => "usage",
            ErrorKind::Internal => "internal error",
        }
    }
}

/// A line in the user's own source, as recorded by the tracer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// File as recorded, usually a path on the machine that traced. Files of installed packages have the path within the
    /// package: `torchvision/models/resnet.py`.
    #[serde(deserialize_with = "package_path")]
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// Folders in which Python installs packages.
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

impl Location {
    /// A line of a file. For files of installed packages, only the path within the package is kept.
    pub fn new(file: impl Into<String>, line: u32) -> Location {
        let file = file.into();
        let file = within_package(&file).unwrap_or(file);
        Location { file, line }
    }
}

/// The path of a file relative to the folder of installed packages; `None` if it is not in one.
fn within_package(file: &str) -> Option<String> {
    let parts: Vec<&str> = file.split(['/', '\\']).collect();
    let folder = parts.iter().rposition(|part| PACKAGES.contains(part))?;
    let rest = parts.get(folder + 1..).filter(|rest| !rest.is_empty())?;
    Some(rest.join("/"))
}

fn package_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<String, D::Error> {
    let file = String::deserialize(deserializer)?;
    Ok(within_package(&file).unwrap_or(file))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A place in the user's model: module path and source line. Either may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourcePlace {
    /// Module path in state-dict notation, `layer1.0.conv1`; empty for the root. The second call of a module within its
    /// caller is `layer1.0.relu#1`; see [`without_call_numbers`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// The innermost line of the user's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
}

impl SourcePlace {
    /// True if neither module nor line is known.
    pub fn is_unknown(&self) -> bool {
        self.module.is_empty() && self.location.is_none()
    }
}

/// The path of a module without call numbers: `layer1.0.relu` for `layer1.0.relu#1`.
pub fn without_call_numbers(path: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let part = |part| match str::rsplit_once(part, '#') {
        Some((name, number)) if is_number(number) => name,
        _ => part,
    };
    path.split('.').map(part).collect::<Vec<&str>>().join(".")
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.location, self.module.as_str()) {
            (Some(location), "") => write!(f, "{location}"),
            (Some(location), module) => write!(f, "{location} ({module})"),
            (None, "") => f.write_str("?"),
            (None, module) => write!(f, "({module})"),
        }
    }
}

/// An error: kind, message, context and advice.
///
/// `Display` gives one line: the message, then the context frames from the innermost outwards.
#[derive(Clone, thiserror::Error)]
pub struct Error {
    inner: Box<ErrorInner>,
}

#[derive(Clone)]
struct ErrorInner {
    kind: ErrorKind,
    message: String,
    context: Vec<String>,
    help: Option<String>,
    /// Further errors of the same kind: importers and `verify` report all errors at once.
    others: Vec<Error>,
}

impl Error {
    /// An error of a kind. The message is one lower-case line without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            inner: Box::new(ErrorInner {
                kind,
                message: message.into(),
                context: Vec::new(),
                help: None,
                others: Vec::new(),
            }),
        }
    }

    /// [`ErrorKind::Format`].
    pub fn format(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Format, message)
    }

    /// [`ErrorKind::Source`].
    pub fn source(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Source, message)
    }

    /// [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// [`ErrorKind::Operator`].
    pub fn operator(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Operator, message)
    }

    /// [`ErrorKind::Input`].
    pub fn input(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Input, message)
    }

    /// [`ErrorKind::Raised`] for a number that fails a check. In the message, `{value}` stands for the number and `{size}`
    /// for the end of the allowed range.
    pub fn raised(message: &str, value: i64, end: Option<i64>) -> Error {
        let message = message.replace("{value}", &value.to_string());
        let message = match end {
            Some(end) => message.replace("{size}", &end.to_string()),
            None => message,
        };
        Error::new(ErrorKind::Raised, message)
    }

    /// [`ErrorKind::Plan`].
    pub fn plan(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Plan, message)
    }

    /// [`ErrorKind::Device`].
    pub fn device(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Device, message)
    }

    /// [`ErrorKind::Usage`].
    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Usage, message)
    }

    /// [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    /// [`ErrorKind::Io`] for a path.
    pub fn io(path: impl Into<PathBuf>, error: std::io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("{}: {error}", path.into().display()))
    }

    /// Merges several errors into one; `None` if there are none.
    pub fn all(errors: Vec<Error>) -> Option<Error> {
        let mut errors = errors.into_iter();
        let mut first = errors.next()?;
        first.inner.others.extend(errors);
        Some(first)
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, change: impl FnOnce(&str) -> String) -> Error {
        self.inner.message = change(&self.inner.message);
        self
    }

    /// Adds a frame to the context: an operator, a node, a file.
    #[must_use]
    pub fn at(mut self, frame: impl fmt::Display) -> Error {
        self.inner.context.push(frame.to_string());
        self
    }

    /// Adds a frame for a place in a model, if the place is known.
    #[must_use]
    pub fn at_place(self, place: &SourcePlace) -> Error {
        if place.is_unknown() {
            self
        } else {
            self.at(place)
        }
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.inner.help = Some(help.into());
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The message without the context.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Context frames from the innermost outwards.
    pub fn context(&self) -> &[String] {
        &self.inner.context
    }

    /// Advice for the user, if there is any.
    pub fn advice(&self) -> Option<&str> {
        self.inner.help.as_deref()
    }

    /// This error and those merged into it.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        let mut list = vec![self];
        list.extend(self.inner.others.iter().flat_map(Error::iter_boxed));
        list.into_iter()
    }

    fn iter_boxed(&self) -> Box<dyn Iterator<Item = &Error> + '_> {
        Box::new(std::iter::once(self).chain(self.inner.others.iter().flat_map(Error::iter_boxed)))
    }
}

/// The id, the message with its context, and advice: `main` of a program that returns the error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.kind().id())?;
        match self.advice() {
            Some(advice) => write!(f, "\nhelp: {advice}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        for (index, frame) in self.inner.context.iter().enumerate() {
            write!(f, "{}{frame}", if index == 0 { " — at " } else { ", in " })?;
        }
        for other in &self.inner.others {
            write!(f, "\n{other}")?;
        }
        Ok(())
    }
}

/// Adds context frames to a failed result.
pub trait ErrorContext<T> {
    /// Adds a frame, which is only built on failure.
    fn at(self, frame: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ErrorContext<T> for Result<T> {
    fn at(self, frame: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.at(frame()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_what_a_program_shows_that_returns_the_error() {
        let error = Error::input("x is empty").at("net.rs:3");
        assert_eq!(format!("{error:?}"), "E0501: x is empty — at net.rs:3");
        let error = error.help("pass a row");
        assert!(format!("{error:?}").ends_with("\nhelp: pass a row"));
    }

    #[test]
    fn package_files_have_paths_within_the_package() {
        let resnet = "torchvision/models/resnet.py";
        for file in [
            "/usr/lib/python3.12/site-packages/torchvision/models/resnet.py",
            "C:\\env\\Lib\\site-packages\\torchvision\\models\\resnet.py",
            "/usr/lib/python3/dist-packages/torchvision/models/resnet.py",
            resnet,
        ] {
            assert_eq!(
                Location::new(file, 266).to_string(),
                format!("{resnet}:266")
            );
            let json = serde_json::json!({"file": file, "line": 266});
            let read: Location = serde_json::from_value(json).unwrap();
            assert_eq!(read, Location::new(resnet, 266));
        }
        for file in [
            "model.py",
            "/home/a/site-packages",
            "/home/a/my-site-packages/model.py",
        ] {
            assert_eq!(Location::new(file, 1).file, file);
        }
    }

    #[test]
    fn context_reads_outwards_and_lists_all_errors() {
        let first = Error::unsupported("aten::foo")
            .at("model.py:3")
            .at("layer1.0");
        let second = Error::unsupported("aten::bar");
        let all = Error::all(vec![first, second]);
        let text = all.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text, "aten::foo — at model.py:3, in layer1.0\naten::bar");
    }
}
