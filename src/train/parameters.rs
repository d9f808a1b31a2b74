//! The parameters that a step trains.

use std::collections::HashSet;

use super::TrainOptions;
use crate::error::{Error, Result};
use crate::ir::{Graph, GraphModule, ValueId};
use crate::wildcard;

/// Index of an output by its name.
pub(super) fn output_index(graph: &Graph, name: &str) -> Result<usize> {
    let leaves = graph.output_leaves();
    let found = leaves.iter().find(|(known, _)| known == name);
    let index = found.map(|(_, index)| *index);
    index.ok_or_else(|| Error::usage(format!("there is no output {name}")))
}

/// Names of the parameters to train: those that the options choose and that the loss depends on.
pub(super) fn selected_parameters(
    module: &GraphModule,
    graph: &Graph,
    loss: &str,
    options: &TrainOptions,
) -> Result<Vec<String>> {
    let used = weights_used(graph, loss)?;
    let is_float = |name: &str| {
        graph
            .weights()
            .any(|(known, id)| known == name && graph.ty(id).dtype.is_float())
    };
    if options.parameters.is_empty() {
        let all = module.parameters.iter();
        let all = all.filter(|name| used.contains(name.as_str()) && is_float(name));
        let all: Vec<String> = all.cloned().collect();
        return match all.is_empty() {
            true => Err(Error::usage(
                "the loss depends on no weight that is known to be a parameter",
            )
            .help("name the parameters: TrainOptions::parameters")),
            false => Ok(all),
        };
    }
    let mut selected = Vec::new();
    let mut faults = Vec::new();
    for pattern in &options.parameters {
        let matching = used
            .iter()
            .filter(|name| wildcard::matches(pattern, name) && is_float(name));
        let matching: Vec<String> = matching.map(|name| name.to_string()).collect();
        if matching.is_empty() {
            faults.push(Error::usage(format!(
                "the loss depends on no weight {pattern}"
            )));
        }
        selected.extend(matching);
    }
    selected.sort();
    selected.dedup();
    Error::all(faults).map_or(Ok(selected), Err)
}

/// Names of the weights that an output depends on.
fn weights_used<'a>(graph: &'a Graph, output: &str) -> Result<HashSet<&'a str>> {
    let output = graph.outputs.get(output_index(graph, output)?);
    let mut used: HashSet<ValueId> = output.copied().into_iter().collect();
    for node in graph.nodes.iter().rev() {
        if node.results.iter().any(|result| used.contains(result)) {
            used.extend(node.operands());
        }
    }
    let weights = graph.weights().filter(|(_, id)| used.contains(id));
    Ok(weights.map(|(name, _)| name).collect())
}
