//! Operators that draw random numbers.

use super::canonical::each_node;
use super::{Finding, Id};
use crate::aten::{self, Operator};
use crate::ir::{Graph, Node, Op, Region};

/// Detail of a finding about a node in a loop.
const REPEATED_DRAWS: &str =
    "its counter is constant: every iteration of the loop draws equal numbers";

/// True if some overload of the operator draws random numbers, in training mode at least. `name` may have a namespace and an
/// overload.
pub fn draws_random_numbers(name: &str) -> bool {
    let base = name
        .strip_prefix("aten.")
        .or_else(|| name.strip_prefix("aten::"))
        .unwrap_or(name);
    let base = base.split('.').next().unwrap_or(base).trim_end_matches('_');
    let base_name = format!("aten::{base}");
    let mut overloads = aten::overloads(&base_name);
    UNLISTED_OPERATORS.contains(&base) || overloads.any(may_draw)
}

/// True if a call draws by default, or in training.
fn may_draw(operator: &'static Operator) -> bool {
    let flags = ["train", "training"].map(|flag| operator.schema.position(flag));
    let is_random = operator.row.is_random.is_some();
    is_random && (operator.is_random(&[]) || flags.iter().any(Option::is_some))
}

/// Random operators that the dictionary lacks.
const UNLISTED_OPERATORS: &[&str] = &[
    "_fused_dropout",
    "_sample_dirichlet",
    "_standard_gamma",
    "binomial",
    "poisson",
    "random",
];

/// True for a call whose arguments make it draw random numbers.
fn draws(node: &Node) -> bool {
    match &node.op {
        Op::Call(name) => {
            aten::operator(name).is_ok_and(|operator| operator.is_random(&node.arguments))
        }
        _ => false,
    }
}

/// True if a random call has a constant counter. Traces and imports give calls in loops a tensor.
fn has_constant_counter(node: &Node) -> bool {
    let operator = aten::operator(node.op.name());
    operator.is_ok_and(|operator| !operator.has_tensor_counter(&node.arguments))
}

/// Returns a finding for each node that draws random numbers, those of nested graphs included.
pub fn random_nodes(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut loops: Vec<String> = Vec::new();
    each_node(graph, &mut |_, node, value| {
        let name = value.as_deref().unwrap_or_default();
        if draws(node) {
            let repeats =
                has_constant_counter(node) && loops.iter().any(|region| name.starts_with(region));
            let finding =
                random_operator_finding(node.op.name()).details(repeats.then_some(REPEATED_DRAWS));
            findings.push(finding.at(&node.place).with_value(value));
        } else if matches!(&node.op, Op::Region(region) if matches!(**region, Region::Loop { .. }))
        {
            loops.push(format!("{name}/"));
        }
    });
    findings
}

/// A finding about an operator that draws random numbers.
pub fn random_operator_finding(op: &str) -> Finding {
    let in_training = op.contains("dropout") || op.contains("rrelu");
    let question = in_training.then_some("did you leave the model in training mode?");
    Finding::new(Id::RandomNode, format!("{op} draws random numbers")).details(question)
}
