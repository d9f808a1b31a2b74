//! Python blocks: `python export.py` is a part of the script `export.py`. Files that the scripts write are kept beside
//! them in `tests/fixtures/docs`.
//!
//! Blocks marked `torch` write large files or need more than torch. They run only with a Python that has torchvision and
//! transformers, and their files are not kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Folder;
use crate::page::{Block, pages};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/docs")
}

/// Returns the kept files that the scripts wrote.
pub fn fixtures() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_none_or(|extension| extension != "py"))
        .collect()
}

/// Joins blocks into scripts, by name.
fn scripts<'a>(blocks: impl Iterator<Item = &'a Block>) -> BTreeMap<String, String> {
    let mut scripts: BTreeMap<String, String> = BTreeMap::new();
    for block in blocks.filter(|block| block.language() == "python") {
        let name = block.file();
        let name = name.unwrap_or_else(|| panic!("line {}: the block names no script", block.line));
        let script = scripts.entry(name.to_string()).or_default();
        let gap = if script.is_empty() { "" } else { "\n\n" };
        *script += &format!("{gap}{}", block.text);
    }
    scripts
}

/// Checks that the current blocks wrote the kept files. With a Python they are rewritten, and `BLESS=1` keeps them.
pub fn check() {
    let blocks: Vec<Block> = pages().into_iter().flat_map(|page| page.blocks()).collect();
    let scripts = scripts(blocks.iter().filter(|block| !block.is("torch")));
    if let Some(python) = interpreter() {
        let scratch = Folder::new("python-blocks");
        execute(&python, &scripts, &scratch.path(""));
        if std::env::var_os("BLESS").is_some() {
            return keep(&python, &scripts, &scratch);
        }
        let missing = fixtures()
            .into_iter()
            .map(|path| path.file_name().unwrap().to_owned());
        let missing: Vec<_> = missing
            .filter(|name| !scratch.path(name.to_str().unwrap()).exists())
            .collect();
        assert!(missing.is_empty(), "no block makes {missing:?}");
    } else {
        println!("ONIONSKIN_PYTHON names no Python with torch: the blocks were not run");
    }
    for (name, script) in &scripts {
        let kept = std::fs::read_to_string(folder().join(name)).unwrap_or_default();
        let advice = "set ONIONSKIN_PYTHON and BLESS=1";
        assert_eq!(
            &kept, script,
            "{name}: the files were made by other blocks; {advice}"
        );
    }
}

/// Keeps new files of changed scripts, without the paths of this machine.
fn keep(python: &str, scripts: &BTreeMap<String, String>, scratch: &Folder) {
    let kept = |name: &String| std::fs::read_to_string(folder().join(name)).ok();
    if scripts
        .iter()
        .all(|(name, script)| kept(name).as_ref() == Some(script))
    {
        return;
    }
    python_in(&scratch.path(""), python, &["-c", SHORTEN]);
    let _ = std::fs::remove_dir_all(folder());
    std::fs::create_dir_all(folder()).unwrap();
    for entry in std::fs::read_dir(scratch.path("")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder().join(path.file_name().unwrap())).unwrap();
    }
}

/// Python script that removes the paths of this machine from the archives of a folder.
const SHORTEN: &str = "
import pathlib
from record_paths import without_paths
for archive in [*pathlib.Path().glob('*.pt'), *pathlib.Path().glob('*.pt2')]:
    archive.write_bytes(without_paths(archive.read_bytes()))
";

/// Runs the Python blocks of a page in a folder, if there is a Python. Returns whether it did.
pub fn run(blocks: &[Block], folder: &Path) -> bool {
    let Some(python) = interpreter() else {
        return false;
    };
    execute(&python, &scripts(blocks.iter()), folder);
    true
}

fn interpreter() -> Option<String> {
    std::env::var("ONIONSKIN_PYTHON").ok()
}

fn execute(python: &str, scripts: &BTreeMap<String, String>, folder: &Path) {
    for (name, script) in scripts {
        std::fs::write(folder.join(name), script).unwrap();
        python_in(folder, python, &["-W", "ignore", name]);
    }
}

fn python_in(folder: &Path, python: &str, arguments: &[&str]) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let output = Command::new(python)
        .args(arguments)
        .current_dir(folder)
        .env("PYTHONPATH", examples)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
}
