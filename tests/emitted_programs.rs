//! Digests of the WGSL of plans: renamings and comments change no digest.
//!
//! A digest covers the kernels of a case's plan in order, without comments, with declared names numbered by their first use.
//! `tests/emitted_programs/fixtures.txt` holds those of `tests/fixtures/cases`; `corpus.txt` those of models and programs of
//! `../shared/corpus`, if it exists. A change of kernels changes digests: `BLESS=1` writes the new ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use onionskin::Model;
use onionskin::cases::{self, CaseArchive, CaseRef};
use onionskin::digest::Digest;
use onionskin::error::Result;
use onionskin::ir::{Graph, GraphModule};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::materialization::Precision;
use onionskin::pass::{self};
use onionskin::plan::{self, PlanOptions};

#[path = "emitted_programs/normalize.rs"]
mod normalize;
mod samples;

#[test]
fn programs_of_fixtures_match_their_digests() {
    compare("fixtures.txt", &[root().join("tests/fixtures/cases")]);
}

#[test]
fn programs_of_the_corpus_match_their_digests() {
    let corpus = root().join("../shared/corpus");
    let folders = ["models", "programs"].map(|kind| corpus.join(kind));
    if folders.iter().all(|folder| folder.is_dir()) {
        compare("corpus.txt", &folders);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// Compares the programs of all cases in some folders with a file of digests.
fn compare(file: &str, folders: &[PathBuf]) {
    let path = root().join("tests/emitted_programs").join(file);
    let cases = folders
        .iter()
        .flat_map(|folder| cases::find(folder).unwrap());
    let cases: Vec<CaseRef> = cases.collect();
    let found = all_digests(&cases);
    let lines = found
        .iter()
        .map(|(name, digests)| format!("{name} {digests}\n"));
    let found: String = lines.collect();
    if std::env::var("BLESS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    let changed = found.lines().filter(|line| !expected.contains(line));
    let changed: Vec<&str> = changed.collect();
    assert!(
        found == expected,
        "{changed:#?}\nBLESS=1 accepts other programs"
    );
}

/// Returns the digests of cases by name, computed on all processors.
fn all_digests(cases: &[CaseRef]) -> BTreeMap<String, String> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let rest = std::iter::from_fn(|| cases.get(next.fetch_add(1, Ordering::Relaxed)));
        rest.map(named_digests).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        let found = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        found.collect()
    })
}

fn named_digests(case: &CaseRef) -> (String, String) {
    let digests = digests(case).unwrap_or_else(|error| vec![error.kind().id().to_string()]);
    (case.name.clone(), digests.join(" "))
}

/// Returns digests of a case's programs for a rasteriser in both precisions and a GPU with WebGPU's default limits.
fn digests(case: &CaseRef) -> Result<Vec<String>> {
    let case = case.load()?;
    let model = match &case.archive {
        CaseArchive::Path(path) => Model::open(path)?,
        CaseArchive::Bytes(bytes) => Model::from_bytes(bytes.to_vec())?,
    };
    let call = &case.sets[0].calls[0];
    let module = model.import_method(&call.method, Some(&call.inputs))?;
    let targets = [
        (samples::rasteriser(), Precision::Single),
        (samples::rasteriser_of(16), Precision::Half),
        (samples::capabilities(), Precision::Single),
    ];
    let digests = targets
        .iter()
        .map(|(device, precision)| digest(&module, device, *precision));
    Ok(digests.collect())
}

fn digest(module: &GraphModule, device: &Capabilities, precision: Precision) -> String {
    let programs = module
        .graphs
        .iter()
        .map(|graph| program(module, graph, device, precision));
    match programs.collect::<Result<String>>() {
        Ok(program) => Digest::of(program.as_bytes()).to_string()[..12].to_string(),
        Err(error) => error.kind().id().to_string(),
    }
}

/// Returns the normalised kernels of a graph's plan for the example's sizes.
fn program(
    module: &GraphModule,
    graph: &Graph,
    device: &Capabilities,
    precision: Precision,
) -> Result<String> {
    let lowered = pass::optimize_lazily(&GraphModule {
        graphs: vec![graph.with_sizes(&graph.hints)],
        weights: module.weights.clone(),
        ..GraphModule::default()
    })?;
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    let plan = plan::plan_with_options(&lowered.graphs[0], device, &options)?;
    let kernels = plan.kernels.iter();
    Ok(kernels
        .map(|kernel| normalize::normalize(&kernel.wgsl))
        .collect())
}
