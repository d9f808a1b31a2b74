//! Parameters that get no gradient, and gradients that are not finite, for the sum of all outputs.

use super::checker::Checker;
use super::evaluate::inputs;
use super::{Finding, Id};
use crate::error::Result;
use crate::grad::Loss;
use crate::interp;
use crate::ir::{Argument, Definition, Graph, Op, ValueId};
use crate::item::Item;
use crate::op::Primitive;
use crate::tensor::Tensor;

impl Checker<'_> {
    /// Reports the parameters without a gradient, and those whose gradient for the arguments `set` is not finite. A graph that
    /// cannot be differentiated has no such finding.
    pub(super) fn check_gradients(&mut self, label: &str, set: &[Item]) {
        for finding in self.gradient_findings(set).unwrap_or_default() {
            self.report.add(finding, label);
        }
    }

    fn gradient_findings(&self, set: &[Item]) -> Result<Vec<Finding>> {
        let module = &self.traced.module;
        let mut graph = self.graph.clone();
        graph.pass_weights();
        let read = graph.weights_read().into_iter();
        let parameters: Vec<(&str, ValueId)> = read
            .filter(|(name, id)| {
                module.parameters.contains(*name) && graph.ty(*id).dtype.is_float()
            })
            .collect();
        if parameters.is_empty() || graph.differentiable_outputs().is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<ValueId> = parameters.iter().map(|(_, id)| *id).collect();
        let gradient = graph.gradient(&Loss::Sum, &wanted)?;
        let results = graph.result_count();
        let is_missing = |index: usize| {
            let output = gradient.outputs.get(results + index);
            output.is_some_and(|id| is_zero(&gradient, *id))
        };
        let mut findings = Vec::new();
        for (index, (name, id)) in parameters.iter().enumerate() {
            if is_missing(index) {
                let message = format!("no output has a gradient for the parameter {name}");
                findings.push(at_reader(
                    Finding::new(Id::NoGradient, message),
                    &graph,
                    *id,
                ));
            }
        }
        let inputs = inputs(self.graph, module, set)?;
        let outputs = interp::run(&gradient, &module.weights, &inputs)?;
        let (results, gradients) = outputs.split_at(results.min(outputs.len()));
        if results.iter().all(is_finite) {
            for ((name, id), gradient) in parameters.iter().zip(gradients) {
                if !is_finite(gradient) {
                    let message = format!(
                        "the gradient of the parameter {name} is not finite, and all outputs are"
                    );
                    findings.push(at_reader(
                        Finding::new(Id::GradientNotFinite, message),
                        &graph,
                        *id,
                    ));
                }
            }
        }
        Ok(findings)
    }
}

/// The finding at the first node that reads a weight.
fn at_reader(finding: Finding, graph: &Graph, weight: ValueId) -> Finding {
    let mut readers = graph
        .nodes
        .iter()
        .filter(|node| node.operands().contains(&weight));
    match readers.next() {
        Some(node) => finding.at(&node.place),
        None => finding,
    }
}

/// True if a value is zeros, whatever the inputs are.
fn is_zero(graph: &Graph, id: ValueId) -> bool {
    let Definition::Node(index, _) = graph.value(id).definition else {
        return false;
    };
    graph.nodes.get(index).is_some_and(|node| {
        let number = match node.arguments.first() {
            Some(Argument::Number(number)) => number.to_f64(),
            _ => return false,
        };
        matches!(node.op, Op::Primitive(Primitive::Full(_))) && number == 0.0
    })
}

/// True if no element of a tensor of floats is an infinity or not a number.
fn is_finite(tensor: &Tensor) -> bool {
    !tensor.dtype().is_float() || tensor.to_f64().into_iter().all(f64::is_finite)
}
