//! Verification of a compiled model against its uncompiled graphs, and search for the pass that changes a value.

mod gradient_differences;
mod recorded_subject;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::cases::GradientCall;
use crate::compare::{Difference, Tolerance, compare};
use crate::error::{Error, ErrorContext, Result};
use crate::interp::{self, BodyKind, NodeEvent};
use crate::ir::{Graph, GraphModule, ValueId, Weights};
use crate::item::Item;
use crate::pass::{self, Pass};
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, ValueSite, evaluate, example, inputs};

use super::backward::with_all_gradients;
use super::{
    BackwardOptions, CompileOptions, Device, Model, SearchOptions, Session, first_divergence,
};
use gradient_differences::differences;
pub(crate) use recorded_subject::RecordedSubject;
use recorded_subject::recorded_calls;

/// Comparison of a compiled entry graph with the uncompiled graph in two forms, on one set of inputs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verification {
    /// Name of the entry graph.
    pub entry: String,
    /// Index of the input set; `None` if inputs were generated because no set fits the entry.
    pub set: Option<usize>,
    /// True if gradients are among the differences.
    pub has_gradients: bool,
    /// Differences from the imported graph, whose operator calls are run as they are.
    pub against_calls: Vec<Difference>,
    /// Differences from the oracle, which runs only primitives.
    pub against_oracle: Vec<Difference>,
    /// Differences from what PyTorch recorded; empty without a record.
    pub against_recorded: Vec<Difference>,
    /// Cause of a difference, if it can be found.
    pub culprit: Option<Culprit>,
}

/// First cause of a difference in a compiled graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Culprit {
    /// The device computes a node differently from the oracle.
    Device(Divergence),
    /// A pass changes a value.
    Pass(&'static str, Divergence),
    /// The device computes what the oracle computes, and PyTorch recorded something else: of the gradients that differ the
    /// one that a backward pass computes first. The site is that of the last node that reads the value.
    Recorded(Divergence),
}

impl Verification {
    /// True if all outputs agree with both uncompiled forms, and with PyTorch's record if there is one.
    pub fn passed(&self) -> bool {
        self.agrees_with_oracle() && self.against_recorded.iter().all(Difference::passed)
    }

    /// True if all outputs agree with both uncompiled forms.
    fn agrees_with_oracle(&self) -> bool {
        let mut all = self.against_calls.iter().chain(&self.against_oracle);
        all.all(Difference::passed)
    }
}

impl Culprit {
    /// JSON object of the value, and of the pass if one is the cause.
    pub fn to_json(&self) -> Json {
        let (pass, found) = match self {
            Culprit::Device(found) | Culprit::Recorded(found) => (None, found),
            Culprit::Pass(name, found) => (Some(name), found),
        };
        json!({"pass": pass, "first_divergence": found.to_json(), "text": self.to_string()})
    }
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Culprit::Device(found) => write!(f, "on the device, {found}"),
            Culprit::Pass(name, found) => write!(f, "after the pass {name}, {found}"),
            Culprit::Recorded(found) => write!(
                f,
                "in the order of the backward pass, the first gradient that differs from PyTorch's:\n  {}\n  the value's \
                 last reader: {}",
                found.difference, found.site
            ),
        }
    }
}

/// Verifies that a compiled model computes its graphs: compares every entry graph on a device, for all input sets that
/// it accepts, with the imported graph and with the oracle. An entry that accepts none of the sets is verified with
/// generated inputs of its example sizes. See [`Model::entries`]; the options' entry is ignored.
///
/// # Errors
/// Fails if no entry accepts one of the sets, a graph cannot be imported or compiled, or a run fails.
pub fn verify(
    model: &Model,
    device: &Device,
    options: &CompileOptions,
    sets: &[Vec<Item>],
    tolerance: Tolerance,
) -> Result<Vec<Verification>> {
    verify_entries(model, device, options, sets, tolerance, Passes::Forward)
}

/// Verifies as [`verify`] does, with the gradients of a loss: those of all inputs and weights (parameters and buffers) that
/// are floats. Without a loss it is the sum of the only float output, as in `torch.jit.verify`. Each difference of a
/// gradient is called `gradient of NAME`. The model keeps its weights and states.
///
/// # Errors
/// Fails as [`verify`] does, if the loss is not one number, if there is none and an entry has several float outputs, and
/// as [`Graph::gradient`] does.
pub fn verify_backward(
    model: &Model,
    device: &Device,
    options: &CompileOptions,
    sets: &[Vec<Item>],
    tolerance: Tolerance,
    backward: &BackwardOptions,
) -> Result<Vec<Verification>> {
    let passes = Passes::ForwardAndBackward(backward);
    verify_entries(model, device, options, sets, tolerance, passes)
}

/// Verifies the calls of a case as [`verify_backward`] does, and compares their outputs and gradients with those that PyTorch
/// recorded, within the recorded tolerances. The case is a folder that `examples/record.py --gradients` wrote. The loss is the
/// recorded one. [`Verification::set`] is the index of the call.
///
/// # Errors
/// Fails as [`verify`] does, if the folder has no recorded gradients or they do not fit the model, and as
/// [`Graph::gradient`] does.
pub fn verify_recorded(
    model: &Model,
    device: &Device,
    options: &CompileOptions,
    tolerance: Tolerance,
    case: &Path,
) -> Result<Vec<Verification>> {
    let verify = |(index, recorded): (usize, &GradientCall)| {
        let verifier = Verifier {
            model,
            device,
            options: CompileOptions {
                entry: recorded.call.method.clone(),
                ..options.clone()
            },
            tolerance,
            passes: Passes::Recorded(recorded),
        };
        verifier.verify(Some(index), &recorded.call.inputs)
    };
    recorded_calls(case)?
        .iter()
        .enumerate()
        .map(verify)
        .collect()
}

fn verify_entries(
    model: &Model,
    device: &Device,
    options: &CompileOptions,
    sets: &[Vec<Item>],
    tolerance: Tolerance,
    passes: Passes,
) -> Result<Vec<Verification>> {
    let mut verifications = Vec::new();
    let mut refusals: Vec<Option<Error>> = sets.iter().map(|_| Some(no_entry())).collect();
    for entry in &model.entries() {
        let options = CompileOptions {
            entry: entry.clone(),
            ..options.clone()
        };
        let verifier = Verifier {
            passes: passes.of_entry(model, entry)?,
            model,
            device,
            options,
            tolerance,
        };
        let before = verifications.len();
        for ((index, set), refusal) in sets.iter().enumerate().zip(&mut refusals) {
            match verifier.takes(set) {
                Ok(()) => {
                    *refusal = None;
                    verifications.push(verifier.verify(Some(index), set)?);
                }
                Err(error) => *refusal = refusal.take().map(|_| error),
            }
        }
        if verifications.len() == before {
            let module = model.import_method(entry, None)?;
            verifications.push(verifier.verify(None, &example(module.graph(entry)?)?)?);
        }
    }
    if !passes.is_forward() && !verifications.iter().any(|one| one.has_gradients) {
        return Err(Error::usage(
            "no entry has an output of floats, so there are no gradients",
        ));
    }
    let refused = refusals
        .into_iter()
        .enumerate()
        .find_map(|(index, refusal)| Some(refusal?.at(format!("inputs {}", index + 1))));
    refused.map_or(Ok(verifications), Err)
}

/// The error of an input set before any entry was tried.
fn no_entry() -> Error {
    Error::input("the model has no entry graph")
}

/// Verifies one entry graph.
struct Verifier<'a> {
    model: &'a Model,
    device: &'a Device,
    /// Options of the compilation, which name the entry.
    options: CompileOptions,
    tolerance: Tolerance,
    passes: Passes<'a>,
}

/// The passes that a verification runs.
#[derive(Clone, Copy)]
enum Passes<'a> {
    Forward,
    /// With the gradients of a loss.
    ForwardAndBackward(&'a BackwardOptions),
    /// With the gradients that PyTorch recorded.
    Recorded(&'a GradientCall),
}

impl Passes<'_> {
    fn is_forward(self) -> bool {
        matches!(self, Passes::Forward)
    }

    /// The passes of an entry: forward only if none of its outputs has a gradient. A loss has to be an output of every entry.
    fn of_entry(self, model: &Model, entry: &str) -> Result<Self> {
        match self {
            Passes::ForwardAndBackward(options) if options.loss.is_none() => {
                let module = model.import_method(entry, None)?;
                let outputs = module.graph(entry)?.differentiable_outputs();
                Ok(if outputs.is_empty() {
                    Passes::Forward
                } else {
                    self
                })
            }
            passes => Ok(passes),
        }
    }
}

/// A graph that is verified.
struct Subject<'a> {
    model: Model,
    /// The imported module.
    module: GraphModule,
    /// Options of the compilation, which name the graph.
    options: CompileOptions,
    arguments: Vec<Item>,
    /// The record of PyTorch, if there is one.
    recorded: Option<RecordedSubject<'a>>,
}

impl<'a> Subject<'a> {
    /// A graph that computes gradients, too.
    fn with_gradients(
        module: GraphModule,
        options: &CompileOptions,
        arguments: &[Item],
    ) -> Subject<'a> {
        Subject {
            model: Model::from_module(module.clone()),
            module,
            options: options.clone(),
            arguments: arguments.to_vec(),
            recorded: None,
        }
    }

    fn graph(&self) -> Result<&Graph> {
        self.module.graph(&self.options.entry)
    }

    fn compile(&self, device: &Device) -> Result<Session> {
        self.model.compile(device, &self.options)
    }
}

impl Verifier<'_> {
    /// Fails if the entry does not accept the arguments.
    fn takes(&self, set: &[Item]) -> Result<()> {
        let entry = &self.options.entry;
        let module = self.model.import_method(entry, Some(set))?;
        let graph = module.graph(entry)?;
        let inputs = inputs(graph, &module, set)?;
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        graph.bind(&shapes)?;
        graph.check_dtypes(&inputs)
    }

    /// Verifies the entry on one set of inputs; `index` is that of the set, `None` for generated inputs.
    fn verify(&self, index: Option<usize>, set: &[Item]) -> Result<Verification> {
        let subject = self.subject(set)?;
        let set = &subject.arguments;
        let compiled = subject.compile(self.device)?.call(set)?;
        let (graph, module) = (subject.graph()?, &subject.module);
        let calls = evaluate(graph, module, set)?;
        let oracle = evaluate(&pass::decompose(graph)?, module, set)?;
        let recorded = subject.recorded.as_ref();
        let against_recorded = recorded.map(|recorded| recorded.differences(&compiled));
        let mut verification = Verification {
            entry: self.options.entry.clone(),
            set: index,
            has_gradients: !self.passes.is_forward(),
            against_calls: self.differences(&compiled, &calls),
            against_oracle: self.differences(&compiled, &oracle),
            against_recorded: against_recorded.transpose()?.unwrap_or_default(),
            culprit: None,
        };
        if !verification.agrees_with_oracle() {
            verification.culprit = self.culprit(&subject)?;
        } else if let Some(recorded) = recorded {
            let found = recorded.first_difference(&compiled)?;
            verification.culprit = found.map(Culprit::Recorded);
        }
        Ok(verification)
    }

    /// The entry's graph for one set of inputs.
    fn subject(&self, set: &[Item]) -> Result<Subject<'_>> {
        let entry = &self.options.entry;
        let module = self.model.import_method(entry, Some(set))?;
        match self.passes {
            Passes::Forward => Ok(Subject {
                model: self.model.clone(),
                module,
                options: self.options.clone(),
                arguments: set.to_vec(),
                recorded: None,
            }),
            Passes::ForwardAndBackward(options) => {
                let module = with_all_gradients(module, entry, options)?;
                Ok(Subject::with_gradients(module, &self.options, set))
            }
            Passes::Recorded(call) => {
                let recorded = RecordedSubject::of(module, call).at(|| entry.clone())?;
                let (module, arguments) = (recorded.module.clone(), &recorded.arguments);
                let mut subject = Subject::with_gradients(module, &self.options, arguments);
                subject.recorded = Some(recorded);
                Ok(subject)
            }
        }
    }

    fn differences(&self, got: &Item, expected: &Item) -> Vec<Difference> {
        match self.passes {
            Passes::Forward => compare(got, expected, self.tolerance),
            Passes::ForwardAndBackward(_) | Passes::Recorded(_) => {
                differences(got, expected, self.tolerance)
            }
        }
    }

    /// The first pass that changes a value; else the first value that the device computes differently.
    fn culprit(&self, subject: &Subject) -> Result<Option<Culprit>> {
        let (graph, set) = (subject.graph()?, &subject.arguments);
        let inputs = inputs(graph, &subject.module, set)?;
        let found = first_wrong_pass(
            graph,
            &subject.module.weights,
            &inputs,
            pass::PIPELINE,
            self.tolerance,
        )?;
        if let Some((name, divergence)) = found {
            return Ok(Some(Culprit::Pass(name, divergence)));
        }
        let session = subject.compile(self.device)?;
        let search = first_divergence(&session, set, self.tolerance, SearchOptions::default())?;
        Ok(search.found().map(Culprit::Device))
    }
}

/// Runs passes one by one and finds the first that changes a named value, including values in bodies of regions. Values
/// keep their names across passes.
///
/// # Errors
/// Fails if a pass or a run fails.
pub fn first_wrong_pass<'a>(
    graph: &Graph,
    weights: &Weights,
    inputs: &[Tensor],
    passes: impl IntoIterator<Item = &'a Pass>,
    tolerance: Tolerance,
) -> Result<Option<(&'static str, Divergence)>> {
    let mut graph = graph.clone();
    let mut expected = values(&graph, weights, inputs)?;
    for pass in passes {
        graph = (pass.run)(&graph)?;
        let (mut got, mut found) = (Values::new(), None);
        interp::run_observed(&graph, weights, inputs, &mut |event| {
            for (site, tensor) in results(event) {
                let key = site.key();
                if let Some(expected) = expected.get(&key).filter(|_| found.is_none()) {
                    found = Divergence::compare(site, &tensor, expected, tolerance);
                }
                got.insert(key, tensor);
            }
            Ok(())
        })?;
        if let Some(found) = found {
            return Ok(Some((pass.name, found)));
        }
        expected = got;
    }
    Ok(None)
}

/// Results of nodes by [`ValueSite::key`].
type Values = HashMap<(String, Vec<BodyKind>), Tensor>;

/// Results of all nodes that run.
fn values(graph: &Graph, weights: &Weights, inputs: &[Tensor]) -> Result<Values> {
    let mut values = Values::new();
    interp::run_observed(graph, weights, inputs, &mut |event| {
        let found = results(event).into_iter();
        values.extend(found.map(|(site, tensor)| (site.key(), tensor)));
        Ok(())
    })?;
    Ok(values)
}

/// Results of a node, each with its site in the graph.
fn results(event: &NodeEvent) -> Vec<(ValueSite, Tensor)> {
    let results = event.node.results.iter().zip(event.results);
    let with_site =
        |(id, tensor): (&ValueId, &Tensor)| (ValueSite::of_result(event, *id), tensor.clone());
    results.map(with_site).collect()
}
