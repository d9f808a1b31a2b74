//! Compares the constant tensors of two traces.

use super::canonical::{each_node, node_line};
use super::{Finding, Id};
use crate::compare::{Difference, Tolerance, compare_tensors};
use crate::ir::{Definition, Graph, GraphModule, Node};

/// Returns a finding for each constant of `graph` whose value in module `second` differs from that in module `first`, in
/// order of first use.
pub fn differing_constants(
    graph: &Graph,
    first: &GraphModule,
    second: &GraphModule,
    tolerance: Tolerance,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut compared = Vec::new();
    each_node(graph, &mut |graph, node, value| {
        for name in weights_of(graph, node) {
            if compared.contains(&name) {
                continue;
            }
            compared.push(name);
            let finding = constant_finding(graph, node, name, [first, second], tolerance);
            findings.extend(finding.map(|finding| finding.with_value(value.clone())));
        }
    });
    findings
}

/// Names of the weights that a node reads.
pub fn weights_of<'a>(graph: &'a Graph, node: &Node) -> Vec<&'a str> {
    let weight = |id| match &graph.value(id).definition {
        Definition::Weight(name) => Some(name.as_str()),
        _ => None,
    };
    node.operands().into_iter().filter_map(weight).collect()
}

/// A finding about the constant `name`, unless its values in both modules agree. The first module is the expected one.
fn constant_finding(
    graph: &Graph,
    node: &Node,
    name: &str,
    modules: [&GraphModule; 2],
    tolerance: Tolerance,
) -> Option<Finding> {
    let [first, second] = modules.map(|module| module.weights.get(name));
    let why = match (first, second) {
        (Some(first), Some(second)) => {
            let difference = compare_tensors(name, second, first, tolerance);
            (!difference.passed()).then(|| Difference::to_string(&difference))?
        }
        (Some(_), None) => format!("{name}: is missing in the second trace"),
        _ => return None,
    };
    let finding = Finding::new(
        Id::ConstantsDiffer,
        format!("constant {name}, read by {}", node.op.name()),
    );
    Some(
        finding
            .at(&node.place)
            .details([why, node_line(graph, node)]),
    )
}
