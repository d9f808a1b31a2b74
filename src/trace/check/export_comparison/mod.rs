//! Compares a trace with an export of the same module: results, sizes that only one of them takes, and branches that one of them
//! froze.
//!
//! Of two results that differ, one is wrong. Recorded results of PyTorch say which. Without them, the operators and lines at
//! which the two runs part show where to look.

mod frozen_regions;
mod input_sizes;
mod parting;

use std::collections::BTreeSet;

use self::frozen_regions::frozen_regions;
use self::input_sizes::{DifferingAxis, differing_axes};
use self::parting::{Parting, RecordedRun};
use super::bisect::GraphWithWeights;
use super::check_run::{CheckRun, RunOutcome};
use super::checker::{entry, mismatch_finding};
use super::evaluate::{argument_inputs, inputs, signature};
use super::finding::fold_lines;
use super::numerics::differences;
use super::perturb::{Perturbation, example, perturb};
use super::random::random_nodes;
use super::{CheckOptions, CheckReport, Finding, Id, Severity, Subject};
use crate::compare::Difference;
use crate::dim::Symbol;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, SourcePlace};
use crate::interp::loop_limit::{ExceededLimit, LoopLimit, exceeded, with_limit};
use crate::ir::{Graph, GraphModule, NamedTree};
use crate::item::Item;

/// The two results of a comparison.
const SIDES: &str = "trace and export";

impl CheckReport {
    /// Compares a trace with an export of the same module, and adds runs and findings: for the sets of the options, or the
    /// example, and, unless [`CheckOptions::perturb`] is off, for inputs derived from the first set.
    ///
    /// `recorded` holds PyTorch's results for the first sets, or is empty. They decide which of two results is wrong.
    ///
    /// # Errors
    /// The trace or the export has no such entry, or no inputs can be generated for it.
    pub fn against_export(
        mut self,
        trace: &dyn Subject,
        export: &dyn Subject,
        options: &CheckOptions,
        recorded: &[Item],
    ) -> Result<CheckReport> {
        let sets = match options.inputs.as_slice() {
            [] => vec![example(&self.graph)?],
            sets => sets.to_vec(),
        };
        // The check of the trace itself reports why there is no graph of the trace.
        let Some((first, Ok(trace_graph))) =
            sets.first().map(|set| (set, graph(trace, options, set)))
        else {
            return Ok(self);
        };
        let export_graph = match graph(export, options, first) {
            Ok(graph) => graph,
            Err(error) if error.kind() == ErrorKind::Usage => return Err(error.at("the export")),
            Err(error) => {
                let add = |error| self.add_failure("the export", "inputs 1", error);
                error.iter().for_each(add);
                return Ok(self);
            }
        };
        if let Some(finding) = differing_counts(&trace_graph, &export_graph) {
            self.add(finding, "");
            return Ok(self);
        }
        let order = argument_order(&trace_graph, &export_graph);
        let mut comparison = ExportComparison {
            trace,
            export,
            order,
            options,
            axes: differing_axes(&trace_graph, &export_graph),
            graphs: [trace_graph, export_graph],
            report: &mut self,
            refused_symbols: BTreeSet::new(),
            refused: Vec::new(),
            sizes_severity: Severity::Note,
        };
        comparison.run(&sets, recorded);
        self.name_export_as_program();
        Ok(self)
    }
}

impl CheckReport {
    /// Names the export as a source of the program's results, if results were compared with it.
    fn name_export_as_program(&mut self) {
        if self.runs.iter().any(|run| run.sides == SIDES) {
            let others = self.program.take().into_iter();
            let sources: Vec<String> = others.chain(["its export".to_string()]).collect();
            self.program = Some(sources.join(" and "));
        }
    }
}

/// The graph of a trace or an export for a set.
fn graph(subject: &dyn Subject, options: &CheckOptions, set: &[Item]) -> Result<Graph> {
    let traced = subject.trace(set)?;
    entry(&traced.module, options).cloned()
}

/// Positions in the trace's arguments of those of the export: by name if both have the same names, else as they are.
fn argument_order(trace: &Graph, export: &Graph) -> Vec<usize> {
    let [ours, theirs] = [trace, export].map(signature);
    let position = |wanted: &NamedTree| ours.iter().position(|one| one.name == wanted.name);
    let order: Option<Vec<usize>> = theirs.iter().map(position).collect();
    let order = order.filter(|order| order.len() == ours.len());
    order.unwrap_or_else(|| (0..ours.len()).collect())
}

/// A finding about graphs that take different numbers of tensors.
fn differing_counts(trace: &Graph, export: &Graph) -> Option<Finding> {
    let [ours, theirs] = [trace, export].map(|graph| argument_inputs(graph).len());
    let message = format!("number of input tensors: {ours} in the trace, {theirs} in the export");
    let finding = Finding::new(Id::ExportDiffers, message).at_least(Severity::Error);
    (ours != theirs).then_some(finding)
}

/// A comparison in progress.
struct ExportComparison<'a> {
    trace: &'a dyn Subject,
    export: &'a dyn Subject,
    /// Positions in the trace's arguments of those of the export.
    order: Vec<usize>,
    options: &'a CheckOptions,
    /// The graphs of trace and export for the first set.
    graphs: [Graph; 2],
    report: &'a mut CheckReport,
    /// Sizes that only the trace leaves open, or only the export.
    axes: Vec<DifferingAxis>,
    /// Symbols of the trace's sizes that were changed and then taken by only one of the two.
    refused_symbols: BTreeSet<Symbol>,
    /// Other inputs that only one of the two takes, with the error of the other.
    refused: Vec<String>,
    /// Severity of the finding about sizes: higher if the user's own sets are refused.
    sizes_severity: Severity,
}

impl ExportComparison<'_> {
    fn run(&mut self, sets: &[Vec<Item>], recorded: &[Item]) {
        let ((), used) = with_limit(LoopLimit::NONE, || {
            for (index, set) in sets.iter().enumerate() {
                let label = format!("inputs {}", index + 1);
                self.compare_given(&label, set, recorded.get(index));
            }
        });
        if let Some(set) = sets.first().filter(|_| self.options.perturb) {
            self.compare_perturbed(set, self.options.limit(used));
        }
        self.report_frozen_regions();
        self.report_sizes();
    }

    /// Compares the results for a set of the user's. `recorded` is PyTorch's result.
    fn compare_given(&mut self, label: &str, set: &[Item], recorded: Option<&Item>) {
        match self.results(set) {
            (Ok(trace), Ok(export)) => self.compare(label, set, [&trace, &export], recorded),
            (Ok(_), Err(error)) if error.kind() == ErrorKind::Input => {
                self.sizes_severity = Severity::Warning;
                self.note_refused(label, None, "the export", &error);
            }
            (Ok(_), Err(error)) => self.report.add_failure("the export", label, &error),
            // The check of the trace itself reports its failures.
            (Err(error), _) => self.skip(label, RunOutcome::Skipped, "the trace", &error),
        }
    }

    /// Compares the results for inputs derived from a set.
    fn compare_perturbed(&mut self, set: &[Item], limit: LoopLimit) {
        // The check of the trace reports why no inputs can be derived.
        let [trace, _] = &self.graphs;
        for perturbation in perturb(trace, set).unwrap_or_default() {
            with_limit(limit, || self.compare_perturbation(&perturbation));
        }
    }

    fn compare_perturbation(&mut self, perturbation: &Perturbation) {
        let (label, set) = (&*perturbation.label, &*perturbation.arguments);
        let symbol = perturbation
            .size
            .as_ref()
            .and_then(|change| change.symbol.as_ref());
        let results = self.results(set);
        if let Some(limit) = exceeded() {
            return self.report.runs.push(unfinished(label, &limit));
        }
        match results {
            (Ok(trace), Ok(export)) => self.compare(label, set, [&trace, &export], None),
            (Ok(_), Err(error)) => self.note_refused(label, symbol, "the export", &error),
            (Err(error), Ok(_)) => self.note_refused(label, symbol, "the trace", &error),
            (Err(error), Err(_)) => {
                self.skip(
                    label,
                    RunOutcome::Skipped,
                    "both refuse these inputs",
                    &error,
                );
            }
        }
    }

    /// Results of trace and export, from one random state.
    fn results(&self, set: &[Item]) -> (Result<Item>, Result<Item>) {
        let call = |subject: &dyn Subject, set: &[Item]| {
            subject.seed(self.options.seed);
            subject.call(set)
        };
        (
            call(self.trace, set),
            call(self.export, &self.export_set(set)),
        )
    }

    /// The arguments of the export for a set of the trace.
    fn export_set(&self, set: &[Item]) -> Vec<Item> {
        let arguments = self.order.iter().filter_map(|position| set.get(*position));
        arguments.cloned().collect()
    }

    /// Records that only one of the two takes inputs. `symbol` is that of the size that was changed.
    fn note_refused(&mut self, label: &str, symbol: Option<&Symbol>, who: &str, error: &Error) {
        self.skip(label, RunOutcome::Refused, who, error);
        let open = |axis: &DifferingAxis| axis.trace.as_symbol() == symbol;
        match symbol.filter(|_| self.axes.iter().any(open)) {
            Some(symbol) => drop(self.refused_symbols.insert(symbol.clone())),
            None => self
                .refused
                .push(format!("{who} refuses {label}: {}", error.message())),
        }
    }

    /// True if a graph draws random numbers, which have no counterparts in the other.
    fn draws_numbers(&self) -> bool {
        self.graphs
            .iter()
            .any(|graph| !random_nodes(graph).is_empty())
    }

    /// Records a run without results.
    fn skip(&mut self, label: &str, outcome: RunOutcome, who: &str, error: &Error) {
        let note = format!("{SIDES}: {who}: {}", error.message());
        self.report.runs.push(CheckRun::new(label, outcome, note));
    }

    fn compare(
        &mut self,
        label: &str,
        set: &[Item],
        [trace, export]: [&Item; 2],
        recorded: Option<&Item>,
    ) {
        let found = differences(trace, export, self.options.tolerances);
        let agree = found.iter().all(Difference::passed);
        let differ_in_numbers = found
            .iter()
            .all(|difference| difference.incomparable.is_none());
        if !agree && self.draws_numbers() && differ_in_numbers {
            let note = format!("{SIDES}: draw random numbers");
            let run = CheckRun::new(label, RunOutcome::Skipped, note);
            return self.report.runs.push(run);
        }
        let outcome = match agree {
            true => RunOutcome::Agrees,
            false => RunOutcome::Differs,
        };
        if !agree {
            let finding = self.explain(mismatch_finding(Id::ExportDiffers, &found), set);
            let finding = match recorded {
                Some(recorded) => self.judge(finding, [trace, export], recorded),
                None => finding,
            };
            self.report.add(finding, label);
        }
        self.report
            .runs
            .push(CheckRun::compared(label, SIDES, outcome, found));
    }

    /// Adds which of the two results is PyTorch's. A trace that gives another one is an error.
    fn judge(&self, finding: Finding, results: [&Item; 2], recorded: &Item) -> Finding {
        let failures = results.map(|result| {
            let found = differences(result, recorded, self.options.tolerances);
            found.into_iter().find(|difference| !difference.passed())
        });
        let verdict = |(name, failure): (&str, &Option<Difference>)| match failure {
            Some(difference) => format!("the {name} differs from PyTorch's result: {difference}"),
            None => format!("the {name} agrees with PyTorch's result"),
        };
        let severity = match &failures {
            [Some(_), _] => Severity::Error,
            [None, _] => finding.severity,
        };
        let lines = ["trace", "export"].into_iter().zip(&failures).map(verdict);
        finding.at_least(severity).details(lines)
    }

    /// Adds lines that say where the runs of trace and export part. The finding gets the place of the first.
    fn explain(&self, finding: Finding, set: &[Item]) -> Finding {
        match self.partings(set) {
            Ok(Some(partings)) => partings
                .iter()
                .fold(finding, |finding, (name, parting)| {
                    finding.details([format!("the {name} {parting}")])
                })
                .at(&place_of_first(&partings)),
            Ok(None) => {
                finding.details(["not searched: the values of both runs take too much memory"])
            }
            Err(error) => finding.details([format!("not searched: {}", error.message())]),
        }
    }

    /// Where the runs of trace and export part; none if their values take too much memory.
    fn partings(&self, set: &[Item]) -> Result<Option<Vec<(&'static str, Parting)>>> {
        let recorded = |subject: &dyn Subject, set: &[Item]| {
            subject.seed(self.options.seed);
            self.recorded_run(&subject.trace(set)?.module, set)
        };
        let export = recorded(self.export, &self.export_set(set))?;
        let (Some(trace), Some(export)) = (recorded(self.trace, set)?, export) else {
            return Ok(None);
        };
        let tolerance = self.options.tolerances.of(DType::F32);
        let partings = [
            ("trace", trace.parts_from(&export, tolerance)),
            ("export", export.parts_from(&trace, tolerance)),
        ];
        let partings = partings.into_iter();
        Ok(Some(
            partings
                .filter_map(|(name, parting)| Some((name, parting?)))
                .collect(),
        ))
    }

    fn recorded_run(&self, module: &GraphModule, set: &[Item]) -> Result<Option<RecordedRun>> {
        let graph = entry(module, self.options)?;
        let weights = &module.weights;
        let run = GraphWithWeights { graph, weights };
        RecordedRun::of(run, &inputs(graph, module, set)?)
    }

    /// Reports branches and loops that only one of the graphs has. It is a note while all results agree: the other may compute both
    /// branches.
    fn report_frozen_regions(&mut self) {
        let [trace, export] = &self.graphs;
        let mut findings = frozen_regions(("trace", trace), ("export", export));
        findings.extend(frozen_regions(("export", export), ("trace", trace)));
        let differ = self
            .report
            .findings
            .iter()
            .any(|one| one.id == Id::ExportDiffers);
        let severity = match differ {
            true => Severity::Warning,
            false => Severity::Note,
        };
        let findings = findings
            .into_iter()
            .map(|finding| finding.at_least(severity));
        self.report.extend(findings);
    }

    /// Reports the sizes that only one of the two takes. A size without a number in the trace's inputs may still be fixed by its
    /// operators: only those are reported that the trace took when they were changed.
    fn report_sizes(&mut self) {
        let mut axes = std::mem::take(&mut self.axes);
        if self.options.perturb {
            let is_open = |symbol: &Symbol| self.refused_symbols.contains(symbol);
            axes.retain(|axis| axis.trace.as_symbol().is_none_or(is_open));
        }
        let mut lines: Vec<String> = axes.iter().map(ToString::to_string).collect();
        lines.append(&mut self.refused);
        let [first, others @ ..] = lines.as_slice() else {
            return;
        };
        let finding = Finding::new(Id::ExportSizes, first).at_least(self.sizes_severity);
        let finding = finding.details(fold_lines(others.to_vec(), "differences"));
        self.report.add(finding, "");
    }
}

/// The place of the first value without a counterpart, or of the first result that differs.
fn place_of_first(partings: &[(&str, Parting)]) -> SourcePlace {
    let first = partings
        .iter()
        .find_map(|(_, parting)| parting.first.as_ref());
    let result = partings.iter().map(|(_, parting)| &parting.result).next();
    let site = first.or(result);
    site.map(|site| site.place.clone()).unwrap_or_default()
}

/// A run that a limit stopped.
fn unfinished(label: &str, limit: &ExceededLimit) -> CheckRun {
    CheckRun::new(
        label,
        RunOutcome::Skipped,
        format!("{SIDES}: {}", limit.message),
    )
}
