//! Operators that draw random numbers.

use super::canonical::{each_graph, first_result};
use super::{Finding, Id};
use crate::ir::Graph;

/// Nodes that are listed; the rest is counted.
const LISTED: usize = 20;

/// True for operators that draw random numbers, by their name without namespace and overload. Dropout does so in training
/// mode only, when it is one of these.
pub fn draws_random_numbers(name: &str) -> bool {
    let base = name
        .strip_prefix("aten.")
        .or_else(|| name.strip_prefix("aten::"))
        .unwrap_or(name);
    let base = base.split('.').next().unwrap_or(base).trim_end_matches('_');
    let base = base.strip_suffix("_like").unwrap_or(base);
    RANDOM.contains(&base)
}

const RANDOM: &[&str] = &[
    "_fused_dropout",
    "_sample_dirichlet",
    "_standard_gamma",
    "alpha_dropout",
    "bernoulli",
    "binomial",
    "cauchy",
    "dropout",
    "exponential",
    "feature_alpha_dropout",
    "feature_dropout",
    "geometric",
    "log_normal",
    "multinomial",
    "native_dropout",
    "normal",
    "poisson",
    "rand",
    "randint",
    "randn",
    "random",
    "randperm",
    "rrelu",
    "rrelu_with_noise",
    "uniform",
];

/// A finding for every node that draws random numbers, those of nested graphs included.
pub fn random_nodes(graph: &Graph) -> Vec<Finding> {
    let mut found = Vec::new();
    each_graph(graph, &mut |graph| {
        for node in graph
            .nodes
            .iter()
            .filter(|node| draws_random_numbers(node.op.name()))
        {
            let value = first_result(graph, node).unwrap_or_default();
            found.push(finding(node.op.name()).at(&node.place).value(value));
        }
    });
    summarise(found)
}

/// A finding about an operator that draws random numbers.
pub fn finding(op: &str) -> Finding {
    Finding::new(Id::RandomNode, format!("{op} draws random numbers"))
        .details(["did you leave the model in training mode?"])
}

fn summarise(mut found: Vec<Finding>) -> Vec<Finding> {
    let more = found.len().saturating_sub(LISTED);
    found.truncate(LISTED);
    if let Some(last) = found.last_mut().filter(|_| more > 0) {
        last.details.push(format!("and {more} more nodes"));
    }
    found
}
