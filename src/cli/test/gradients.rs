//! Replay of recorded cases with gradients.

use std::collections::BTreeMap;

use super::TestCommand;
use crate::cases::{Call, CallGradients, CaseRef, RecordedGradient};
use crate::compare::{Difference, compare_tensors};
use crate::error::{Error, Result};
use crate::grad::Loss;
use crate::ir::{Graph, GraphModule, TreeSpec, ValueId};
use crate::item::{Item, flatten_arguments};
use crate::trace::check::signature;
use crate::{CompileOptions, Device, Model, Tensor};

/// Compares the gradients of all calls of a case that have recorded ones.
pub(super) fn replay_gradients(
    case: &CaseRef,
    gradients: &BTreeMap<usize, CallGradients>,
    device: &Device,
    test: &TestCommand,
) -> Result<Vec<(String, Difference)>> {
    let loaded = case.load()?;
    let model = test.open(&loaded.archive)?;
    let mut differences = Vec::new();
    for (index, recorded) in gradients {
        let set = loaded.sets.get(*index);
        let set = set.ok_or_else(|| Error::format(format!("there is no set {index}")))?;
        let label = match set.label.as_str() {
            "" => String::new(),
            label => format!("set {label:?}: "),
        };
        // Of several calls on one instance none has recorded gradients.
        if let [call] = set.calls.as_slice() {
            let found = call_differences(&model, call, recorded, device)?;
            differences.extend(found.into_iter().map(|found| (label.clone(), found)));
        }
    }
    Ok(differences)
}

fn call_differences(
    model: &Model,
    call: &Call,
    recorded: &CallGradients,
    device: &Device,
) -> Result<Vec<Difference>> {
    let module = model.import_method(&call.method, Some(&call.inputs))?;
    let mut graph = module.graph(&call.method)?.clone();
    graph.pass_weights();
    let (recorded_of_values, unread) = split_unread(&graph, &recorded.gradients);
    let wanted = wanted_values(&graph, &call.inputs, &recorded_of_values)?;
    let gradient = graph.gradient(&Loss::GradOutputs, &wanted)?;
    let mut inputs = flatten_arguments(&signature(&graph), &call.inputs)?;
    inputs.extend(grad_outputs(&graph, recorded)?);
    let (entry, first) = (gradient.name.clone(), graph.result_count());
    let module = GraphModule {
        graphs: vec![gradient],
        ..module.clone()
    };
    let options = CompileOptions {
        entry,
        release_memory: false,
        ..CompileOptions::default()
    };
    let outputs = Model::from_module(module)
        .compile(device, &options)?
        .run(&inputs)?;
    let found = outputs.iter().skip(first).cloned();
    let zeros = unread.iter().map(|recorded| {
        let gradient = &recorded.gradient;
        Tensor::full(gradient.dtype(), gradient.shape(), 0.0)
    });
    let zeros: Vec<Tensor> = zeros.collect::<Result<_>>()?;
    let recorded = recorded_of_values.iter().chain(&unread);
    Ok(found
        .chain(zeros)
        .zip(recorded)
        .map(|(found, recorded)| {
            let name = format!("gradient of {}", recorded.name);
            compare_tensors(&name, &found, &recorded.gradient, recorded.tolerance)
        })
        .collect())
}

/// The recorded gradients of values of a graph, and those of parameters that the graph does not read: these are zeros.
fn split_unread<'a>(
    graph: &Graph,
    recorded: &'a [RecordedGradient],
) -> (Vec<&'a RecordedGradient>, Vec<&'a RecordedGradient>) {
    let weights = graph.weights_read();
    recorded.iter().partition(|recorded| {
        let parameter = recorded.name.strip_prefix("param/");
        parameter.is_none_or(|name| weights.contains_key(name))
    })
}

/// The values of a graph that have recorded gradients, in their order.
fn wanted_values(
    graph: &Graph,
    arguments: &[Item],
    recorded: &[&RecordedGradient],
) -> Result<Vec<ValueId>> {
    let mut indices = Vec::new();
    for (input, argument) in signature(graph).iter().zip(arguments) {
        tensor_indices(&input.tree, argument, &mut indices);
    }
    let weights = graph.weights_read();
    let value = |gradient: &&RecordedGradient| {
        let name = gradient.name.as_str();
        let value = match name.strip_prefix("param/") {
            Some(name) => weights.get(name).copied(),
            None => {
                let index = name.strip_prefix("in").and_then(|index| index.parse().ok());
                let index = index.and_then(|index: usize| indices.get(index).copied());
                index
                    .and_then(|index: usize| graph.inputs.get(index))
                    .copied()
            }
        };
        value.ok_or_else(|| Error::format(format!("the graph has no value for {name}")))
    };
    recorded.iter().map(value).collect()
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
