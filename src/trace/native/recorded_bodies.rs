//! Records parts of a program as region bodies, and keeps the values that loops carry.

use std::rc::Rc;

use crate::error::{Error, Result, SourcePlace};
use crate::ir::{Argument, Graph, Region, TreeSpec, ValueId};
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
    /// The closed scope of the body.
    scope: GraphScope<()>,
    /// The tensors that the body returns.
    pub leaves: Vec<TracedTensor>,
    /// Values of `leaves` in the body's graph.
    ids: Vec<ValueId>,
    /// The buffers that the body stores to, with their final values.
    written_buffers: Vec<BufferValue>,
}

impl RecordedBody {
    /// Records a part of the program. `program` runs it, and returns the body's result tensors and any further data.
    /// Restores the buffer values of the recorder afterwards.
    pub fn record<T>(
        recorder: &Recorder,
        program: impl FnOnce() -> Result<(Vec<TracedTensor>, T)>,
    ) -> Result<(RecordedBody, T)> {
        let before = recorder.buffer_values().borrow().clone();
        recorder.scopes().borrow_mut().open();
        let recorded = program().and_then(|(leaves, data)| {
            let ids = leaves.iter().map(|leaf| recorder.value_of(leaf));
            let ids: Vec<ValueId> = ids.collect::<Result<_>>()?;
            let leaves = leaves.iter().map(|leaf| recorder.current(leaf));
            Ok((leaves.collect(), ids, data))
        });
        let scope = recorder.scopes().borrow_mut().close()?;
        let after = recorder.buffer_values().replace(before.clone());
        let (leaves, ids, data) = recorded?;
        let body = RecordedBody {
            scope,
            leaves,
            ids,
            written_buffers: after.changed_since(&before).cloned().collect(),
        };
        Ok((body, data))
    }

    /// Appends the final values of `buffers` to the body's results. A buffer that the body does not store to keeps the
    /// value from before the region.
    pub fn with_buffer_results(
        self,
        recorder: &Recorder,
        buffers: &[BufferValue],
    ) -> Result<RecordedBody> {
        let stored_in_body = |buffer: &TracedTensor| {
            let mut stored = self.written_buffers.iter();
            stored.find(|stored| stored.buffer.is(buffer))
        };
        let buffer_results = buffers
            .iter()
            .map(|BufferValue { buffer, .. }| match stored_in_body(buffer) {
                Some(stored) => stored.value.clone(),
                None => recorder.current(buffer),
            });
        let final_values: Vec<TracedTensor> = buffer_results.collect();
        recorder.scopes().borrow_mut().reopen(self.scope);
        let ids = final_values.iter().map(|value| recorder.value_of(value));
        let ids: Result<Vec<ValueId>> = ids.collect();
        let scope = recorder.scopes().borrow_mut().close()?;
        Ok(RecordedBody {
            scope,
            leaves: [self.leaves, final_values].concat(),
            ids: [self.ids, ids?].concat(),
            written_buffers: self.written_buffers,
        })
    }

    /// Converts to a region body whose graph has this name.
    pub fn into_region_body(self, name: &'static str) -> RegionBody<()> {
        RegionBody::new(self.scope, name, self.ids)
    }
}

/// Returns the tensors of a structure, and the structure itself. `path` names it in errors.
pub(super) fn flatten<T: Tree>(tree: &T, path: &str) -> Result<(Vec<TracedTensor>, TreeSpec)> {
    let mut leaves = Vec::new();
    let spec = tree.flatten(path, &mut leaves)?;
    Ok((leaves, spec))
}

/// Adds a region node for the source line `place`. `run` computes the values of its results without recording.
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
    pub shape: TreeSpec,
    /// The tensors of the state before the loop.
    state: Vec<TracedTensor>,
    /// The buffers that an iteration stores to.
    buffers: Vec<BufferValue>,
    /// The stacked outputs of all iterations, before the first one. Each is one tensor with an axis for the iterations.
    pub stacks: Vec<TracedTensor>,
}

impl LoopCarried {
    /// A loop that carries the state only.
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

    /// Records an iteration. `iteration` returns the body's results and any further data. If it stores to buffers that
    /// are not carried yet, they become carried, and the iteration is recorded again.
    pub fn record<T>(
        &mut self,
        recorder: &Recorder,
        iteration: impl Fn(&LoopCarried) -> Result<(Vec<TracedTensor>, T)>,
    ) -> Result<(RecordedBody, T)> {
        loop {
            let (snapshot, rng_state) = (recorder.snapshot(), random::rng_state());
            let recorded = RecordedBody::record(recorder, || iteration(self));
            // The loop runs once more for its results and must draw equal random numbers.
            random::set_rng_state(rng_state);
            let (body, data) = recorded?;
            let added = written_buffers(&[&body]).into_iter().filter(|added| {
                let mut known = self.buffers.iter();
                !known.any(|known| known.buffer.is(&added.buffer))
            });
            let added: Vec<BufferValue> = added.collect();
            if added.is_empty() {
                return Ok((body, data));
            }
            self.buffers.extend(added);
            recorder.restore(snapshot);
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
        let buffer_inputs = self.buffers.iter().map(|stored| input(&stored.buffer));
        let buffer_inputs: Vec<TracedTensor> = buffer_inputs.collect::<Result<_>>()?;
        set_buffers(recorder, &self.buffers, buffer_inputs);
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

    /// Adds the loop. Its body `iteration` returns the next condition, then the carried values. `entry_arguments` are
    /// the trip count and the first condition. `run` computes the results of the loop, except those for buffers, once
    /// the types are known to fit. Returns the final state and the stacked outputs.
    pub fn add_loop(
        &self,
        recorder: &Rc<Recorder>,
        iteration: RecordedBody,
        entry_arguments: [Argument; 2],
        run: impl FnOnce() -> Result<Vec<TracedTensor>>,
        place: &SourcePlace,
    ) -> Result<(Vec<TracedTensor>, Vec<TracedTensor>)> {
        let initial_values = [&*self.state, &self.buffer_values(recorder), &self.stacks].concat();
        let initial_values = initial_values.iter();
        let initial_values =
            initial_values.map(|leaf| recorder.value_of(leaf).map(Argument::Value));
        let initial_values: Vec<Argument> = initial_values.collect::<Result<_>>()?;
        let bodies = vec![iteration.into_region_body("body")];
        let (graphs, captured) = recorder.scopes().borrow_mut().close_bodies(bodies)?;
        let [body] = graphs.try_into().map_err(missing_body)?;
        let carried = initial_values.len();
        let arguments = [entry_arguments.to_vec(), initial_values, captured].concat();
        let region = Region::Loop { body, carried };
        let run = || self.with_buffer_values(recorder, run);
        let mut state = add_region(recorder, region, arguments, run, place)?;
        let mut buffer_results = state.split_off(self.state.len().min(state.len()));
        let outputs = buffer_results.split_off(self.buffers.len().min(buffer_results.len()));
        set_buffers(recorder, &self.buffers, buffer_results);
        Ok((state, outputs))
    }

    /// Runs a loop outside of the trace, and inserts the final values of the carried buffers after the state in its
    /// results. The buffers themselves do not change.
    fn with_buffer_values(
        &self,
        recorder: &Recorder,
        run: impl FnOnce() -> Result<Vec<TracedTensor>>,
    ) -> Result<Vec<TracedTensor>> {
        with_buffer_rollback(|| {
            recorder.buffer_values().borrow().write()?;
            let mut results = run()?;
            let stored = self.buffers.iter().map(|stored| stored.buffer.detached());
            let buffer_index = self.state.len().min(results.len());
            results.splice(buffer_index..buffer_index, stored.collect::<Vec<_>>());
            Ok(results)
        })
    }
}

/// The buffers that any of the bodies stores to, each once.
pub(super) fn written_buffers(bodies: &[&RecordedBody]) -> Vec<BufferValue> {
    let mut buffers: Vec<BufferValue> = Vec::new();
    for stored in bodies.iter().flat_map(|body| &body.written_buffers) {
        if !buffers.iter().any(|known| known.buffer.is(&stored.buffer)) {
            buffers.push(stored.clone());
        }
    }
    buffers
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

/// The error if a region has another number of graphs than of bodies.
pub(super) fn missing_body(_: Vec<Graph>) -> Error {
    Error::internal("a region lost a body")
}
