//! Nodes that one row kernel computes: reductions over the same trailing axes, and the pointwise nodes between and after
//! them. They are found by structure, so that softmax, norms and similar chains become one kernel each.

use std::collections::{BTreeMap, BTreeSet};

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
        let mut units: Vec<Vec<usize>> = Vec::new();
        for seed in 0..self.graph.nodes.len() {
            let in_quads = capabilities.simd_lanes().is_some()
                && pooling::is_supported(self.graph, &self.graph.nodes[seed]);
            if claimed[seed] || !self.is_used(seed) || in_quads {
                continue;
            }
            let Some(frame) = RowFrame::of(self.graph, &self.graph.nodes[seed]) else {
                continue;
            };
            let region = RowRegion::grow(self, capabilities, seed, frame, claimed);
            if let Some(group) = region.group(self, capabilities, &units) {
                group.nodes.iter().for_each(|node| claimed[*node] = true);
                units.push(group.nodes.clone());
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
            self.stored[value.index()] = false;
            self.reasons[value.index()] = None;
        }
        for value in &rows.written {
            let reason = if self.graph.outputs.contains(value) {
                MaterializeReason::Output
            } else {
                MaterializeReason::Readers(self.readers[value.index()].len())
            };
            self.store(value.index(), reason);
        }
    }
}

/// Largest cost of earlier results that a stage of a row kernel recomputes.
const MAX_RECOMPUTED_COST: u32 = 40;

/// Nodes around a reduction that one kernel can compute.
struct RowRegion {
    frame: RowFrame,
    /// In graph order.
    nodes: Vec<usize>,
    /// Properties of their results.
    values: BTreeMap<ValueId, RowValueProperties>,
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
    /// Values that the region reads of each row.
    leaves: BTreeSet<ValueId>,
    row: Index,
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
    ) -> RowRegion {
        let written = vec![false; fuser.graph.values.len()];
        let mut scope = KernelScope::new(fuser.graph, capabilities, &fuser.stored, &written);
        let row = scope.counter("index", &frame.rows).1;
        let within = scope.counter("k", &frame.length).1;
        let element = frame.element_index(&row, &within);
        let mut growth = RowRegionGrowth {
            fuser,
            scope,
            region: RowRegion {
                frame,
                nodes: Vec::new(),
                values: BTreeMap::new(),
            },
            excluded_dependents: BTreeSet::new(),
            leaves: BTreeSet::new(),
            row,
            element,
        };
        for (index, node) in fuser.graph.nodes.iter().enumerate().skip(seed) {
            let is_taken = !claimed[index] && growth.try_add(index, node);
            if !is_taken && node.operands().iter().any(|id| growth.depends(*id)) {
                growth.excluded_dependents.extend(&node.results);
            }
        }
        growth.region
    }

    /// Removes final nodes that readers can inline: views, and pointwise nodes whose operands are stored in any case.
    fn prune(&mut self, fuser: &Fuser) {
        for place in (0..self.nodes.len()).rev() {
            let node = &fuser.graph.nodes[self.nodes[place]];
            let Some(result) = node.results.first() else {
                continue;
            };
            let is_last = !fuser.readers[result.index()]
                .iter()
                .any(|reader| self.nodes.contains(reader));
            let is_cheap = !fuser.stored[result.index()] && reduction_of(node).is_none();
            let mut inner = node.operands();
            inner.retain(|id| self.values.contains_key(id));
            let is_view = node_class(node) == NodeClass::View;
            if is_last && is_cheap && (is_view || inner.iter().all(|id| self.escapes(fuser, *id))) {
                self.nodes.remove(place);
                self.values.remove(result);
            }
        }
    }

    /// True for a value of the region that is read outside.
    fn escapes(&self, fuser: &Fuser, value: ValueId) -> bool {
        let readers = &fuser.readers[value.index()];
        let is_inside = |reader: &usize| self.nodes.contains(reader);
        fuser.graph.outputs.contains(&value) || !readers.iter().all(is_inside)
    }

    /// The group, if a device can bind its operands and results.
    fn group(
        mut self,
        fuser: &Fuser,
        capabilities: &Capabilities,
        units: &[Vec<usize>],
    ) -> Option<Group> {
        self.prune(fuser);
        let rows = self.rows(fuser);
        if !rows::pays_off(fuser.graph, capabilities, &rows) {
            return None;
        }
        let root = *rows.written.last()?;
        if self.has_cycle(fuser, &rows.written, units) {
            return None;
        }
        let written = vec![false; fuser.graph.values.len()];
        // A kernel omits its checks where the fault buffer does not fit.
        let scope = KernelScope::new(fuser.graph, capabilities, &fuser.stored, &written);
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

    /// True if the group would depend on itself, through nodes that other groups compute at once.
    fn has_cycle(&self, fuser: &Fuser, written: &[ValueId], units: &[Vec<usize>]) -> bool {
        let mut open: Vec<ValueId> = written.to_vec();
        let mut seen = BTreeSet::new();
        while let Some(value) = open.pop() {
            for reader in &fuser.readers[value.index()] {
                if self.nodes.contains(reader) {
                    if written.contains(&value) {
                        continue;
                    }
                    return true;
                }
                let alone = std::slice::from_ref(reader);
                let unit = units.iter().find(|unit| unit.contains(reader));
                for node in unit.map_or(alone, Vec::as_slice) {
                    if seen.insert(*node) {
                        open.extend(&fuser.graph.nodes[*node].results);
                    }
                }
            }
        }
        false
    }
}

impl RowRegionGrowth<'_, '_> {
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
        let mut traits = known.fold(RowValueProperties::default(), |all, one| {
            RowValueProperties {
                stage: all.stage.max(one.stage),
                cost: all.cost.saturating_add(one.cost),
            }
        });
        let is_inside = operands
            .iter()
            .any(|id| self.region.values.contains_key(id));
        let is_taken = if reduction_of(node).is_some() {
            let fits = traits.cost <= MAX_RECOMPUTED_COST && self.try_reduce(node, *result);
            traits = RowValueProperties {
                stage: traits.stage + 1,
                cost: 0,
            };
            fits
        } else {
            traits.cost = if self.is_narrow(*result) {
                0
            } else {
                traits.cost.saturating_add(node_cost(node))
            };
            is_inside && is_pointwise(node) && self.can_compute(*result)
        };
        if is_taken {
            self.region.nodes.push(index);
            self.region.values.insert(*result, traits);
        }
        is_taken
    }

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
        let register = self.scope.register(graph.ty(x).dtype);
        // Subgroup operations exchange these types.
        let is_simple = matches!(register, WgslType::Bool | WgslType::F32 | WgslType::I32);
        let is_shared = self.scope.capabilities.software;
        if !is_related
            || is_shared && !is_simple
            || RowFrame::of(graph, node).as_ref() != Some(&self.region.frame)
            || !self.can_lower_element(x, &self.element.clone())
        {
            return false;
        }
        let wide = |id: &&ValueId| graph.ty(**id).numel() == self.region.frame.numel();
        self.leaves.extend(leaves.iter().filter(wide));
        let total = format!("total{}", result.index());
        let total = self.scope.pool.variable(&total, register);
        self.scope.set_computed_at(result, total, &self.row);
        true
    }

    /// True for a value with one element per row element or per row.
    fn can_compute(&mut self, value: ValueId) -> bool {
        let numel = self.scope.graph.ty(value).numel();
        let place = if numel == self.region.frame.rows {
            self.row.clone()
        } else if numel == self.region.frame.numel() {
            self.element.clone()
        } else {
            return false;
        };
        self.scope.inline_values(&[value]);
        self.can_lower_element(value, &place)
    }

    fn can_lower_element(&mut self, value: ValueId, place: &Index) -> bool {
        let position = Position::from_index(place.clone());
        self.scope.element(value, &position, None).is_ok()
    }
}

fn is_pointwise(node: &Node) -> bool {
    let is_plain_view = matches!(
        node.op,
        Op::Primitive(Primitive::Reshape(_) | Primitive::Expand(_))
    );
    is_plain_view || node_class(node) == NodeClass::Pointwise && !node.has_side_effect()
}
