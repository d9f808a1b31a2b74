//! The check with other inputs than the user gave.

use super::checker::{Checker, entry};
use super::evaluate::{evaluate, signature};
use super::perturb::{Perturbation, perturb};
use super::report::{Outcome, Run};
use super::{Finding, Id, Severity};
use crate::error::{Error, Kind};
use crate::ir::Graph;
use crate::item::{Item, flatten};
use crate::symbols::{self, Guard};

impl Checker<'_> {
    /// Other values and sizes than those of a set.
    pub(super) fn perturbed(&mut self, set: &[Item]) {
        match perturb(self.graph, set) {
            Err(error) => self
                .report
                .fail("making other inputs", "other inputs", &error),
            Ok(made) => made.iter().for_each(|one| self.perturbation(one)),
        }
    }

    /// Graphs for other sizes, from a trace in place of a function: what an importer fixes differs between them.
    pub(super) fn resized(&self, set: &[Item]) -> Vec<Graph> {
        if self.subject.is_original() || !self.options.perturb {
            return Vec::new();
        }
        let made = perturb(self.graph, set).unwrap_or_default().into_iter();
        let graph = |one: Perturbation| {
            let traced = self.trace(&one.arguments).ok()?;
            entry(&traced.module, self.options).ok().cloned()
        };
        made.filter(|one| one.size.is_some())
            .filter_map(graph)
            .collect()
    }

    fn perturbation(&mut self, made: &Perturbation) {
        let is_original = self.subject.is_original();
        // A trace in place of a function cannot tell values that it froze.
        if !is_original && made.size.is_none() {
            return;
        }
        let (label, set) = (made.label.as_str(), made.arguments.as_slice());
        let expected = match self.call(set) {
            Ok(expected) => expected,
            Err(error) => return self.not_taken(made, &error),
        };
        match evaluate(self.graph, &self.traced.module, set) {
            Err(error) if made.size.is_none() && error.kind() != Kind::Input => {
                self.report.fail("the trace", label, &error);
            }
            Err(error) => self.refused(label, set, &error),
            Ok(got) if is_original => self.compare_with_another_trace(label, set, &got, &expected),
            Ok(got) => {
                self.compare(label, set, &got, &expected, None);
            }
        }
    }

    fn compare_with_another_trace(
        &mut self,
        label: &str,
        set: &[Item],
        got: &Item,
        expected: &Item,
    ) {
        let repeat = self.trace(set).ok();
        let agrees = self.compare(label, set, got, expected, repeat.as_ref());
        let repeat = repeat.as_ref().filter(|_| agrees);
        let other = repeat.and_then(|repeat| entry(&repeat.module, self.options).ok());
        let found = other.and_then(|graph| self.graph_finding(Id::PathDependsOnInput, graph));
        if let Some(found) = found {
            self.report.add(found, label);
        }
    }

    /// The function is the judge of what it takes, unless it is a trace itself: that should take another batch.
    fn not_taken(&mut self, made: &Perturbation, error: &Error) {
        let is_original = self.subject.is_original();
        let who = if is_original {
            "the function"
        } else {
            "the model"
        };
        let note = format!("{who} does not take it: {}", error.message());
        self.report
            .runs
            .push(Run::new(&made.label, Outcome::Skipped, note));
        let batch = made
            .size
            .as_ref()
            .filter(|change| change.is_batch && !is_original);
        let Some(change) = batch.filter(|change| !self.is_of_weights(change.from)) else {
            return;
        };
        let message = format!("no other batch than {}: {}", change.from, error.message());
        let frames = error.trail().iter().map(|frame| format!("at {frame}"));
        let mut finding = Finding::new(Id::SizeRefused, message).details(frames);
        // Numbers other than 1 stand out in the graph themselves, if they are at fault.
        if change.from != 1 {
            finding.severity = Severity::Note;
        }
        self.report.add(finding, &made.label);
    }

    /// A size that a weight has is probably the network's own; many have 1.
    fn is_of_weights(&self, size: i64) -> bool {
        let mut weights = self.traced.module.weights.values();
        size != 1 && weights.any(|weight| weight.shape().iter().any(|own| *own as i64 == size))
    }

    /// The function takes the inputs, its trace does not.
    pub(super) fn refused(&mut self, label: &str, set: &[Item], error: &Error) {
        let guard = broken_guard(self.graph, set);
        let place = guard.map(|guard| guard.place.clone()).unwrap_or_default();
        let mut finding = Finding::new(Id::SizeRefused, error.message().to_string()).at(&place);
        if guard.is_none() {
            finding = finding.details(error.trail().iter().map(|frame| format!("at {frame}")));
        }
        // A guard says for which sizes the graph holds, and an archive is imported again: nothing goes wrong unnoticed.
        if guard.is_some() || !self.subject.is_original() {
            finding.severity = Severity::Note;
        }
        self.report.add(finding, label);
        let note = error.message().to_string();
        self.report
            .runs
            .push(Run::new(label, Outcome::Refused, note));
    }
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
    let bindings = symbols::solve(dims);
    graph
        .guards
        .iter()
        .find(|guard| guard.holds(&bindings).is_ok_and(|holds| !holds))
}
