//! Inputs of the fuzz targets (`fuzz/`), run by the same functions on stable Rust: seeds from fixtures, inputs that fuzzing
//! found, inputs that once did harm, and the files of `../shared/hostile` where that folder is. Each ends in values or errors.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests fail by panicking, and print what they ran"
)]

#[path = "fuzz_corpus/seeds.rs"]
mod seeds;
#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use seeds::Files;
use targets::{CappedAllocator, TARGETS, records};
use zip::CompressionMethod;

#[global_allocator]
static ALLOCATOR: CappedAllocator = CappedAllocator::new();

/// Inputs run one at a time, since the cap of the allocator holds for all of them.
static TURN: Mutex<()> = Mutex::new(());

/// Longest time of an input, in a debug build on a loaded machine.
const TIME: Duration = Duration::from_secs(20);

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns seeds, and inputs that once did harm.
fn known(target: &str) -> Files {
    let crashes = seeds::files(&project().join("fuzz/crashes").join(target));
    seeds::of(target).into_iter().chain(crashes).collect()
}

/// Returns inputs that fuzzing found.
fn found(target: &str) -> Files {
    let packed = std::fs::read(found_file(target)).ok();
    let found = packed.map(|bytes| unpack_twice(&bytes).expect("a ZIP file of a ZIP file"));
    found.unwrap_or_default()
}

fn found_file(target: &str) -> PathBuf {
    project().join(format!("fuzz/found/{target}.zip"))
}

/// Packs inputs, and the file of them once more: inputs have much in common, which only one record compresses.
fn pack_twice(inputs: &Files) -> Vec<u8> {
    let stored = records::pack(inputs, CompressionMethod::Stored);
    let packed = vec![("inputs.zip".to_string(), stored)];
    records::pack(&packed, CompressionMethod::Deflated)
}

fn unpack_twice(bytes: &[u8]) -> Option<Files> {
    let (_, stored) = records::unpack(bytes, u64::MAX - 1)?.pop()?;
    records::unpack(&stored, u64::MAX - 1)
}

fn run(target: &str, minimum: usize) {
    let (known, found) = (known(target), found(target));
    println!("{target}: {} known, {} found", known.len(), found.len());
    assert!(minimum < known.len());
    for (name, data) in known.iter().chain(&found) {
        let _turn = TURN.lock().expect("no input failed before");
        // Names the input if it ends the process. Tests print this only then.
        eprintln!("{target}: {name}");
        let start = Instant::now();
        targets::run(target, data);
        let time = start.elapsed();
        assert!(time < TIME, "{target}: {name} took {time:?}");
    }
}

#[test]
fn archives() {
    run("archive", 50);
}

#[test]
fn pickles() {
    run("pickle", 50);
}

#[test]
fn sources() {
    run("source", 50);
}

#[test]
fn runs() {
    run("run", 50);
}

#[test]
fn graphs() {
    run("json", 50);
}

#[test]
fn tensors() {
    run("tensors", 20);
}

/// The folder that `.ci/fuzz` names.
fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os("FUZZ_CORPUS").expect("FUZZ_CORPUS names a folder"))
}

#[test]
#[ignore = "writes files for .ci/fuzz"]
fn write_inputs() {
    for (target, _) in TARGETS {
        let folder = folder().join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (kind, inputs) in [("known", known(target)), ("found", found(target))] {
            for (index, (_, data)) in inputs.iter().enumerate() {
                std::fs::write(folder.join(format!("{kind}-{index:05}")), data).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "writes files for .ci/fuzz"]
fn pack_found_inputs() {
    for (target, _) in TARGETS {
        let known = known(target);
        let mut inputs = seeds::files(&folder().join(target));
        inputs.retain(|(_, data)| known.iter().all(|(_, known)| known != data));
        if !inputs.is_empty() {
            let file = found_file(target);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, pack_twice(&inputs)).unwrap();
        }
    }
}
