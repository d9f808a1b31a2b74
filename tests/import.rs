//! Imports archives and runs the graphs on the oracle: the fixtures, and the corpus where it is present.
//!
//! `ONLY=text` replays the cases whose name contains the text, `SHOW=1` prints what became of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onionskin::cases::{self, Case, CaseArchive, CaseRef};
use onionskin::compare::compare;
use onionskin::error::{Error, Kind};
use onionskin::model::{CompileOptions, Device, Model};

/// What became of a case.
#[derive(Debug)]
enum Outcome {
    /// All calls gave the recorded outputs. How many graphs it took: more than one where sizes needed others.
    Passed(usize),
    /// Something is not supported, and the importer said so.
    Unsupported(String),
    /// Anything else.
    Failed(String),
}

fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let path = std::env::var_os("ONIONSKIN_CORPUS").map_or_else(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

fn show() -> bool {
    std::env::var_os("SHOW").is_some()
}

fn open(archive: &CaseArchive) -> Result<Model, Error> {
    match archive {
        CaseArchive::Path(path) => Model::open(path),
        CaseArchive::Bytes(bytes) => Model::from_bytes(bytes.to_vec()),
    }
}

/// Replays a case as it was recorded, all sets on one session.
fn replay(case: &Case) -> Result<Outcome, Error> {
    let session = open(&case.archive)?.compile(&Device::Host, &CompileOptions::default())?;
    for set in &case.sets {
        let many = set.calls.len() > 1 || !set.before.is_empty();
        if many {
            return Ok(Outcome::Unsupported("several calls of one instance".into()));
        }
        for call in &set.calls {
            let known = session.variants();
            let got = session.call(&call.inputs)?;
            if show() && known.len() < session.variants().len() {
                let refusals = known.iter().map(|variant| {
                    let inputs = variant.flatten(&call.inputs)?;
                    let shapes: Vec<&[usize]> =
                        inputs.iter().map(|tensor| tensor.shape()).collect();
                    variant.graph.bind(&shapes)
                });
                let refusals: Vec<String> = refusals
                    .map(|refusal| refusal.err().map_or("?".into(), |e| e.to_string()))
                    .collect();
                println!("  another graph for {}: {refusals:?}", set.label);
            }
            let differences = compare(&got, &call.output, set.tolerance);
            if let Some(wrong) = differences.iter().find(|difference| !difference.passed()) {
                return Ok(Outcome::Failed(format!("{}: {wrong}", set.label)));
            }
        }
    }
    Ok(Outcome::Passed(session.variants().len()))
}

fn outcome(case: &CaseRef) -> Outcome {
    let result = case.load().and_then(|case| replay(&case));
    result.unwrap_or_else(|error| {
        match error.iter().all(|error| error.kind() == Kind::Unsupported) {
            true => Outcome::Unsupported(error.to_string()),
            false => Outcome::Failed(error.to_string()),
        }
    })
}

/// Replays every case of a folder.
fn replay_folder(folder: &Path) -> BTreeMap<&'static str, usize> {
    let wanted = std::env::var("ONLY").unwrap_or_default();
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for case in cases::find(folder).unwrap() {
        if !case.name.contains(&wanted) {
            continue;
        }
        let outcome = outcome(&case);
        if show() {
            println!("{}: {outcome:?}", case.name);
        }
        let kind = match outcome {
            Outcome::Passed(0 | 1) => "passed",
            Outcome::Passed(_) => "passed with several graphs",
            Outcome::Unsupported(what) => {
                println!("{}: {what}", case.name);
                "unsupported"
            }
            Outcome::Failed(message) => {
                failures.push(format!("{}: {message}", case.name));
                "failed"
            }
        };
        *counts.entry(kind).or_insert(0) += 1;
    }
    println!("{}: {counts:?}", folder.display());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    counts
}

fn both(kind: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    replay_folder(&fixtures.join(kind));
    match corpus() {
        Some(corpus) => drop(replay_folder(&corpus.join(kind))),
        None => println!("no corpus: only the fixtures were replayed"),
    }
}

#[test]
fn programs() {
    both("programs");
}

#[test]
fn models() {
    both("models");
}

#[test]
fn operators() {
    both("ops");
}
