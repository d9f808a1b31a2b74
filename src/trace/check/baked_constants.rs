//! Constants of a trace that were computed from the example.

use std::collections::BTreeSet;

use super::canonical::{each_node, node_line};
use super::constant_diff::weights_of;
use super::evaluate::argument_inputs;
use super::size_literals::{is_constant, weight_sizes};
use super::{Finding, Id};
use crate::ir::{Graph, GraphModule};
use crate::tensor::Tensor;

/// Largest number of elements of a constant that may be a list of sizes.
const MAX_LIST_LENGTH: usize = 8;

/// Sizes up to this one are too common to be evidence on their own.
const MAX_COMMON_SIZE: i64 = 3;

/// Returns findings for constants that have an input's shape, have as many rows as the example's batch, or hold an input's
/// sizes.
pub fn baked_constants(graph: &Graph, module: &GraphModule) -> Vec<Finding> {
    let example = ExampleSizes::new(graph, module);
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    each_node(graph, &mut |graph, node, value| {
        for name in weights_of(graph, node) {
            let Some(tensor) = module.weights.get(name).filter(|_| is_constant(name)) else {
                continue;
            };
            if seen.insert(name.to_string())
                && let Some(finding) = example.finding(name, tensor)
            {
                let finding = finding.at(&node.place).details([node_line(graph, node)]);
                findings.push(finding.with_value(value.clone()));
            }
        }
    });
    findings
}

/// Shapes of the example's inputs, and the sizes of the weights.
struct ExampleSizes {
    /// Name and shape of each input.
    inputs: Vec<(String, Vec<i64>)>,
    weight_sizes: BTreeSet<i64>,
}

impl ExampleSizes {
    fn new(graph: &Graph, module: &GraphModule) -> ExampleSizes {
        let sizes = |id| {
            let shape = graph.ty(id).shape.iter();
            shape
                .map(|dim| dim.eval(&graph.hints).unwrap_or(1))
                .collect()
        };
        let inputs = argument_inputs(graph).iter();
        ExampleSizes {
            inputs: inputs
                .map(|id| (graph.value(*id).name.clone(), sizes(*id)))
                .collect(),
            weight_sizes: weight_sizes(module),
        }
    }

    /// A finding about the constant `name`, if it probably was computed from the example.
    fn finding(&self, name: &str, tensor: &Tensor) -> Option<Finding> {
        let shape: Vec<i64> = tensor.shape().iter().map(|size| *size as i64).collect();
        let ty = format!("{name}: {}{shape:?}", tensor.dtype());
        if let Some((input, _)) = self
            .inputs
            .iter()
            .find(|(_, sizes)| self.has_shape_of_input(&shape, sizes))
        {
            let message = format!("{ty} has the shape of {input} in the example");
            return Some(Finding::new(Id::ConstantOfExample, message));
        }
        if let Some((input, _)) = self
            .inputs
            .iter()
            .find(|(_, sizes)| self.has_batch_of_input(&shape, sizes))
        {
            let message = format!("{ty} has as many rows as {input} in the example");
            return Some(Finding::new(Id::ConstantOfExample, message));
        }
        let values = size_list(tensor)?;
        let (input, sizes) = self
            .inputs
            .iter()
            .find(|(_, sizes)| are_adjacent_sizes(&values, sizes))?;
        let message =
            format!("{name} holds {values:?}, sizes of {input}, which is {sizes:?} in the example");
        Some(Finding::new(Id::SizeLiteral, message))
    }

    /// True if a constant has an input's shape. A vector counts only if no weight has its size.
    fn has_shape_of_input(&self, shape: &[i64], sizes: &[i64]) -> bool {
        let is_evidence = match shape {
            [] => false,
            [size] => *size > 1 && !self.weight_sizes.contains(size),
            shape => shape.iter().product::<i64>() > 1,
        };
        is_evidence && shape == sizes
    }

    /// True if a constant has as many rows as an input, and no weight has that size.
    fn has_batch_of_input(&self, shape: &[i64], sizes: &[i64]) -> bool {
        let rows = shape.first().copied().unwrap_or_default();
        shape.len() > 1
            && rows > MAX_COMMON_SIZE
            && sizes.first() == Some(&rows)
            && !self.weight_sizes.contains(&rows)
    }
}

/// The elements of a short vector of integral values of any element type.
fn size_list(tensor: &Tensor) -> Option<Vec<i64>> {
    if tensor.shape().len() > 1 || !(2..=MAX_LIST_LENGTH).contains(&tensor.numel()) {
        return None;
    }
    let values = tensor.to_f64();
    let is_size = |value: &f64| value.fract() == 0.0 && (2.0..1e9).contains(value);
    let is_list = values.iter().all(is_size);
    is_list.then(|| values.into_iter().map(|value| value as i64).collect())
}

/// True if the values are adjacent sizes, in either order, once or twice: `[h, w]`, `[w, h, w, h]`.
fn are_adjacent_sizes(values: &[i64], sizes: &[i64]) -> bool {
    let halves = values.split_at(values.len() / 2);
    let values = if halves.0 == halves.1 && halves.0.len() > 1 {
        halves.0
    } else {
        values
    };
    let backwards: Vec<i64> = values.iter().rev().copied().collect();
    let mut windows = sizes.windows(values.len());
    values.iter().any(|value| *value > MAX_COMMON_SIZE)
        && windows.any(|window| window == values || window == backwards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_sizes_are_adjacent() {
        let sizes = [2, 3, 12, 20];
        for values in [&[12, 20][..], &[20, 12], &[20, 12, 20, 12], &[3, 12, 20]] {
            assert!(are_adjacent_sizes(values, &sizes), "{values:?}");
        }
        for values in [&[2, 3][..], &[12, 12], &[2, 20], &[2, 2, 3, 12, 20]] {
            assert!(!are_adjacent_sizes(values, &sizes), "{values:?}");
        }
    }
}
