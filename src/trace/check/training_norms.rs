//! Normalisations that were recorded in training mode.

use super::canonical::each_node;
use super::{Finding, Id};
use crate::aten;
use crate::ir::{Argument, Graph, Node, Op};
use crate::scalar::Scalar;

/// Parameters of the operators that make them use the statistics of the batch.
const TRAINING_FLAGS: [&str; 2] = ["training", "use_input_stats"];

/// Returns a finding for each normalisation that uses the statistics of the batch although it has running ones, those of
/// nested graphs included.
pub fn training_norms(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_node(graph, &mut |_, node, value| {
        if let Some(name) = training_norm(node) {
            let message = format!("{name} uses the statistics of the batch");
            let finding = Finding::new(Id::TrainingMode, message);
            findings.push(finding.at(&node.place).with_value(value));
        }
    });
    findings
}

/// `batch_norm` or `instance_norm`, if the node is one in training mode with running statistics.
fn training_norm(node: &Node) -> Option<&'static str> {
    let Op::Call(name) = &node.op else {
        return None;
    };
    let norms = ["batch_norm", "instance_norm"];
    let norm = norms.into_iter().find(|norm| name.contains(norm))?;
    let schema = &aten::operator(name).ok()?.schema;
    let argument = |parameter: &str| node.arguments.get(schema.position(parameter)?);
    let is_set = |flag| matches!(argument(flag), Some(Argument::Number(Scalar::Bool(true))));
    let has_statistics = matches!(argument("running_mean"), Some(Argument::Value(_)));
    (has_statistics && TRAINING_FLAGS.into_iter().any(is_set)).then_some(norm)
}
