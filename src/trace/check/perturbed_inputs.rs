//! Checks with inputs derived from the user's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::canonical::each_node;
use super::check_run::{CheckRun, RunOutcome};
use super::checker::{Checker, entry};
use super::constant_diff::weights_of;
use super::evaluate::{argument_inputs, evaluate, signature};
use super::numerics::differences;
use super::perturb::{Perturbation, SizeChange, perturb};
use super::size_literals::{constant_batches, is_constant};
use super::{Finding, Id, Severity, SubjectKind, Traced};
use crate::error::{Error, ErrorKind, Result, panic_message};
use crate::interp::loop_limit::{ExceededLimit, LoopLimit, exceeded, with_limit};
use crate::ir::Graph;
use crate::item::{Item, flatten_arguments};
use crate::symbols::{self, Guard};
use crate::tensor::Tensor;

impl Checker<'_> {
    /// Checks values and sizes derived from a set, each under a limit.
    pub(super) fn check_perturbed(&mut self, set: &[Item], limit: LoopLimit) {
        match perturb(self.graph, set) {
            Err(error) => self
                .report
                .add_failure("making other inputs", "other inputs", &error),
            Ok(perturbations) => {
                for perturbation in &perturbations {
                    with_limit(limit, || self.check_perturbation(perturbation));
                }
            }
        }
    }

    /// Imports graphs for other sizes, if the subject is not a function. Numbers that the importer fixed differ between
    /// these graphs.
    pub(super) fn graphs_for_other_sizes(&self, set: &[Item]) -> Vec<Graph> {
        if self.subject.kind().is_function() || !self.options.perturb {
            return Vec::new();
        }
        let perturbations = perturb(self.graph, set).unwrap_or_default().into_iter();
        let graph = |perturbation: Perturbation| {
            let traced = self.trace(&perturbation.arguments).ok()?;
            entry(&traced.module, self.options).ok().cloned()
        };
        perturbations
            .filter(|perturbation| perturbation.size.is_some())
            .filter_map(graph)
            .collect()
    }

    /// Checks one set of derived arguments.
    fn check_perturbation(&mut self, perturbation: &Perturbation) {
        let kind = self.subject.kind();
        // An archive cannot show which values were frozen. A function need not accept empty tensors.
        let says_nothing = match kind.is_function() {
            true => perturbation.is_empty_batch(),
            false => perturbation.size.is_none(),
        };
        if says_nothing {
            return;
        }
        let (label, set) = (
            perturbation.label.as_str(),
            perturbation.arguments.as_slice(),
        );
        let called = catch_panic(|| self.call(set));
        if let Some(limit) = exceeded() {
            return self.report_unfinished(label, &limit);
        }
        match called {
            Ok(expected) => self.check_graph(perturbation, &expected),
            Err(error) => self.report_skipped(perturbation, &error),
        }
    }

    /// Runs the graph on derived arguments, for which a call gives `expected`.
    fn check_graph(&mut self, perturbation: &Perturbation, expected: &Item) {
        let (label, set) = (
            perturbation.label.as_str(),
            perturbation.arguments.as_slice(),
        );
        let got = evaluate(self.graph, &self.traced.module, set);
        if let Some(limit) = exceeded() {
            return self.report_unfinished(label, &limit);
        }
        match got {
            Err(error) if perturbation.size.is_none() && error.kind() != ErrorKind::Input => {
                self.report.add_failure("the trace", label, &error);
            }
            Err(error) => self.report_refused(label, set, &error),
            Ok(got) => {
                self.compare_perturbed(perturbation, &got, expected);
                self.check_ignored_tail(perturbation, &got);
            }
        }
    }

    /// Compares the graph's result for derived arguments with the expected one.
    fn compare_perturbed(&mut self, perturbation: &Perturbation, got: &Item, expected: &Item) {
        let (label, set) = (
            perturbation.label.as_str(),
            perturbation.arguments.as_slice(),
        );
        match self.subject.kind() {
            SubjectKind::Function => self.compare_with_new_trace(perturbation, got, expected),
            SubjectKind::Graph => self.report_run_alone(label),
            // The shape of a view of an empty tensor may follow from its other sizes or be ambiguous.
            _ if perturbation.is_empty_batch() => {
                self.compare_empty(perturbation, got, expected);
            }
            SubjectKind::Trace | SubjectKind::Script | SubjectKind::Export => {
                self.compare(label, set, got, expected, None);
            }
        }
    }

    /// Records a run that was stopped by a limit.
    fn report_unfinished(&mut self, label: &str, limit: &ExceededLimit) {
        let note = match limit.place.is_unknown() {
            true => limit.message.clone(),
            false => format!("{}, at {}", limit.message, limit.place),
        };
        let run = CheckRun::new(label, RunOutcome::Skipped, note);
        self.report.runs.push(run);
    }

    /// Compares results for an empty batch. Imports may differ where PyTorch refuses the call: a view of an empty tensor
    /// with a `-1`.
    fn compare_empty(&mut self, perturbation: &Perturbation, got: &Item, expected: &Item) {
        let output_differences = differences(got, expected, self.options.tolerances);
        let failure = output_differences
            .iter()
            .find(|difference| !difference.passed());
        let outcome = match failure {
            Some(difference) => {
                let finding = Finding::new(Id::EmptyRefused, difference.to_string());
                self.report.add(finding, &perturbation.label);
                RunOutcome::Differs
            }
            None => RunOutcome::Agrees,
        };
        let sides = self.subject.kind().sides();
        let run = CheckRun::compared(&perturbation.label, sides, outcome, output_differences);
        self.report.runs.push(run);
    }

    /// Compares the result with the function's, and the graph with that of a new trace for these arguments.
    fn compare_with_new_trace(&mut self, perturbation: &Perturbation, got: &Item, expected: &Item) {
        let (label, set) = (
            perturbation.label.as_str(),
            perturbation.arguments.as_slice(),
        );
        let new_trace: Option<Traced> = catch_panic(|| self.trace(set)).ok();
        let agrees = self.compare(label, set, got, expected, new_trace.as_ref());
        let new_trace = new_trace.as_ref().filter(|_| agrees);
        let new_graph = new_trace.and_then(|new_trace| entry(&new_trace.module, self.options).ok());
        let finding = new_graph.and_then(|graph| self.diff_with(Id::PathDependsOnInput, graph));
        if let Some(finding) = finding {
            self.report.add(finding, label);
        }
    }

    /// Handles inputs that a call refuses. A function decides which inputs are valid; an archive of a trace should accept
    /// another batch size, and a finding says if it does not.
    fn report_skipped(&mut self, perturbation: &Perturbation, error: &Error) {
        let is_function = self.subject.kind().is_function();
        let reason = if is_function {
            "the function refuses these inputs"
        } else {
            "an import for this set fails"
        };
        let note = format!("{reason}: {}", error.message());
        self.report.runs.push(CheckRun::new(
            &perturbation.label,
            RunOutcome::Skipped,
            note,
        ));
        let size = perturbation.size.as_ref();
        let Some(change) = size.filter(|change| change.is_batch && !is_function) else {
            return;
        };
        let why = error.message();
        let (id, message) = match change.to {
            0 => (Id::EmptyRefused, why.to_string()),
            // Larger batches give the finding that a smaller one would.
            to if to < change.from || self.is_network_size(change, error) => return,
            to => (
                Id::SizeRefused,
                format!("a batch of {to} in place of {}: {why}", change.from),
            ),
        };
        let frames = error.context().iter().map(|frame| format!("at {frame}"));
        let mut finding = Finding::new(id, message).details(frames);
        if change.symbol.is_none() && self.may_be_image_channels(change.from) {
            finding.severity = Severity::Note;
        }
        self.report.add(finding, &perturbation.label);
    }

    /// True if the inputs of this first size may be images without a batch axis.
    fn may_be_image_channels(&self, size: i64) -> bool {
        let inputs = argument_inputs(self.graph).iter();
        let shapes = inputs.map(|id| &self.graph.ty(*id).shape);
        let mut shapes_of_size =
            shapes.filter(|shape| shape.first().is_some_and(|first| first.is(size)));
        (3..=4).contains(&size) && shapes_of_size.all(|shape| shape.len() == 3)
    }

    /// True if `error`, the failure for another size, occurred at a node that reads a weight of the original size. Then
    /// the size belongs to the network, unless a view has it as a number. A size of 1 is not evidence, since many
    /// weights have it.
    fn is_network_size(&self, change: &SizeChange, error: &Error) -> bool {
        let batches_in_views = constant_batches(self.graph);
        let symbol = change.symbol.as_ref();
        if change.from == 1 || symbol.is_some_and(|symbol| batches_in_views.contains(symbol)) {
            return false;
        }
        let mut is_weight_size = false;
        each_node(self.graph, &mut |graph, node, _| {
            let weights = weights_of(graph, node).into_iter();
            let parameters = weights.filter(|name| !is_constant(name));
            let mut sizes = parameters.flat_map(|name| self.weight_shape(name));
            is_weight_size |= sizes.any(|size| size == change.from)
                && error.context().contains(&node.place.to_string());
        });
        is_weight_size
    }

    /// Shape of a weight; empty if there is no such weight.
    fn weight_shape(&self, weight: &str) -> Vec<i64> {
        let weight = self.traced.module.weights.get(weight);
        let shape = weight.map(Tensor::shape).unwrap_or_default();
        shape.iter().map(|size| *size as i64).collect()
    }

    /// Reports inputs that the function accepts and its trace refuses with `error`.
    pub(super) fn report_refused(&mut self, label: &str, set: &[Item], error: &Error) {
        let guard = broken_guard(self.graph, set);
        let place = guard.map(|guard| guard.place.clone()).unwrap_or_default();
        let mut finding = Finding::new(Id::SizeRefused, error.message().to_string()).at(&place);
        if guard.is_none() {
            finding = finding.details(error.context().iter().map(|frame| format!("at {frame}")));
        }
        // A guard or a new import of the archive prevents wrong results.
        if guard.is_some() || !self.subject.kind().is_function() {
            finding.severity = Severity::Note;
        }
        self.report.add(finding, label);
        let reason = match self.subject.kind() {
            SubjectKind::Function => "the trace refuses inputs that the function accepts",
            _ => "the first import refuses inputs that an import for this set accepts",
        };
        let note = format!("{reason}: {}", error.message());
        self.report
            .runs
            .push(CheckRun::new(label, RunOutcome::Refused, note));
    }
}

/// Runs the user's program with arguments that the user did not choose: a panic is an error.
fn catch_panic<T>(program: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|panic| {
        let message = format!("it panics: {}", panic_message(&*panic));
        Err(Error::new(ErrorKind::Raised, message))
    })
}

/// The first guard of the graph that a set of arguments breaks.
fn broken_guard<'a>(graph: &'a Graph, set: &[Item]) -> Option<&'a Guard> {
    let inputs = flatten_arguments(&signature(graph), set).ok()?;
    let dims = graph.inputs.iter().zip(&inputs).flat_map(|(id, tensor)| {
        graph
            .ty(*id)
            .shape
            .iter()
            .zip(tensor.shape().iter().copied())
    });
    let bindings = symbols::solve(dims);
    graph
        .guards
        .iter()
        .find(|guard| guard.holds(&bindings).is_ok_and(|holds| !holds))
}
