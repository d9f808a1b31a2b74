//! Kernels that read more buffers than the device can bind. Planning begins again with one of the values that such a kernel
//! computes where it reads them stored in memory.

use std::collections::BTreeSet;

use crate::ir::{Definition, ValueId};

use super::Planner;
use super::group::Group;

impl Planner<'_> {
    /// Chooses the value to store for a group whose kernel reads too many buffers: the one that reads most of them, but no
    /// more than another kernel can bind. `None` if there is no value that an earlier attempt did not ask for.
    pub(super) fn value_to_store(&self, group: &Group) -> Option<ValueId> {
        // One binding is reserved for the result.
        let most = (self.capabilities.max_storage_buffers as usize).saturating_sub(1);
        let mut inlined = self.inlined_values(group);
        inlined.retain(|value| !self.request.stored.contains(&self.slot_name(*value)));
        let counted = inlined
            .into_iter()
            .map(|value| (self.stored_operands(value).len(), value));
        let fitting = counted.filter(|(count, _)| (2..=most).contains(count));
        fitting.max().map(|(_, value)| value)
    }

    /// Values that a group's kernel computes where it reads them.
    fn inlined_values(&self, group: &Group) -> BTreeSet<ValueId> {
        let nodes = group.nodes.iter().map(|node| &self.graph.nodes[*node]);
        let results: BTreeSet<ValueId> = nodes
            .clone()
            .flat_map(|node| node.results.clone())
            .collect();
        let operands = nodes.flat_map(|node| node.operands());
        let mut pending: Vec<ValueId> = operands.collect();
        let mut found = BTreeSet::new();
        while let Some(value) = pending.pop() {
            let is_inlined = !self.fusion.materialized[value.index()] && !results.contains(&value);
            if is_inlined && found.insert(value) {
                pending.extend(self.operands_of(value));
            }
        }
        found
    }

    /// Stored values that a kernel reads to compute a value.
    fn stored_operands(&self, value: ValueId) -> BTreeSet<ValueId> {
        let mut pending = self.operands_of(value);
        let (mut seen, mut stored) = (BTreeSet::new(), BTreeSet::new());
        while let Some(operand) = pending.pop() {
            if self.fusion.materialized[operand.index()] {
                stored.insert(operand);
            } else if seen.insert(operand) {
                pending.extend(self.operands_of(operand));
            }
        }
        stored
    }

    /// Operands of the node that defines a value.
    fn operands_of(&self, value: ValueId) -> Vec<ValueId> {
        match self.graph.value(value).definition {
            Definition::Node(node, _) => self.graph.nodes[node].operands(),
            _ => Vec::new(),
        }
    }
}
