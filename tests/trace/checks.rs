//! Findings of the checker for functions with wrong traces. Counterparts: `test_trace_checker_*` of PyTorch.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use onionskin::nn;
use onionskin::trace::check::{CheckOptions, CheckReport, Id, RunOutcome};
use onionskin::trace::{
    Forward, Module, Parameter, TracedTensor, Tree, allow, arguments, freeze, init, kw,
    trace_checked, trace_fn_checked, trace_method_checked, while_loop,
};

fn vector(values: &[f32]) -> TracedTensor {
    TracedTensor::from_vec([values.len()], values.to_vec())
}

fn report<I: Tree, O: Tree>(inputs: I, function: impl Fn(I) -> O) -> CheckReport {
    trace_fn_checked(inputs, function, &CheckOptions::default())
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
    let quiet = trace_fn_checked(
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
    let lenient = trace_fn_checked(inputs(), function, &options).unwrap().1;
    options.strict = true;
    let strict = trace_fn_checked(inputs(), function, &options).unwrap().1;
    assert!(
        ids(&lenient).contains(&Id::OutputsDiffer.code()),
        "{lenient}"
    );
    assert!(!strict.passed(), "{strict}");
}

/// Counts the rounds in which `x` doubles until its sum exceeds a limit. Zeros never do.
fn doublings(x: TracedTensor) -> TracedTensor {
    while_loop(x, |x| x.sum().lt(100.0), |x| x * 2.0).unwrap()
}

/// The run of a report with these inputs, as a line of text.
fn run(report: &CheckReport, label: &str) -> String {
    let run = report.runs.iter().find(|run| run.label == label);
    run.unwrap_or_else(|| panic!("{report}")).to_string()
}

#[test]
fn a_loop_that_other_inputs_do_not_end_is_skipped() {
    let line = line!() + 1;
    let loops = |x: TracedTensor| while_loop(x, |x| x.sum().lt(100.0), |x| x * 2.0).unwrap();
    let found = report(vector(&[1.0, 2.0]), loops);
    let skipped = format!(
        "skipped  values of zero: loop did not end after 1000 rounds, at {}:{line}",
        file!()
    );
    assert_eq!(run(&found, "values of zero"), skipped);
    assert!(found.passed(), "{found}");
    assert_eq!(ids(&found), Vec::<&str>::new(), "{found}");
    let agree = found
        .runs
        .iter()
        .filter(|run| run.outcome == RunOutcome::Agrees);
    assert_eq!(agree.count(), 5, "{found}");
}

#[test]
fn the_largest_number_of_rounds_is_an_option() {
    let options = CheckOptions {
        max_rounds: Some(7),
        ..CheckOptions::default()
    };
    let (_, found) = trace_fn_checked(vector(&[1.0, 2.0]), doublings, &options).unwrap();
    let text = run(&found, "values of zero");
    assert!(text.contains("loop did not end after 7 rounds"), "{text}");
}

/// A loop of the program itself has no rounds that the tracer sees. It ends when its operators fail, or is unwound.
#[test]
fn a_loop_of_the_program_ends_when_the_time_is_over() {
    let grows = |x: TracedTensor| {
        let mut x = x;
        while allow("W0201", || x.sum().lt(100.0).to_bool()).unwrap_or(true) {
            x = &x * 2.0;
        }
        x
    };
    let options = CheckOptions {
        max_time: Some(std::time::Duration::from_millis(300)),
        ..CheckOptions::default()
    };
    let (_, found) = trace_fn_checked(vector(&[1.0, 2.0]), grows, &options).unwrap();
    let text = run(&found, "values of zero");
    assert!(
        text.starts_with(
            "skipped  values of zero: did not end within 300.0ms, at tests/trace/checks.rs:"
        ),
        "{text}"
    );
}

#[test]
fn a_panic_with_other_inputs_is_a_refusal() {
    let refuses = |x: TracedTensor| {
        assert!(allow("W0201", || x.sum().to_bool()).unwrap(), "zeros");
        &x + 1.0
    };
    let found = report(vector(&[1.0, 2.0]), refuses);
    assert_eq!(
        run(&found, "values of zero"),
        "skipped  values of zero: the function refuses these inputs: it panics: zeros"
    );
}

#[test]
fn a_loop_counter_is_no_finding() {
    let counted = |x: TracedTensor| {
        let counter = TracedTensor::scalar(0i64);
        let state = (counter, x);
        let step = |(i, x): (TracedTensor, TracedTensor)| (&i + 1, &x * 2.0);
        while_loop(state, |(i, _)| i.lt(3), step).unwrap().1
    };
    let found = report(vector(&[1.0, 2.0]), counted);
    assert_eq!(ids(&found), Vec::<&str>::new(), "{found}");
    let data = |x: TracedTensor| &x * TracedTensor::scalar(3i64);
    let found = report(vector(&[1.0, 2.0]), data);
    assert_eq!(ids(&found), ["W0205"], "{found}");
}

#[test]
fn sizes_and_inputs_have_different_names() {
    let x = TracedTensor::from_vec([2, 3], vec![1f32; 6]);
    let lists = (vec![x.clone(), x.clone()], x.clone(), x);
    let apart = |(list, y, z): (Vec<TracedTensor>, TracedTensor, TracedTensor)| {
        (list[0].abs(), list[1].abs(), y.abs(), z.abs())
    };
    let traced = onionskin::trace::trace_fn(lists, apart).unwrap();
    let graph = traced.graph("forward").unwrap();
    let inputs = graph.inputs.iter().map(|id| graph.value(*id));
    let inputs = inputs.map(|input| format!("{}: {}", input.name, input.ty));
    let expected = [
        "x_0: f32[x_0_0, x_0_1]",
        "x_1: f32[x_1_0, x_1_size_1]",
        "x_1_1: f32[x_1_1_0, x_1_1_1]",
        "x_2: f32[x_2_0, x_2_1]",
    ];
    assert_eq!(inputs.collect::<Vec<_>>(), expected);
}

#[derive(Module)]
struct Normalized {
    norm: nn::BatchNorm1d,
}

impl Normalized {
    fn forward(&self, x: TracedTensor) -> TracedTensor {
        self.norm.call(&x)
    }
}

#[test]
fn a_norm_in_training_mode_is_told_with_line_and_module() {
    let net = Normalized {
        norm: nn::BatchNorm1d::new(2),
    };
    let line = line!() - 9;
    let check = || {
        let x = TracedTensor::from_vec([4, 2], (0..8).map(|x| x as f32).collect());
        let options = CheckOptions::default();
        trace_method_checked(&net, x, Normalized::forward, &options)
            .unwrap()
            .1
    };
    net.train();
    let text = check().to_string();
    let expected = format!(
        "warning[W0215] normalisation in training mode: batch_norm uses the statistics of the batch\n  \
         at {}:{line} (norm)\n",
        file!()
    );
    assert!(text.contains(&expected), "{text}");
    net.eval();
    assert_eq!(ids(&check()), Vec::<&str>::new());
}

#[test]
fn an_input_that_nothing_reads_is_told() {
    let found = report(
        (vector(&[1.0, 2.0]), vector(&[1.0, 2.0, 3.0])),
        |(x, _): (TracedTensor, TracedTensor)| &x + 1.0,
    );
    let text = found.to_string();
    let expected = "warning[W0719] input changes no output: x_1: f32[x_1_0] reaches no output \
                    (x_1_0 = 3 in the example)\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!(ids(&found), ["W0719"], "{text}");
}

/// A module that multiplies by a scale without a gradient, or adds the root of zeros.
#[derive(Module)]
struct Untrainable {
    scale: Parameter,
    has_root: bool,
}

impl Forward<&TracedTensor> for Untrainable {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        match self.has_root {
            true => x + (&*self.scale * &*self.scale).sum().sqrt(),
            false => x * self.scale.detach(),
        }
    }
}

#[test]
fn gradients_that_are_missing_or_infinite_are_told() {
    let found = |has_root: bool| {
        let scale = Parameter::new([2], init::zeros());
        let module = Untrainable { scale, has_root };
        trace_checked(&module, vector(&[1.0, 2.0]), &CheckOptions::default())
            .unwrap()
            .1
    };
    let missing = found(false);
    let expected = "warning[W0724] parameter gets no gradient: no output has a gradient for the parameter scale\n";
    assert!(missing.to_string().contains(expected), "{missing}");
    assert!(ids(&missing).contains(&"W0724"), "{missing}");
    let infinite = found(true);
    assert_eq!(ids(&infinite), ["W0725"], "{infinite}");
}

#[test]
fn outputs_without_a_number_are_told() {
    let line = line!() + 2;
    let found = report(vector(&[1.0, 2.0]), |x: TracedTensor| {
        let zero = &x - &x;
        let ratio = &zero / &zero;
        (ratio.exp(), x)
    });
    let text = found.to_string();
    let expected = format!(
        "warning[W0720] output is not a number: output[0]: all elements (2) are NaN\n  \
         at {}:{}\n  with inputs of the trace\n  div (aten.div.Tensor) is the first value with a NaN\n",
        file!(),
        line + 1
    );
    assert!(text.contains(&expected), "{text}");
    assert_eq!(ids(&found), ["W0720"], "{text}");
    let some = report(vector(&[-1.0, 2.0]), |x: TracedTensor| x.log());
    assert_eq!(ids(&some), Vec::<&str>::new(), "{some}");
}

#[test]
fn repeated_findings_are_folded() {
    let reads = |x: TracedTensor| {
        for _ in 0..42 {
            x.max().to_scalar().unwrap();
        }
        let _ = x.min().to_scalar();
        &x * 2.0
    };
    let (traced, found) =
        trace_fn_checked(vector(&[1.0, 2.0]), reads, &CheckOptions::default()).unwrap();
    assert_eq!(traced.warnings.len(), 2, "{found}");
    assert_eq!(found.findings.len(), 2, "{found}");
    let text = found.findings[0].to_string();
    assert!(text.ends_with("\n  and 41 more at the same line"), "{text}");
    assert!(found.findings[1].repeats.is_empty());
}

#[derive(Module)]
struct Dropouts {
    layers: Vec<nn::Dropout>,
}

#[test]
fn repeated_findings_name_their_modules() {
    let net = Dropouts {
        layers: vec![
            nn::Dropout::new(0.5),
            nn::Dropout::new(0.5),
            nn::Dropout::new(0.5),
        ],
    };
    net.train();
    let forward =
        |net: &Dropouts, x: TracedTensor| net.layers.iter().fold(x, |x, layer| layer.call(&x));
    let options = CheckOptions::default();
    let found = trace_method_checked(&net, vector(&[1.0, 2.0]), forward, &options)
        .unwrap()
        .1;
    let drops = found
        .findings
        .iter()
        .filter(|finding| finding.id == Id::RandomNode);
    let drops: Vec<String> = drops.map(ToString::to_string).collect();
    assert_eq!(drops.len(), 1, "{found}");
    let modules = "\n  and 2 more at the same line, in layers.1, layers.2";
    assert!(drops[0].ends_with(modules), "{found}");
}

#[test]
fn sizes_in_findings_have_the_numbers_of_the_example() {
    let x = TracedTensor::from_vec([3, 2], vec![0.5f32; 6]);
    let found = report(x, |x: TracedTensor| {
        x.unbind()
            .into_iter()
            .fold(TracedTensor::scalar(0f32), |sum, row| sum + row)
    });
    let text = found.to_string();
    for expected in [
        "iteration over a dynamic axis: the size x_0 is fixed to the example's 3\n",
        "input x is f32[3, x_1], not of shape [4, 2] (x_1 = 2 in the example)\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn lists_of_different_lengths_are_one_line() {
    let calls = Cell::new(0);
    let found = report(vector(&[1.0]), |x: TracedTensor| {
        calls.set(calls.get() + 1);
        vec![x; if calls.get() == 1 { 3 } else { 300 }]
    });
    let text = found.to_string();
    assert!(
        text.contains("output: a list of 3 instead of 300 items"),
        "{text}"
    );
    assert!(text.lines().count() < 30, "{text}");
}
