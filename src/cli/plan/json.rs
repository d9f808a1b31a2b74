//! Plans as a JSON document, for programs and for overlays of a model's picture.

use serde_json::{Value as Json, json};

use super::steps::bound_slots;
use super::{PlanTarget, SizedPlan, kernel_name};
use crate::cli::show::count_calls;
use crate::dim::Bindings;
use crate::error::{Error, Result};
use crate::gpu::{Ceilings, MemoryMap};
use crate::ir::{Graph, GraphModule};
use crate::kernel::plan::{Flow, FlowKind, Kernel, SlotId, SlotKind, Step, all_flows};

/// Plans all graphs of a module for the sizes that `sizes` returns for each, and returns the plans as a JSON object with
/// `"format": "onionskin-plan-1"`. Steps, kernels and slots are referred to by their indices. Least times are those at the
/// device's peak rates, if they are known.
///
/// # Errors
/// A graph cannot be planned, or a buffer or binding is too large for the device.
pub(in crate::cli) fn plan_json(
    module: &GraphModule,
    target: &PlanTarget,
    sizes: &dyn Fn(&Graph) -> Result<Bindings>,
    ceilings: Option<&Ceilings>,
) -> Result<Json> {
    let plans = target.plans(module, &|graph| sizes(graph).map(Some))?;
    let graphs = plans.iter().map(|plan| {
        let missing = || Error::internal("a plan for known sizes has no memory map");
        let document = PlanDocument {
            sizes: plan.sizes.as_ref().ok_or_else(missing)?,
            map: plan.map.as_ref().ok_or_else(missing)?,
            ceilings,
            planned: plan,
        };
        document.json()
    });
    let graphs: Vec<Json> = graphs.collect::<Result<_>>()?;
    Ok(json!({"format": "onionskin-plan-1", "device": target.name, "graphs": graphs}))
}

/// Writes the plan of a graph.
struct PlanDocument<'a> {
    planned: &'a SizedPlan<'a>,
    sizes: &'a Bindings,
    map: &'a MemoryMap,
    /// Peak rates of the device; `None` if no device was opened.
    ceilings: Option<&'a Ceilings>,
}

impl PlanDocument<'_> {
    fn json(&self) -> Result<Json> {
        let plan = &self.planned.plan;
        let guards = plan.guards.iter().map(ToString::to_string);
        let kernels = plan.kernels.iter().enumerate();
        let steps = plan.steps.iter().map(|step| self.step(step));
        let flows = all_flows(&plan.flows).into_iter();
        let slots = (0..plan.slots.len()).map(SlotId);
        Ok(json!({
            "graph": self.planned.name(),
            "sizes": self.sizes,
            "guards": guards.collect::<Vec<_>>(),
            "totals": self.totals()?,
            "kernels": kernels.map(|(index, kernel)| kernel_json(index, kernel)).collect::<Vec<_>>(),
            "steps": steps.collect::<Result<Vec<_>>>()?,
            "flows": flows.map(|flow| self.flow(flow)).collect::<Vec<_>>(),
            "slots": slots.map(|slot| self.slot(slot)).collect::<Vec<_>>(),
        }))
    }

    /// Work of all steps, each counted once, and bytes of memory.
    fn totals(&self) -> Result<Json> {
        let total = self.planned.total_work(self.sizes, self.ceilings)?;
        let memory = &self.map.footprint;
        Ok(json!({
            "flop": total.operations,
            "bytes": total.bytes,
            "min_ns": self.ceilings.map(|_| total.min_nanoseconds),
            "operators": count_calls(self.planned.graph),
            "weights": memory.weights,
            "inputs": memory.inputs,
            "outputs": memory.outputs,
            "temporaries": memory.temporaries,
            "temporaries_live": memory.temporaries_live,
            "temporaries_unshared": memory.temporaries_unshared,
        }))
    }

    fn step(&self, step: &Step) -> Result<Json> {
        let operations = step.work.operations.eval(self.sizes)?;
        let bytes = step.work.bytes.eval(self.sizes)?;
        let ceilings = self.ceilings;
        let least =
            ceilings.map(|ceilings| ceilings.min_nanoseconds(operations as f64, bytes as f64));
        let limit = self.planned.target.capabilities.max_workgroups;
        Ok(json!({
            "kernel": step.kernel,
            "nodes": step.nodes,
            "inline": step.work.fused_producers,
            "workgroups": step.workgroups.eval(self.sizes, limit)?,
            "flop": operations,
            "bytes": bytes,
            "min_ns": least,
            "reads": indices(&bound_slots(step, false)),
            "writes": indices(&bound_slots(step, true)),
            "module": step.place.module,
            "location": step.place.location.as_ref().map(ToString::to_string),
            "reasons": self.planned.reasons(step),
        }))
    }

    /// Control flow: its blocks, each with its heading in the text form and the half-open range of its steps.
    fn flow(&self, flow: &Flow) -> Json {
        let kind = match flow.kind {
            FlowKind::If { .. } => "if",
            FlowKind::Loop { .. } => "loop",
            FlowKind::Host { .. } => "host",
        };
        let blocks = flow.blocks().into_iter().map(|block| block.steps.clone());
        let mut ranges: Vec<_> = blocks.collect();
        if ranges.is_empty() {
            ranges.push(flow.steps());
        }
        let heads = self.planned.block_heads(&flow.kind).into_iter();
        let blocks = heads
            .zip(ranges)
            .map(|(head, steps)| json!({"text": head, "steps": [steps.start, steps.end]}));
        json!({
            "kind": kind,
            "nodes": flow.nodes,
            "module": flow.place.module,
            "location": flow.place.location.as_ref().map(ToString::to_string),
            "blocks": blocks.collect::<Vec<_>>(),
        })
    }

    /// A slot. `first` and `last` are the steps between which a value between kernels lives; other slots live for the whole
    /// run.
    fn slot(&self, slot: SlotId) -> Json {
        let planned = self.planned;
        let of = |slot: SlotId| &planned.plan.slots[slot.0].kind;
        let kind = match of(slot) {
            SlotKind::Input(_) => "input",
            SlotKind::Weight(_) => "weight",
            SlotKind::Temporary { .. } => "temporary",
            SlotKind::Subview { .. } => "part",
            SlotKind::Output => "output",
            SlotKind::Words => "words",
        };
        let parent = match of(slot) {
            SlotKind::Subview { parent, .. } => Some(parent.0),
            _ => None,
        };
        let (first, last) = match of(planned.plan.root_slot(slot)) {
            SlotKind::Temporary { first, last } => (Some(first), Some(last.max(first))),
            _ => (None, None),
        };
        let stored = planned.stored(slot);
        let placed = &self.map.slots[slot.0];
        json!({
            "name": planned.slot_name(slot),
            "type": planned.ty(slot).to_string(),
            "stored": Some(stored.trim_start()).filter(|stored| !stored.is_empty()),
            "kind": kind,
            "parent": parent,
            "bytes": placed.bytes,
            "buffer": placed.buffer,
            "offset": placed.offset,
            "first": first,
            "last": last,
        })
    }
}

fn kernel_json(index: usize, kernel: &Kernel) -> Json {
    json!({"name": kernel_name(index, kernel), "wgsl": kernel.wgsl})
}

fn indices(slots: &[SlotId]) -> Vec<usize> {
    slots.iter().map(|slot| slot.0).collect()
}
