//! Graphs with gradients of calls whose gradients PyTorch computed.

use std::collections::BTreeMap;
use std::path::Path;

use super::gradient_differences::parts;
use crate::cases::{self, CallGradients, GradientCall, RecordedGradient};
use crate::compare::{Difference, compare, compare_tensors};
use crate::error::{Error, Result};
use crate::grad::Loss;
use crate::ir::{Graph, GraphModule, TreeSpec, ValueId};
use crate::item::Item;
use crate::tensor::Tensor;
use crate::trace::check::{Divergence, ValueSite, signature};

/// A graph that also computes the gradients that PyTorch recorded for a call.
pub(crate) struct RecordedSubject<'a> {
    /// The module with only this graph.
    pub(crate) module: GraphModule,
    /// The call's arguments, and the recorded gradients of its outputs.
    pub(crate) arguments: Vec<Item>,
    call: &'a GradientCall,
    /// The graph without gradients.
    graph: Graph,
    /// The recorded gradients of the graph's values, in the order of those that the graph computes.
    gradients: Vec<(ValueId, &'a RecordedGradient)>,
    /// The recorded gradients of parameters that the graph does not read: these are zeros.
    unread: Vec<&'a RecordedGradient>,
}

impl<'a> RecordedSubject<'a> {
    /// Takes the entry graph of a module that was imported for the call.
    ///
    /// # Errors
    /// The recorded gradients do not fit the graph, or it has no gradients.
    pub(crate) fn of(module: GraphModule, call: &'a GradientCall) -> Result<RecordedSubject<'a>> {
        let mut graph = module.graph(&call.call.method)?.clone();
        graph.pass_weights();
        let inputs = &call.call.inputs;
        let (gradients, unread) = by_value(&graph, inputs, &call.gradients.gradients)?;
        let wanted: Vec<ValueId> = gradients.iter().map(|(id, _)| *id).collect();
        let outputs = grad_outputs(&graph, &call.gradients)?;
        let outputs = outputs.into_iter().map(Item::from);
        Ok(RecordedSubject {
            arguments: inputs.iter().cloned().chain(outputs).collect(),
            module: GraphModule {
                graphs: vec![graph.gradient(&Loss::GradOutputs, &wanted)?],
                ..module
            },
            call,
            graph,
            gradients,
            unread,
        })
    }

    /// The differences of a result and its gradients from PyTorch's.
    pub(crate) fn differences(&self, result: &Item) -> Result<Vec<Difference>> {
        let (outputs, _) = parts(result).ok_or_else(no_gradients)?;
        let mut differences = compare(outputs, &self.call.call.output, self.call.tolerance);
        differences.extend(self.gradient_differences(result)?);
        Ok(differences)
    }

    /// The differences of a result's gradients from PyTorch's.
    pub(crate) fn gradient_differences(&self, result: &Item) -> Result<Vec<Difference>> {
        let (_, found) = parts(result).ok_or_else(no_gradients)?;
        if found.len() != self.gradients.len() {
            return Err(no_gradients());
        }
        let mut differences = Vec::new();
        for ((_, recorded), (name, gradient)) in self.gradients.iter().zip(found) {
            let Item::Tensor(gradient) = gradient else {
                return Err(no_gradients());
            };
            differences.push(difference(name, gradient, recorded));
        }
        for recorded in &self.unread {
            let gradient = &recorded.gradient;
            let zeros = Tensor::full(gradient.dtype(), gradient.shape(), 0.0)?;
            differences.push(difference(recorded.value_name(), &zeros, recorded));
        }
        Ok(differences)
    }

    /// Of the gradients that differ from PyTorch's, the one that a backward pass computes first, with the last node that reads
    /// its value.
    pub(super) fn first_difference(&self, result: &Item) -> Result<Option<Divergence>> {
        let differences = self.gradient_differences(result)?;
        let wrong = self.gradients.iter().zip(differences);
        let wrong = wrong.filter(|(_, difference)| !difference.passed());
        let with_reader = wrong.filter_map(|((id, _), difference)| {
            let mut nodes = self.graph.nodes.iter();
            Some((
                nodes.rposition(|node| node.operands().contains(id))?,
                difference,
            ))
        });
        let first = with_reader.max_by_key(|(index, _)| *index);
        Ok(first.and_then(|(index, difference)| {
            let reader = self.graph.nodes.get(index)?;
            let result = reader.results.first()?;
            let site = ValueSite {
                value: self.graph.value(*result).name.clone(),
                op: reader.op.name().to_string(),
                place: reader.place.clone(),
                enclosing: Vec::new(),
            };
            Some(Divergence::new(site, difference))
        }))
    }
}

/// The calls of a case that have recorded gradients.
pub(super) fn recorded_calls(case: &Path) -> Result<Vec<GradientCall>> {
    let mut recorded = Vec::new();
    for found in cases::find(case)? {
        let gradients = found.gradients(case)?;
        if !gradients.is_empty() {
            recorded.push((found, gradients));
        }
    }
    let case = case.display();
    match <[_; 1]>::try_from(recorded) {
        Ok([(found, gradients)]) => found.load()?.gradient_calls(gradients),
        Err(recorded) if recorded.is_empty() => {
            Err(Error::usage(format!("{case} has no recorded gradients"))
                .help("write them with examples/record.py --gradients"))
        }
        Err(recorded) => {
            let message = format!("{case} has {} cases with gradients", recorded.len());
            Err(Error::usage(message).help("name one case"))
        }
    }
}

fn no_gradients() -> Error {
    Error::internal("the result has not all gradients")
}

fn difference(name: &str, found: &Tensor, recorded: &RecordedGradient) -> Difference {
    let label = format!("gradient of {name}");
    compare_tensors(&label, found, &recorded.gradient, recorded.tolerance)
}

type GradientsByValue<'a> = (
    Vec<(ValueId, &'a RecordedGradient)>,
    Vec<&'a RecordedGradient>,
);

/// The recorded gradients of values of a graph, and those of parameters that the graph does not read.
fn by_value<'a>(
    graph: &Graph,
    arguments: &[Item],
    recorded: &'a [RecordedGradient],
) -> Result<GradientsByValue<'a>> {
    let mut indices = Vec::new();
    for (input, argument) in signature(graph).iter().zip(arguments) {
        tensor_indices(&input.tree, argument, &mut indices);
    }
    let weights = graph.weights_read();
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for gradient in recorded {
        let id = match gradient.parameter() {
            Some(name) => weights.get(name).copied(),
            None => {
                let index = gradient.argument().and_then(|index| indices.get(index));
                let id = index.and_then(|index| graph.inputs.get(*index)).copied();
                let name = &gradient.name;
                let missing = || Error::format(format!("the graph has no value for {name}"));
                Some(id.ok_or_else(missing)?)
            }
        };
        match id {
            Some(id) => found.push((id, gradient)),
            None => unread.push(gradient),
        }
    }
    Ok((found, unread))
}
/// Adds the index among a graph's inputs of every tensor of an argument, from left to right.
fn tensor_indices(tree: &TreeSpec, item: &Item, indices: &mut Vec<usize>) {
    match (tree, item) {
        (TreeSpec::Tensor(index), Item::Tensor(_)) => indices.push(*index),
        (
            TreeSpec::Tuple(trees) | TreeSpec::List(trees),
            Item::Tuple(items) | Item::List(items),
        ) => {
            for (tree, item) in trees.iter().zip(items) {
                tensor_indices(tree, item, indices);
            }
        }
        (TreeSpec::Dict(trees), Item::Dict(items)) => {
            for (key, item) in items {
                if let Some((_, tree)) = trees.iter().find(|(known, _)| known == key) {
                    tensor_indices(tree, item, indices);
                }
            }
        }
        _ => {}
    }
}

/// The recorded gradients of a graph's float results, in the order of its outputs.
fn grad_outputs(graph: &Graph, recorded: &CallGradients) -> Result<Vec<Tensor>> {
    let outputs = graph.differentiable_outputs();
    let leaves = graph.output_leaves().into_iter().map(|(_, index)| index);
    let leaves: Vec<usize> = leaves.filter(|index| outputs.contains_key(index)).collect();
    if leaves.len() != recorded.grad_outputs.len() || outputs.len() != leaves.len() {
        return Err(Error::format(format!(
            "gradients of {} outputs are recorded, and there are {} different float outputs",
            recorded.grad_outputs.len(),
            outputs.len()
        )));
    }
    let by_output: BTreeMap<usize, &Tensor> =
        leaves.into_iter().zip(&recorded.grad_outputs).collect();
    Ok(by_output.into_values().cloned().collect())
}
