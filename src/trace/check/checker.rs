use super::bisect::{Program, first_difference};
use super::constants::differing;
use super::dependence::independent_outputs;
use super::diff::diff;
use super::frozen::size_literals;
use super::numerics::{Tolerances, differences};
use super::perturb::{Perturbation, example, perturb, signature};
use super::random::random_nodes;
use super::report::{Outcome, Report, Run};
use super::{Allow, Finding, Id, Severity, Subject, Traced};
use crate::compare::Difference;
use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::interp;
use crate::ir::{Graph, Module};
use crate::item::{Item, flatten};
use crate::symbols::Guard;
use crate::tensor::Tensor;

/// What a check does.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Sets of arguments: those of the trace first. Without any, arguments of the graph's example sizes are made up.
    pub inputs: Vec<Vec<Item>>,
    /// The entry graph, if not the first one.
    pub entry: Option<String>,
    /// How far results may be apart.
    pub tolerances: Tolerances,
    /// Differences of numbers are errors, not warnings.
    pub strict: bool,
    /// Try other values and sizes than those of the first set.
    pub perturb: bool,
    /// Findings that are not reported.
    pub allow: Allow,
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
            allow: Allow::default(),
            seed: 0,
        }
    }
}

/// Checks that a trace does what the function does: for the inputs of the trace and all that are given, and, unless the
/// options say otherwise, for others that are made of the first ones.
///
/// Every set: the function is called, the trace is run, the function is traced again; results, graphs and constants are
/// compared. What fails on the way is a finding, beside those that were made before.
///
/// # Errors
/// There is no such entry graph, or no inputs can be made for it.
pub fn check_trace(
    subject: &dyn Subject,
    traced: &Traced,
    options: &CheckOptions,
) -> Result<Report> {
    let graph = entry(&traced.module, options)?;
    let mut checker = Checker {
        subject,
        traced,
        graph,
        options,
        report: Report::new(graph.clone(), options.strict, options.allow.clone()),
    };
    checker.report.extend(traced.warnings.clone());
    checker.report.extend(inspect(graph, &traced.module));
    let sets = match options.inputs.as_slice() {
        [] => vec![example(graph)?],
        sets => sets.to_vec(),
    };
    for (index, set) in sets.iter().enumerate() {
        checker.given(index, set);
    }
    if let Some(set) = sets.first().filter(|_| options.perturb) {
        checker.perturbed(set);
    }
    Ok(checker.report)
}

/// What can be said of a graph without running it.
pub fn inspect(graph: &Graph, module: &Module) -> Vec<Finding> {
    let mut found = independent_outputs(graph);
    found.extend(random_nodes(graph));
    found.extend(size_literals(graph, module));
    found
}

fn entry<'a>(module: &'a Module, options: &CheckOptions) -> Result<&'a Graph> {
    match &options.entry {
        Some(name) => module.graph(name),
        None => module
            .graphs
            .first()
            .ok_or_else(|| Error::usage("the trace has no graph")),
    }
}

struct Checker<'a> {
    subject: &'a dyn Subject,
    traced: &'a Traced,
    graph: &'a Graph,
    options: &'a CheckOptions,
    report: Report,
}

impl Checker<'_> {
    /// A set of the user's.
    fn given(&mut self, index: usize, set: &[Item]) {
        let label = match index {
            0 => "inputs of the trace".to_string(),
            index => format!("check inputs {index}"),
        };
        let expected = self
            .call(set)
            .map_err(|error| self.failed("the function", &label, &error))
            .ok();
        let repeat = self
            .trace(set)
            .map_err(|error| self.failed("the second trace", &label, &error))
            .ok();
        let got = run(self.graph, &self.traced.module, set);
        let got = got
            .map_err(|error| self.failed("the trace", &label, &error))
            .ok();
        if let Some(expected) = &expected {
            if index == 0 {
                self.call_again(set, expected, &label);
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

    fn call(&self, set: &[Item]) -> Result<Item> {
        self.subject.seed(self.options.seed);
        self.subject.call(set)
    }

    fn trace(&self, set: &[Item]) -> Result<Traced> {
        self.subject.seed(self.options.seed);
        self.subject.trace(set)
    }

    fn failed(&mut self, what: &str, label: &str, error: &Error) {
        let id = error.kind().id();
        let finding = Finding::new(Id::RunFailed, format!("{what} failed: {}", error.message()));
        let finding = finding.details([format!("{id} {}", error.kind().title())]);
        let finding = finding.details(error.trail().iter().map(|frame| format!("at {frame}")));
        self.report.add(
            finding.details(error.advice().map(|help| format!("help: {help}"))),
            label,
        );
        self.report.runs.push(Run::new(
            label,
            Outcome::Failed,
            format!("{what}: {}", error.message()),
        ));
    }

    /// A function that does not even agree with itself cannot be compared with.
    fn call_again(&mut self, set: &[Item], expected: &Item, label: &str) {
        let Ok(again) = self.call(set) else { return };
        let found = differences(&again, expected, self.options.tolerances);
        let wrong: Vec<&Difference> = found
            .iter()
            .filter(|difference| !difference.passed())
            .collect();
        if let Some(first) = wrong.first() {
            let finding = Finding::new(Id::UnstableFunction, first.to_string());
            self.report.add(finding, label);
        }
    }

    /// The trace's result beside the function's; true if they agree.
    fn compare(
        &mut self,
        label: &str,
        set: &[Item],
        got: &Item,
        expected: &Item,
        repeat: Option<&Traced>,
    ) -> bool {
        let found = differences(got, expected, self.options.tolerances);
        let agrees = found.iter().all(Difference::passed);
        if !agrees {
            let finding = self.explain(mismatch(Id::OutputsDiffer, &found), set, repeat);
            self.report.add(finding, label);
        }
        let outcome = if agrees {
            Outcome::Agrees
        } else {
            Outcome::Differs
        };
        self.report.runs.push(Run::compared(label, outcome, found));
        agrees
    }

    /// Adds what is to blame, as far as a second trace tells: the first node that differs, or the function itself.
    fn explain(&self, finding: Finding, set: &[Item], repeat: Option<&Traced>) -> Finding {
        let random = random_nodes(self.graph);
        let finding = match random.first() {
            Some(_) => finding.details(["the trace has nondeterministic nodes (W0214)"]),
            None => finding,
        };
        let Some(repeat) = repeat else { return finding };
        let divergence = entry(&repeat.module, self.options).and_then(|graph| {
            let got = Program {
                graph: self.graph,
                weights: &self.traced.module.weights,
            };
            let expected = Program {
                graph,
                weights: &repeat.module.weights,
            };
            let inputs = flatten(&signature(self.graph), set)?;
            first_difference(
                got,
                expected,
                &inputs,
                self.options.tolerances.of(DType::F32),
            )
        });
        match divergence {
            Ok(Some(found)) => {
                let finding = finding.at(&found.place).value(&found.value);
                finding.details([found.to_string()])
            }
            Ok(None) => {
                finding.details(["a second trace computes the same as the first, value by value"])
            }
            Err(error) => finding.details([format!("a second trace could not be run: {error}")]),
        }
    }

    fn compare_repeat(&mut self, label: &str, set: &[Item], expected: &Item, repeat: &Traced) {
        let graph = match entry(&repeat.module, self.options) {
            Ok(graph) => graph,
            Err(error) => return self.failed("the second trace", label, &error),
        };
        match run(graph, &repeat.module, set) {
            Err(error) => self.failed("the second trace", label, &error),
            Ok(got) => {
                let found = differences(&got, expected, self.options.tolerances);
                if !found.iter().all(Difference::passed) {
                    self.report.add(mismatch(Id::RepeatDiffers, &found), label);
                }
            }
        }
    }

    fn compare_graphs(&mut self, label: &str, repeat: &Traced) {
        let Ok(graph) = entry(&repeat.module, self.options) else {
            return;
        };
        if let Some(found) = self.graph_finding(Id::GraphsDiffer, graph) {
            self.report.add(found, label);
            return;
        }
        let tolerance = Tolerances::default().of(DType::F32);
        for finding in differing(self.graph, &self.traced.module, &repeat.module, tolerance) {
            self.report.add(finding, label);
        }
    }

    fn graph_finding(&self, id: Id, other: &Graph) -> Option<Finding> {
        let found = diff(self.graph, other)?;
        let finding = Finding::new(id, found.title()).at(&found.place());
        let finding = match found.left.as_ref().and_then(|step| step.value.clone()) {
            Some(value) => finding.value(value),
            None => finding,
        };
        Some(finding.details([found.to_string()]))
    }

    /// Other values and sizes than those of a set.
    fn perturbed(&mut self, set: &[Item]) {
        match perturb(self.graph, set) {
            Err(error) => self.failed("making other inputs", "other inputs", &error),
            Ok(made) => made.iter().for_each(|one| self.perturbation(one)),
        }
    }

    fn perturbation(&mut self, made: &Perturbation) {
        let is_original = self.subject.is_original();
        if !is_original && made.size.is_none() {
            return;
        }
        let (label, set) = (made.label.as_str(), made.arguments.as_slice());
        let expected = match self.call(set) {
            Ok(expected) => expected,
            Err(error) => return self.refused_by_function(made, &error),
        };
        match run(self.graph, &self.traced.module, set) {
            Err(error) => self.refused(made, &error),
            Ok(got) if is_original => {
                let repeat = self.trace(set).ok();
                let agrees = self.compare(label, set, &got, &expected, repeat.as_ref());
                let other = repeat
                    .as_ref()
                    .and_then(|repeat| entry(&repeat.module, self.options).ok());
                let found =
                    other.and_then(|graph| self.graph_finding(Id::PathDependsOnInput, graph));
                if let Some(found) = found.filter(|_| agrees) {
                    self.report.add(found, label);
                }
            }
            Ok(got) => {
                self.compare(label, set, &got, &expected, None);
            }
        }
    }

    /// The function is the judge of what it takes, unless it is a trace itself.
    fn refused_by_function(&mut self, made: &Perturbation, error: &Error) {
        let note = format!("the function refuses it: {}", error.message());
        self.report
            .runs
            .push(Run::new(&made.label, Outcome::Skipped, note));
        let is_batch = made.size.as_ref().is_some_and(|change| change.is_batch);
        if is_batch && !self.subject.is_original() {
            let finding = Finding::new(
                Id::SizeRefused,
                format!("another batch fails: {}", error.message()),
            );
            let frames = error.trail().iter().map(|frame| format!("at {frame}"));
            self.report.add(finding.details(frames), &made.label);
        }
    }

    /// The function takes the inputs, its trace does not.
    fn refused(&mut self, made: &Perturbation, error: &Error) {
        if made.size.is_none() && error.kind() != Kind::Input {
            return self.failed("the trace", &made.label, error);
        }
        let guard = broken_guard(self.graph, &made.arguments);
        let place = guard.map(|guard| guard.place.clone()).unwrap_or_default();
        let finding = Finding::new(Id::SizeRefused, error.message().to_string()).at(&place);
        let frames = error.trail().iter().map(|frame| format!("at {frame}"));
        let finding = match guard {
            // A guard says for which sizes the graph holds: nothing goes wrong unnoticed.
            Some(_) => Finding {
                severity: Severity::Note,
                ..finding
            },
            None => finding.details(frames),
        };
        self.report.add(finding, &made.label);
        self.report.runs.push(Run::new(
            &made.label,
            Outcome::Refused,
            error.message().to_string(),
        ));
    }
}

/// Runs a graph of a module on the user's arguments.
fn run(graph: &Graph, module: &Module, set: &[Item]) -> Result<Item> {
    let inputs = flatten(&signature(graph), set)?;
    let outputs = interp::run(graph, &module.weights, &inputs)?;
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let bindings = graph.bind(&shapes)?;
    let plain = graph.plain_outputs();
    Item::build(
        graph.output_tree.as_ref().unwrap_or(&plain),
        &outputs,
        &bindings,
    )
}

fn broken_guard<'a>(graph: &'a Graph, set: &[Item]) -> Option<&'a Guard> {
    let inputs = flatten(&signature(graph), set).ok()?;
    let dims = graph.inputs.iter().zip(&inputs).flat_map(|(id, tensor)| {
        graph
            .ty(*id)
            .shape
            .iter()
            .zip(tensor.shape().iter().copied())
    });
    let bindings = crate::symbols::solve(dims.collect::<Vec<_>>().into_iter());
    graph
        .guards
        .iter()
        .find(|guard| guard.holds(&bindings).is_ok_and(|holds| !holds))
}

/// A finding about results that differ; one that no tolerance could mend is an error.
fn mismatch(id: Id, found: &[Difference]) -> Finding {
    let wrong = || found.iter().filter(|difference| !difference.passed());
    let message = wrong().next().map(ToString::to_string).unwrap_or_default();
    let finding = Finding::new(id, message).details(wrong().skip(1).map(ToString::to_string));
    match wrong().any(|difference| difference.incomparable.is_some()) {
        true => finding.at_least(Severity::Error),
        false => finding,
    }
}
