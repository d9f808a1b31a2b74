//! Random programs of views, strided results and in-place writes return PyTorch's results for both sets of sizes: all of
//! them on the host, some of them on a device.
//!
//! `tests/fixtures/make_programs.py` writes the programs, `make_strides.py` those of one call that ask for the strides of
//! its result, and `make_copies.py` those of one `copy_` into a view. `ONIONSKIN_PROGRAMS` names a folder of other random
//! programs. Without an adapter the test of a device prints a note and passes; with `REQUIRE_GPU=1` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use onionskin::cases::{self, Call, Case, CaseArchive, CaseRef};
use onionskin::compare::{Tolerance, compare};
use onionskin::error::{Result, panic_message};
use onionskin::gpu::FeatureLevel;
use onionskin::{CompileOptions, Device, Model};

mod samples;

/// A device runs every fourth program only, since it compiles kernels for each.
const PROGRAMS_PER_DEVICE_RUN: usize = 4;

/// Number of failures that are printed.
const MOST_PRINTED: usize = 20;

/// A program whose results differ from the recorded ones.
struct Failure {
    /// The file, whose name is the seed, and the method.
    name: String,
    /// The set of sizes and the first output that differs, or the error.
    reason: String,
    /// The program's Python source.
    source: String,
}

/// A method of an archive, with a call for each set of sizes.
struct Program<'a> {
    model: &'a Model,
    calls: Vec<(&'a str, &'a Call, Tolerance)>,
}

impl Program<'_> {
    /// Returns the reason why the program fails, if it does. A panic is a failure, too.
    fn failure_reason(&self, device: &Device) -> Option<String> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.first_difference(device)));
        match outcome {
            Ok(Ok(difference)) => difference,
            Ok(Err(error)) => Some(format!("{}: {error}", error.kind().id())),
            Err(panic) => Some(format!("panicked: {}", panic_message(&*panic))),
        }
    }

    fn first_difference(&self, device: &Device) -> Result<Option<String>> {
        let options = CompileOptions {
            entry: self.method().to_string(),
            static_shapes: false,
            ..CompileOptions::default()
        };
        let session = self.model.compile(device, &options)?;
        for (label, call, tolerance) in &self.calls {
            let got = session.call(&call.inputs);
            let got = got.map_err(|error| error.at(format!("set {label:?}")))?;
            let differences = compare(&got, &call.output, *tolerance);
            if let Some(wrong) = differences.iter().find(|found| !found.passed()) {
                return Ok(Some(format!("set {label:?}: {wrong}")));
            }
        }
        Ok(None)
    }

    fn method(&self) -> &str {
        &self.calls[0].1.method
    }
}

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// Returns the folder of random programs.
fn random_programs() -> PathBuf {
    let other = std::env::var_os("ONIONSKIN_PROGRAMS");
    other.map_or_else(|| fixtures("programs"), PathBuf::from)
}

fn open(case: &Case) -> Model {
    match &case.archive {
        CaseArchive::Path(path) => Model::open(path).unwrap(),
        CaseArchive::Bytes(bytes) => Model::from_bytes(bytes.to_vec()).unwrap(),
    }
}

/// Returns the programs of a file: call number n of each set calls program number n.
fn programs<'a>(case: &'a Case, model: &'a Model) -> Vec<Program<'a>> {
    let count = case.sets[0].calls.len();
    let calls = |index: usize| {
        let sets = case.sets.iter();
        let calls = sets.map(|set| (set.label.as_str(), &set.calls[index], set.tolerance));
        calls.collect::<Vec<_>>()
    };
    let program = |index| Program {
        model,
        calls: calls(index),
    };
    (0..count).map(program).collect()
}

/// Returns the Python source of a method.
fn source(file: &Path, method: &str) -> String {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(file).unwrap()).unwrap();
    let mut text = String::new();
    let mut entry = zip.by_name("programs.py").unwrap();
    entry.read_to_string(&mut text).unwrap();
    let start = text.find(&format!("    def {method}(")).unwrap();
    let rest = &text[start..];
    rest.split("\n\n").next().unwrap_or(rest).to_string()
}

/// Runs every `stride`-th program of each file in a folder. Returns the number of programs that ran, and the failures.
fn run_all(folder: &Path, device: &Device, stride: usize) -> (usize, Vec<Failure>) {
    let found = cases::find(folder).unwrap();
    let (next, ran) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(case) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (count, failed) = run_file(folder, case, device, stride);
                    ran.fetch_add(count, Ordering::Relaxed);
                    failures.lock().unwrap().extend(failed);
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_by_key(|failure| (failure.source.lines().count(), failure.name.clone()));
    (ran.into_inner(), failures)
}

fn run_file(
    folder: &Path,
    case: &CaseRef,
    device: &Device,
    stride: usize,
) -> (usize, Vec<Failure>) {
    let loaded = case.load().unwrap();
    let model = open(&loaded);
    let file = folder.join(&case.name).with_extension("zip");
    let file = folder.join(file.file_name().unwrap());
    let programs = programs(&loaded, &model);
    let chosen = programs.iter().step_by(stride);
    let failed = chosen.clone().filter_map(|program| {
        Some(Failure {
            name: format!("{}.{}", case.name, program.method()),
            reason: program.failure_reason(device)?,
            source: source(&file, program.method()),
        })
    });
    (chosen.len(), failed.collect())
}

fn report(ran: usize, failures: &[Failure]) {
    println!("{} of {ran} programs fail", failures.len());
    let most = if std::env::var_os("SHOW").is_some() {
        failures.len()
    } else {
        MOST_PRINTED
    };
    for failure in failures.iter().take(most) {
        println!("\n{}: {}\n{}", failure.name, failure.reason, failure.source);
    }
    assert!(ran > 0, "no program was run");
    assert!(failures.is_empty(), "{} programs fail", failures.len());
}

#[test]
fn views_and_writes_agree_with_pytorch_on_the_host() {
    let (ran, failures) = run_all(&random_programs(), &Device::Host, 1);
    report(ran, &failures);
}

#[test]
fn views_and_writes_agree_with_pytorch_on_a_device() {
    let Some(device) = samples::device(FeatureLevel::default()) else {
        return;
    };
    let (ran, failures) = run_all(
        &random_programs(),
        &Device::Gpu(device),
        PROGRAMS_PER_DEVICE_RUN,
    );
    report(ran, &failures);
}

#[test]
fn results_have_pytorchs_strides() {
    let (ran, failures) = run_all(&fixtures("strides"), &Device::Host, 1);
    report(ran, &failures);
}

#[test]
fn copies_reach_every_kind_of_view_on_the_host() {
    let (ran, failures) = run_all(&fixtures("copies"), &Device::Host, 1);
    report(ran, &failures);
}

#[test]
fn copies_reach_every_kind_of_view_on_a_device() {
    let Some(device) = samples::device(FeatureLevel::default()) else {
        return;
    };
    let (ran, failures) = run_all(
        &fixtures("copies"),
        &Device::Gpu(device),
        PROGRAMS_PER_DEVICE_RUN,
    );
    report(ran, &failures);
}
