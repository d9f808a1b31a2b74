//! Compares traces with exports of the same networks: those of the recorded corpus, which agree, and the example that differs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

use std::path::{Path, PathBuf};

use onionskin::Model;
use onionskin::cases;
use onionskin::item::Item;
use onionskin::tensor::Tensor;
use onionskin::trace::check::{AllowList, CheckOptions, CheckReport, Id, RunOutcome, Severity};
use onionskin::trace::program::MethodSubject;

/// Compares the two models of a case for the first recorded inputs or for those given, and for others derived from them.
fn compare(folder: &Path, inputs: Option<Vec<Item>>, recorded: &[Item]) -> CheckReport {
    let trace = Model::open(folder.join("model.pt")).unwrap();
    let export = Model::open(folder.join("model.pt2")).unwrap();
    let inputs = inputs.unwrap_or_else(|| first_inputs(folder));
    let options = CheckOptions {
        inputs: vec![inputs],
        ..CheckOptions::default()
    };
    let module = trace.import_for(&options.inputs[0]).unwrap();
    let graph = module.graph("forward").unwrap().clone();
    let [trace, export] = [&trace, &export].map(|model| MethodSubject {
        program: model.program(),
        name: "forward",
    });
    let report = CheckReport::new(graph, trace.program.kind(), false, AllowList::default());
    report
        .against_export(&trace, &export, &options, recorded)
        .unwrap()
}

fn first_inputs(folder: &Path) -> Vec<Item> {
    let case = cases::find(folder).unwrap().remove(0).load().unwrap();
    case.sets[0].calls[0].inputs.clone()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/trace_and_export/recorded")
}

#[test]
fn traces_of_the_corpus_agree_with_their_exports() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus/models");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: there is no {}", folder.display());
        return;
    };
    let mut count = 0;
    for folder in entries.map(|entry| entry.unwrap().path()) {
        if !folder.join("model.pt2").is_file() {
            continue;
        }
        let report = compare(&folder, None, &[]);
        let other = report
            .findings
            .iter()
            .find(|finding| finding.id != Id::ExportSizes);
        assert_eq!(other, None, "{}", folder.display());
        let first = report.runs.first().map(|run| run.outcome);
        assert_eq!(first, Some(RunOutcome::Agrees), "{}", folder.display());
        count += 1;
    }
    assert!(30 < count, "{count} models");
}

#[test]
fn a_trace_with_one_branch_differs_from_its_export() {
    let report = compare(&example(), None, &[]);
    let found: Vec<(Id, Severity)> = report
        .findings
        .iter()
        .map(|one| (one.id, one.severity))
        .collect();
    let expected = [
        (Id::ExportDiffers, Severity::Warning),
        (Id::FrozenRegion, Severity::Warning),
        (Id::ExportSizes, Severity::Note),
    ];
    assert_eq!(found, expected);
    let differing = report
        .runs
        .iter()
        .filter(|run| run.outcome == RunOutcome::Differs);
    let labels: Vec<&str> = differing.map(|run| run.label.as_str()).collect();
    assert_eq!(labels, ["values a hundred times as large"]);
}

/// Levels of loud signals are limited to 1, which the branch in the trace does not do.
#[test]
fn recorded_results_say_that_the_trace_is_wrong() {
    let loud = Tensor::from_vec([1, 5], vec![3.0f32; 5]).unwrap();
    let level = Tensor::from_vec([1], vec![1.0f32]).unwrap();
    let report = compare(&example(), Some(vec![loud.into()]), &[level.into()]);
    let mut findings = report.findings.iter();
    let finding = findings
        .find(|finding| finding.id == Id::ExportDiffers)
        .unwrap();
    assert_eq!(finding.severity, Severity::Error);
    let has_line = |line: &str| {
        finding
            .details
            .iter()
            .any(|detail| detail.starts_with(line))
    };
    assert!(
        has_line("the trace differs from PyTorch's result: output: max abs 2.0"),
        "{finding}"
    );
    assert!(
        has_line("the export agrees with PyTorch's result"),
        "{finding}"
    );
}
