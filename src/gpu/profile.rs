//! Measures how long each step takes.

use std::ops::Range;
use std::time::Instant;

use wgpu::{
    Buffer, BufferUsages, CommandEncoder, ComputePassDescriptor, ComputePassTimestampWrites,
    Features, MapMode, QuerySet, QuerySetDescriptor, QueryType,
};

use crate::error::{Error, Result, SourcePlace};
use crate::kernel::plan::{Flow, SlotId};
use crate::tensor::Tensor;

use super::device_tensor::RunInput;
use super::error_scope::in_error_scope;
use super::execute::{Run, record_downloads, record_step};
use super::program::{Program, ProgramInner};
use super::run_context::RunBinding;
use super::schedule::{CommandRecorder, HostCall, StepRunner, execute_plan};
use super::transfer::PendingMapping;

/// Steps whose start and end fit one query set.
const STEPS_PER_SET: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;

/// Bytes of a step's two timestamps, one at its start and one at its end.
const STEP_BYTES: u64 = 16;

/// The clock that measured the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Timestamps of the device, before and after each step.
    Device,
    /// The host's clock, waiting for each step; includes the cost of submitting and waiting.
    Host,
}

/// Accumulated time of one step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepTime {
    /// Label of the kernel.
    pub label: String,
    /// Graph nodes that the step computes.
    pub nodes: Vec<String>,
    /// Source position in the user's model.
    pub place: SourcePlace,
    /// Workgroup counts; a zero means that nothing was dispatched.
    pub workgroups: [u32; 3],
    /// Number of executions: steps of conditions and loops may run never or many times.
    pub runs: u64,
    /// Nanoseconds of all executions.
    pub nanoseconds: u64,
}

/// Cost of control flow: reads of one slot by the host during the run, or calls of one host function.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Readback {
    /// Name of the slot that was read; for calls of a host function, the first graph node of the call.
    pub slot: String,
    /// Graph nodes of the condition, loop or host call.
    pub nodes: Vec<String>,
    /// Source position in the user's model.
    pub place: SourcePlace,
    /// Number of reads or calls.
    pub count: u64,
    /// Nanoseconds of all reads or calls, by the host's clock.
    pub nanoseconds: u64,
}

/// Activity of a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanKind {
    /// The step of this index.
    Step(usize),
    /// The read-back of this index in [`Profile::readbacks`].
    Readback(usize),
}

/// One execution of a step or one read-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The activity.
    pub kind: SpanKind,
    /// Nanoseconds since the start of the first span.
    pub start: u64,
    /// Duration in nanoseconds.
    pub nanoseconds: u64,
}

/// Times of all steps of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// The clock that measured the times.
    pub clock: Clock,
    /// In the order of the plan.
    pub steps: Vec<StepTime>,
    /// In the order of the first read or call.
    pub readbacks: Vec<Readback>,
    /// All spans, ordered by their start.
    pub spans: Vec<Span>,
}

impl Profile {
    /// Sum of all steps in nanoseconds.
    pub fn total(&self) -> u64 {
        self.steps.iter().map(|step| step.nanoseconds).sum()
    }
}

impl Program {
    /// Runs the program and measures every step: with the device's timestamps if it has them and the plan has no
    /// control flow, else with the host's clock.
    ///
    /// Steps are separated for the measurement, so the run takes longer than the sum of its steps and than a run
    /// without measurement. A warm-up run comes first, in which drivers finish compiling.
    pub fn profile(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        let inputs: Vec<RunInput> = inputs.iter().map(RunInput::Host).collect();
        self.launch(&inputs)?.wait()?;
        let has_no_flow = self.plan().flows.is_empty();
        let (run, clock, times) = if has_no_flow && self.device().has(Features::TIMESTAMP_QUERY) {
            let (run, times) = profile_by_device(self, &inputs)?;
            (run, Clock::Device, times)
        } else {
            let (run, times) = profile_by_host(self, &inputs)?;
            (run, Clock::Host, times)
        };
        let outputs = run.read()?;
        let workgroups = &run.binding.sizing.workgroups;
        let steps = self.plan().steps.iter().zip(workgroups).zip(times.steps);
        let steps = steps
            .map(|((step, workgroups), time)| StepTime {
                label: self.plan().kernels[step.kernel].label.clone(),
                nodes: step.nodes.clone(),
                place: step.place.clone(),
                workgroups: *workgroups,
                runs: time.runs,
                nanoseconds: time.nanoseconds,
            })
            .collect();
        let profile = Profile {
            clock,
            steps,
            readbacks: times.readbacks,
            spans: times.spans,
        };
        Ok((outputs, profile))
    }
}

/// Measurements of a run.
#[derive(Default)]
struct RunTimes {
    /// One entry for each step of the plan.
    steps: Vec<StepTotal>,
    readbacks: Vec<Readback>,
    spans: Vec<Span>,
}

/// Total of all executions of a step.
#[derive(Clone, Copy, Default)]
struct StepTotal {
    runs: u64,
    nanoseconds: u64,
}

/// Nanoseconds between two instants; the largest number on overflow.
fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

/// Query sets for the device's timestamps, and the buffers to read them.
struct TimestampQueries {
    /// Query sets of [`STEPS_PER_SET`] steps each.
    sets: Vec<QuerySet>,
    /// Receives the timestamps from the query sets.
    resolved: Buffer,
    /// A copy of `resolved` that the host maps.
    readable: Buffer,
}

/// Runs the program with timestamps before and after each step.
fn profile_by_device(program: &Program, inputs: &[RunInput]) -> Result<(Run, RunTimes)> {
    let inner = &program.inner;
    let device = &inner.device;
    let queries = in_error_scope(device.wgpu(), || Ok(TimestampQueries::new(inner)))?;
    let run = Run::submit(
        program,
        &program.bind(inputs)?,
        inputs,
        true,
        |recorder, binding| {
            queries.record(inner, &mut recorder.encoder, binding);
            Ok(())
        },
    )?;
    let mapped = PendingMapping::begin(device, vec![queries.readable.clone()], MapMode::Read)?;
    mapped.wait(Some(&run.submission))?;
    let view = queries.readable.get_mapped_range(..);
    let view = view.map_err(|error| Error::device(error.to_string()))?;
    let period = f64::from(device.queue().get_timestamp_period());
    let (pairs, _) = view.as_chunks::<{ STEP_BYTES as usize }>();
    let timestamps = pairs
        .iter()
        .map(|pair| bytemuck::pod_read_unaligned::<[u64; 2]>(pair));
    // A step that dispatches nothing has written no timestamps.
    let groups = run.binding.bind_groups.iter();
    let ticks: Vec<Option<[u64; 2]>> = timestamps
        .zip(groups)
        .map(|(ticks, group)| group.as_ref().map(|_| ticks))
        .collect();
    Ok((run, RunTimes::from_timestamps(&ticks, period)))
}

impl RunTimes {
    /// Times of steps from the first and last timestamp of each; `None` for steps that dispatch nothing.
    fn from_timestamps(timestamps: &[Option<[u64; 2]>], period: f64) -> RunTimes {
        let first = timestamps.iter().flatten().map(|[start, _]| *start).min();
        let scaled = |ticks: u64| (ticks as f64 * period) as u64;
        let mut times = RunTimes::default();
        for (index, ticks) in timestamps.iter().enumerate() {
            let mut time = StepTotal {
                runs: 1,
                nanoseconds: 0,
            };
            if let Some([start, end]) = ticks {
                time.nanoseconds = scaled(end.saturating_sub(*start));
                times.spans.push(Span {
                    kind: SpanKind::Step(index),
                    start: scaled(start - first.unwrap_or_default()),
                    nanoseconds: time.nanoseconds,
                });
            }
            times.steps.push(time);
        }
        times.spans.sort_by_key(|span| span.start);
        times
    }
}

impl TimestampQueries {
    fn new(program: &ProgramInner) -> TimestampQueries {
        let device = program.device.wgpu();
        let steps = program.plan.steps.len().max(1);
        let set = |first: usize| {
            let count = (steps - first).min(STEPS_PER_SET);
            device.create_query_set(&QuerySetDescriptor {
                label: Some("profile"),
                ty: QueryType::Timestamp,
                count: count as u32 * 2,
            })
        };
        let size = steps as u64 * STEP_BYTES;
        let buffer = |usage| program.counters.buffer(device, "profile", size, usage);
        TimestampQueries {
            sets: (0..steps).step_by(STEPS_PER_SET).map(set).collect(),
            resolved: buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
            readable: buffer(BufferUsages::MAP_READ | BufferUsages::COPY_DST),
        }
    }

    /// Records every step in a pass of its own with timestamps, then the copies of the outputs to the host.
    fn record(&self, program: &ProgramInner, encoder: &mut CommandEncoder, binding: &RunBinding) {
        for index in 0..program.plan.steps.len() {
            let first = (index % STEPS_PER_SET) as u32 * 2;
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(ComputePassTimestampWrites {
                    query_set: &self.sets[index / STEPS_PER_SET],
                    beginning_of_pass_write_index: Some(first),
                    end_of_pass_write_index: Some(first + 1),
                }),
            });
            record_step(program, &mut pass, binding, index);
        }
        for (number, set) in self.sets.iter().enumerate() {
            let start = (number * STEPS_PER_SET) as u64 * STEP_BYTES;
            let remaining = program.plan.steps.len() - number * STEPS_PER_SET;
            let queries = remaining.min(STEPS_PER_SET) as u32 * 2;
            if queries > 0 {
                encoder.resolve_query_set(set, 0..queries, &self.resolved, start);
            }
        }
        let size = self.readable.size();
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, size);
        record_downloads(&program.device, encoder, binding, binding.downloads.iter());
    }
}

/// Runs the program step by step and measures each step by the host's clock.
fn profile_by_host(program: &Program, inputs: &[RunInput]) -> Result<(Run, RunTimes)> {
    let inner = &program.inner;
    let record_nothing = |_: &mut CommandRecorder, _: &RunBinding| Ok(());
    let run = Run::submit(
        program,
        &program.bind(inputs)?,
        inputs,
        false,
        record_nothing,
    )?;
    run.wait()?;
    let mut profiler = HostProfiler {
        recorder: CommandRecorder::new(inner, &run.binding),
        begin: Instant::now(),
        times: RunTimes {
            steps: vec![StepTotal::default(); inner.plan.steps.len()],
            ..RunTimes::default()
        },
    };
    execute_plan(inner, &run.binding, &mut profiler)?;
    let times = profiler.times;
    Ok((run, times))
}

/// Runs steps one at a time and waits for each.
struct HostProfiler<'a> {
    recorder: CommandRecorder<'a>,
    /// Start of the first span.
    begin: Instant,
    times: RunTimes,
}

impl StepRunner for HostProfiler<'_> {
    fn steps(&mut self, steps: Range<usize>) -> Result<()> {
        for index in steps {
            let start = Instant::now();
            self.recorder.steps(index..index + 1)?;
            let submission = self.recorder.submit()?;
            self.recorder.program.device.poll(Some(&submission))?;
            self.record_span(SpanKind::Step(index), start);
        }
        Ok(())
    }

    fn read_scalar(&mut self, slot: SlotId, flow: &Flow) -> Result<i64> {
        let start = Instant::now();
        let number = self.recorder.read_scalar(slot, flow)?;
        let name = &self.recorder.program.plan.slots[slot.0].name;
        let readback = self.times.readback(name, flow);
        self.record_span(readback, start);
        Ok(number)
    }

    fn call(&mut self, call: HostCall) -> Result<()> {
        let (start, flow) = (Instant::now(), call.flow);
        self.recorder.call(call)?;
        let name = flow.nodes.first().map_or("", String::as_str);
        let readback = self.times.readback(name, flow);
        self.record_span(readback, start);
        Ok(())
    }
}

impl HostProfiler<'_> {
    /// Adds a span from `start` until now, also to the total of its step or read-back.
    fn record_span(&mut self, kind: SpanKind, start: Instant) {
        let elapsed = nanoseconds(start, Instant::now());
        self.times.spans.push(Span {
            kind,
            start: nanoseconds(self.begin, start),
            nanoseconds: elapsed,
        });
        let (count, sum) = match kind {
            SpanKind::Step(index) => {
                let time = &mut self.times.steps[index];
                (&mut time.runs, &mut time.nanoseconds)
            }
            SpanKind::Readback(index) => {
                let time = &mut self.times.readbacks[index];
                (&mut time.count, &mut time.nanoseconds)
            }
        };
        (*count, *sum) = (*count + 1, *sum + elapsed);
    }
}

impl RunTimes {
    /// Index, as a span's kind, of the entry for a read-back or host call; creates the entry with a count of zero if
    /// needed.
    fn readback(&mut self, name: &str, flow: &Flow) -> SpanKind {
        let readbacks = &mut self.readbacks;
        let known = readbacks
            .iter()
            .position(|read| (read.slot.as_str(), &read.nodes) == (name, &flow.nodes));
        SpanKind::Readback(known.unwrap_or_else(|| {
            readbacks.push(Readback {
                slot: name.to_string(),
                nodes: flow.nodes.clone(),
                place: flow.place.clone(),
                count: 0,
                nanoseconds: 0,
            });
            readbacks.len() - 1
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_become_spans_of_executed_steps() {
        let times = RunTimes::from_timestamps(&[Some([130, 150]), None, Some([100, 120])], 2.0);
        let span = |index, start| Span {
            kind: SpanKind::Step(index),
            start,
            nanoseconds: 40,
        };
        assert_eq!(times.spans, [span(2, 0), span(0, 60)]);
        let taken: Vec<u64> = times.steps.iter().map(|time| time.nanoseconds).collect();
        assert_eq!(taken, [40, 0, 40]);
    }
}
