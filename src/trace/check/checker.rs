//! Checks a trace: inspects its graph, and compares runs of the graph, of the function and of further traces.
//!
//! A set is one set of arguments. The second trace (`repeat`) is a new trace of the function with the same arguments.

use std::collections::BTreeSet;
use std::time::Duration;

use super::baked_constants::baked_constants;
use super::bisect::{GraphWithWeights, first_difference};
use super::check_run::{CheckRun, RunOutcome};
use super::constant_diff::differing_constants;
use super::dependence::independent_outputs;
use super::diff::diff;
use super::evaluate::{evaluate, inputs};
use super::finding::fold_lines;
use super::fixed_batch::fixed_batches;
use super::numerics::{Tolerances, differences};
use super::perturb::example;
use super::random::random_nodes;
use super::read_numbers::read_numbers;
use super::report::CheckReport;
use super::size_literals::size_literals;
use super::training_norms::training_norms;
use super::unread_inputs::unread_inputs;
use super::unrolled_axes::unrolled_axes;
use super::varies_with_sizes::varies_with_sizes;
use super::{AllowList, Finding, Id, Severity, Subject, SubjectKind, Traced};
use crate::compare::Difference;
use crate::dim::Symbol;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::interp::loop_limit::{LoopLimit, LoopUse, with_limit};
use crate::ir::{Graph, GraphModule};
use crate::item::Item;

/// Options of a check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Sets of arguments, that of the trace first. If empty, the check generates arguments of the graph's example
    /// sizes.
    pub inputs: Vec<Vec<Item>>,
    /// The entry graph, if not the first one.
    pub entry: Option<String>,
    /// Tolerances for comparing results.
    pub tolerances: Tolerances,
    /// Reports numeric differences as errors, not warnings.
    pub strict: bool,
    /// Also checks with arguments derived from the first set, with other values and sizes
    /// ([`perturb`](super::perturb())).
    pub perturb: bool,
    /// Largest number of rounds of a loop with derived arguments. A run with a longer loop is skipped. By default 100 times
    /// the rounds of the longest loop with the first set, and at least 1000.
    pub max_rounds: Option<i64>,
    /// Longest time of the runs with one derived set. Runs that take longer are skipped. By default ten times the time of
    /// the runs with the first set, and at least 10 seconds. Calls of libtorch are not limited.
    pub max_time: Option<Duration>,
    /// Findings to suppress.
    pub allow: AllowList,
    /// The random state of every call and every trace.
    pub seed: u64,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            inputs: Vec::new(),
            entry: None,
            tolerances: Tolerances::default(),
            strict: false,
            perturb: true,
            max_rounds: None,
            max_time: None,
            allow: AllowList::default(),
            seed: 0,
        }
    }
}

/// Default of [`CheckOptions::max_rounds`]: this factor times the rounds with the first set, and at least this number.
const DEFAULT_ROUNDS: (i64, i64) = (100, 1000);

/// Default of [`CheckOptions::max_time`]: this factor times the time with the first set, and at least this time.
const DEFAULT_TIME: (u32, Duration) = (10, Duration::from_secs(10));

impl CheckOptions {
    /// The limit of the runs with derived arguments; `used` is what the first set took.
    pub(super) fn limit(&self, used: LoopUse) -> LoopLimit {
        let (factor, least) = DEFAULT_ROUNDS;
        let rounds = used.rounds.saturating_mul(factor).max(least);
        let (factor, least) = DEFAULT_TIME;
        let time = used.time.saturating_mul(factor).max(least);
        LoopLimit {
            rounds: self.max_rounds.unwrap_or(rounds),
            time: self.max_time.unwrap_or(time),
        }
    }
}

/// Checks that a trace does what the function does: for the inputs of the trace, for all given sets, and, unless
/// [`CheckOptions::perturb`] is off, for inputs derived from the first set.
///
/// For each set, the check calls the function, runs the trace, traces the function again, and compares results, graphs and
/// constants. A step that fails becomes a finding.
///
/// # Errors
/// There is no such entry graph, or no inputs can be generated for it.
pub fn check_trace(
    subject: &dyn Subject,
    traced: &Traced,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let (mut checker, sets) = start_check(subject, traced, options)?;
    let mut limit = LoopLimit::NONE;
    for (index, set) in sets.iter().enumerate() {
        let ((), used) = with_limit(LoopLimit::NONE, || checker.check_given(index, set));
        if index == 0 {
            limit = options.limit(used);
        }
    }
    if let Some(set) = sets.first().filter(|_| options.perturb) {
        checker.check_perturbed(set, limit);
    }
    Ok(checker.report)
}

/// Returns the findings of [`check_trace`] that need no run: the tracer's warnings, and those from inspecting the graph.
///
/// # Errors
/// There is no such entry graph, or no inputs can be generated for it.
pub fn inspect_trace(
    subject: &dyn Subject,
    traced: &Traced,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let (checker, _) = start_check(subject, traced, options)?;
    Ok(checker.report)
}

/// Returns a checker that has inspected the graph but run nothing, and the sets of arguments to run.
fn start_check<'a>(
    subject: &'a dyn Subject,
    traced: &'a Traced,
    options: &'a CheckOptions,
) -> Result<(Checker<'a>, Vec<Vec<Item>>)> {
    let graph = entry(&traced.module, options)?;
    let kind = subject.kind();
    let mut checker = Checker {
        subject,
        traced,
        graph,
        options,
        reported_axes: BTreeSet::new(),
        report: CheckReport::new(graph.clone(), kind, options.strict, options.allow.clone()),
    };
    checker.report.extend(traced.warnings.clone());
    let sets = match options.inputs.as_slice() {
        [] => vec![example(graph)?],
        sets => sets.to_vec(),
    };
    let resized_graphs = sets
        .first()
        .map(|set| checker.graphs_for_other_sizes(set))
        .unwrap_or_default();
    let mut findings = inspect(graph, &traced.module);
    findings.retain(|finding| !varies_with_sizes(finding, graph, &resized_graphs));
    let unrolled_symbols = unrolled_axes(graph).into_iter().map(|axis| axis.symbol);
    checker.reported_axes.extend(unrolled_symbols);
    checker.report.extend(findings);
    Ok((checker, sets))
}

/// Returns the findings about a graph that need no run.
pub fn inspect(graph: &Graph, module: &GraphModule) -> Vec<Finding> {
    let unrolled = unrolled_axes(graph);
    let is_unrolled = |finding: &Finding| {
        let mut values = unrolled.iter().flat_map(|axis| &axis.values);
        values.any(|value| Some(value) == finding.value.as_ref())
    };
    let mut literals = size_literals(graph, module);
    literals.retain(|finding| !is_unrolled(finding));
    let mut findings = independent_outputs(graph);
    findings.extend(unread_inputs(graph));
    findings.extend(training_norms(graph));
    findings.extend(random_nodes(graph));
    findings.extend(literals);
    findings.extend(unrolled.into_iter().map(|axis| axis.finding));
    findings.extend(baked_constants(graph, module));
    findings.extend(read_numbers(graph, module));
    findings.extend(fixed_batches(graph, module));
    findings
}

/// The entry graph that the options name; by default the first graph.
pub(super) fn entry<'a>(module: &'a GraphModule, options: &CheckOptions) -> Result<&'a Graph> {
    match &options.entry {
        Some(name) => module.graph(name),
        None => module
            .graphs
            .first()
            .ok_or_else(|| Error::usage("the trace has no graph")),
    }
}

/// A check in progress.
pub(super) struct Checker<'a> {
    pub(super) subject: &'a dyn Subject,
    pub(super) traced: &'a Traced,
    pub(super) graph: &'a Graph,
    pub(super) options: &'a CheckOptions,
    /// Sizes already reported as fixed to the example. They are not reported again.
    pub(super) reported_axes: BTreeSet<Symbol>,
    pub(super) report: CheckReport,
}

impl Checker<'_> {
    /// Checks one set of the user's arguments.
    fn check_given(&mut self, index: usize, set: &[Item]) {
        let kind = self.subject.kind();
        let label = match index {
            _ if !kind.is_function() => format!("inputs {}", index + 1),
            0 => "inputs of the trace".to_string(),
            index => format!("check inputs {index}"),
        };
        if kind == SubjectKind::Graph || index == 0 && !kind.is_function() {
            return self.run_alone(&label, set);
        }
        let expected = match self.call(set) {
            Ok(expected) => Some(expected),
            Err(error) => {
                self.report.add_failure("the function", &label, &error);
                None
            }
        };
        let repeat = self.trace_again(&label, set);
        let got = match evaluate(self.graph, &self.traced.module, set) {
            Ok(got) => Some(got),
            Err(error) => {
                // A session imports an archive again for inputs that one graph refuses.
                match expected.is_some() && !kind.is_function() {
                    true => self.report_refused(&label, set, &error),
                    false => self.report.add_failure("the trace", &label, &error),
                }
                None
            }
        };
        if let Some(expected) = &expected {
            self.report_not_a_number(&label, set, expected);
            if index == 0 {
                self.check_stability(set, expected, &label);
                self.check_gradients(&label, set);
            }
            let agrees =
                got.is_some_and(|got| self.compare(&label, set, &got, expected, repeat.as_ref()));
            if let Some(repeat) = repeat.as_ref().filter(|_| agrees) {
                self.compare_repeat(&label, set, expected, repeat);
            }
        }
        if let Some(repeat) = &repeat {
            self.compare_graphs(&label, repeat);
        }
    }

    /// Runs the graph on a set without reference results.
    fn run_alone(&mut self, label: &str, set: &[Item]) {
        match evaluate(self.graph, &self.traced.module, set) {
            Ok(got) => {
                self.report_not_a_number(label, set, &got);
                self.check_gradients(label, set);
                self.report_run_alone(label);
            }
            Err(error) => self.report.add_failure("the graph", label, &error),
        }
    }

    /// Reports a run without a comparison.
    pub(super) fn report_run_alone(&mut self, label: &str) {
        let note = "the graph runs on the host".to_string();
        let run = CheckRun::new(label, RunOutcome::Agrees, note);
        self.report.runs.push(run);
    }

    /// Returns a second trace, or none if it fails. None for archives too, whose imports for other sizes may differ
    /// legitimately.
    fn trace_again(&mut self, label: &str, set: &[Item]) -> Option<Traced> {
        if !self.subject.kind().is_function() {
            return None;
        }
        match self.trace(set) {
            Ok(repeat) => Some(repeat),
            Err(error) => {
                self.report.add_failure("the second trace", label, &error);
                None
            }
        }
    }

    /// Calls the function from the random state of the options.
    pub(super) fn call(&self, set: &[Item]) -> Result<Item> {
        self.subject.seed(self.options.seed);
        self.subject.call(set)
    }

    /// Traces the function from the random state of the options.
    pub(super) fn trace(&self, set: &[Item]) -> Result<Traced> {
        self.subject.seed(self.options.seed);
        self.subject.trace(set)
    }

    /// Calls the function again. If the two results differ, comparing the trace with the function says nothing.
    fn check_stability(&mut self, set: &[Item], expected: &Item, label: &str) {
        let Ok(again) = self.call(set) else { return };
        let output_differences = differences(&again, expected, self.options.tolerances);
        let failures: Vec<&Difference> = output_differences
            .iter()
            .filter(|difference| !difference.passed())
            .collect();
        if let Some(first) = failures.first() {
            let finding = Finding::new(Id::UnstableFunction, first.to_string());
            self.report.add(finding, label);
        }
    }

    /// Compares the trace's result `got` with the function's result `expected`, and records the run. True if they
    /// agree. `repeat` is the second trace, which explains a difference.
    pub(super) fn compare(
        &mut self,
        label: &str,
        set: &[Item],
        got: &Item,
        expected: &Item,
        repeat: Option<&Traced>,
    ) -> bool {
        let output_differences = differences(got, expected, self.options.tolerances);
        let agrees = output_differences.iter().all(Difference::passed);
        if !agrees {
            let finding = self.explain(
                mismatch_finding(Id::OutputsDiffer, &output_differences),
                set,
                repeat,
            );
            self.report.add(finding, label);
        }
        let outcome = if agrees {
            RunOutcome::Agrees
        } else {
            RunOutcome::Differs
        };
        let sides = self.subject.kind().sides();
        let run = CheckRun::compared(label, sides, outcome, output_differences);
        self.report.runs.push(run);
        agrees
    }

    /// Adds the probable cause, found by running a second trace: the first node that differs, or the function itself.
    fn explain(&self, finding: Finding, set: &[Item], repeat: Option<&Traced>) -> Finding {
        let random = random_nodes(self.graph);
        let finding = match random.first() {
            Some(_) => finding.details(["the trace has nondeterministic nodes (W0214)"]),
            None => finding,
        };
        let Some(repeat) = repeat else { return finding };
        let divergence = entry(&repeat.module, self.options).and_then(|graph| {
            let got = GraphWithWeights {
                graph: self.graph,
                weights: &self.traced.module.weights,
            };
            let expected = GraphWithWeights {
                graph,
                weights: &repeat.module.weights,
            };
            let inputs = inputs(self.graph, &self.traced.module, set)?;
            first_difference(
                got,
                expected,
                &inputs,
                self.options.tolerances.of(DType::F32),
            )
        });
        match divergence {
            Ok(Some(first_divergence)) => {
                let finding = finding
                    .at(&first_divergence.site.place)
                    .with_value_name(&first_divergence.site.value);
                finding.details([first_divergence.to_string()])
            }
            Ok(None) => {
                finding.details(["a second trace computes the same as the first, value by value"])
            }
            Err(error) => finding.details([format!("a second trace could not be run: {error}")]),
        }
    }

    /// Compares the result of the second trace with the function's result `expected`.
    fn compare_repeat(&mut self, label: &str, set: &[Item], expected: &Item, repeat: &Traced) {
        let graph = match entry(&repeat.module, self.options) {
            Ok(graph) => graph,
            Err(error) => return self.report.add_failure("the second trace", label, &error),
        };
        match evaluate(graph, &repeat.module, set) {
            Err(error) => self.report.add_failure("the second trace", label, &error),
            Ok(got) => {
                let output_differences = differences(&got, expected, self.options.tolerances);
                if !output_differences.iter().all(Difference::passed) {
                    self.report.add(
                        mismatch_finding(Id::RepeatDiffers, &output_differences),
                        label,
                    );
                }
            }
        }
    }

    /// Compares the graph and constants of the second trace with those of the first.
    fn compare_graphs(&mut self, label: &str, repeat: &Traced) {
        let Ok(graph) = entry(&repeat.module, self.options) else {
            return;
        };
        if let Some(finding) = self.diff_with(Id::GraphsDiffer, graph) {
            self.report.add(finding, label);
            return;
        }
        let tolerance = Tolerances::default().of(DType::F32);
        for finding in
            differing_constants(self.graph, &self.traced.module, &repeat.module, tolerance)
        {
            self.report.add(finding, label);
        }
    }

    /// A finding about the difference from another graph; none if both graphs have equal steps.
    pub(super) fn diff_with(&self, id: Id, other: &Graph) -> Option<Finding> {
        let graph_diff = diff(self.graph, other)?;
        let finding = Finding::new(id, graph_diff.title()).at(&graph_diff.place());
        let value = graph_diff.left.as_ref().and_then(|step| step.value.clone());
        Some(finding.with_value(value).details([graph_diff.to_string()]))
    }
}

/// Makes a finding about the differences that exceed the tolerance. It is an error if no tolerance could make them
/// equal.
pub(super) fn mismatch_finding(id: Id, differences: &[Difference]) -> Finding {
    let failures = || differences.iter().filter(|difference| !difference.passed());
    let message = failures()
        .next()
        .map(ToString::to_string)
        .unwrap_or_default();
    let others = failures().skip(1).map(ToString::to_string);
    let finding = Finding::new(id, message).details(fold_lines(others.collect(), "outputs"));
    match failures().any(|difference| difference.incomparable.is_some()) {
        true => finding.at_least(Severity::Error),
        false => finding,
    }
}
