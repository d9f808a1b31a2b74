//! Merges dependent pointwise groups into one kernel. The reader computes the values of the other group, and writes
//! those that other kernels read as well. A step of an LSTM becomes a product and one kernel for both of its states.
//!
//! A small pointwise group is merged with the reduction that it reads, too: a batch norm's sums are few numbers, and so
//! are the running statistics and the gradients that are computed from them.
//!
//! Small groups that no kernel reads are merged too, if they have as many elements: the running statistics of layers, and
//! small parameters in training. A dispatch of each would take longer than their work.

use std::collections::{BTreeSet, HashMap};

use crate::dim::Dim;
use crate::ir::{Node, Op, Primitive, ValueId};
use crate::plan::cost::{NodeClass, node_class, node_cost};
use crate::plan::fuse::{Fuser, MAX_EXPRESSION_COST, order};
use crate::plan::group::Group;
use crate::plan::vec4_layout::may_be_image;

/// Largest number of elements of groups that are merged to save a dispatch.
pub(super) const MAX_SMALL_NUMEL: i64 = 1 << 14;

impl Fuser<'_> {
    /// True for values that may be images on a device with a channel layout for images.
    pub(super) fn may_have_channel_layout(&self, value: ValueId) -> bool {
        self.capabilities.simd_lanes().is_some() && may_be_image(self.graph.ty(value))
    }

    /// Merges groups of pointwise values with their readers where one kernel can compute both, and small ones that only
    /// the caller reads.
    pub fn merge_pointwise(&mut self, groups: Vec<Group>) -> Vec<Group> {
        let mut merger = Merger::new(self, groups);
        for target in 0..merger.groups.len() {
            while let Some(source) = merger.find_source(target) {
                merger.merge(source, target);
            }
        }
        merger.merge_small();
        let Merger { groups, unread, .. } = merger;
        for value in unread {
            self.materialized[value.index()] = false;
            self.reasons[value.index()] = None;
        }
        groups.into_iter().flatten().collect()
    }
}

/// Groups while they are merged.
struct Merger<'a, 'g> {
    fuser: &'a Fuser<'g>,
    /// `None` for groups that were merged into others.
    groups: Vec<Option<Group>>,
    /// The stored values that each group reads.
    read: Vec<BTreeSet<ValueId>>,
    /// The values that each group writes.
    written: Vec<BTreeSet<ValueId>>,
    /// The group that writes a value.
    writers: HashMap<ValueId, usize>,
    /// The groups that read a value.
    readers: HashMap<ValueId, BTreeSet<usize>>,
    /// Values that no kernel needs to write any more, since only the merged group reads them.
    unread: Vec<ValueId>,
}

impl<'a, 'g> Merger<'a, 'g> {
    fn new(fuser: &'a Fuser<'g>, groups: Vec<Group>) -> Merger<'a, 'g> {
        let read = groups.iter().map(|group| order::stored_reads(fuser, group));
        let written = groups
            .iter()
            .map(|group| group.written(fuser.graph, &fuser.materialized));
        let mut merger = Merger {
            fuser,
            read: read.collect(),
            written: written.map(BTreeSet::from_iter).collect(),
            writers: HashMap::new(),
            readers: HashMap::new(),
            groups: groups.into_iter().map(Some).collect(),
            unread: Vec::new(),
        };
        for (index, values) in (0..).zip(&merger.read) {
            for value in values {
                merger.readers.entry(*value).or_default().insert(index);
            }
        }
        for (index, values) in (0..).zip(&merger.written) {
            merger
                .writers
                .extend(values.iter().map(|value| (*value, index)));
        }
        merger
    }

    /// A group that can be merged into `target`: if possible a pointwise one, since others end the search.
    fn find_source(&self, target: usize) -> Option<usize> {
        let into = self.pointwise_group(target)?;
        let writers = self.read[target]
            .iter()
            .filter_map(|id| self.writers.get(id));
        let sources = writers.copied().filter(|source| *source != target);
        let fitting = sources.filter(|source| {
            self.fits_kernel(*source, target)
                && self.is_elementwise_of(*source, into)
                && !self.depends_indirectly(*source, target)
        });
        let (pointwise, others): (Vec<usize>, Vec<usize>) =
            fitting.partition(|source| self.pointwise_group(*source).is_some());
        let can_write = |source: &usize| {
            self.is_small_reduction(*source) && self.follows_at_once(*source, target)
        };
        let mut pointwise = pointwise.into_iter();
        pointwise
            .next()
            .or_else(|| others.into_iter().find(can_write))
    }

    /// True for a reduction to few results, which its kernel writes in row-major order.
    fn is_small_reduction(&self, index: usize) -> bool {
        self.groups[index].as_ref().is_some_and(|group| {
            group.is_reduction(self.fuser.graph)
                && self.is_small(group.root)
                && !self.fuser.may_have_channel_layout(group.root)
        })
    }

    /// True if nothing that `target` reads besides the values of `source` is computed after these: then the operand of a
    /// reduction need not be kept longer. Checks are excluded: invocations that share a reduction would evaluate them before
    /// its result is complete.
    fn follows_at_once(&self, source: usize, target: usize) -> bool {
        let fuser = self.fuser;
        let (Some(from), Some(into)) = (&self.groups[source], &self.groups[target]) else {
            return false;
        };
        let end = fuser.definition_index(from.root);
        let is_earlier = |value: &ValueId| {
            self.written[source].contains(value) || fuser.definition_index(*value) < end
        };
        let is_check = |node: &usize| {
            let op = &fuser.graph.nodes[*node].op;
            matches!(op, Op::Primitive(Primitive::Check(_)))
        };
        let mut nodes = into.computed(fuser.graph, &fuser.materialized).into_iter();
        self.read[target].iter().all(is_earlier) && !nodes.any(|node| is_check(&node))
    }

    /// Merges small groups that no other group reads with the last one before them that has as many elements.
    fn merge_small(&mut self) {
        let mut last: HashMap<Dim, usize> = HashMap::new();
        for target in 0..self.groups.len() {
            let Some(numel) = self.small_numel(target) else {
                continue;
            };
            if let Some(source) = last.insert(numel, target)
                && self.fits_kernel(source, target)
            {
                self.merge(source, target);
            }
        }
    }

    /// Number of elements of a small pointwise group that no other group reads.
    fn small_numel(&self, index: usize) -> Option<Dim> {
        let group = self.pointwise_group(index)?;
        let numel = self.fuser.graph.ty(group.root).numel();
        let is_output = |value: &ValueId| self.fuser.is_output[value.index()];
        // A value that is neither read nor an output is a check.
        let are_outputs = self.written[index].iter().all(is_output);
        let is_unread = are_outputs && self.readers(index).is_empty();
        (self.is_small(group.root) && is_unread).then_some(numel)
    }

    /// True for values of which a dispatch takes longer than their work.
    fn is_small(&self, value: ValueId) -> bool {
        let numel = self.fuser.graph.ty(value).numel();
        numel.as_const().is_some_and(|size| size <= MAX_SMALL_NUMEL)
    }

    /// True if a kernel can compute both groups.
    fn fits_kernel(&self, source: usize, target: usize) -> bool {
        let groups = [source, target].map(|index| self.groups[index].as_ref());
        let cost: u32 = groups
            .into_iter()
            .flatten()
            .map(|group| self.cost(group))
            .sum();
        self.fits_bindings(source, target) && cost <= MAX_EXPRESSION_COST
    }

    /// A group without loops that writes values in row-major order. On devices with a channel layout for images, image
    /// groups are excluded.
    fn pointwise_group(&self, index: usize) -> Option<&Group> {
        let group = self.groups[index].as_ref()?;
        let graph = self.fuser.graph;
        let is_linear = !self.fuser.may_have_channel_layout(group.root);
        let is_pointwise = |node: &usize| node_class(&graph.nodes[*node]) == NodeClass::Pointwise;
        let is_alone = group.anchor.is_none() && group.pattern.is_none();
        (is_alone && is_linear && group.nodes.iter().all(is_pointwise)).then_some(group)
    }

    /// True if a kernel can bind all buffers of both groups, and the source's values are not stored within
    /// concatenations.
    fn fits_bindings(&self, source: usize, target: usize) -> bool {
        let of_both = |sets: &[BTreeSet<ValueId>]| sets[source].union(&sets[target]).count();
        let is_planned_part = |value: &ValueId| self.fuser.planned_parts.contains_key(value);
        of_both(&self.read) + of_both(&self.written) <= self.fuser.max_read_buffers
            && !self.written[source].iter().any(is_planned_part)
    }

    /// True if each element of `into` depends only on the elements at its index of the values that `source` writes.
    fn is_elementwise_of(&self, source: usize, into: &Group) -> bool {
        let mut dependents = self.written[source].clone();
        for node in into.computed(self.fuser.graph, &self.fuser.materialized) {
            let node = &self.fuser.graph.nodes[node];
            if !dependents.is_disjoint(&node.operands().into_iter().collect()) {
                dependents.extend(&node.results);
                if !is_elementwise(node) {
                    return false;
                }
            }
        }
        true
    }

    /// Cost of an element of a group, in simple operations.
    fn cost(&self, group: &Group) -> u32 {
        let nodes = group.computed(self.fuser.graph, &self.fuser.materialized);
        let costs = nodes
            .iter()
            .map(|node| node_cost(&self.fuser.graph.nodes[*node]));
        costs.sum()
    }

    /// Other groups that read values of a group.
    fn readers(&self, group: usize) -> BTreeSet<usize> {
        let values = self.written[group].iter();
        let readers = values.filter_map(|value| self.readers.get(value));
        readers
            .flatten()
            .copied()
            .filter(|reader| *reader != group)
            .collect()
    }

    /// True if `target` depends on `source` through further groups.
    fn depends_indirectly(&self, source: usize, target: usize) -> bool {
        let mut seen = self.readers(source);
        seen.remove(&target);
        let mut open: Vec<usize> = seen.iter().copied().collect();
        while let Some(group) = open.pop() {
            if !self.is_defined_after(group, target) {
                let readers = self.readers(group).into_iter();
                open.extend(readers.filter(|reader| seen.insert(*reader)));
            }
        }
        seen.contains(&target)
    }

    /// True if every value of a group is defined after all values of another one, so that the other cannot depend on
    /// it.
    fn is_defined_after(&self, group: usize, other: usize) -> bool {
        let definitions = |index: usize| {
            let values = self.written[index].iter();
            values.map(|value| self.fuser.definition_index(*value))
        };
        definitions(group).min() > definitions(other).max()
    }

    /// Merges the source group into the target group. Source values that other groups read are still written.
    fn merge(&mut self, source: usize, target: usize) {
        let written = std::mem::take(&mut self.written[source]);
        let is_read = |value: &ValueId| {
            let mut readers = self.readers.get(value).into_iter().flatten();
            let is_output = self.fuser.is_output[value.index()];
            is_output || readers.any(|reader| ![source, target].contains(reader))
        };
        let (still_read, unread): (Vec<ValueId>, Vec<ValueId>) =
            written.iter().copied().partition(is_read);
        for value in std::mem::take(&mut self.read[source]) {
            let readers = self.readers.entry(value).or_default();
            readers.remove(&source);
            readers.insert(target);
            self.read[target].insert(value);
        }
        self.read[target].retain(|value| !written.contains(value));
        for value in &written {
            self.readers.entry(*value).or_default().remove(&target);
        }
        self.writers
            .extend(still_read.iter().map(|value| (*value, target)));
        self.written[target].extend(&still_read);
        self.unread.extend(unread);
        if let (Some(from), Some(into)) = (self.groups[source].take(), &mut self.groups[target]) {
            into.other_outputs.splice(0..0, still_read);
            into.nodes.splice(0..0, from.nodes);
            into.anchor = from.anchor;
        }
    }
}

/// True for a node that computes each element from the elements of its operands at the same linear index.
pub(super) fn is_elementwise(node: &Node) -> bool {
    let is_reshape = matches!(node.op, Op::Primitive(Primitive::Reshape(_)));
    node_class(node) == NodeClass::Pointwise || is_reshape
}
