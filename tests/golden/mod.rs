//! Golden tests in files: an input, a separator line, the expected result. `BLESS=1` writes the found results.

use std::path::{Path, PathBuf};

/// Compares the result of a function of the text above the separator, with its line ends, with the text below it.
pub fn check(folder: &str, extension: &str, line: &str, find: impl Fn(&str) -> String) {
    let mut failures = Vec::new();
    let files = files(Path::new(folder), extension);
    assert!(!files.is_empty(), "there are no files in {folder}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        let input = text.split(line).next().unwrap_or_default().trim_end();
        let found = format!("{input}{line}{}", find(input));
        if found == text {
            continue;
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, found).expect("writes");
        } else {
            failures.push(format!("{}:\n{found}", file.display()));
        }
    }
    assert!(
        failures.is_empty(),
        "{}\nBLESS=1 accepts this",
        failures.join("\n")
    );
}

/// Returns the files with an extension in a folder and its subfolders, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let nested = paths.into_iter().flat_map(|path| {
        if path.is_dir() {
            files(&path, extension)
        } else {
            vec![path]
        }
    });
    nested
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}
