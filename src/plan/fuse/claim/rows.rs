//! Nodes that one row kernel computes: reductions over the same trailing axes, and the pointwise nodes between and
//! after them. They are found by structure, so that softmax, norms and similar chains become one kernel each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ir::{Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::expr::WgslType;
use crate::kernel::index::Index;
use crate::kernel::materialization::MaterializeReason;
use crate::plan::cost::{NodeClass, node_class, node_cost};
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, operand};
use crate::plan::fuse::Fuser;
use crate::plan::group::{Group, Pattern, RowFrame, RowsPattern, reduction_of};
use crate::plan::reduce::{pooling, rows};

impl Fuser<'_> {
    /// Claims the nodes of row kernels. Their values are stored only where other kernels read them.
    pub fn claim_rows(&mut self, capabilities: &Capabilities, claimed: &mut [bool]) -> Vec<Group> {
        let mut groups = Vec::new();
        if !rows::is_supported(capabilities) {
            return groups;
        }
        let reductions = reductions_by_leaf(self);
        let mut earlier_groups = EarlierGroups::default();
        for seed in 0..self.graph.nodes.len() {
            let is_vec4_pooling = capabilities.simd_lanes().is_some()
                && pooling::is_supported(self.graph, &self.graph.nodes[seed]);
            if claimed[seed] || !self.is_used(seed) || is_vec4_pooling {
                continue;
            }
            let Some(frame) = RowFrame::of(self.graph, &self.graph.nodes[seed]) else {
                continue;
            };
            let region = RowRegion::grow(self, capabilities, seed, frame, claimed, &reductions);
            if let Some(group) = region.group(self, capabilities, &earlier_groups) {
                group.nodes.iter().for_each(|node| claimed[*node] = true);
                earlier_groups.add(&group.nodes);
                self.store_written(&group);
                groups.push(group);
            }
        }
        groups
    }

    /// Stores only the values that a row group writes.
    fn store_written(&mut self, group: &Group) {
        let Some(rows) = group.rows() else { return };
        for value in &rows.computed {
            self.materialized[value.index()] = false;
            self.reasons[value.index()] = None;
        }
        for value in &rows.written {
            let reason = if self.is_output[value.index()] {
                MaterializeReason::Output
            } else {
                MaterializeReason::TooManyReaders(self.readers[value.index()].len())
            };
            self.materialize(value.index(), reason);
        }
    }
}

/// Largest cost of earlier results that a stage of a row kernel recomputes.
const MAX_RECOMPUTED_COST: u32 = 40;

/// Nodes around a reduction that one kernel can compute.
struct RowRegion {
    /// The rows that the reductions share.
    frame: RowFrame,
    /// Indices of the nodes, in graph order.
    nodes: Vec<usize>,
    /// Properties of the nodes' results.
    values: BTreeMap<ValueId, RowValueProperties>,
    /// Some of the values that the kernel has to write in any case.
    written: BTreeSet<ValueId>,
}

/// Properties of a value of a region.
#[derive(Clone, Copy, Default)]
struct RowValueProperties {
    /// Number of reductions that precede it, one after the other.
    stage: usize,
    /// Cost of one element given the results of these reductions.
    cost: u32,
}

/// A region while it grows. It includes each node whose elements can be computed along a row.
struct RowRegionGrowth<'a, 'g> {
    fuser: &'a Fuser<'g>,
    scope: KernelScope<'a>,
    region: RowRegion,
    /// Values that depend on the region and do not belong to it.
    excluded_dependents: BTreeSet<ValueId>,
    /// Materialised values with an element for each element of the rows that the region's reductions read.
    leaves: BTreeSet<ValueId>,
    reductions: &'a ReductionsByLeaf,
    /// Nodes to visit that may belong to the region.
    candidates: BTreeSet<usize>,
    /// The next reduction to visit that reads each value of `leaves`.
    related: BTreeSet<(usize, ValueId)>,
    /// Nodes to visit that read values in `excluded_dependents`.
    dependents: BTreeSet<usize>,
    /// Index of a row, as a variable.
    row: Index,
    /// Linear index of an element of that row.
    element: Index,
}

impl RowRegion {
    /// Grows the largest region from a reduction.
    fn grow(
        fuser: &Fuser,
        capabilities: &Capabilities,
        seed: usize,
        frame: RowFrame,
        claimed: &[bool],
        reductions: &ReductionsByLeaf,
    ) -> RowRegion {
        let written = &fuser.unwritten;
        let mut scope = KernelScope::new(fuser.graph, capabilities, &fuser.materialized, written);
        let row = scope.counter("index", &frame.rows).1;
        let number = scope.counter("k", &frame.length).1;
        let element = frame.element_index(&row, &number);
        let mut growth = RowRegionGrowth {
            fuser,
            scope,
            region: RowRegion {
                frame,
                nodes: Vec::new(),
                values: BTreeMap::new(),
                written: BTreeSet::new(),
            },
            excluded_dependents: BTreeSet::new(),
            leaves: BTreeSet::new(),
            reductions,
            candidates: BTreeSet::from([seed]),
            related: BTreeSet::new(),
            dependents: BTreeSet::new(),
            row,
            element,
        };
        while let Some(index) = growth.next()
            && growth.region.fits(capabilities)
        {
            growth.visit(index, claimed[index]);
        }
        growth.region
    }

    /// False if the kernel would write more values than a device can bind.
    fn fits(&self, capabilities: &Capabilities) -> bool {
        self.written.len() <= capabilities.max_storage_buffers as usize
    }

    /// Removes final nodes that readers can inline: views, and pointwise nodes whose operands are stored in any case.
    fn prune(&mut self, fuser: &Fuser) {
        for position in (0..self.nodes.len()).rev() {
            let node = &fuser.graph.nodes[self.nodes[position]];
            let Some(result) = node.results.first() else {
                continue;
            };
            let is_last = !fuser.readers[result.index()]
                .iter()
                .any(|reader| self.nodes.contains(reader));
            let is_cheap = !fuser.materialized[result.index()] && reduction_of(node).is_none();
            let mut inner_operands = node.operands();
            inner_operands.retain(|id| self.values.contains_key(id));
            let is_view = node_class(node) == NodeClass::View;
            if is_last
                && is_cheap
                && (is_view || inner_operands.iter().all(|id| self.escapes(fuser, *id)))
            {
                self.nodes.remove(position);
                self.values.remove(result);
            }
        }
    }

    /// True for a value of the region that is read outside.
    fn escapes(&self, fuser: &Fuser, value: ValueId) -> bool {
        let readers = &fuser.readers[value.index()];
        let is_inside = |reader: &usize| self.nodes.contains(reader);
        fuser.is_output[value.index()] || !readers.iter().all(is_inside)
    }

    /// The group, if a row kernel pays off and a device can bind its operands and results. `earlier_groups` are the
    /// nodes of row groups claimed before.
    fn group(
        mut self,
        fuser: &Fuser,
        capabilities: &Capabilities,
        earlier_groups: &EarlierGroups,
    ) -> Option<Group> {
        if !self.fits(capabilities) {
            return None;
        }
        self.prune(fuser);
        let rows = self.rows(fuser);
        if !rows::pays_off(fuser.graph, capabilities, &rows) {
            return None;
        }
        let root = *rows.written.last()?;
        if self.has_cycle(fuser, &rows.written, earlier_groups) {
            return None;
        }
        // A kernel omits its checks where the buffer of check flags does not fit.
        let written = &fuser.unwritten;
        let scope = KernelScope::new(fuser.graph, capabilities, &fuser.materialized, written);
        let scope = scope.without_checks();
        let group = Group {
            anchor: rows.stages.last().and_then(|stage| stage.last()).copied(),
            root,
            other_outputs: Vec::new(),
            nodes: self.nodes,
            pattern: Some(Pattern::Rows(rows.clone())),
        };
        let lowered = rows::lower(scope, &group, &rows).ok()?;
        let is_bound = lowered.scope.buffers.len() <= capabilities.max_storage_buffers as usize;
        is_bound.then_some(group)
    }

    /// The pattern of the region's kernel.
    fn rows(&self, fuser: &Fuser) -> RowsPattern {
        let mut stages: Vec<Vec<usize>> = Vec::new();
        let mut computed = Vec::new();
        for index in &self.nodes {
            let node = &fuser.graph.nodes[*index];
            computed.extend(&node.results);
            let stage = node.results.first().and_then(|id| self.values.get(id));
            if let (Some(_), Some(RowValueProperties { stage, .. })) = (reduction_of(node), stage) {
                stages.resize(stages.len().max(*stage), Vec::new());
                stages[stage - 1].push(*index);
            }
        }
        let written = computed.iter().copied();
        RowsPattern {
            frame: self.frame.clone(),
            stages,
            written: written.filter(|id| self.escapes(fuser, *id)).collect(),
            computed,
        }
    }

    /// True if the group would depend on itself: a node outside reads a value of the group, and a node of the group
    /// depends on that node, or on one that an earlier group computes together with it.
    fn has_cycle(
        &self,
        fuser: &Fuser,
        written: &[ValueId],
        earlier_groups: &EarlierGroups,
    ) -> bool {
        // No path leads back from a node after all of these: nodes only read values before them.
        let last = self.nodes.last().copied().max(earlier_groups.last);
        let mut open: Vec<ValueId> = written.to_vec();
        let mut seen = BTreeSet::new();
        while let Some(value) = open.pop() {
            for reader in &fuser.readers[value.index()] {
                if Some(*reader) > last {
                    continue;
                }
                if self.nodes.contains(reader) {
                    if written.contains(&value) {
                        continue;
                    }
                    return true;
                }
                for node in earlier_groups.nodes_with(reader) {
                    if seen.insert(*node) {
                        open.extend(&fuser.graph.nodes[*node].results);
                    }
                }
            }
        }
        false
    }
}

/// Row groups claimed so far.
#[derive(Default)]
struct EarlierGroups {
    /// Nodes of each group.
    nodes: Vec<Vec<usize>>,
    /// The group that a node belongs to.
    group_of: HashMap<usize, usize>,
    /// The last node of all groups.
    last: Option<usize>,
}

impl EarlierGroups {
    /// Adds the nodes of a group.
    fn add(&mut self, nodes: &[usize]) {
        let group = self.nodes.len();
        self.group_of
            .extend(nodes.iter().map(|node| (*node, group)));
        self.last = self.last.max(nodes.iter().max().copied());
        self.nodes.push(nodes.to_vec());
    }

    /// The nodes that are computed together with a node.
    fn nodes_with<'a>(&'a self, node: &'a usize) -> &'a [usize] {
        match self.group_of.get(node) {
            Some(group) => &self.nodes[*group],
            None => std::slice::from_ref(node),
        }
    }
}

/// Reductions that read a value, directly or through inlined nodes, by value, in graph order.
type ReductionsByLeaf = HashMap<ValueId, Vec<usize>>;

fn reductions_by_leaf(fuser: &Fuser) -> ReductionsByLeaf {
    let mut reductions = ReductionsByLeaf::new();
    for (index, node) in fuser.graph.nodes.iter().enumerate() {
        if let (Some(_), Ok(x)) = (reduction_of(node), operand(node, 0)) {
            let leaves = fuser.properties[x.index()].leaves.iter().copied();
            for value in leaves.chain([x]).collect::<BTreeSet<_>>() {
                reductions.entry(value).or_default().push(index);
            }
        }
    }
    reductions
}

impl RowRegionGrowth<'_, '_> {
    /// Takes the next node to visit, in graph order. `None` if no node that may belong to the region is left, although
    /// some that depend on it may be.
    fn next(&mut self) -> Option<usize> {
        let related = self.related.first().map(|(node, _)| node);
        let first = *self.candidates.first().into_iter().chain(related).min()?;
        let next = self
            .dependents
            .first()
            .map_or(first, |other| first.min(*other));
        self.candidates.remove(&next);
        self.dependents.remove(&next);
        while let Some((node, leaf)) = self.related.first().copied()
            && node == next
        {
            self.related.remove(&(node, leaf));
            self.add_next_reduction(leaf, node);
        }
        Some(next)
    }

    /// Adds a node to the region, if it fits. Otherwise excludes what depends on the region through it.
    fn visit(&mut self, index: usize, is_claimed: bool) {
        let fuser = self.fuser;
        let node = &fuser.graph.nodes[index];
        let readers = node
            .results
            .iter()
            .flat_map(|id| &fuser.readers[id.index()]);
        if !is_claimed && self.try_add(index, node) {
            self.candidates.extend(readers);
            let outputs = node.results.iter().filter(|id| fuser.is_output[id.index()]);
            self.add_written(outputs.copied());
        } else if node.operands().iter().any(|id| self.depends(*id)) {
            self.excluded_dependents.extend(&node.results);
            self.dependents.extend(readers);
            self.add_written(node.operands().into_iter());
        }
    }

    /// Notes the materialised values of the region among those that something else reads.
    fn add_written(&mut self, values: impl Iterator<Item = ValueId>) {
        let RowRegion {
            values: known,
            written,
            ..
        } = &mut self.region;
        let materialized = &self.fuser.materialized;
        written.extend(values.filter(|id| known.contains_key(id) && materialized[id.index()]));
    }

    /// True for a value of the region, or one that depends on the region.
    fn depends(&self, value: ValueId) -> bool {
        self.region.values.contains_key(&value) || self.excluded_dependents.contains(&value)
    }

    /// Adds a node to the region, if it fits.
    fn try_add(&mut self, index: usize, node: &Node) -> bool {
        let (operands, [result]) = (node.operands(), node.results.as_slice()) else {
            return false;
        };
        if operands
            .iter()
            .any(|id| self.excluded_dependents.contains(id))
        {
            return false;
        }
        let known = operands.iter().filter_map(|id| self.region.values.get(id));
        let mut properties = known.fold(RowValueProperties::default(), |all, value| {
            RowValueProperties {
                stage: all.stage.max(value.stage),
                cost: all.cost.saturating_add(value.cost),
            }
        });
        let is_inside = operands
            .iter()
            .any(|id| self.region.values.contains_key(id));
        let is_added = if reduction_of(node).is_some() {
            let fits = properties.cost <= MAX_RECOMPUTED_COST && self.try_reduce(node, *result);
            properties = RowValueProperties {
                stage: properties.stage + 1,
                cost: 0,
            };
            fits
        } else {
            properties.cost = if self.is_narrow(*result) {
                0
            } else {
                properties.cost.saturating_add(node_cost(node))
            };
            is_inside && is_pointwise(node) && self.can_compute(*result)
        };
        if is_added {
            self.region.nodes.push(index);
            self.region.values.insert(*result, properties);
        }
        is_added
    }

    /// True for a value with one element per row.
    fn is_narrow(&self, value: ValueId) -> bool {
        self.scope.graph.ty(value).numel() == self.region.frame.rows
    }

    /// Adds a reduction over the same rows that reads values which the region reads already.
    fn try_reduce(&mut self, node: &Node, result: ValueId) -> bool {
        let graph = self.scope.graph;
        let Ok(x) = operand(node, 0) else {
            return false;
        };
        let leaves = &self.fuser.properties[x.index()].leaves;
        let is_related = self.region.nodes.is_empty()
            || self.region.values.contains_key(&x)
            || !leaves.is_disjoint(&self.leaves);
        let register = self.scope.compute_type(graph.ty(x).dtype);
        // Subgroup operations exchange these types.
        let is_exchangeable = matches!(register, WgslType::Bool | WgslType::F32 | WgslType::I32);
        let is_software = self.scope.capabilities.software;
        if !is_related
            || is_software && !is_exchangeable
            || RowFrame::of(graph, node).as_ref() != Some(&self.region.frame)
            || !self.can_lower_element(x, &self.element.clone())
        {
            return false;
        }
        let wide = |id: &&ValueId| graph.ty(**id).numel() == self.region.frame.numel();
        let wide: Vec<ValueId> = leaves.iter().filter(wide).copied().collect();
        let reduction = self.fuser.definition_index(result);
        for leaf in wide {
            if self.leaves.insert(leaf) {
                self.add_next_reduction(leaf, reduction);
            }
        }
        let total = format!("total{}", result.index());
        let total = self.scope.pool.variable(&total, register);
        self.scope.set_computed_at(result, total, &self.row);
        true
    }

    /// Makes a candidate of the next reduction after a node that reads a materialised value.
    fn add_next_reduction(&mut self, leaf: ValueId, node: usize) {
        let reductions = self.reductions.get(&leaf).map_or(&[][..], Vec::as_slice);
        let next = reductions.partition_point(|reduction| *reduction <= node);
        let next = reductions.get(next).map(|reduction| (*reduction, leaf));
        self.related.extend(next);
    }

    /// True if the kernel can compute a value, which must have one element per element of the rows or one per row.
    fn can_compute(&mut self, value: ValueId) -> bool {
        let numel = self.scope.graph.ty(value).numel();
        let index = if numel == self.region.frame.rows {
            self.row.clone()
        } else if numel == self.region.frame.numel() {
            self.element.clone()
        } else {
            return false;
        };
        self.scope.inline_values(&[value]);
        self.can_lower_element(value, &index)
    }

    /// True if an expression for the element of a value at a linear index can be built.
    fn can_lower_element(&mut self, value: ValueId, index: &Index) -> bool {
        let position = Position::from_index(index.clone());
        self.scope.element(value, &position, None).is_ok()
    }
}

/// True for a node without side effects that computes each element from one element of each operand.
fn is_pointwise(node: &Node) -> bool {
    let is_plain_view = matches!(
        node.op,
        Op::Primitive(Primitive::Reshape(_) | Primitive::Expand(_))
    );
    is_plain_view || node_class(node) == NodeClass::Pointwise && !node.has_side_effect()
}
