//! Compares the column "found in" of `onionskin explain` with the findings of the checker for each front end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use onionskin::compare::Tolerance;
use onionskin::item::Item;
use onionskin::kernel::materialization::Precision;
use onionskin::model::{DeviceReference, check};
use onionskin::tensor::Tensor;
use onionskin::trace::check::{CheckOptions, FrontEnd, Id};
use onionskin::{Device, Model};

/// Returns the ids of the findings in a model on the host; results are compared with `expected`, if given.
fn found(model: &Model, inputs: Vec<Vec<Item>>, expected: Option<&[Item]>) -> BTreeSet<Id> {
    let reference = DeviceReference {
        device: &Device::Host,
        precision: Precision::Single,
        expected: expected.map(|expected| ("recorded outputs", expected)),
        tolerance: Tolerance {
            rtol: 1e-4,
            atol: 1e-5,
        },
    };
    let options = CheckOptions {
        inputs,
        ..CheckOptions::default()
    };
    let report = check(model, &options, &reference).unwrap();
    report.findings.iter().map(|finding| finding.id).collect()
}

fn ones(shape: &[usize]) -> Item {
    let count = shape.iter().product();
    Item::Tensor(Tensor::from_vec(shape.to_vec(), vec![1.0f32; count]).unwrap())
}

/// Returns the findings in a model alone, with inputs of another rank, and compared with foreign results.
fn all_found(model: &Model) -> BTreeSet<Id> {
    let mut ids = found(model, Vec::new(), None);
    ids.extend(found(model, vec![vec![ones(&[2, 2, 2, 2, 2])]], None));
    ids
}

fn archives(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut archives: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "pt"))
        .collect();
    archives.sort();
    archives
}

/// Returns the models of the fixtures' archives.
fn models() -> Vec<Model> {
    let folders = ["tests/fixtures/archives", "tests/fixtures/archives/checks"];
    let paths = folders.into_iter().flat_map(archives);
    paths.filter_map(|path| Model::open(path).ok()).collect()
}

/// Returns a model whose only output is a constant.
fn constant() -> Model {
    let text = "graph forward(x: f32[2]) -> f32[2] {\n  y: f32[2] = full 1.0, dtype=f32, shape=[2]\n  return y\n}\n";
    Model::from_module(text.parse().unwrap())
}

/// Returns a model whose output is 0 / 0.
fn not_a_number() -> Model {
    let text =
        "graph forward(x: f32[2]) -> f32[2] {\n  a = sub x, x\n  y = div a, a\n  return y\n}\n";
    Model::from_module(text.parse().unwrap())
}

/// Returns the ids whose column names the front end.
fn column(front_end: FrontEnd) -> BTreeSet<Id> {
    let ids = Id::ALL.iter().copied();
    ids.filter(|id| id.entry().front_ends.contains(&front_end))
        .collect()
}

fn two_layers() -> Model {
    Model::open(Path::new("tests/fixtures/archives/two_layers.pt")).unwrap()
}

/// Findings of a comparison with an export: `tests/against_export.rs` has them.
const WITH_EXPORT: &[Id] = &[Id::ExportDiffers, Id::ExportSizes, Id::FrozenRegion];

/// Checks that the findings in models are exactly those of a column, except `never_in_fixtures`.
fn check_column(front_end: FrontEnd, models: &[Model], never_in_fixtures: &[Id]) {
    let mut ids: BTreeSet<Id> = models.iter().flat_map(all_found).collect();
    let set = vec![vec![ones(&[2, 4])]];
    ids.extend(found(&models[0], set, Some(&[ones(&[2, 3])])));
    let missing: BTreeSet<Id> = column(front_end).difference(&ids).copied().collect();
    let surplus: BTreeSet<Id> = ids.difference(&column(front_end)).copied().collect();
    let expected: BTreeSet<Id> = never_in_fixtures.iter().copied().collect();
    assert_eq!(
        (missing, surplus),
        (expected, BTreeSet::new()),
        "{front_end}"
    );
}

/// No fixture is an archive of a constant or of NaN, which the same code checks for graphs, or differs between imports.
#[test]
fn findings_in_archives_match_their_column() {
    let models: Vec<Model> = std::iter::once(two_layers()).chain(models()).collect();
    let never = [Id::NoDependence, Id::OutputsDiffer, Id::NotANumber];
    check_column(FrontEnd::Archive, &models, &[&never, WITH_EXPORT].concat());
}

#[test]
fn findings_in_graphs_match_their_column() {
    let archives = std::iter::once(two_layers()).chain(models());
    let modules = archives.filter_map(|model| model.import().ok());
    let graphs = modules
        .map(Model::from_module)
        .chain([constant(), not_a_number()]);
    check_column(FrontEnd::Json, &graphs.collect::<Vec<Model>>(), WITH_EXPORT);
}

/// One checker serves functions in Rust and of libtorch: each finding of a report is in both columns.
#[test]
fn findings_in_functions_are_in_both_columns() {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir("tests/check").unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let (input, report) = text.split_once("\n=== report\n").unwrap();
        if input.contains("=== archive") {
            continue;
        }
        let is_found = |id: &&Id| report.contains(&format!("[{id}]"));
        ids.extend(Id::ALL.iter().filter(is_found).copied());
    }
    assert!(ids.len() > 5, "{ids:?}");
    for id in ids {
        let found_in = id.entry().front_ends;
        let both = [FrontEnd::Rust, FrontEnd::Libtorch];
        assert!(both.iter().all(|one| found_in.contains(one)), "{id}");
    }
}
