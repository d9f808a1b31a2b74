//! Lines of the user's source around the places of nodes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::error::Location;
use crate::files;

/// Lines shown before and after a line.
const CONTEXT: usize = 2;
/// Endings of source files. A model may name any file: others are not read.
const ENDINGS: [&str; 2] = ["py", "rs"];
/// Larger files are not read: they are not source.
const MAX_BYTES: u64 = 4 << 20;

/// Texts of source lines, read from the files that exist on this machine.
#[derive(Debug, Default)]
pub(super) struct SourceLines {
    /// Folders that relative paths start from.
    folders: Vec<PathBuf>,
    files: HashMap<String, Option<Vec<String>>>,
    texts: BTreeMap<String, (usize, Vec<String>)>,
}

impl SourceLines {
    /// Reads files at their recorded paths, or else at these paths in one of the folders.
    pub(super) fn new(folders: Vec<PathBuf>) -> SourceLines {
        SourceLines {
            folders,
            ..SourceLines::default()
        }
    }

    /// Adds the lines around a location, if its file exists.
    pub(super) fn add(&mut self, location: &Location) {
        let key = location.to_string();
        if self.texts.contains_key(&key) {
            return;
        }
        let folders = &self.folders;
        let file = self.files.entry(location.file.clone());
        let Some(lines) = file.or_insert_with(|| read(&location.file, folders)) else {
            return;
        };
        let line = location.line as usize;
        let first = line.saturating_sub(CONTEXT).max(1);
        let shown = lines
            .iter()
            .skip(first - 1)
            .take(line + CONTEXT + 1 - first);
        self.texts.insert(key, (first, shown.cloned().collect()));
    }

    /// The texts by location, each with the number of its first line.
    pub(super) fn texts(&self) -> &BTreeMap<String, (usize, Vec<String>)> {
        &self.texts
    }
}

/// The lines of a source file; `None` if there is no such file.
fn read(file: &str, folders: &[PathBuf]) -> Option<Vec<String>> {
    let paths = folders.iter().map(|folder| folder.join(file));
    let is_source = |path: &PathBuf| {
        let ending = path.extension().unwrap_or_default();
        let found = std::fs::metadata(path);
        ENDINGS.iter().any(|known| ending == *known)
            && found.is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES)
    };
    let path = paths.into_iter().find(is_source)?;
    let text = files::read_to_string(&path).ok()?;
    Some(
        text.lines()
            .map(|line| line.trim_end().to_string())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_around_a_location_are_read_where_the_file_exists() {
        let mut lines = SourceLines::new(vec![env!("CARGO_MANIFEST_DIR").into()]);
        lines.add(&Location::new("src/view/source_lines.rs", 1));
        lines.add(&Location::new("no/such/file.py", 1));
        lines.add(&Location::new("Cargo.toml", 1));
        let found: Vec<_> = lines.texts().iter().collect();
        let [(place, (first, texts))] = found[..] else {
            unreachable!("one file exists: {found:?}")
        };
        assert_eq!(
            (place.as_str(), *first, texts.len()),
            ("src/view/source_lines.rs:1", 1, 3)
        );
        assert!(texts[0].starts_with("//! Lines"));
    }
}
