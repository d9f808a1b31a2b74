//! Findings of the checker for functions with wrong traces. Counterparts: `test_trace_checker_*` of PyTorch.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use onionskin::trace::check::{CheckOptions, CheckReport, Id};
use onionskin::trace::{TracedTensor, Tree, allow, arguments, freeze, kw, trace_checked};

fn vector(values: &[f32]) -> TracedTensor {
    TracedTensor::from_vec([values.len()], values.to_vec())
}

fn report<I: Tree, O: Tree>(inputs: I, function: impl Fn(I) -> O) -> CheckReport {
    trace_checked(inputs, function, &CheckOptions::default())
        .unwrap()
        .1
}

fn ids(report: &CheckReport) -> Vec<&'static str> {
    let mut ids: Vec<&str> = report
        .findings
        .iter()
        .map(|finding| finding.id.code())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[test]
fn a_good_trace_passes() {
    let report = report(
        (vector(&[1.0, -2.0]), vector(&[0.5, 3.0])),
        |(x, y): (TracedTensor, TracedTensor)| (&x * &y).relu() + x.sum(),
    );
    assert!(report.passed(), "{report}");
    assert_eq!(ids(&report), Vec::<&str>::new(), "{report}");
}

/// The program branches on a value: other values take the other branch.
#[test]
fn a_branch_on_values_is_found() {
    let report = report(vector(&[1.0, 2.0]), |x: TracedTensor| {
        match x.sum().gt(0.0).to_bool() {
            Ok(true) => &x * 2.0,
            _ => -&x,
        }
    });
    assert!(ids(&report).contains(&Id::HostRead.code()), "{report}");
    assert!(
        ids(&report).contains(&Id::PathDependsOnInput.code()),
        "{report}"
    );
    let text = report.to_string();
    assert!(text.contains("checks.rs"), "{text}");
}

/// Counterpart: `test_trace_checker_memoization`.
#[test]
fn a_memoised_value_is_an_error() {
    let known: RefCell<Option<TracedTensor>> = RefCell::new(None);
    let report = report(vector(&[1.0, 2.0]), |x: TracedTensor| {
        let cached = known.borrow().clone();
        let factor = cached.unwrap_or_else(|| {
            let factor = TracedTensor::scalar(3f32) * 2.0;
            let factor = TracedTensor::from(factor.to_host().unwrap());
            *known.borrow_mut() = Some(factor.clone());
            factor.exp()
        });
        &x * &factor
    });
    assert!(!report.passed(), "{report}");
    assert!(ids(&report).contains(&Id::GraphsDiffer.code()), "{report}");
    assert!(report.to_string().contains("aten.exp"), "{report}");
}

/// Counterpart: `test_trace_checker_dot_data`.
#[test]
fn a_value_that_escapes_into_a_constant_is_found() {
    let report = report(vector(&[1.0, 2.0]), |x: TracedTensor| {
        let largest = x.amax().to_vec::<f32>().unwrap();
        &x / &TracedTensor::from_vec([1], largest)
    });
    let ids = ids(&report);
    assert!(ids.contains(&Id::HostRead.code()), "{report}");
    assert!(ids.contains(&Id::DataConstructor.code()), "{report}");
    assert!(
        ids.contains(&Id::OutputsDiffer.code()) || ids.contains(&Id::ConstantsDiffer.code()),
        "{report}"
    );
}

/// Counterpart: `test_trace_checker_control_flow`, with `len(x)`.
#[test]
fn a_frozen_size_is_found() {
    let report = report(
        TracedTensor::from_vec([3, 4], vec![1f32; 12]),
        |x: TracedTensor| {
            let rows = freeze(&x.dim(0)).unwrap();
            x.reshape([4 * rows]).sum() / rows
        },
    );
    let text = report.to_string();
    assert!(ids(&report).contains(&Id::FrozenSize.code()), "{text}");
    assert!(ids(&report).contains(&Id::SizeRefused.code()), "{text}");
}

/// Counterpart: `test_trace_checker_control_flow`.
#[test]
fn a_loop_over_a_frozen_size_is_found() {
    let report = report(
        TracedTensor::from_vec([3, 2], vec![0.5f32; 6]),
        |x: TracedTensor| {
            let mut sum = x.select(0, 0);
            for row in 1..freeze(&x.dim(0)).unwrap() {
                sum = sum * 2.0 + x.select(0, row);
            }
            sum
        },
    );
    assert!(ids(&report).contains(&Id::FrozenSize.code()), "{report}");
    assert!(!report.passed() || ids(&report).len() > 1, "{report}");
}

/// Counterpart: `test_trace_checker_dropout_train`.
#[test]
fn dropout_in_training_mode_is_named() {
    let function = |x: TracedTensor| (&x * 2.0).dropout(0.5, true);
    let report = report(TracedTensor::from_vec([64], vec![1f32; 64]), function);
    let text = report.to_string();
    assert!(ids(&report).contains(&Id::RandomNode.code()), "{text}");
    assert!(text.contains("training mode"), "{text}");
    let quiet = trace_checked(
        TracedTensor::from_vec([64], vec![1f32; 64]),
        |x: TracedTensor| x.dropout(0.5, false),
        &CheckOptions::default(),
    );
    assert_eq!(ids(&quiet.unwrap().1), Vec::<&str>::new());
}

#[test]
fn an_output_without_inputs_is_named() {
    let report = report(vector(&[1.0]), |x: TracedTensor| {
        (&x + 1.0, onionskin::trace::ops::ones_with([2], kw!()))
    });
    assert!(ids(&report).contains(&Id::NoDependence.code()), "{report}");
}

#[test]
fn an_unstable_function_is_told_from_a_wrong_trace() {
    let calls = Cell::new(0f32);
    let report = report(vector(&[1.0]), |x: TracedTensor| {
        calls.set(calls.get() + 1.0);
        let constant = vector(&[calls.get()]);
        &x * &constant
    });
    assert!(!report.findings.is_empty());
    assert!(!report.passed(), "{report}");
}

#[test]
fn maps_are_compared_with_all_that_is_in_them() {
    let inputs = BTreeMap::from([("a".to_string(), vector(&[1.0, 2.0]))]);
    let seen = Cell::new(false);
    let report = report(inputs, |x: BTreeMap<String, TracedTensor>| {
        let first = seen.replace(true);
        let extra = if first { 1.0 } else { 2.0 };
        BTreeMap::from([
            ("same".to_string(), &x["a"] * 2.0),
            ("other".to_string(), &x["a"] + extra),
        ])
    });
    let text = report.to_string();
    assert!(text.contains("[\"other\"]"), "{text}");
    assert!(!text.contains("[\"same\"] "), "{text}");
}

#[test]
fn findings_are_suppressed_where_they_arise() {
    let report = report(vector(&[1.0, 2.0]), |x: TracedTensor| {
        let count = allow("W0201", || x.sum().to_vec::<f32>()).unwrap().len();
        &x * count
    });
    assert!(!ids(&report).contains(&"W0201"), "{report}");
}

#[test]
fn failures_at_run_time_are_reported_with_what_was_found_before() {
    let calls = Cell::new(0);
    let report = report(vector(&[1.0, 2.0]), |x: TracedTensor| {
        calls.set(calls.get() + 1);
        match calls.get() {
            1 => Ok(&x * x.sum().to_vec::<f32>().unwrap()[0]),
            _ => Err(onionskin::error::Error::input("out of coffee")),
        }
    });
    let text = report.to_string();
    assert!(text.contains("out of coffee"), "{text}");
    assert!(ids(&report).contains(&Id::HostRead.code()), "{text}");
    assert!(ids(&report).contains(&Id::RunFailed.code()), "{text}");
}

#[test]
fn differences_of_numbers_are_errors_if_strict() {
    let inputs = || vector(&[1.0, 2.0]);
    let function = |x: TracedTensor| &x / x.amax().to_vec::<f32>().unwrap()[0];
    let others = vec![arguments(&vector(&[3.0, 9.0])).unwrap()];
    let mut options = CheckOptions {
        inputs: others,
        perturb: false,
        ..CheckOptions::default()
    };
    let lenient = trace_checked(inputs(), function, &options).unwrap().1;
    options.strict = true;
    let strict = trace_checked(inputs(), function, &options).unwrap().1;
    assert!(
        ids(&lenient).contains(&Id::OutputsDiffer.code()),
        "{lenient}"
    );
    assert!(!strict.passed(), "{strict}");
}
