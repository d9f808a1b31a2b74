//! Compares the results of a module before and after its preparation, bit for bit.

use std::fmt;

use serde::Serialize;

use super::PrepareOptions;
use super::fixed_arguments::input_of;
use crate::error::{Error, ErrorContext, ErrorKind, Result};
use crate::interp;
use crate::ir::{Graph, GraphModule, ValueId};
use crate::item::Item;
use crate::tensor::Tensor;
use crate::trace::check;

/// A graph whose results did not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EqualityCheck {
    /// Name of the graph.
    pub graph: String,
    /// Types of the inputs of the prepared graph.
    pub inputs: Vec<String>,
    /// Number of outputs. All of them are bitwise equal.
    pub outputs: usize,
}

impl fmt::Display for EqualityCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, inputs) = (self.outputs, self.inputs.join(", "));
        write!(f, "equal      {count} outputs, bit for bit, on {inputs}")
    }
}

/// Runs both modules on the host and compares every bit of every output.
pub(super) fn compare_results(
    original: &GraphModule,
    prepared: &GraphModule,
    options: &PrepareOptions,
) -> Result<Vec<EqualityCheck>> {
    let pairs = original.graphs.iter().zip(&prepared.graphs).enumerate();
    pairs
        .map(|(index, (before, after))| {
            let example_arguments = if index == 0 {
                options.inputs.as_slice()
            } else {
                &[]
            };
            let inputs = inputs(original, before, example_arguments, options)?;
            let name = || format!("graph {}", before.name);
            compare_graphs([original, prepared], [before, after], &inputs).at(name)
        })
        .collect()
}

/// Inputs of the original graph, including those that the options fix. Generates the arguments if `example_arguments`
/// is empty.
fn inputs(
    module: &GraphModule,
    graph: &Graph,
    example_arguments: &[Item],
    options: &PrepareOptions,
) -> Result<Vec<Tensor>> {
    let mut tensors = match example_arguments {
        [] => check::inputs(graph, module, &check::example(graph)?)?,
        given => check::inputs(graph, module, given)?,
    };
    for (name, value) in &options.fixed {
        let index = input_of(graph, name, *value)?;
        if let Some(tensor) = index.and_then(|index| tensors.get_mut(index)) {
            *tensor = Tensor::full(tensor.dtype(), tensor.shape(), value.to_f64())?;
        }
    }
    Ok(tensors)
}

/// Runs the original and the prepared graph, in that order, and compares their outputs. `inputs` are those of the
/// original graph; the prepared one takes those that it still has.
fn compare_graphs(
    modules: [&GraphModule; 2],
    graphs: [&Graph; 2],
    inputs: &[Tensor],
) -> Result<EqualityCheck> {
    let [before, after] = graphs;
    let name = |graph: &Graph, id: &ValueId| graph.value(*id).name.clone();
    let remaining_names: Vec<String> = after.inputs.iter().map(|id| name(after, id)).collect();
    let before_inputs = before.inputs.iter().zip(inputs);
    let remaining = before_inputs.filter(|(id, _)| remaining_names.contains(&name(before, id)));
    let remaining_inputs: Vec<Tensor> = remaining.map(|(_, tensor)| tensor.clone()).collect();
    let expected = interp::run(before, &modules[0].weights, inputs)?;
    let results = interp::run(after, &modules[1].weights, &remaining_inputs)?;
    let pairs = before.outputs.iter().zip(expected.iter().zip(&results));
    for (id, (expected, result)) in pairs {
        if (expected.tensor_type(), expected.bytes()) != (result.tensor_type(), result.bytes()) {
            let message = format!("the prepared graph's {} differs", name(before, id));
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
    }
    Ok(EqualityCheck {
        graph: before.name.clone(),
        inputs: remaining_inputs
            .iter()
            .map(|tensor| tensor.tensor_type().to_string())
            .collect(),
        outputs: results.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_results_are_errors() {
        let module = |op: &str| -> GraphModule {
            let text = format!("graph f(x: f32[B]) {{\n  y = {op} x\n  return y\n}}");
            text.parse().unwrap()
        };
        let compare_with = |other: &str| {
            compare_results(&module("neg"), &module(other), &PrepareOptions::default())
        };
        assert_eq!(compare_with("neg").unwrap()[0].outputs, 1);
        let error = compare_with("abs").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.message().contains("y differs"), "{error}");
    }
}
