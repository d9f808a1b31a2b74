//! Replay of one recorded case.

use std::time::Instant;

use super::gradients::replay_gradients;
use super::{Against, CaseVerdict, TestCommand, kind_name};
use crate::cases::CaseRef;
use crate::cli::libtorch;
use crate::cli::precision::widen_for_storage;
use crate::compare::{Difference, compare};
use crate::error::{Error, Result, panic_message};
use crate::item::Item;
use crate::{CompileOptions, Device};

/// Runs a case; a panic is a failure of the case.
pub(super) fn run_case(case: &CaseRef, device: &Device, test: &TestCommand) -> CaseVerdict {
    let start = Instant::now();
    let replay = || match &test.gradients {
        Some(folder) => replay_gradients(case, folder, device, test),
        None => replay(case, device, test),
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(replay));
    let (passed, reason, error) = match result {
        Ok(Ok(differences)) => summary(&differences),
        Ok(Err(error)) => (false, Some(format!("{}: {error}", error.kind().id())), None),
        Err(panic) => (
            false,
            Some(format!("panicked: {}", panic_message(&*panic))),
            None,
        ),
    };
    CaseVerdict {
        name: case.name.clone(),
        kind: kind_name(case).to_string(),
        passed,
        reason,
        max_abs_error: error,
        ms: start.elapsed().as_secs_f64() * 1e3,
    }
}

fn summary(differences: &[(String, Difference)]) -> (bool, Option<String>, Option<f64>) {
    let wrong = differences
        .iter()
        .find(|(_, difference)| !difference.passed());
    let reason = wrong.map(|(label, difference)| format!("{label}{difference}"));
    let largest = differences
        .iter()
        .map(|(_, difference)| difference.max_abs)
        .fold(0.0, f64::max);
    (
        wrong.is_none(),
        reason,
        largest.is_finite().then_some(largest),
    )
}

/// The beginning of lines about a set.
pub(super) fn set_label(label: &str) -> String {
    match label {
        "" => String::new(),
        label => format!("set {label:?}: "),
    }
}

/// Runs the calls of every set on one session, in order, and compares every output.
fn replay(
    case: &CaseRef,
    device: &Device,
    test: &TestCommand,
) -> Result<Vec<(String, Difference)>> {
    let case = case.load()?;
    let model = test.open(&case.archive)?;
    let options = CompileOptions {
        precision: test.device.precision()?,
        release_memory: false,
        ..CompileOptions::default()
    };
    let session = model.compile(device, &options)?;
    let libtorch = match test.against {
        Against::Recorded => None,
        Against::Libtorch => Some(libtorch::open(&case.archive)?),
    };
    let mut differences = Vec::new();
    for set in &case.sets {
        let in_set = |error: Error| match set.label.as_str() {
            "" => error,
            label => error.at(format!("set {label:?}")),
        };
        for method in &set.before {
            session.call_method(method, &[]).map_err(in_set)?;
            if let Some(libtorch) = &libtorch {
                libtorch.call(method, &[]).map_err(in_set)?;
            }
        }
        for call in &set.calls {
            let got = session.call_method(&call.method, &call.inputs);
            let got = got.map_err(in_set)?;
            let label = set_label(&set.label);
            let mut check = |label: String, got: &Item, expected: &Item| {
                let found = compare(
                    got,
                    expected,
                    widen_for_storage(set.tolerance, options.precision),
                );
                differences.extend(found.into_iter().map(|found| (label.clone(), found)));
            };
            let Some(libtorch) = &libtorch else {
                check(label, &got, &call.output);
                continue;
            };
            let expected = libtorch.call(&call.method, &call.inputs).map_err(in_set)?;
            check(
                format!("{label}libtorch against the record: "),
                &expected,
                &call.output,
            );
            check(label, &got, &expected);
        }
    }
    Ok(differences)
}
