//! Small values that broadcasts repeat: the scale of a batch norm is computed once, by the kernel of the reduction that it
//! follows, and not for each pixel.

use std::collections::BTreeSet;

use crate::ir::{Node, Op, Primitive, ValueId};
use crate::kernel::materialization::MaterializeReason;
use crate::plan::cost::{NodeClass, example_size, node_class, node_cost};
use crate::plan::fuse::Fuser;
use crate::plan::fuse::merge::{MAX_SMALL_NUMEL, is_elementwise};
use crate::plan::group::Group;

/// Least cost of an element, in simple operations, for which a load from memory takes less time.
const MIN_COST: u32 = 2;
/// Fewest times that a broadcast repeats each element.
const MIN_REPETITIONS: usize = 64;

impl Fuser<'_> {
    /// Makes groups of small values that broadcasts would repeat, if the kernel of a reduction can compute them: see
    /// [`merge_pointwise`](Fuser::merge_pointwise).
    pub fn store_broadcast_values(&mut self, groups: &mut Vec<Group>, claimed: &[bool]) {
        let reductions = groups.iter().filter(|group| group.is_reduction(self.graph));
        let sums: BTreeSet<ValueId> = reductions.map(|group| group.root).collect();
        for expand in &self.graph.nodes {
            let Some((value, node)) = self
                .broadcast_value(expand)
                .filter(|(_, node)| !claimed[*node])
            else {
                continue;
            };
            let (cost, follows_reduction) = self.computation(value, &sums);
            if follows_reduction && cost >= MIN_COST {
                self.materialize(value.index(), MaterializeReason::Repeated { cost });
                groups.push(Group::of_value(value, node));
            }
        }
    }

    /// The small pointwise value that a node repeats, with its own node; `None` if the value is stored already.
    fn broadcast_value(&self, expand: &Node) -> Option<(ValueId, usize)> {
        let is_expand = matches!(expand.op, Op::Primitive(Primitive::Expand(_)));
        let result = expand.results.first().filter(|_| is_expand)?;
        let mut value = *expand.operands().first()?;
        while !self.materialized[value.index()]
            && let Some(node) = self.node(value)
            && matches!(node.op, Op::Primitive(Primitive::Reshape(_)))
        {
            value = *node.operands().first()?;
        }
        let numel = self.graph.ty(value).numel();
        let size = |value| example_size(self.graph, &self.graph.ty(value).numel());
        let is_repeated = size(value) > 0 && size(*result) / size(value) >= MIN_REPETITIONS;
        let is_small = numel
            .as_const()
            .is_some_and(|numel| numel <= MAX_SMALL_NUMEL);
        let is_computed = !self.materialized[value.index()]
            && !self.may_have_channel_layout(value)
            && self
                .node(value)
                .is_some_and(|node| node_class(node) == NodeClass::Pointwise);
        (is_repeated && is_small && is_computed).then(|| (value, self.definition_index(value)))
    }

    /// Cost of computing an element of a value, in simple operations, and whether that reads one of these sums at the same
    /// index.
    fn computation(&self, value: ValueId, sums: &BTreeSet<ValueId>) -> (u32, bool) {
        let (mut cost, mut follows_reduction, mut open) = (0_u32, false, vec![value]);
        while let Some(value) = open.pop() {
            if self.materialized[value.index()] {
                follows_reduction |= sums.contains(&value);
            } else if let Some(node) = self.node(value).filter(|node| is_elementwise(node)) {
                cost = cost.saturating_add(node_cost(node));
                open.extend(node.operands());
            }
        }
        (cost, follows_reduction)
    }
}
