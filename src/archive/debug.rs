//! `.debug_pkl` records, which map each byte of a source file to a line of the user's own source.
//!
//! A record is `("FORMAT_WITH_STRING_TABLE", strings, entries)` with entries in order of offset, each `(offset, ((text,
//! file, line), start, end), tag)`. From that byte on, the code comes from bytes `start` to `end` of a text, which is a list
//! of indices into the strings. For scripts the text is Python source whose first line is `line` of `file`. For traces it is
//! the stack, innermost frame first, one `file(line): function` a line.

use super::Pickled;
use super::pickle::unpickle;
use crate::budget::{Budget, Limits};
use crate::error::{Error, Location, Result};

/// Map from the bytes of one source file to the user's source.
#[derive(Debug)]
pub struct DebugMap {
    /// Start of each range of bytes, in order, and its location in the user's source.
    entries: Vec<(usize, Option<Location>)>,
}

impl DebugMap {
    /// Reads a record.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<DebugMap> {
        let record = unpickle(bytes, "debug", &Budget::new(limits.clone()))?;
        let malformed = || Error::format("a .debug_pkl record does not hold source ranges");
        let (strings, entries) = match record.as_items() {
            Some([format, strings, entries]) if format.as_str() == Some(FORMAT) => {
                (strings.as_items().ok_or_else(malformed)?, entries)
            }
            // Before there was a string table, strings were written in place and the record consisted of the entries alone.
            _ => (&[][..], &record),
        };
        let entries = entries.as_items().ok_or_else(malformed)?;
        let entries = entries
            .iter()
            .map(|entry| SourceRange::read(entry, strings));
        let entries: Option<Vec<_>> = entries.collect();
        let mut entries = entries.ok_or_else(malformed)?;
        entries.sort_by_key(|(offset, _)| *offset);
        Ok(DebugMap { entries })
    }

    /// Returns the location of a byte of the source file; none for code that has no counterpart in the user's source.
    pub fn location(&self, offset: usize) -> Option<Location> {
        let after = self.entries.partition_point(|(start, _)| *start <= offset);
        let (_, location) = self.entries.get(after.checked_sub(1)?)?;
        location.clone()
    }

    /// Returns the first location at or after a byte.
    pub fn first_location(&self, offset: usize) -> Option<Location> {
        let mut entries = self.entries.iter().filter(|(start, _)| offset <= *start);
        entries.find_map(|(_, location)| location.clone())
    }
}

/// True for files of PyTorch itself. The user's location is the innermost frame of a stack that is in no such file.
pub fn is_library(file: &str) -> bool {
    const LIBRARY_PREFIXES: [&str; 9] = [
        "nn/",
        "jit/",
        "fx/",
        "export/",
        "_",
        "functional.py",
        "overrides.py",
        "autograd/",
        "utils/",
    ];
    let file = file.replace('\\', "/");
    let path_in_torch = file
        .rsplit_once("/torch/")
        .map(|(_, path_in_torch)| path_in_torch);
    let path_in_torch = path_in_torch.or_else(|| file.strip_prefix("torch/"));
    path_in_torch.is_some_and(|path_in_torch| {
        LIBRARY_PREFIXES
            .iter()
            .any(|prefix| path_in_torch.starts_with(prefix))
    })
}

/// First element of a record with a string table.
const FORMAT: &str = "FORMAT_WITH_STRING_TABLE";

/// The range of the user's source that code comes from.
struct SourceRange<'a> {
    /// The text, as fragments that follow each other.
    text: Vec<&'a str>,
    /// The file of the text; none if the record gives none.
    file: Option<&'a str>,
    /// Line of the text's first line in the file.
    line: usize,
    /// Byte offset of the range in the text.
    start: usize,
}

impl<'a> SourceRange<'a> {
    /// Reads an entry of a record. Returns the offset in the source file, and the location; none if the entry is
    /// malformed.
    fn read(entry: &'a Pickled, strings: &'a [Pickled]) -> Option<(usize, Option<Location>)> {
        let [offset, range, ..] = entry.as_items()? else {
            return None;
        };
        let [source, start, _] = range.as_items()? else {
            return None;
        };
        let [text, file, line] = source.as_items()? else {
            return None;
        };
        let origin = SourceRange {
            text: text_fragments(text, strings)?,
            file: string(file, strings).filter(|file| !file.is_empty()),
            line: number(line)?,
            start: number(start)?,
        };
        Some((number(offset)?, origin.location()))
    }

    /// The location of the range: the user's frame of a stack, or a line of a script.
    fn location(&self) -> Option<Location> {
        let frames: Vec<Location> = self.lines().map_while(stack_frame).collect();
        if frames.is_empty() {
            return self.line_in_text();
        }
        let user_frame = frames.iter().find(|frame| !is_library(&frame.file));
        user_frame.or(frames.first()).cloned()
    }

    /// The lines of the text that are not empty.
    fn lines(&self) -> impl Iterator<Item = &'a str> {
        let lines = self.text.iter().flat_map(|fragment| fragment.lines());
        lines.filter(|line| !line.is_empty())
    }

    /// The line of the file that contains the start of the range.
    fn line_in_text(&self) -> Option<Location> {
        let mut bytes_left = self.start;
        let mut newlines = 0;
        for fragment in &self.text {
            let before = fragment
                .as_bytes()
                .get(..bytes_left)
                .unwrap_or(fragment.as_bytes());
            newlines += before.iter().filter(|byte| **byte == b'\n').count();
            bytes_left = bytes_left.saturating_sub(fragment.len());
        }
        let line = u32::try_from(self.line.checked_add(newlines)?).ok()?;
        Some(Location::new(self.file?, line))
    }
}

/// Parses a frame of a stack, `model.py(12): forward`. Returns none for other lines.
fn stack_frame(line: &str) -> Option<Location> {
    let (position, _function) = line.rsplit_once("): ")?;
    let (file, line) = position.rsplit_once('(')?;
    Some(Location::new(file, line.parse().ok()?))
}

fn number(value: &Pickled) -> Option<usize> {
    usize::try_from(value.as_int()?).ok()
}

/// A string, or the string of the table that an index refers to.
fn string<'a>(value: &'a Pickled, strings: &'a [Pickled]) -> Option<&'a str> {
    match value {
        Pickled::Str(text) => Some(text),
        value => strings.get(number(value)?)?.as_str(),
    }
}

/// The fragments of a text: a list of indices into the table, or one string.
fn text_fragments<'a>(text: &'a Pickled, strings: &'a [Pickled]) -> Option<Vec<&'a str>> {
    match text.as_items() {
        Some(indices) => indices.iter().map(|index| string(index, strings)).collect(),
        None => Some(vec![text.as_str()?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_range<'a>(text: &[&'a str], start: usize) -> SourceRange<'a> {
        let text = text.to_vec();
        let file = Some("model.py");
        SourceRange {
            text,
            file,
            line: 57,
            start,
        }
    }

    fn location_text(origin: SourceRange) -> Option<String> {
        origin.location().map(|location| location.to_string())
    }

    #[test]
    fn scripts_count_lines() {
        let text = ["def f(x):\n", "    y = x\n", "    return y\n"];
        assert_eq!(
            location_text(source_range(&text, 0)).as_deref(),
            Some("model.py:57")
        );
        assert_eq!(
            location_text(source_range(&text, 10)).as_deref(),
            Some("model.py:58")
        );
        assert_eq!(
            location_text(source_range(&text, 31)).as_deref(),
            Some("model.py:59")
        );
        assert_eq!(
            location_text(source_range(&text, usize::MAX)).as_deref(),
            Some("model.py:60")
        );
    }

    #[test]
    fn traces_use_the_innermost_user_frame() {
        let text = [
            "lib/torch/nn/modules/linear.py(134): forward\n",
            "a (1)/net.py(7): forward\n",
            "main.py(1): <module>\n",
        ];
        assert_eq!(
            location_text(source_range(&text, 0)).as_deref(),
            Some("a (1)/net.py:7")
        );
        assert_eq!(
            location_text(source_range(&text[..1], 0)).as_deref(),
            Some("lib/torch/nn/modules/linear.py:134")
        );
    }

    #[test]
    fn code_without_a_file_has_no_location() {
        let none = SourceRange {
            file: None,
            ..source_range(&[""], 0)
        };
        assert_eq!(location_text(none), None);
    }

    #[test]
    fn library_files() {
        assert!(is_library("C:\\env\\torch\\nn\\functional.py"));
        assert!(is_library("torch/_tensor.py"));
        assert!(!is_library("/home/torch/model.py"));
        assert!(!is_library(
            "/env/transformers/models/bert/modeling_bert.py"
        ));
    }
}
