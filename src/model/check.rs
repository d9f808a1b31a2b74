//! Checks of a model: whether its graph is valid for other sizes, and whether a device computes it correctly.

use crate::compare::{Difference, Tolerance, compare};
use crate::error::{Error, ErrorKind, Result};
use crate::ir::{Graph, GraphModule};
use crate::item::Item;
use crate::kernel::materialization::Precision;
use crate::trace::check::{
    CheckOptions, CheckReport, CheckRun, Finding, Id, RunOutcome, Subject, Traced, check_trace,
    example, fold_lines, inspect_trace,
};

use crate::trace::program::MethodSubject;

use super::{CompileOptions, Device, Model, SearchOptions, first_divergence};

/// Reference that a device is compared with.
#[derive(Debug)]
pub struct DeviceReference<'a> {
    /// The device.
    pub device: &'a Device,
    /// Storage precision of `f32` values on the device.
    pub precision: Precision,
    /// Name of the source and expected outputs of every input set; `None` for the outputs of the imported graph on the
    /// host.
    pub expected: Option<(&'a str, &'a [Item])>,
    /// Tolerance of the comparison.
    pub tolerance: Tolerance,
}

/// Checks a model: analyses the program and the graph, traces again with other sizes, and compares a device with a
/// reference. Failures on the way become findings.
///
/// # Errors
/// Fails if the model has no such entry graph, no inputs can be made for it, or the device does not support the
/// precision.
pub fn check(
    model: &Model,
    options: &CheckOptions,
    reference: &DeviceReference<'_>,
) -> Result<CheckReport> {
    let name = options.entry.as_deref().unwrap_or("forward");
    let warnings = model.program().inspect()?;
    let first = options.inputs.first().map(Vec::as_slice);
    let module = match model.import_method(name, first) {
        Ok(module) => module,
        Err(error) if error.kind() == ErrorKind::Usage => return Err(error),
        Err(error) => return Ok(without_graph(model, options, warnings, &error)),
    };
    let graph = module.graph(name)?.clone();
    let options = CheckOptions {
        inputs: input_sets(options, &graph)?,
        entry: Some(name.to_string()),
        ..options.clone()
    };
    let traced = traced(module, warnings);
    let mut report = check_trace(
        &MethodSubject {
            program: model.program(),
            name,
        },
        &traced,
        &options,
    )?;
    let check = DeviceCheck {
        model,
        graph: &graph,
        reference,
    };
    match check.run(&options.inputs, &mut report) {
        Err(error) if error.kind() == ErrorKind::Usage => return Err(error),
        Err(error) => report.add_failure("the device", &reference.device.to_string(), &error),
        Ok(()) => {}
    }
    Ok(report)
}

/// The findings of [`check`] that need no run, from the program and an entry's graph. `arguments` are those that the
/// graph was imported for; without them, arguments with example sizes are generated.
///
/// # Errors
/// Fails if the module has no such graph, a source file of the archive does not parse, or no inputs can be made.
pub fn inspect(
    model: &Model,
    module: &GraphModule,
    name: &str,
    arguments: Option<&[Item]>,
) -> Result<Vec<Finding>> {
    let traced = traced(module.clone(), model.program().inspect()?);
    let options = CheckOptions {
        inputs: arguments.map(<[Item]>::to_vec).into_iter().collect(),
        entry: Some(name.to_string()),
        ..CheckOptions::default()
    };
    Ok(inspect_trace(
        &MethodSubject {
            program: model.program(),
            name,
        },
        &traced,
        &options,
    )?
    .findings)
}

/// A module with the findings about its program. Findings about random nodes and normalisations are left out: the graph
/// reports its own, with their modules and without those that are never called.
fn traced(module: GraphModule, mut warnings: Vec<Finding>) -> Traced {
    warnings.retain(|finding| !matches!(finding.id, Id::RandomNode | Id::TrainingMode));
    Traced { module, warnings }
}

/// The given input sets, or one with the graph's example sizes.
fn input_sets(options: &CheckOptions, graph: &Graph) -> Result<Vec<Vec<Item>>> {
    match options.inputs.as_slice() {
        [] => Ok(vec![example(graph)?]),
        sets => Ok(sets.to_vec()),
    }
}

/// Report for a model that cannot be imported: findings about its program, and the import errors.
fn without_graph(
    model: &Model,
    options: &CheckOptions,
    warnings: Vec<Finding>,
    error: &Error,
) -> CheckReport {
    let name = options.entry.as_deref().unwrap_or("forward");
    let graph = Graph {
        name: name.to_string(),
        ..Graph::default()
    };
    let origin = model.program().kind();
    let mut report = CheckReport::new(graph, origin, options.strict, options.allow.clone());
    report.extend(warnings);
    for error in error.iter() {
        report.add_failure("the import", "inputs 1", error);
    }
    report
}

/// Comparison of an entry graph on a device with a reference.
struct DeviceCheck<'a> {
    model: &'a Model,
    graph: &'a Graph,
    reference: &'a DeviceReference<'a>,
}

impl DeviceCheck<'_> {
    /// Compares the outputs for every input set, and adds findings and runs to a report.
    fn run(&self, sets: &[Vec<Item>], report: &mut CheckReport) -> Result<()> {
        let options = CompileOptions {
            entry: self.graph.name.clone(),
            precision: self.reference.precision,
            ..CompileOptions::default()
        };
        let session = self.model.compile(self.reference.device, &options)?;
        for (index, set) in sets.iter().enumerate() {
            let label = format!("inputs {}", index + 1);
            let results = session
                .call(set)
                .and_then(|got| Ok((got, self.expected(index, set)?)));
            match results {
                Ok((got, expected)) => self.compare(&label, set, [&got, &expected], report),
                Err(error) => report.add_failure(&self.compared_names(), &label, &error),
            }
        }
        Ok(())
    }

    /// Names of the device and of the reference.
    fn compared_names(&self) -> String {
        let against = match self.reference.expected {
            Some((who, _)) => who,
            None => "the imported graph",
        };
        match self.reference.device {
            Device::Host => format!("the optimised graph on the host and {against}"),
            device => format!("{device} and {against}"),
        }
    }

    /// The reference's output for the input set at an index.
    fn expected(&self, index: usize, set: &[Item]) -> Result<Item> {
        match self.reference.expected {
            None => MethodSubject {
                program: self.model.program(),
                name: &self.graph.name,
            }
            .call(set),
            Some((who, expected)) => expected.get(index).cloned().ok_or_else(|| {
                Error::usage(format!(
                    "{who}: no expected output for input set {}",
                    index + 1
                ))
            }),
        }
    }

    /// Compares two outputs and adds the finding, if they differ, and the run to a report.
    fn compare(
        &self,
        label: &str,
        set: &[Item],
        [got, expected]: [&Item; 2],
        report: &mut CheckReport,
    ) {
        let differences = compare(got, expected, self.reference.tolerance);
        let agrees = differences.iter().all(Difference::passed);
        if !agrees {
            let wrong = || differences.iter().filter(|difference| !difference.passed());
            let message = wrong().next().map(ToString::to_string).unwrap_or_default();
            let others = wrong().skip(1).map(ToString::to_string);
            let others = fold_lines(others.collect(), "outputs");
            let finding = Finding::new(Id::DeviceDiffers, message).details(others);
            report.add(self.with_divergence(finding, set), label);
        }
        let outcome = if agrees {
            RunOutcome::Agrees
        } else {
            RunOutcome::Differs
        };
        let run = CheckRun::compared(label, &self.compared_names(), outcome, differences);
        report.runs.push(run);
    }

    /// Adds to a finding the first value that the device computes differently from the oracle.
    fn with_divergence(&self, finding: Finding, set: &[Item]) -> Finding {
        let DeviceReference {
            device, tolerance, ..
        } = self.reference;
        let options = CompileOptions {
            entry: self.graph.name.clone(),
            precision: self.reference.precision,
            ..CompileOptions::default()
        };
        let session = self.model.compile(device, &options);
        let divergence = session.and_then(|session| {
            let search = first_divergence(&session, set, *tolerance, SearchOptions::default())?;
            Ok(search.found())
        });
        match divergence {
            Ok(Some(divergence)) => {
                let finding = finding
                    .at(&divergence.site.place)
                    .with_value_name(&divergence.site.value);
                finding.details([divergence.to_string()])
            }
            Ok(None) => finding.details(["every value of the device agrees with the oracle's"]),
            Err(error) => finding.details([format!("could not be bisected: {error}")]),
        }
    }
}
