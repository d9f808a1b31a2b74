//! Findings about numbers that change when a graph is imported for other sizes.

use super::canonical::each_node;
use super::size_literals::constant_sizes;
use super::unrolled_axes::unrolled_axes;
use super::{Finding, Id};
use crate::dim::Dim;
use crate::ir::{Graph, Node};

/// True if the number or constant output of a finding differs in a graph for other sizes. Then the import fixed it for this
/// graph only; it was not frozen when the program was recorded.
pub fn varies_with_sizes(finding: &Finding, graph: &Graph, others: &[Graph]) -> bool {
    let Some(name) = &finding.value else {
        return false;
    };
    let changes = |other: &Graph| match finding.id {
        Id::SizeLiteral => match (node_of(graph, name), node_of(other, name)) {
            (Some(ours), Some(theirs)) => {
                ours.op.name() == theirs.op.name() && constant_sizes(ours) != constant_sizes(theirs)
            }
            _ => false,
        },
        Id::NoDependence => type_of(graph, name) != type_of(other, name),
        Id::FixedBatch => first_size_of(graph, name) != first_size_of(other, name),
        Id::UnrolledAxis => unrolled_axes(other).iter().any(|axis| {
            axis.finding.value == finding.value && axis.finding.message != finding.message
        }),
        _ => false,
    };
    others.iter().any(changes)
}

/// The node that computes the value with this name.
fn node_of<'a>(graph: &'a Graph, name: &str) -> Option<&'a Node> {
    let mut found = None;
    each_node(graph, &mut |_, node, value| {
        if value.as_deref() == Some(name) {
            found = Some(node);
        }
    });
    found
}

/// The first size of the value with this name.
fn first_size_of<'a>(graph: &'a Graph, name: &str) -> Option<&'a Dim> {
    let info = graph.values.iter().find(|info| info.name == name)?;
    info.ty.shape.first()
}

/// The type of the value with this name, as text.
fn type_of(graph: &Graph, name: &str) -> Option<String> {
    let info = graph.values.iter().find(|info| info.name == name)?;
    Some(info.ty.to_string())
}
