//! Control flow of a run: the host goes through the plan in order and reads back the numbers that decide on branches
//! and loops.

use std::ops::Range;

use wgpu::{CommandEncoder, ComputePassDescriptor, MapMode, SubmissionIndex};

use crate::error::{Error, ErrorContext, Result};
use crate::interrupt;
use crate::kernel::host::HostFunction;
use crate::kernel::plan::{Flow, FlowKind, SlotId, TripCount};
use crate::tensor::Tensor;

use super::convert;
use super::error_scope::in_error_scope;
use super::execute::record_step;
use super::program::ProgramInner;
use super::run_context::RunBinding;
use super::sizing::{at_flow, at_step};
use super::statistics::add;
use super::transfer::PendingMapping;

/// Commands are submitted after this many dispatches, so that long loops do not accumulate them.
const MAX_DISPATCHES_PER_SUBMISSION: usize = 4096;

/// As [`MAX_DISPATCHES_PER_SUBMISSION`], for runs under limits. The device finishes what is submitted, so that a run ends
/// sooner after a limit if this is less.
const MAX_DISPATCHES_UNDER_LIMITS: usize = 256;

/// Executor of the steps of a plan.
pub(super) trait StepRunner {
    /// Runs a range of steps in order.
    fn steps(&mut self, steps: Range<usize>) -> Result<()>;
    /// Reads the scalar in a slot, after all steps so far are done.
    fn read_scalar(&mut self, slot: SlotId, flow: &Flow) -> Result<i64>;
    /// Calls a host function of the application.
    fn call(&mut self, call: HostCall) -> Result<()>;
}

/// A call of a host function of the application.
pub(super) struct HostCall<'a> {
    function: &'a HostFunction,
    /// Slots to read.
    operands: &'a [SlotId],
    /// Slots to write.
    results: &'a [SlotId],
    /// The call in the plan, for messages.
    pub(super) flow: &'a Flow,
}

/// Executes a whole plan.
pub(super) fn execute_plan(
    program: &ProgramInner,
    binding: &RunBinding,
    runner: &mut dyn StepRunner,
) -> Result<()> {
    let plan = &program.plan;
    execute_steps(0..plan.steps.len(), &plan.flows, binding, runner)
}

/// Executes a range of steps. `flows` is the control flow in that range, in order.
fn execute_steps(
    steps: Range<usize>,
    flows: &[Flow],
    binding: &RunBinding,
    runner: &mut dyn StepRunner,
) -> Result<()> {
    let mut next = steps.start;
    for flow in flows {
        let flow_steps = flow.steps();
        runner.steps(next..flow_steps.start)?;
        execute_flow(flow, binding, runner)?;
        next = flow_steps.end;
    }
    runner.steps(next..steps.end)
}

/// Executes one condition, loop or host call.
fn execute_flow(flow: &Flow, binding: &RunBinding, runner: &mut dyn StepRunner) -> Result<()> {
    match &flow.kind {
        FlowKind::If {
            condition,
            then,
            otherwise,
        } => {
            let is_true = runner.read_scalar(*condition, flow)? != 0;
            let block = if is_true { then } else { otherwise };
            execute_steps(block.steps.clone(), &block.flows, binding, runner)
        }
        FlowKind::Loop {
            trips,
            initial_condition,
            next_condition,
            body,
        } => {
            let holds = |slot: &Option<SlotId>, runner: &mut dyn StepRunner| {
                slot.map_or(Ok(true), |slot| Ok(runner.read_scalar(slot, flow)? != 0))
            };
            let trips = match trips {
                TripCount::Size(size) => size.eval(&binding.sizes)?,
                TripCount::Slot(slot) => runner.read_scalar(*slot, flow)?,
            };
            let mut continues = trips > 0 && holds(initial_condition, runner)?;
            let mut trip = 0;
            while continues {
                interrupt::check().map_err(|error| at_flow(error, flow))?;
                execute_steps(body.steps.clone(), &body.flows, binding, runner)?;
                trip += 1;
                // The condition is read only if the trip count allows another iteration.
                continues = trip < trips && holds(next_condition, runner)?;
            }
            Ok(())
        }
        FlowKind::Host {
            function,
            operands,
            results,
            ..
        } => runner.call(HostCall {
            function,
            operands,
            results,
            flow,
        }),
    }
}

/// Records steps in as few command buffers as control flow allows.
pub(super) struct CommandRecorder<'a> {
    pub(super) program: &'a ProgramInner,
    binding: &'a RunBinding,
    /// Commands that are recorded but not submitted.
    pub(super) encoder: CommandEncoder,
    /// Number of steps recorded since the last submission.
    recorded: usize,
    /// Maximum number of dispatches in a submission.
    max_dispatches: usize,
    /// The last submission of a full batch of dispatches.
    last_batch: Option<SubmissionIndex>,
}

impl<'a> CommandRecorder<'a> {
    pub(super) fn new(program: &'a ProgramInner, binding: &'a RunBinding) -> CommandRecorder<'a> {
        CommandRecorder {
            program,
            binding,
            encoder: encoder(program),
            recorded: 0,
            max_dispatches: match interrupt::can_interrupt() {
                true => MAX_DISPATCHES_UNDER_LIMITS,
                false => MAX_DISPATCHES_PER_SUBMISSION,
            },
            last_batch: None,
        }
    }

    /// Submits a full batch of dispatches, and waits for the batch before it: commands do not accumulate if the device is
    /// slower than the host.
    fn submit_batch(&mut self) -> Result<()> {
        let submission = self.submit()?;
        match self.last_batch.replace(submission) {
            Some(earlier) => self.program.device.poll(Some(&earlier)),
            None => Ok(()),
        }
    }

    /// Records a range of steps that fits in the batch.
    fn record(&mut self, steps: Range<usize>) {
        self.recorded += steps.len();
        let mut pass = self
            .encoder
            .begin_compute_pass(&ComputePassDescriptor::default());
        for index in steps {
            record_step(self.program, &mut pass, self.binding, index);
        }
    }

    /// Submits the recorded commands.
    pub(super) fn submit(&mut self) -> Result<SubmissionIndex> {
        let device = &self.program.device;
        let recorded = std::mem::replace(&mut self.encoder, encoder(self.program));
        self.recorded = 0;
        in_error_scope(device.wgpu(), || {
            Ok(device.queue().submit([recorded.finish()]))
        })
    }
}

fn encoder(program: &ProgramInner) -> CommandEncoder {
    let device = program.device.wgpu();
    device.create_command_encoder(&Default::default())
}

impl StepRunner for CommandRecorder<'_> {
    fn steps(&mut self, steps: Range<usize>) -> Result<()> {
        let Range { mut start, end } = steps;
        while start < end {
            let next = end.min(start + self.max_dispatches - self.recorded);
            self.record(start..next);
            start = next;
            if self.recorded >= self.max_dispatches {
                let step = &self.program.plan.steps[start - 1];
                self.submit_batch().map_err(|error| at_step(error, step))?;
            }
        }
        Ok(())
    }

    fn read_scalar(&mut self, slot: SlotId, flow: &Flow) -> Result<i64> {
        let tensor = self.read(slot).map_err(|error| at_flow(error, flow))?;
        let number = tensor.to_i64().first().copied();
        let missing = || Error::internal("a scalar that control flow reads has no elements");
        number.ok_or_else(|| at_flow(missing(), flow))
    }

    fn call(&mut self, call: HostCall) -> Result<()> {
        let slots = &self.program.plan.slots;
        let operands = call.operands.iter().map(|slot| self.read(*slot));
        let operands: Vec<Tensor> = operands.collect::<Result<_>>()?;
        let shapes = &self.binding.sizing.shapes;
        let result_slots = call.results.iter();
        let expected_types = result_slots.map(|slot| (slots[slot.0].dtype, shapes[slot.0].clone()));
        let results = call
            .function
            .call(&operands, &expected_types.collect::<Vec<_>>());
        let results = results.map_err(|error| at_flow(error, call.flow))?;
        // `write_buffer` takes effect before the next submission, so the commands recorded so far must be submitted
        // first.
        self.submit()?;
        let mut pairs = call.results.iter().zip(&results);
        pairs.try_for_each(|(slot, tensor)| self.write(*slot, tensor))
    }
}

impl CommandRecorder<'_> {
    /// Writes a host tensor to a slot.
    fn write(&self, slot: SlotId, tensor: &Tensor) -> Result<()> {
        let info = &self.program.plan.slots[slot.0];
        let start = self.binding.sizing.placements[slot.0].location.offset;
        let device = &self.program.device;
        let (queue, buffer) = (device.queue(), self.binding.memory[slot.0].buffer()?);
        convert::encode(tensor, info.storage, |offset, bytes| {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            queue.write_buffer(buffer, start + offset, &padded);
            device.record(|recorder| recorder.write_buffer(buffer, start + offset, &padded));
            Ok(())
        })
        .at(|| info.name.clone())
    }

    /// Reads a slot, after all steps so far are done.
    fn read(&mut self, slot: SlotId) -> Result<Tensor> {
        let binding = self.binding;
        let (info, shape) = (
            &self.program.plan.slots[slot.0],
            &binding.sizing.shapes[slot.0],
        );
        let placement = &binding.sizing.placements[slot.0];
        let buffer = binding.readback.as_ref();
        let buffer = buffer.ok_or_else(|| Error::internal("the plan has no readback buffer"))?;
        if placement.bytes == 0 {
            return convert::decode(info.dtype, info.storage, shape, &[]);
        }
        let bytes = placement.bytes.next_multiple_of(4);
        let (source, offset) = (binding.memory[slot.0].buffer()?, placement.location.offset);
        self.encoder
            .copy_buffer_to_buffer(source, offset, buffer, 0, bytes);
        let device = &self.program.device;
        device.record(|recorder| recorder.copy_buffer((source, offset), (buffer, 0), bytes));
        let submission = self.submit()?;
        add(&self.program.counters.readbacks, 1);
        let mapped = PendingMapping::begin(device, vec![buffer.clone()], MapMode::Read)?;
        mapped.wait(Some(&submission))?;
        let view = buffer.get_mapped_range(0..bytes);
        let view = view.map_err(|error| Error::device(error.to_string()))?;
        let bytes = &view[..placement.bytes as usize];
        device.record(|recorder| recorder.read_buffer(buffer, 0, info.storage, bytes));
        convert::decode(info.dtype, info.storage, shape, bytes).at(|| info.name.clone())
    }
}
