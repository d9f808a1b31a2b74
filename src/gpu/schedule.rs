//! Control flow of a run: the host walks through the plan and reads back the numbers that decide on branches and loops.

use std::ops::Range;

use wgpu::{CommandEncoder, ComputePassDescriptor, MapMode, SubmissionIndex};

use crate::error::{Error, ErrorContext, Result};
use crate::kernel::host::HostFunction;
use crate::kernel::plan::{Flow, FlowKind, SlotId, Trips};
use crate::tensor::Tensor;

use super::convert;
use super::execute::record_step;
use super::fault::guarded;
use super::lane::Binding;
use super::program::Inner;
use super::sizing::of_flow;
use super::statistics::add;
use super::transfer::Mapped;

/// Commands are submitted after this many dispatches, so that long loops do not accumulate them.
const MOST_DISPATCHES: usize = 4096;

/// Executor of the steps of a plan.
pub(super) trait Runner {
    /// Runs a range of steps in order.
    fn steps(&mut self, steps: Range<usize>) -> Result<()>;
    /// Reads the scalar in a slot, after all steps so far are done.
    fn number(&mut self, slot: SlotId, flow: &Flow) -> Result<i64>;
    /// Calls a host function of the application.
    fn call(&mut self, call: Call) -> Result<()>;
}

/// A call of a host function of the application.
pub(super) struct Call<'a> {
    function: &'a HostFunction,
    operands: &'a [SlotId],
    results: &'a [SlotId],
    pub(super) flow: &'a Flow,
}

/// Executes a whole plan.
pub(super) fn walk(program: &Inner, binding: &Binding, runner: &mut dyn Runner) -> Result<()> {
    let plan = &program.plan;
    walk_steps(0..plan.steps.len(), &plan.flows, binding, runner)
}

fn walk_steps(
    steps: Range<usize>,
    flows: &[Flow],
    binding: &Binding,
    runner: &mut dyn Runner,
) -> Result<()> {
    let mut next = steps.start;
    for flow in flows {
        let inner = flow.steps();
        runner.steps(next..inner.start)?;
        walk_flow(flow, binding, runner)?;
        next = inner.end;
    }
    runner.steps(next..steps.end)
}

fn walk_flow(flow: &Flow, binding: &Binding, runner: &mut dyn Runner) -> Result<()> {
    match &flow.kind {
        FlowKind::If {
            condition,
            then,
            otherwise,
        } => {
            let is_true = runner.number(*condition, flow)? != 0;
            let block = if is_true { then } else { otherwise };
            walk_steps(block.steps.clone(), &block.flows, binding, runner)
        }
        FlowKind::Loop {
            trips,
            first,
            again,
            body,
        } => {
            let holds = |slot: &Option<SlotId>, runner: &mut dyn Runner| {
                slot.map_or(Ok(true), |slot| Ok(runner.number(slot, flow)? != 0))
            };
            let trips = match trips {
                Trips::Size(size) => size.eval(&binding.sizes)?,
                Trips::Slot(slot) => runner.number(*slot, flow)?,
            };
            let mut goes_on = trips > 0 && holds(first, runner)?;
            let mut trip = 0;
            while goes_on {
                walk_steps(body.steps.clone(), &body.flows, binding, runner)?;
                trip += 1;
                // The condition is read only if the trip count allows another iteration.
                goes_on = trip < trips && holds(again, runner)?;
            }
            Ok(())
        }
        FlowKind::Host {
            function,
            operands,
            results,
            ..
        } => runner.call(Call {
            function,
            operands,
            results,
            flow,
        }),
    }
}

/// Records steps in as few command buffers as control flow allows.
pub(super) struct CommandRecorder<'a> {
    pub(super) program: &'a Inner,
    binding: &'a Binding,
    /// Commands that are recorded but not submitted.
    pub(super) encoder: CommandEncoder,
    recorded: usize,
}

impl<'a> CommandRecorder<'a> {
    pub(super) fn new(program: &'a Inner, binding: &'a Binding) -> CommandRecorder<'a> {
        CommandRecorder {
            program,
            binding,
            encoder: encoder(program),
            recorded: 0,
        }
    }

    /// Submits the recorded commands.
    pub(super) fn submit(&mut self) -> Result<SubmissionIndex> {
        let device = &self.program.device;
        let recorded = std::mem::replace(&mut self.encoder, encoder(self.program));
        self.recorded = 0;
        guarded(device.wgpu(), || {
            Ok(device.queue().submit([recorded.finish()]))
        })
    }
}

fn encoder(program: &Inner) -> CommandEncoder {
    let device = program.device.wgpu();
    device.create_command_encoder(&Default::default())
}

impl Runner for CommandRecorder<'_> {
    fn steps(&mut self, steps: Range<usize>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        self.recorded += steps.len();
        let mut pass = self
            .encoder
            .begin_compute_pass(&ComputePassDescriptor::default());
        for index in steps {
            record_step(self.program, &mut pass, self.binding, index);
        }
        drop(pass);
        if self.recorded >= MOST_DISPATCHES {
            self.submit()?;
        }
        Ok(())
    }

    fn number(&mut self, slot: SlotId, flow: &Flow) -> Result<i64> {
        let number = self.read(slot)?.to_i64().first().copied();
        let missing = || Error::internal("a number without a value was read back");
        number.ok_or_else(|| of_flow(missing(), flow))
    }

    fn call(&mut self, call: Call) -> Result<()> {
        let slots = &self.program.plan.slots;
        let operands = call.operands.iter().map(|slot| self.read(*slot));
        let operands: Vec<Tensor> = operands.collect::<Result<_>>()?;
        let shapes = &self.binding.sizing.shapes;
        let promised = call.results.iter();
        let promised = promised.map(|slot| (slots[slot.0].dtype, shapes[slot.0].clone()));
        let results = call.function.call(&operands, &promised.collect::<Vec<_>>());
        let results = results.map_err(|error| of_flow(error, call.flow))?;
        // `write_buffer` takes effect before the next submission, so the commands recorded so far must be submitted first.
        self.submit()?;
        let mut pairs = call.results.iter().zip(&results);
        pairs.try_for_each(|(slot, tensor)| self.write(*slot, tensor))
    }
}

impl CommandRecorder<'_> {
    /// Writes a host tensor to a slot.
    fn write(&self, slot: SlotId, tensor: &Tensor) -> Result<()> {
        let info = &self.program.plan.slots[slot.0];
        let start = self.binding.sizing.places[slot.0].spot.offset;
        let (queue, buffer) = (
            self.program.device.queue(),
            self.binding.memory[slot.0].buffer()?,
        );
        convert::send(tensor, info.storage, |offset, bytes| {
            let mut whole = bytes.to_vec();
            whole.resize(bytes.len().next_multiple_of(4), 0);
            queue.write_buffer(buffer, start + offset, &whole);
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
        let place = &binding.sizing.places[slot.0];
        let buffer = binding.readback.as_ref();
        let buffer = buffer.ok_or_else(|| Error::internal("there is nowhere to read back to"))?;
        if place.bytes == 0 {
            return convert::receive(info.dtype, info.storage, shape, &[]);
        }
        let bytes = place.bytes.next_multiple_of(4);
        let (source, from) = (binding.memory[slot.0].buffer()?, place.spot.offset);
        self.encoder
            .copy_buffer_to_buffer(source, from, buffer, 0, bytes);
        let submission = self.submit()?;
        add(&self.program.counters.readbacks, 1);
        let device = &self.program.device;
        let mapped = Mapped::begin(device, vec![buffer.clone()], MapMode::Read)?;
        mapped.wait(Some(&submission))?;
        let view = buffer.get_mapped_range(0..bytes);
        let view = view.map_err(|error| Error::device(error.to_string()))?;
        let bytes = &view[..place.bytes as usize];
        convert::receive(info.dtype, info.storage, shape, bytes).at(|| info.name.clone())
    }
}
