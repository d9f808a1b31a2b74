//! Records parts of a program as region bodies, and values carried by loops.

use std::rc::Rc;

use crate::error::{Error, Result, SourcePlace};
use crate::ir::{Argument, Graph, Region, TreeSpec as Shape, ValueId};
use crate::trace::region_bodies::RegionBody;
use crate::trace::scope_stack::GraphScope;

use super::buffer_values::BufferValue;
use super::module::with_buffer_rollback;
use super::random;
use super::recorder::{self, Recorder};
use super::tensor::TracedTensor;
use super::tree::Tree;

/// A part of the program recorded as a region body.
pub(super) struct RecordedBody {
    scope: GraphScope<()>,
    /// The tensors that it returns.
    pub leaves: Vec<TracedTensor>,
    ids: Vec<ValueId>,
    /// The buffers that it stores to.
    written_buffers: Vec<BufferValue>,
}

impl RecordedBody {
    /// Records a part of the program. `part` returns the body's result tensors and any further data. Afterwards the recorder
    /// has the buffer values from before.
    pub fn record<T>(
        recorder: &Recorder,
        part: impl FnOnce() -> Result<(Vec<TracedTensor>, T)>,
    ) -> Result<(RecordedBody, T)> {
        let before = recorder.buffer_values().borrow().clone();
        recorder.scopes().borrow_mut().open();
        let recorded = part().and_then(|(leaves, data)| {
            let ids = leaves.iter().map(|leaf| recorder.value_of(leaf));
            let ids: Vec<ValueId> = ids.collect::<Result<_>>()?;
            let leaves = leaves.iter().map(|leaf| recorder.current(leaf));
            Ok((leaves.collect(), ids, data))
        });
        let scope = recorder.scopes().borrow_mut().close()?;
        let after = recorder.buffer_values().replace(before.clone());
        let (leaves, ids, rest) = recorded?;
        let part = RecordedBody {
            scope,
            leaves,
            ids,
            written_buffers: after.changed_since(&before).cloned().collect(),
        };
        Ok((part, rest))
    }

    /// Adds the final values of buffers to the body's results.
    pub fn with_buffer_results(
        self,
        recorder: &Recorder,
        buffers: &[BufferValue],
    ) -> Result<RecordedBody> {
        let own = |buffer: &TracedTensor| {
            let mut stored = self.written_buffers.iter();
            stored.find(|stored| stored.buffer.is(buffer))
        };
        let buffer_results = buffers
            .iter()
            .map(|BufferValue { buffer, .. }| match own(buffer) {
                Some(stored) => stored.value.clone(),
                None => recorder.current(buffer),
            });
        let kept: Vec<TracedTensor> = buffer_results.collect();
        recorder.scopes().borrow_mut().reopen(self.scope);
        let ids = kept.iter().map(|value| recorder.value_of(value));
        let ids: Result<Vec<ValueId>> = ids.collect();
        let scope = recorder.scopes().borrow_mut().close()?;
        Ok(RecordedBody {
            scope,
            leaves: [self.leaves, kept].concat(),
            ids: [self.ids, ids?].concat(),
            written_buffers: self.written_buffers,
        })
    }

    pub fn into_region_body(self, name: &'static str) -> RegionBody<()> {
        RegionBody::new(self.scope, name, self.ids)
    }
}

pub(super) fn flatten<T: Tree>(tree: &T, path: &str) -> Result<(Vec<TracedTensor>, Shape)> {
    let mut leaves = Vec::new();
    let shape = tree.flatten(path, &mut leaves)?;
    Ok((leaves, shape))
}

/// Adds a region node. `run` computes the values of its results without recording.
pub(super) fn add_region(
    recorder: &Recorder,
    region: Region,
    arguments: Vec<Argument>,
    run: impl FnOnce() -> Result<Vec<TracedTensor>>,
    place: &SourcePlace,
) -> Result<Vec<TracedTensor>> {
    let builder = recorder.scopes().borrow().innermost().builder.clone();
    builder.set_place(place);
    let results = builder.try_region(region, arguments)?;
    let values = recorder::suspend(run)?;
    let pairs = results.into_iter().zip(values);
    let tensors = pairs.map(|(result, tensor)| Ok(recorder.tensor(result.id(), tensor.value()?)));
    tensors.collect()
}

/// The loop-carried values: the state, values of buffers, and stacked outputs.
pub(super) struct LoopCarried {
    /// The structure of the state.
    pub shape: Shape,
    state: Vec<TracedTensor>,
    /// The buffers that an iteration stores to.
    buffers: Vec<BufferValue>,
    /// The stacked outputs of all iterations.
    pub stacks: Vec<TracedTensor>,
}

impl LoopCarried {
    pub fn new<S: Tree>(recorder: &Recorder, state: &S) -> Result<LoopCarried> {
        let (state, shape) = flatten(state, "the state")?;
        let state = state.iter().map(|leaf| recorder.current(leaf));
        Ok(LoopCarried {
            shape,
            state: state.collect(),
            buffers: Vec::new(),
            stacks: Vec::new(),
        })
    }

    /// Records an iteration. Records it again if it stores to buffers that are not carried yet.
    pub fn record<T>(
        &mut self,
        recorder: &Recorder,
        round: impl Fn(&LoopCarried) -> Result<(Vec<TracedTensor>, T)>,
    ) -> Result<(RecordedBody, T)> {
        loop {
            let (before, draws) = (recorder.snapshot(), random::rng_state());
            let recorded = RecordedBody::record(recorder, || round(self));
            // The loop runs once more for its results and must draw equal random numbers.
            random::set_rng_state(draws);
            let (part, rest) = recorded?;
            let new = written_buffers(&[&part]).into_iter().filter(|new| {
                let mut known = self.buffers.iter();
                !known.any(|known| known.buffer.is(&new.buffer))
            });
            let new: Vec<BufferValue> = new.collect();
            if new.is_empty() {
                return Ok((part, rest));
            }
            self.buffers.extend(new);
            recorder.restore(before);
        }
    }

    /// Adds the state as inputs of the open body, with the values of the first iteration, and sets the carried buffers to
    /// their inputs.
    pub fn add_body_inputs<S: Tree>(&self, recorder: &Recorder) -> Result<S> {
        let input = |leaf: &TracedTensor| {
            let ty = recorder.type_of(leaf)?;
            let id = recorder.scopes().borrow_mut().add_body_input("carried", ty);
            Ok(recorder.tensor(id, recorder.current(leaf).value()?))
        };
        let inputs: Vec<TracedTensor> = self.state.iter().map(input).collect::<Result<_>>()?;
        let stored = self.buffers.iter().map(|stored| input(&stored.buffer));
        let stored: Vec<TracedTensor> = stored.collect::<Result<_>>()?;
        set_buffers(recorder, &self.buffers, stored);
        S::rebuild(&self.shape, &inputs, "the state")
    }

    /// Current values of the carried buffers.
    pub fn buffer_values(&self, recorder: &Recorder) -> Vec<TracedTensor> {
        let buffers = self.buffers.iter().map(|stored| &stored.buffer);
        buffers.map(|buffer| recorder.current(buffer)).collect()
    }

    /// The state without its connection to a trace.
    pub fn detached_state<S: Tree>(&self) -> Result<S> {
        let leaves: Vec<TracedTensor> = self.state.iter().map(TracedTensor::detached).collect();
        S::rebuild(&self.shape, &leaves, "the state")
    }

    /// Adds the loop. Its body returns the next condition, then the carried values. Returns the state and the outputs.
    /// `ends` are the trip count and the first condition. `run` computes the results once the types are known to
    /// fit.
    pub fn add_loop(
        &self,
        recorder: &Rc<Recorder>,
        round: RecordedBody,
        entry_arguments: [Argument; 2],
        run: impl FnOnce() -> Result<Vec<TracedTensor>>,
        place: &SourcePlace,
    ) -> Result<(Vec<TracedTensor>, Vec<TracedTensor>)> {
        let before = [&*self.state, &self.buffer_values(recorder), &self.stacks].concat();
        let before = before.iter();
        let before = before.map(|leaf| recorder.value_of(leaf).map(Argument::Value));
        let before: Vec<Argument> = before.collect::<Result<_>>()?;
        let bodies = vec![round.into_region_body("body")];
        let (graphs, captured) = recorder.scopes().borrow_mut().close_bodies(bodies)?;
        let [body] = graphs.try_into().map_err(missing_body)?;
        let carried = before.len();
        let arguments = [entry_arguments.to_vec(), before, captured].concat();
        let region = Region::Loop { body, carried };
        let run = || self.with_buffer_values(recorder, run);
        let mut state = add_region(recorder, region, arguments, run, place)?;
        let mut stored = state.split_off(self.state.len().min(state.len()));
        let outputs = stored.split_off(self.buffers.len().min(stored.len()));
        set_buffers(recorder, &self.buffers, stored);
        Ok((state, outputs))
    }

    /// Runs a loop outside of the trace, and inserts the carried buffers' values after its state. The buffers themselves do
    /// not change.
    fn with_buffer_values(
        &self,
        recorder: &Recorder,
        run: impl FnOnce() -> Result<Vec<TracedTensor>>,
    ) -> Result<Vec<TracedTensor>> {
        with_buffer_rollback(|| {
            recorder.buffer_values().borrow().write()?;
            let mut results = run()?;
            let stored = self.buffers.iter().map(|stored| stored.buffer.detached());
            let place = self.state.len().min(results.len());
            results.splice(place..place, stored.collect::<Vec<_>>());
            Ok(results)
        })
    }
}

/// The buffers that any of the bodies stores to.
pub(super) fn written_buffers(parts: &[&RecordedBody]) -> Vec<BufferValue> {
    let mut found: Vec<BufferValue> = Vec::new();
    for stored in parts.iter().flat_map(|part| &part.written_buffers) {
        if !found.iter().any(|known| known.buffer.is(&stored.buffer)) {
            found.push(stored.clone());
        }
    }
    found
}

/// Sets the current values of buffers.
pub(super) fn set_buffers(recorder: &Recorder, buffers: &[BufferValue], values: Vec<TracedTensor>) {
    for (stored, value) in buffers.iter().zip(values) {
        let stored = stored.clone();
        recorder
            .buffer_values()
            .borrow_mut()
            .insert(BufferValue { value, ..stored });
    }
}

pub(super) fn missing_body(_: Vec<Graph>) -> Error {
    Error::internal("a region lost a body")
}
