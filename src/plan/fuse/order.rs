//! Order of kernels: each after those whose results it reads, otherwise in graph order.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use crate::ir::{Definition, ValueId};
use crate::plan::fuse::Fuser;
use crate::plan::group::Group;

/// Sorts groups topologically.
pub fn topological_order(fuser: &Fuser, groups: Vec<Group>) -> Vec<Group> {
    let mut writer = HashMap::new();
    for (number, group) in groups.iter().enumerate() {
        let written = group.written(fuser.graph, &fuser.materialized).into_iter();
        writer.extend(written.map(|value| (value, number)));
    }
    let mut pending: Vec<usize> = vec![0; groups.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for (number, group) in groups.iter().enumerate() {
        let reads = stored_reads(fuser, group);
        let dependencies: BTreeSet<usize> = reads
            .iter()
            .filter_map(|id| writer.get(id).copied())
            .collect();
        for other in dependencies.into_iter().filter(|other| *other != number) {
            pending[number] += 1;
            readers[other].push(number);
        }
    }
    let key = |number: usize| Reverse((fuser.definition_index(groups[number].root), number));
    let initial = (0..groups.len()).filter(|number| pending[*number] == 0);
    let mut ready: BinaryHeap<_> = initial.map(key).collect();
    let mut order = Vec::new();
    while let Some(Reverse((_, next))) = ready.pop() {
        order.push(next);
        for reader in &readers[next] {
            pending[*reader] -= 1;
            if pending[*reader] == 0 {
                ready.push(key(*reader));
            }
        }
    }
    let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|number| groups[number].take())
        .collect()
}

/// The stored values that a group reads, directly or through inlined nodes.
pub(super) fn stored_reads(fuser: &Fuser, group: &Group) -> BTreeSet<ValueId> {
    let mut open: Vec<usize> = group.nodes.clone();
    let mut seen: BTreeSet<usize> = open.iter().copied().collect();
    let mut reads = BTreeSet::new();
    while let Some(node) = open.pop() {
        for value in fuser.graph.nodes[node].operands() {
            match fuser.graph.value(value).definition {
                Definition::Node(node, _) if !fuser.materialized[value.index()] => {
                    if seen.insert(node) {
                        open.push(node);
                    }
                }
                _ => {
                    reads.insert(value);
                }
            }
        }
    }
    reads
}
