//! Seeds: files of fixtures and `../shared/hostile`, and parts of them.

use std::collections::BTreeMap;
use std::path::Path;

use super::project;
use super::targets::records::{LARGEST_ARCHIVE, unpack};

/// Larger files make a fuzzer slow.
const LARGEST: usize = 20 << 10;

/// Names and bytes.
pub type Files = Vec<(String, Vec<u8>)>;

/// Returns the seeds of a target, each once.
pub fn of(target: &str) -> Files {
    let mut found: Files = match target {
        "archive" => with_endings(&[".pt", ".pt2", ".npz"]),
        "pickle" => records(&[".pkl"]),
        "source" => records(&[".py"]),
        "json" => graphs(),
        "tensors" => [
            with_endings(&[".npy", ".npz", ".safetensors", ".png"]),
            types(),
        ]
        .concat(),
        _ => ["archive", "source", "json"].map(of).concat(),
    };
    found.retain(|(_, bytes)| bytes.len() <= LARGEST);
    let unique: BTreeMap<Vec<u8>, String> = found
        .into_iter()
        .map(|(name, bytes)| (bytes, name))
        .collect();
    let mut unique: Files = unique
        .into_iter()
        .map(|(bytes, name)| (name, bytes))
        .collect();
    unique.sort();
    unique
}

/// Returns the files in a folder and its folders, by their paths in it; none if there is no such folder.
pub fn files(folder: &Path) -> Files {
    let mut found = Files::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_string();
        if path.is_dir() {
            let inner = files(&path).into_iter();
            found.extend(inner.map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else if path.is_file() {
            found.push((name, std::fs::read(&path).expect("a file")));
        }
    }
    found.sort();
    found
}

/// Returns files of fixtures, examples and `../shared/hostile` with these endings, those in ZIP files of cases too.
fn with_endings(endings: &[&str]) -> Files {
    let folders = ["tests/fixtures", "examples/digits", "../shared/hostile"];
    let all = folders
        .iter()
        .flat_map(|folder| files(&project().join(folder)));
    let unpacked = all.flat_map(|(name, bytes)| match name.ends_with(".zip") {
        true => unpack(&bytes, LARGEST_ARCHIVE).unwrap_or_default(),
        false => vec![(name, bytes)],
    });
    let has_ending = |name: &str| endings.iter().any(|ending| name.ends_with(ending));
    unpacked.filter(|(name, _)| has_ending(name)).collect()
}

/// Returns records of archives.
fn records(endings: &[&str]) -> Files {
    let archives = with_endings(&[".pt"]).into_iter();
    let all = archives.flat_map(|(name, bytes)| {
        let records = unpack(&bytes, LARGEST_ARCHIVE)
            .unwrap_or_default()
            .into_iter();
        records.map(move |(record, bytes)| (format!("{name}: {record}"), bytes))
    });
    all.filter(|(name, _)| endings.iter().any(|ending| name.ends_with(ending)))
        .collect()
}

/// Returns JSON graphs, and text forms and JSON documents of filetests.
fn graphs() -> Files {
    let mut found = with_endings(&[".json"]);
    found.retain(|(_, bytes)| bytes.starts_with(b"{\n  \"format\": \"onionskin\""));
    for (name, bytes) in files(&project().join("tests/filetests")) {
        let text = String::from_utf8_lossy(&bytes);
        let graph = text.split_once('\n').map_or("", |(_, text)| text);
        for part in graph.split("\n---\n") {
            found.push((name.clone(), part.as_bytes().to_vec()));
        }
    }
    found
}

fn types() -> Files {
    const TYPES: &[&str] = &["f32[]", "bf16[B, 3, 224]", "bool[max(B, 2)*2, (T + 1)//2]"];
    TYPES
        .iter()
        .map(|ty| (ty.to_string(), ty.as_bytes().to_vec()))
        .collect()
}
