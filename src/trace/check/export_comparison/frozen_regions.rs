//! Finds branches and loops of one graph that another graph of the same module lacks.

use std::collections::HashMap;

use super::super::{Finding, Id, each_graph};
use crate::error::{SourcePlace, without_call_numbers};
use crate::ir::{Graph, Node, Op, Region};

/// Kind of control flow that is decided when a graph runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RegionKind {
    Branch,
    Loop,
}

impl RegionKind {
    fn of(node: &Node) -> Option<RegionKind> {
        match &node.op {
            Op::Region(region) => match **region {
                Region::If { .. } => Some(RegionKind::Branch),
                Region::Loop { .. } => Some(RegionKind::Loop),
                Region::Call { .. } => None,
            },
            _ => None,
        }
    }

    /// Says how the graph `open` and the graph `frozen` differ.
    fn message(self, open: &str, frozen: &str) -> String {
        match self {
            RegionKind::Branch => format!(
                "the {open} chooses a branch when it runs, the {frozen} has one branch only"
            ),
            RegionKind::Loop => format!(
                "the {open} decides the rounds of a loop when it runs, the {frozen} has the rounds of its example"
            ),
        }
    }
}

/// Returns a finding for each branch and loop of the graph `open` that the graph `other` lacks. Regions are matched by their
/// module, since lines are those of different files.
pub(super) fn frozen_regions(
    (open_name, open): (&str, &Graph),
    (other_name, other): (&str, &Graph),
) -> Vec<Finding> {
    let mut matched: HashMap<(RegionKind, String), usize> = HashMap::new();
    for (kind, place) in regions(other) {
        *matched.entry((kind, module(place))).or_default() += 1;
    }
    let mut findings = Vec::new();
    for (kind, place) in regions(open) {
        match matched.get_mut(&(kind, module(place))) {
            Some(left) if *left > 0 => *left -= 1,
            _ => {
                let message = kind.message(open_name, other_name);
                findings.push(Finding::new(Id::FrozenRegion, message).at(place));
            }
        }
    }
    findings
}

fn module(place: &SourcePlace) -> String {
    without_call_numbers(&place.module)
}

/// The branches and loops of a graph, nested ones included.
fn regions(graph: &Graph) -> Vec<(RegionKind, &SourcePlace)> {
    let mut found = Vec::new();
    each_graph(graph, &mut |graph| {
        let regions = graph.nodes.iter();
        found.extend(regions.filter_map(|node| Some((RegionKind::of(node)?, &node.place))));
    });
    found
}
