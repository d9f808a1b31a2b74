//! Reads values between kernels during a run, before their memory is used for other values.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::dim::Bindings;
use crate::error::Result;
use crate::kernel::plan::{Flow, Plan, SlotId, SlotKind};
use crate::tensor::Tensor;

use super::device_tensor::RunInput;
use super::execute::Run;
use super::program::Program;
use super::run_context::RunBinding;
use super::schedule::{CommandRecorder, HostCall, StepRunner, execute_plan};

impl Program {
    /// Bytes of the host tensor of a value, by the value's name; `None` if the value was fused into a kernel and has no
    /// memory.
    pub fn value_bytes(&self, sizes: &Bindings, name: &str) -> Option<usize> {
        let slot = self.plan().slots.iter().find(|slot| slot.name == name)?;
        let shape = crate::shape::sizes(&slot.shape, sizes).ok()?;
        let numel = shape
            .iter()
            .try_fold(1usize, |numel, size| numel.checked_mul(*size))?;
        numel.checked_mul(slot.dtype.size())
    }

    /// Runs the program and reads the named values without additional device memory: each value is read before its
    /// memory is used for another. Leaves out values that have no memory and those of branches that are not taken.
    ///
    /// # Errors
    /// Fails if the inputs do not match, or the device fails.
    pub fn capture(
        &self,
        sizes: &Bindings,
        inputs: &[RunInput],
        names: &HashSet<&str>,
    ) -> Result<HashMap<String, Tensor>> {
        let record_nothing = |_: &mut CommandRecorder, _: &RunBinding| Ok(());
        let run = Run::submit(self, sizes, inputs, false, record_nothing)?;
        let inner = &self.inner;
        let mut capture = Capture {
            recorder: CommandRecorder::new(inner, &run.binding),
            run: &run,
            pending: read_schedule(self.plan(), names),
            has_no_flow: self.plan().flows.is_empty(),
            values: HashMap::new(),
        };
        execute_plan(inner, &run.binding, &mut capture)?;
        capture.read_remaining()?;
        Ok(capture.values)
    }
}

/// Schedule of reads: for each step, the slots to read after it, while their memory is valid. Slots whose memory stays
/// valid are under the number of steps.
fn read_schedule(plan: &Plan, names: &HashSet<&str>) -> BTreeMap<usize, Vec<SlotId>> {
    let mut due = BTreeMap::<usize, Vec<SlotId>>::new();
    let mut seen = HashSet::new();
    for (index, slot) in plan.slots.iter().enumerate() {
        if names.contains(slot.name.as_str()) && seen.insert(&slot.name) {
            for step in read_steps(plan, SlotId(index)) {
                due.entry(step).or_default().push(SlotId(index));
            }
        }
    }
    due
}

/// The steps after which a slot is read: the last one during which its memory is valid, or the number of steps if it always
/// is. If the last reader is in a branch that may not run, these are the steps that write the value, of which the last that
/// runs counts: the result of a loop is written before the loop and in each iteration.
fn read_steps(plan: &Plan, slot: SlotId) -> Vec<usize> {
    let in_flow = |step: usize| plan.flows.iter().any(|flow| flow.steps().contains(&step));
    match plan.slots[slot.0].kind {
        SlotKind::Temporary { first, last } if in_flow(last) && !in_flow(first) => {
            let writes = |step: &usize| {
                let mut written = plan.steps[*step].work.writes.iter();
                written.any(|written| plan.root_slot(*written) == slot)
            };
            let written: Vec<usize> = (first..=last).filter(writes).collect();
            if written.is_empty() {
                vec![first]
            } else {
                written
            }
        }
        SlotKind::Temporary { first, last } => vec![last.max(first)],
        SlotKind::Subview { parent, .. } => read_steps(plan, parent),
        _ => vec![plan.steps.len()],
    }
}

/// Runs steps and reads values between them.
struct Capture<'a> {
    recorder: CommandRecorder<'a>,
    run: &'a Run,
    /// See [`read_schedule`].
    pending: BTreeMap<usize, Vec<SlotId>>,
    /// True if the plan has no control flow.
    has_no_flow: bool,
    /// Values read so far, by name.
    values: HashMap<String, Tensor>,
}

impl Capture<'_> {
    /// Submits the steps so far and reads slots.
    fn read_slots(&mut self, slots: &[SlotId]) -> Result<()> {
        self.recorder.submit()?;
        for slot in slots {
            let name = self.recorder.program.plan.slots[slot.0].name.clone();
            self.values.insert(name, self.run.read_slot(*slot)?);
        }
        Ok(())
    }

    /// Reads the values whose memory stays valid after the last step.
    fn read_remaining(&mut self) -> Result<()> {
        let end = self.recorder.program.plan.steps.len();
        let slots = self.pending.remove(&end).unwrap_or_default();
        self.read_slots(&slots)
    }
}

impl StepRunner for Capture<'_> {
    fn steps(&mut self, steps: Range<usize>) -> Result<()> {
        let mut next = steps.start;
        let due = self.pending.range(steps.clone());
        let due: Vec<(usize, Vec<SlotId>)> =
            due.map(|(step, slots)| (*step, slots.clone())).collect();
        for (step, slots) in due {
            self.recorder.steps(next..step + 1)?;
            self.read_slots(&slots)?;
            next = step + 1;
        }
        // Without control flow, nothing depends on the steps after the last read.
        if self.has_no_flow && self.pending.range(next..).next().is_none() {
            return Ok(());
        }
        self.recorder.steps(next..steps.end)
    }

    fn read_scalar(&mut self, slot: SlotId, flow: &Flow) -> Result<i64> {
        self.recorder.read_scalar(slot, flow)
    }

    fn call(&mut self, call: HostCall) -> Result<()> {
        self.recorder.call(call)
    }
}
