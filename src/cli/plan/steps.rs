//! The dispatches of a plan, and the control flow among them.

use std::fmt::Write;
use std::ops::Range;

use super::{SizedPlan, kernel_name, labelled};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::Layout;
use crate::kernel::materialization::F32StorageReason;
use crate::kernel::plan::{Flow, FlowKind, Slot, SlotId, Step, TripCount, Workgroups};
use crate::shape::TensorType;
use crate::units::amount;

/// Suffixes of slot names that are dropped because the layout after the name says the same.
const LAYOUT_SUFFIXES: [&str; 3] = [" as vec4", " in panels", " in sorted runs"];
/// Number of nodes computed where they are read that are listed by name; further nodes are counted.
const MAX_LISTED_NODES: usize = 4;

/// Formats the steps of a plan as text.
pub(super) struct StepPrinter<'a> {
    planned: &'a SizedPlan<'a>,
    /// Columns of the longest kernel name, at most 44.
    width: usize,
}

impl<'a> StepPrinter<'a> {
    pub(super) fn new(planned: &'a SizedPlan<'a>) -> StepPrinter<'a> {
        let kernels = planned.plan.kernels.iter().enumerate();
        let widths = kernels.map(|(index, kernel)| kernel_name(index, kernel).chars().count());
        StepPrinter {
            planned,
            width: widths.max().unwrap_or(0).min(44),
        }
    }

    pub(super) fn block(
        &self,
        steps: Range<usize>,
        flows: &[Flow],
        depth: usize,
        text: &mut String,
    ) -> Result<()> {
        let mut next = steps.start;
        for flow in flows {
            let inner = flow.steps();
            (next..inner.start).try_for_each(|step| self.step(step, depth, text))?;
            self.flow(flow, depth, text)?;
            next = inner.end;
        }
        (next..steps.end).try_for_each(|step| self.step(step, depth, text))
    }

    fn flow(&self, flow: &Flow, depth: usize, text: &mut String) -> Result<()> {
        let indent = "  ".repeat(depth);
        let heads = self.planned.block_heads(&flow.kind);
        if flow.blocks().is_empty() {
            for head in &heads {
                let _ = writeln!(text, "{indent}{head}");
            }
        }
        for (head, block) in heads.iter().zip(flow.blocks()) {
            let _ = writeln!(text, "{indent}{head}");
            self.block(block.steps.clone(), &block.flows, depth + 1, text)?;
        }
        Ok(())
    }

    /// Formats a step in lines: kernel and work, operands and results, reasons.
    fn step(&self, index: usize, depth: usize, text: &mut String) -> Result<()> {
        let step = &self.planned.plan.steps[index];
        let (indent, width) = (2 * depth, self.width);
        let name = kernel_name(step.kernel, &self.planned.plan.kernels[step.kernel]);
        let head = self.planned.work(step)?;
        let head = format!("{:indent$}{:>3}  {name:<width$}  {head}", "", index + 1);
        let _ = writeln!(text, "{}", head.trim_end());
        let formulas = self.planned.formulas(step).into_iter();
        for (label, line) in formulas.chain(self.planned.details(step)) {
            for line in labelled(indent + 5, label, &line) {
                let _ = writeln!(text, "{line}");
            }
        }
        Ok(())
    }
}

impl SizedPlan<'_> {
    /// Returns the line in front of each block of control flow, or the only line of a call of the application.
    pub(super) fn block_heads(&self, kind: &FlowKind) -> Vec<String> {
        let name = |slot: &SlotId| self.plan.slots[slot.0].name.as_str();
        match kind {
            FlowKind::If { condition, .. } => {
                let condition = format!("if {} is true", name(condition));
                vec![condition, "else".to_string()]
            }
            FlowKind::Loop {
                trips,
                initial_condition: first,
                next_condition: again,
                ..
            } => {
                let trips = match trips {
                    TripCount::Size(size) => size.to_string(),
                    TripCount::Slot(slot) => name(slot).to_string(),
                };
                let conditions: Vec<&str> = first.iter().chain(again).map(name).collect();
                let conditions = match conditions.is_empty() {
                    true => String::new(),
                    false => format!(" while {} is true", conditions.join(", then ")),
                };
                vec![format!("repeat at most {trips} times{conditions}")]
            }
            FlowKind::Host {
                operands, results, ..
            } => {
                let list = |slots: &[SlotId]| slots.iter().map(name).collect::<Vec<_>>().join(", ");
                let (operands, results) = (list(operands), list(results));
                vec![format!("call the application: {operands} -> {results}")]
            }
        }
    }

    /// Formats the work of a step, `7.1 MFLOP  1.2 MB  12 × 4 workgroups`; empty where sizes are formulas.
    fn work(&self, step: &Step) -> Result<String> {
        let Some(sizes) = &self.sizes else {
            return Ok(String::new());
        };
        Ok(format!(
            "{:>11}  {:>8}  {}",
            amount(step.work.operations.eval(sizes)? as f64, "FLOP"),
            amount(step.work.bytes.eval(sizes)? as f64, "B"),
            self.workgroups(&step.workgroups)?
        ))
    }

    /// Returns the work of a step as formulas, each with a label; empty where sizes are known.
    fn formulas(&self, step: &Step) -> Vec<(&'static str, String)> {
        match (&self.sizes, self.workgroups(&step.workgroups)) {
            (None, Ok(workgroups)) => vec![
                ("work", format!("{} FLOP", step.work.operations)),
                ("moves", format!("{} bytes", step.work.bytes)),
                ("in", workgroups),
            ],
            _ => Vec::new(),
        }
    }

    /// Formats a number of workgroups: `12 × 4 workgroups`.
    pub(in crate::cli) fn workgroups(&self, workgroups: &Workgroups) -> Result<String> {
        let formula = match (workgroups, &self.sizes) {
            (Workgroups::Linear(count), None) => count.to_string(),
            (Workgroups::Grid(grid), None) => grid.each_ref().map(ToString::to_string).join(" × "),
            (workgroups, Some(sizes)) => {
                let grid = workgroups.eval(sizes, self.target.capabilities.max_workgroups)?;
                let last = grid.iter().rposition(|count| *count != 1).unwrap_or(0);
                let grid: Vec<String> = grid
                    .iter()
                    .take(last + 1)
                    .map(ToString::to_string)
                    .collect();
                grid.join(" × ")
            }
        };
        Ok(match formula.as_str() {
            "1" => "1 workgroup".to_string(),
            formula => format!("{formula} workgroups"),
        })
    }

    /// Returns the values that a step reads and writes, its nodes, its kernel and the reasons, each with a label.
    pub(in crate::cli) fn details(&self, step: &Step) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("reads", self.values(step, false)),
            ("writes", self.values(step, true)),
            ("computes", computed(step)),
        ];
        lines.retain(|(_, line)| !line.is_empty());
        lines.extend(self.reasons(step));
        lines.extend((!step.place.is_unknown()).then(|| ("source", step.place.to_string())));
        lines
    }

    /// Returns the reasons for a step's kernel, for storing its results and for storing them in f32, each with a label.
    pub(super) fn reasons(&self, step: &Step) -> Vec<(&'static str, String)> {
        let choice = step.choice.iter();
        let mut lines: Vec<(&str, String)> = choice
            .map(|choice| ("kernel", choice.to_string()))
            .collect();
        for slot in &step.work.writes {
            let name = &self.plan.slots[slot.0].name;
            let stored = self
                .plan
                .materialized
                .iter()
                .find(|stored| stored.value == *name);
            lines.extend(stored.map(|stored| ("stored", stored.reason.to_string())));
            let kept = stored.and_then(|stored| stored.f32_reason);
            // The reason already names the control flow or the custom operator.
            let kept = kept.filter(|kept| *kept != F32StorageReason::External);
            lines.extend(kept.map(|kept| ("in f32", kept.to_string())));
        }
        lines
    }

    fn values(&self, step: &Step, written: bool) -> String {
        let slots = bound_slots(step, written).into_iter();
        let values: Vec<String> = slots.map(|slot| self.value(slot)).collect();
        values.join(", ")
    }

    /// Formats a slot: `relu f32[1, 64, 56, 56] as f16 as vec4 along axis 1`, with storage and layout only if unusual.
    pub(super) fn value(&self, slot: SlotId) -> String {
        let (name, ty, stored) = (self.slot_name(slot), self.ty(slot), self.stored(slot));
        format!("{name} {ty}{stored}")
    }

    /// Returns the name of a slot's value without the layout.
    pub(super) fn slot_name(&self, slot: SlotId) -> &str {
        let Slot { name, layout, .. } = &self.plan.slots[slot.0];
        let layout = layout.to_string();
        let ends = LAYOUT_SUFFIXES.iter().copied().chain([layout.as_str()]);
        ends.fold(name.as_str(), |name, end| {
            name.strip_suffix(end).unwrap_or(name)
        })
    }

    /// Formats storage and layout of a slot, ` as f16 as vec4 along axis 1`; empty if they are usual.
    pub(super) fn stored(&self, slot: SlotId) -> String {
        let Slot {
            dtype,
            storage,
            layout,
            ..
        } = &self.plan.slots[slot.0];
        let stored = match (dtype, storage, layout) {
            (DType::F32, StorageType::F16 | StorageType::F16x2, Layout::Panels(_)) => {
                " as f16".to_string()
            }
            (DType::F32, StorageType::F16 | StorageType::F16x2, _) => format!(" as {storage}"),
            _ => String::new(),
        };
        format!("{stored}{layout}")
    }

    /// Returns the type of a slot's value, with sizes if they are known.
    pub(super) fn ty(&self, slot: SlotId) -> TensorType {
        let Slot { dtype, shape, .. } = &self.plan.slots[slot.0];
        match &self.map {
            Some(map) => TensorType::new(*dtype, map.slots[slot.0].shape.iter().copied()),
            None => TensorType {
                dtype: *dtype,
                shape: shape.clone(),
            },
        }
    }
}

/// Returns the slots that a step reads, or those that it writes, each once.
pub(super) fn bound_slots(step: &Step, written: bool) -> Vec<SlotId> {
    let mut slots: Vec<SlotId> = Vec::new();
    for slot in &step.bindings {
        // A kernel may bind a slot twice.
        if step.work.writes.contains(slot) == written && !slots.contains(slot) {
            slots.push(*slot);
        }
    }
    slots
}

/// Formats the nodes of a step, and those that are computed where they are read.
fn computed(step: &Step) -> String {
    let mut text = step.nodes.join(", ");
    let through = &step.work.fused_producers;
    if !through.is_empty() {
        let listed: Vec<String> = through.iter().take(MAX_LISTED_NODES).cloned().collect();
        let _ = write!(text, "; inline: {}", listed.join(", "));
    }
    if MAX_LISTED_NODES < through.len() {
        let _ = write!(text, " and {} more", through.len() - MAX_LISTED_NODES);
    }
    text
}
