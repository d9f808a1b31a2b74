//! Weights that products read as panels and other kernels in rows, such as the table of an embedding that is the last
//! layer as well. If those kernels read few elements, they read them from the panels, and the weight is stored once.
//!
//! A plan that would store such a weight twice is made again.

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::Dim;
use crate::ir::{Definition, Graph, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::layout::{Layout, Panels};
use crate::kernel::materialization::{RowCopyReason, SharedWeight};
use crate::kernel::plan::{Plan, Slot, SlotKind, Step};
use crate::plan::Planner;
use crate::plan::cost::example_size;
use crate::plan::element::KernelBinding;
use crate::plan::fuse::Fusion;
use crate::plan::group::Group;
use crate::plan::kernel::{GeneratedKernel, work};
use crate::plan::plan_builder::PlanBuilder;

/// Elements are read from panels if they are less than this fraction of the weight. Each read loads a cache line for one
/// number, which takes up to 9 ns, where a product of one row takes 0.5 ns an element. So all such reads take no longer
/// than the product.
const MIN_WEIGHT_FRACTION: usize = 16;

/// Weights stored only as panels, by name.
pub type PaneledWeights = BTreeMap<String, PaneledWeight>;

/// A weight that is stored only as panels.
#[derive(Clone, Debug)]
pub struct PaneledWeight {
    panels: Panels,
    /// Elements that kernels read one by one, for the example's sizes.
    read: usize,
}

/// Layouts in which a plan stores a weight.
#[derive(Default)]
struct WeightLayouts<'a> {
    in_rows: bool,
    panels: Vec<&'a Panels>,
    numel: usize,
}

/// Weights that a plan stores in rows and in panels, and that can be read from the panels.
pub fn choose_paneled(sheet: &PlanBuilder, capabilities: &Capabilities) -> PaneledWeights {
    let (plan, limit) = (&sheet.plan, capabilities.textures.bindings as usize);
    let mut chosen = PaneledWeights::new();
    for (name, ways) in weight_layouts(&plan.slots) {
        let Some(panels) = ways.panels.first().filter(|_| ways.in_rows) else {
            continue;
        };
        let read = sheet.row_reads.get(name).copied().unwrap_or_default();
        if reason_for_rows(&ways, read).is_some() {
            continue;
        }
        let panels = Panels::clone(panels);
        chosen.insert(name.to_string(), PaneledWeight { panels, read });
        let mut steps = plan.steps.iter();
        if steps.any(|step| texture_count(plan, step, &chosen) > limit) {
            chosen.remove(name);
        }
    }
    chosen
}

/// Report of weights that several kinds of kernels read.
pub fn shared_weights(sheet: &PlanBuilder, chosen: &PaneledWeights) -> Vec<SharedWeight> {
    let ways = weight_layouts(&sheet.plan.slots).into_iter();
    let told = ways.filter_map(|(name, ways)| {
        let read = match chosen.get(name) {
            Some(picked) => picked.read,
            None => sheet.row_reads.get(name).copied().unwrap_or_default(),
        };
        let kinds = ways.panels.len();
        let is_tied = 1 < kinds || 0 < kinds && 0 < read;
        let rows = ways.in_rows.then(|| reason_for_rows(&ways, read));
        is_tied.then(|| SharedWeight {
            weight: name.to_string(),
            panels: kinds,
            read,
            numel: ways.numel,
            row_copy: rows.map(|reason| reason.unwrap_or(RowCopyReason::TooManyTextures)),
        })
    });
    told.collect()
}

/// Sets the layout of weights that are stored only as panels.
pub fn assign_layouts(graph: &Graph, fusion: &mut Fusion, chosen: &PaneledWeights) {
    for (layout, info) in fusion.layouts.iter_mut().zip(&graph.values) {
        if let Definition::Weight(name) = &info.definition
            && let Some(picked) = chosen.get(name)
        {
            *layout = Layout::Panels(picked.panels.clone());
        }
    }
}

/// Reason not to read `read` elements from panels.
fn reason_for_rows(ways: &WeightLayouts, read: usize) -> Option<RowCopyReason> {
    let holds_all = ways.panels.first().and_then(|x| x.as_matrix(ways.numel));
    match holds_all {
        None => Some(RowCopyReason::NotPlainMatrix),
        Some(_) => (read.saturating_mul(MIN_WEIGHT_FRACTION) > ways.numel)
            .then_some(RowCopyReason::TooManyReads),
    }
}

fn weight_layouts(slots: &[Slot]) -> BTreeMap<&str, WeightLayouts<'_>> {
    let mut found: BTreeMap<&str, WeightLayouts> = BTreeMap::new();
    for slot in slots {
        let SlotKind::Weight(name) = &slot.kind else {
            continue;
        };
        let ways = found.entry(name).or_default();
        match &slot.layout {
            Layout::Panels(panels) => ways.panels.push(panels),
            _ => ways.in_rows = true,
        }
        let mut sizes = slot.shape.iter().map(Dim::as_const);
        let numel = sizes.try_fold(1, |numel, size| {
            usize::try_from(size?).ok()?.checked_mul(numel)
        });
        ways.numel = numel.unwrap_or_default();
    }
    found
}

/// Number of textures that a step binds, given the weights stored only as panels.
fn texture_count(plan: &Plan, step: &Step, chosen: &PaneledWeights) -> usize {
    let texture = |slot: &Slot| match (&slot.kind, &slot.layout) {
        (SlotKind::Weight(name), Layout::Panels(panels)) => Some((name.clone(), panels.clone())),
        (SlotKind::Weight(name), _) => Some((name.clone(), chosen.get(name)?.panels.clone())),
        _ => None,
    };
    let slots = step
        .bindings
        .iter()
        .filter_map(|slot| plan.slots.get(slot.0));
    slots.filter_map(texture).collect::<BTreeSet<_>>().len()
}

impl Planner<'_> {
    /// Counts the elements of row-major weights that a kernel reads. Vectors are never stored as panels.
    pub(in crate::plan) fn count_kernel_row_reads(
        &mut self,
        made: &GeneratedKernel,
        group: &Group,
        part: Option<ValueId>,
    ) {
        let is_in_rows = |binding: &&KernelBinding| {
            let info = self.graph.value(binding.value);
            let is_matrix = matches!(info.definition, Definition::Weight(_)) && info.ty.rank() > 1;
            is_matrix && matches!(binding.layout, Layout::Linear | Layout::Chunk { .. })
        };
        let in_rows = made.bindings.iter().filter(is_in_rows);
        let in_rows: BTreeSet<ValueId> = in_rows.map(|binding| binding.value).collect();
        if in_rows.is_empty() || self.capabilities.simd_lanes().is_none() {
            return;
        }
        let read = work::elements_read(&self.scope(), group, part);
        for value in in_rows {
            let all = self.graph.ty(value).numel();
            let read = example_size(self.graph, read.get(&value).unwrap_or(&all));
            self.add_row_reads(value, read);
        }
    }

    /// Counts all elements of a weight that something other than a kernel reads in rows.
    pub(in crate::plan) fn count_whole_row_reads(&mut self, value: ValueId) {
        self.add_row_reads(
            value,
            example_size(self.graph, &self.graph.ty(value).numel()),
        );
    }

    fn add_row_reads(&mut self, value: ValueId, read: usize) {
        if let Definition::Weight(name) = &self.graph.value(value).definition {
            let known = self.builder.row_reads.entry(name.clone()).or_default();
            *known = known.saturating_add(read);
        }
    }
}
