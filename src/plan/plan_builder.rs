//! Builder of a plan: kernels, slots and steps of all its graphs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::ValueId;
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::Layout;
use crate::kernel::plan::{
    Flow, FlowKind, Kernel, Plan, RuntimeCheck, RuntimeChecks, Slot, SlotId, SlotKind, all_flows,
};
use crate::plan::kernel::{GeneratedKernel, KernelSource};
use crate::plan::shape_generic::KernelCache;
use crate::shape::TensorType;

/// The kernels of a group, each for the whole group or for one operand of a concatenation.
pub(super) type GroupKernels = Vec<(GeneratedKernel, Option<ValueId>)>;

/// The plan under construction.
#[derive(Default)]
pub(super) struct PlanBuilder {
    pub(super) plan: Plan,
    /// Indices of the plan's kernels.
    kernels: HashMap<Kernel, usize>,
    /// The sources of the kernels, by index.
    pub(super) sources: Vec<Option<Rc<KernelSource>>>,
    /// Slots of weights, by name, layout and storage type.
    weights: HashMap<(String, Layout, StorageType), SlotId>,
    pub(super) kernel_cache: KernelCache,
    /// Kernels of the previous attempt, by group.
    earlier_kernels: Vec<GroupKernels>,
    /// Kernels of this attempt, by group.
    pub(super) group_kernels: Vec<GroupKernels>,
    /// Elements that kernels read of weights in rows, for the example's sizes, by the weights' names.
    pub(super) row_reads: BTreeMap<String, usize>,
    /// Slot names of values stored in half-precision pairs of which some kernel writes single elements.
    pub(super) scalar_writes: BTreeSet<String>,
    /// Slot names of values to store, because a kernel would otherwise read too many buffers.
    pub(super) stored: BTreeSet<String>,
}

impl PlanBuilder {
    /// An empty builder with shape-generic kernels and kernels of groups from the previous attempt.
    pub(super) fn with_earlier(
        kernel_cache: KernelCache,
        earlier_kernels: Vec<GroupKernels>,
    ) -> PlanBuilder {
        PlanBuilder {
            kernel_cache,
            earlier_kernels,
            ..PlanBuilder::default()
        }
    }

    /// Kernels of the next group from the previous attempt.
    pub(super) fn reuse_kernels(&self) -> Option<GroupKernels> {
        self.earlier_kernels.get(self.group_kernels.len()).cloned()
    }

    /// Index of a kernel. Adds the kernel if it is new.
    pub(super) fn kernel(&mut self, kernel: Kernel, source: Option<Rc<KernelSource>>) -> usize {
        let next = self.plan.kernels.len();
        let index = *self.kernels.entry(kernel.clone()).or_insert(next);
        if index == next {
            self.plan.kernels.push(kernel);
            self.sources.push(source);
        }
        index
    }

    /// Adds a slot.
    pub(super) fn slot(
        &mut self,
        name: &str,
        ty: &TensorType,
        storage: StorageType,
        layout: &Layout,
        kind: SlotKind,
    ) -> SlotId {
        let id = SlotId(self.plan.slots.len());
        if let SlotKind::Input(index) = kind
            && let Some(input) = self.plan.inputs.get_mut(index)
        {
            *input = Some(id);
        }
        self.plan.slots.push(Slot {
            name: name.to_string(),
            dtype: ty.dtype,
            storage,
            shape: ty.shape.clone(),
            layout: layout.clone(),
            kind,
        });
        id
    }

    /// Slot of a weight, which the graph and all bodies of regions share. Adds the slot if it is new.
    pub(super) fn weight(
        &mut self,
        name: &str,
        ty: &TensorType,
        storage: StorageType,
        layout: &Layout,
    ) -> SlotId {
        let key = (name.to_string(), layout.clone(), storage);
        if let Some(slot) = self.weights.get(&key) {
            return *slot;
        }
        let kind = SlotKind::Weight(name.into());
        let suffix = match layout {
            Layout::Panels(_) => " in panels".to_string(),
            layout => layout.to_string(),
        };
        let slot = self.slot(&format!("${name}{suffix}"), ty, storage, layout, kind);
        self.weights.insert(key, slot);
        slot
    }

    /// The checks so far, with the slot of the flags in which they record failures.
    pub(super) fn runtime_checks(&mut self) -> &mut RuntimeChecks {
        let plan = &mut self.plan;
        plan.runtime_checks.get_or_insert_with(|| RuntimeChecks {
            slot: add_words(&mut plan.slots, "faults"),
            checks: Vec::new(),
        })
    }

    /// Slot of the number of workgroups that the running dispatch has started.
    pub(super) fn started_workgroups(&mut self) -> SlotId {
        let plan = &mut self.plan;
        *plan
            .started_workgroups
            .get_or_insert_with(|| add_words(&mut plan.slots, "started workgroups"))
    }

    /// Adds the checks of a step. Returns the number of the first.
    pub(super) fn add_runtime_checks(&mut self, checks: Vec<RuntimeCheck>) -> usize {
        let known = self.runtime_checks();
        let first = known.checks.len();
        known.checks.extend(checks);
        let (slot, count) = (known.slot, known.checks.len());
        self.plan.slots[slot.0].shape = vec![Dim::from(count)];
        first
    }

    /// Sets slot lifetimes: from the first to the last use, or to the end of a loop for slots defined before the loop.
    pub(super) fn finish(mut self) -> Plan {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; self.plan.slots.len()];
        let flows = all_flows(&self.plan.flows);
        let loops = loops_by_step(&flows, self.plan.steps.len());
        let end_of_use = |first: usize, step: usize| {
            let enclosing = loops.get(step).into_iter().flatten();
            let repeated = enclosing.filter(|steps| first < steps.start);
            repeated.map(|steps| steps.end - 1).fold(step, usize::max)
        };
        let bound_slots = self
            .plan
            .steps
            .iter()
            .enumerate()
            .flat_map(|(step, bound)| {
                let slots = bound.bindings.iter();
                slots.map(move |slot| (*slot, step))
            });
        let read_slots = flows.iter().flat_map(|flow| flow.readbacks());
        for (slot, step) in bound_slots.chain(read_slots) {
            let slot = self.plan.root_slot(slot);
            let (first, last) = spans[slot.0].unwrap_or((step, step));
            spans[slot.0] = Some((first, last.max(end_of_use(first, step))));
        }
        for (slot, span) in self.plan.slots.iter_mut().zip(spans) {
            if let (SlotKind::Temporary { .. }, Some((first, last))) = (&slot.kind, span) {
                slot.kind = SlotKind::Temporary { first, last };
            }
        }
        self.plan
    }
}

/// Adds a slot for words that kernels change by atomic operations, with memory of its own. It has one word.
fn add_words(slots: &mut Vec<Slot>, name: &str) -> SlotId {
    slots.push(Slot {
        name: name.to_string(),
        dtype: DType::I32,
        storage: StorageType::U32,
        shape: vec![Dim::ONE],
        layout: Layout::Linear,
        kind: SlotKind::Words,
    });
    SlotId(slots.len() - 1)
}

/// The loops around each step.
fn loops_by_step(flows: &[&Flow], steps: usize) -> Vec<Vec<Range<usize>>> {
    let mut loops = vec![Vec::new(); steps];
    for flow in flows {
        if matches!(flow.kind, FlowKind::Loop { .. }) {
            for step in loops.get_mut(flow.steps()).into_iter().flatten() {
                step.push(flow.steps());
            }
        }
    }
    loops
}
