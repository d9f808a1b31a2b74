//! Weights that products read as panels and other kernels in rows, such as the table of an embedding that is the last
//! layer as well. If those kernels read few elements, they read them from the panels, and the weight is stored once.
//!
//! A plan that would store such a weight twice is built again, with the weight stored only as panels.

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

/// Elements are read from panels if their number times this factor is at most that of the weight. A read from panels
/// loads a cache line for one number; with this limit, all such reads take no longer than a product of one row with the
/// weight.
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
    /// True if a slot stores the weight in rows.
    in_rows: bool,
    panels: Vec<&'a Panels>,
    /// Number of elements of the weight.
    numel: usize,
}

/// Weights that a plan stores in rows and in panels, and that can be read from the panels.
pub fn choose_paneled(builder: &PlanBuilder, capabilities: &Capabilities) -> PaneledWeights {
    let (plan, limit) = (&builder.plan, capabilities.textures.bindings as usize);
    let mut chosen = PaneledWeights::new();
    let fits = |step: &Step, chosen: &PaneledWeights| texture_count(plan, step, chosen) <= limit;
    if !plan.steps.iter().all(|step| fits(step, &chosen)) {
        return chosen;
    }
    let steps = steps_by_weight(plan);
    for (name, layouts) in weight_layouts(&plan.slots) {
        let Some(panels) = layouts.panels.first().filter(|_| layouts.in_rows) else {
            continue;
        };
        let read = builder.row_reads.get(name).copied().unwrap_or_default();
        if reason_for_rows(&layouts, read).is_some() {
            continue;
        }
        let panels = Panels::clone(panels);
        chosen.insert(name.to_string(), PaneledWeight { panels, read });
        let mut readers = steps.get(name).into_iter().flatten();
        if !readers.all(|step| fits(step, &chosen)) {
            chosen.remove(name);
        }
    }
    chosen
}

/// Report of weights that are stored in several panel layouts, or in panels and read in rows too.
pub fn shared_weights(builder: &PlanBuilder, chosen: &PaneledWeights) -> Vec<SharedWeight> {
    let layouts = weight_layouts(&builder.plan.slots).into_iter();
    let reports = layouts.filter_map(|(name, layouts)| {
        let read = match chosen.get(name) {
            Some(paneled) => paneled.read,
            None => builder.row_reads.get(name).copied().unwrap_or_default(),
        };
        let panel_count = layouts.panels.len();
        let is_shared = 1 < panel_count || 0 < panel_count && 0 < read;
        let rows = layouts.in_rows.then(|| reason_for_rows(&layouts, read));
        is_shared.then(|| SharedWeight {
            weight: name.to_string(),
            panels: panel_count,
            read,
            numel: layouts.numel,
            row_copy: rows.map(|reason| reason.unwrap_or(RowCopyReason::TooManyTextures)),
        })
    });
    reports.collect()
}

/// Sets the layout of weights that are stored only as panels.
pub fn assign_layouts(graph: &Graph, fusion: &mut Fusion, chosen: &PaneledWeights) {
    for (layout, info) in fusion.layouts.iter_mut().zip(&graph.values) {
        if let Definition::Weight(name) = &info.definition
            && let Some(paneled) = chosen.get(name)
        {
            *layout = Layout::Panels(paneled.panels.clone());
        }
    }
}

/// Reason why a weight of which kernels read `read` elements one by one must be stored in rows too; `None` if they can
/// read them from the panels.
fn reason_for_rows(layouts: &WeightLayouts, read: usize) -> Option<RowCopyReason> {
    let matrix = layouts
        .panels
        .first()
        .and_then(|x| x.as_matrix(layouts.numel));
    match matrix {
        None => Some(RowCopyReason::NotPlainMatrix),
        Some(_) => (read.saturating_mul(MIN_WEIGHT_FRACTION) > layouts.numel)
            .then_some(RowCopyReason::TooManyReads),
    }
}

/// Layouts of all weights of a plan, by name.
fn weight_layouts(slots: &[Slot]) -> BTreeMap<&str, WeightLayouts<'_>> {
    let mut found: BTreeMap<&str, WeightLayouts> = BTreeMap::new();
    for slot in slots {
        let SlotKind::Weight(name) = &slot.kind else {
            continue;
        };
        let layouts = found.entry(name).or_default();
        match &slot.layout {
            Layout::Panels(panels) => layouts.panels.push(panels),
            _ => layouts.in_rows = true,
        }
        let mut sizes = slot.shape.iter().map(Dim::as_const);
        let numel = sizes.try_fold(1, |numel, size| {
            usize::try_from(size?).ok()?.checked_mul(numel)
        });
        layouts.numel = numel.unwrap_or_default();
    }
    found
}

/// Steps that bind each weight, by name.
fn steps_by_weight(plan: &Plan) -> BTreeMap<&str, Vec<&Step>> {
    let mut steps: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
    for step in &plan.steps {
        for slot in &step.bindings {
            if let Some(SlotKind::Weight(name)) = plan.slots.get(slot.0).map(|slot| &slot.kind) {
                steps.entry(name).or_default().push(step);
            }
        }
    }
    steps
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
        generated: &GeneratedKernel,
        group: &Group,
        operand: Option<ValueId>,
    ) {
        let is_in_rows = |binding: &&KernelBinding| {
            let info = self.graph.value(binding.value);
            let is_matrix = matches!(info.definition, Definition::Weight(_)) && info.ty.rank() > 1;
            is_matrix && matches!(binding.layout, Layout::Linear | Layout::Chunk { .. })
        };
        let in_rows = generated.bindings.iter().filter(is_in_rows);
        let in_rows: BTreeSet<ValueId> = in_rows.map(|binding| binding.value).collect();
        if in_rows.is_empty() || self.capabilities.simd_lanes().is_none() {
            return;
        }
        let read = work::elements_read(&self.scope(), group, operand);
        for value in in_rows {
            let numel = self.graph.ty(value).numel();
            let read = example_size(self.graph, read.get(&value).unwrap_or(&numel));
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

    /// Adds to the number of elements that are read of a weight in rows. Other values are not counted.
    fn add_row_reads(&mut self, value: ValueId, read: usize) {
        if let Definition::Weight(name) = &self.graph.value(value).definition {
            let known = self.builder.row_reads.entry(name.clone()).or_default();
            *known = known.saturating_add(read);
        }
    }
}
