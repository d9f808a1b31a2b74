//! The parameters that a step trains.

use std::collections::HashSet;

use super::TrainOptions;
use crate::error::{Error, Result};
use crate::ir::{Graph, GraphModule, ValueId};

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
            .filter(|name| matches(pattern, name) && is_float(name));
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

/// True if a name is a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    let Some(mut rest) = rest.strip_suffix(last) else {
        return false;
    };
    parts.all(|part| match rest.find(part) {
        Some(index) => {
            rest = rest.get(index + part.len()..).unwrap_or_default();
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let names = ["fc.weight", "head.fc.weight", "fc.bias"];
        let matching = |pattern: &str| names.map(|name| matches(pattern, name));
        assert_eq!(matching("fc.weight"), [true, false, false]);
        assert_eq!(matching("*.weight"), [true, true, false]);
        assert_eq!(matching("*fc*"), [true, true, true]);
        assert_eq!(matching("fc.*"), [true, false, true]);
    }
}
