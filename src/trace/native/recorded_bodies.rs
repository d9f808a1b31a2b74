//! Records parts of a program as region bodies, and keeps the values that loops carry.

use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Error, Result, SourcePlace};
use crate::ir::{Argument, Graph, Region, TreeSpec, ValueId};
use crate::tensor::Tensor;
use crate::trace::check::Id;
use crate::trace::region_bodies::RegionBody;
use crate::trace::scope_stack::{GraphScope, ValueRef};

use super::random;
use super::recorder::{self, Recorder};
use super::storage::{TracedOrigin, TracedStorage};
use super::storage_values::{RecordedValue, StorageValue};
use super::tensor::TracedTensor;
use super::tree::Tree;
use super::undo_log::with_rollback;

/// A part of the program recorded as a region body.
pub(super) struct RecordedBody {
    /// The closed scope of the body.
    scope: GraphScope<()>,
    /// The values that the body returns.
    pub results: Vec<RecordedValue>,
    /// `results` in the body's graph.
    ids: Vec<ValueId>,
    /// The storages from outside of the body that it writes, with their final values.
    written: Vec<StorageValue>,
}

impl RecordedBody {
    /// Records a part of the program. `program` runs it, and returns the body's result tensors and any further data.
    /// Restores the values of storages afterwards.
    pub fn record<T>(
        recorder: &Recorder,
        program: impl FnOnce() -> Result<(Vec<TracedTensor>, T)>,
    ) -> Result<(RecordedBody, T)> {
        let before = recorder.storage_values().borrow().clone();
        recorder.scopes().borrow_mut().open();
        let recorded = program().and_then(|(leaves, data)| {
            let results = leaves.iter().map(|leaf| recorder.read(leaf));
            let results: Vec<RecordedValue> = results.collect::<Result<_>>()?;
            Ok((capture(recorder, &results)?, results, data))
        });
        let scope = recorder.scopes().borrow_mut().close()?;
        let after = recorder.storage_values().replace(before.clone());
        let (ids, results, data) = recorded?;
        let written = after.changed_since(&before);
        let written = written.filter(|written| recorder.outlives_scope(&written.storage));
        let body = RecordedBody {
            scope,
            results,
            ids,
            written: written.cloned().collect(),
        };
        Ok((body, data))
    }

    /// Appends the final values of `storages` to the body's results. A storage that the body does not write keeps the
    /// value from before the region.
    pub fn with_storage_results(
        self,
        recorder: &Recorder,
        storages: &[Arc<TracedStorage>],
    ) -> Result<RecordedBody> {
        let final_values = storages.iter().map(|storage| {
            let mut written = self.written.iter();
            match written.find(|written| Arc::ptr_eq(&written.storage, storage)) {
                Some(written) => Ok(written.value.clone()),
                None => Ok(recorder.storage_value(storage)?.0),
            }
        });
        let final_values: Vec<RecordedValue> = final_values.collect::<Result<_>>()?;
        recorder.scopes().borrow_mut().reopen(self.scope);
        let ids = capture(recorder, &final_values);
        let scope = recorder.scopes().borrow_mut().close()?;
        Ok(RecordedBody {
            scope,
            results: [self.results, final_values].concat(),
            ids: [self.ids, ids?].concat(),
            written: self.written,
        })
    }

    /// Converts to a region body whose graph has this name.
    pub fn into_region_body(self, name: &'static str) -> RegionBody<()> {
        RegionBody::new(self.scope, name, self.ids)
    }
}

/// Returns values in the innermost scope, captured from outer scopes if necessary.
fn capture(recorder: &Recorder, values: &[RecordedValue]) -> Result<Vec<ValueId>> {
    let mut scopes = recorder.scopes().borrow_mut();
    let values = values.iter();
    values.map(|value| scopes.capture(value.id)).collect()
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
    run: impl FnOnce() -> Result<Vec<Tensor>>,
    place: &SourcePlace,
) -> Result<Vec<RecordedValue>> {
    let (builder, _) = recorder.innermost();
    builder.set_place(place);
    let results = builder.try_region(region, arguments)?;
    let examples = recorder::run_example(run)?;
    let pairs = results.into_iter().zip(examples);
    let values = pairs.map(|(result, example)| RecordedValue {
        id: recorder.value_ref(result.id()),
        example,
    });
    Ok(values.collect())
}

/// Makes tensors of values.
pub(super) fn tensors(recorder: &Recorder, values: Vec<RecordedValue>) -> Vec<TracedTensor> {
    let values = values.into_iter();
    values.map(|value| recorder.tensor_of(value)).collect()
}

/// The loop-carried values: the state, contents of storages, and stacked outputs.
pub(super) struct LoopCarried {
    /// The structure of the state.
    pub spec: TreeSpec,
    /// The values of the state before the loop.
    state: Vec<RecordedValue>,
    /// The storages that an iteration writes.
    storages: Vec<Arc<TracedStorage>>,
    /// The stacked outputs of all iterations, before the first one. Each is one tensor with an axis for the iterations.
    pub stacks: Vec<TracedTensor>,
}

impl LoopCarried {
    /// A loop that carries the state only.
    pub fn new<S: Tree>(recorder: &Recorder, state: &S) -> Result<LoopCarried> {
        let (state, spec) = flatten(state, "the state")?;
        add_counters(recorder, &state)?;
        let state = state.iter().map(|leaf| recorder.read(leaf));
        Ok(LoopCarried {
            spec,
            state: state.collect::<Result<_>>()?,
            storages: Vec::new(),
            stacks: Vec::new(),
        })
    }

    /// Records an iteration. `iteration` returns the body's results and any further data. If it writes storages that are
    /// not carried yet, they become carried, and the iteration is recorded again.
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
            let mut added = written_storages(&[&body]);
            added.retain(|storage| !contains(&self.storages, storage));
            if added.is_empty() {
                return Ok((body, data));
            }
            self.storages.extend(added);
            recorder.restore(snapshot);
        }
    }

    /// Adds the state as inputs of the open body, with the values of the first iteration, and sets the carried storages to
    /// their inputs.
    pub fn add_body_inputs<S: Tree>(&self, recorder: &Recorder) -> Result<S> {
        let input = |value: &RecordedValue| {
            let mut scopes = recorder.scopes().borrow_mut();
            let ty = scopes.type_of(value.id)?;
            let id = scopes.add_body_input("carried", ty);
            let scope = scopes.innermost().number;
            Ok(RecordedValue {
                id: ValueRef { scope, id },
                example: value.example.clone(),
            })
        };
        let inputs: Vec<RecordedValue> = self.state.iter().map(input).collect::<Result<_>>()?;
        let contents = self.storage_values(recorder)?;
        let contents: Vec<RecordedValue> = contents.iter().map(input).collect::<Result<_>>()?;
        set_storages(recorder, &self.storages, contents);
        S::rebuild(&self.spec, &tensors(recorder, inputs), "the state")
    }

    /// Current values of the carried storages.
    fn storage_values(&self, recorder: &Recorder) -> Result<Vec<RecordedValue>> {
        let storages = self.storages.iter();
        let values = storages.map(|storage| Ok(recorder.storage_value(storage)?.0));
        values.collect()
    }

    /// Tensors with the current values of the carried storages.
    pub fn storage_tensors(&self, recorder: &Recorder) -> Result<Vec<TracedTensor>> {
        Ok(tensors(recorder, self.storage_values(recorder)?))
    }

    /// The state without its connection to a trace.
    pub fn detached_state<S: Tree>(&self) -> Result<S> {
        let values = self.state.iter().map(|value| value.example.clone());
        let leaves: Vec<TracedTensor> = values
            .map(|value| TracedTensor::new(Ok(value), TracedOrigin::Host))
            .collect();
        S::rebuild(&self.spec, &leaves, "the state")
    }

    /// Adds the loop. Its body `iteration` returns the next condition, then the carried values. `entry_arguments` are
    /// the trip count and the first condition. `run` computes the results of the loop, except those for storages, once
    /// the types are known to fit. Returns the final state and the stacked outputs.
    pub fn add_loop(
        &self,
        recorder: &Rc<Recorder>,
        iteration: RecordedBody,
        entry_arguments: [Argument; 2],
        run: impl FnOnce() -> Result<Vec<Tensor>>,
        place: &SourcePlace,
    ) -> Result<(Vec<TracedTensor>, Vec<TracedTensor>)> {
        let stacks = self.stacks.iter().map(|stack| recorder.read(stack));
        let stacks: Vec<RecordedValue> = stacks.collect::<Result<_>>()?;
        let initial_values = [&*self.state, &self.storage_values(recorder)?, &stacks].concat();
        let initial_values = capture(recorder, &initial_values)?.into_iter();
        let initial_values: Vec<Argument> = initial_values.map(Argument::Value).collect();
        let bodies = vec![iteration.into_region_body("body")];
        let (graphs, captured) = recorder.scopes().borrow_mut().close_bodies(bodies)?;
        let [body] = graphs.try_into().map_err(missing_body)?;
        let carried = initial_values.len();
        let arguments = [entry_arguments.to_vec(), initial_values, captured].concat();
        let region = Region::Loop { body, carried };
        let run = || self.with_storage_results(recorder, run);
        let mut state = add_region(recorder, region, arguments, run, place)?;
        let mut contents = state.split_off(self.state.len().min(state.len()));
        let outputs = contents.split_off(self.storages.len().min(contents.len()));
        set_storages(recorder, &self.storages, contents);
        Ok((tensors(recorder, state), tensors(recorder, outputs)))
    }

    /// Runs a loop outside of the trace, and inserts the final contents of the carried storages after the state in its
    /// results. The storages themselves do not change.
    fn with_storage_results(
        &self,
        recorder: &Recorder,
        run: impl FnOnce() -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        with_rollback(|| {
            recorder.storage_values().borrow().write();
            let mut results = run()?;
            let contents = self.storages.iter().map(|storage| storage.contents().value);
            let contents: Vec<Tensor> = contents.collect::<Result<_>>()?;
            let index = self.state.len().min(results.len());
            results.splice(index..index, contents);
            Ok(results)
        })
    }
}

/// Adds the integers of a loop's state that the program made from numbers, such as a counter, as constants. They need no
/// warning: a loop starts from them at every call.
fn add_counters(recorder: &Recorder, state: &[TracedTensor]) -> Result<()> {
    let is_counter = |leaf: &&TracedTensor| {
        let ty = leaf.ty();
        matches!(leaf.storage_view().storage.origin, TracedOrigin::Data(_))
            && ty.is_ok_and(|ty| ty.dtype.is_integer() && ty.shape.is_empty())
    };
    let mut counters = state.iter().filter(is_counter);
    let id = Id::DataConstructor.code();
    counters.try_for_each(|leaf| recorder::allow(id, || recorder.value_of(leaf)).map(drop))
}

/// The storages that any of the bodies writes, each once.
pub(super) fn written_storages(bodies: &[&RecordedBody]) -> Vec<Arc<TracedStorage>> {
    let mut storages = Vec::new();
    for written in bodies.iter().flat_map(|body| &body.written) {
        if !contains(&storages, &written.storage) {
            storages.push(written.storage.clone());
        }
    }
    storages
}

fn contains(storages: &[Arc<TracedStorage>], storage: &Arc<TracedStorage>) -> bool {
    storages.iter().any(|known| Arc::ptr_eq(known, storage))
}

/// Sets the current values of storages.
pub(super) fn set_storages(
    recorder: &Recorder,
    storages: &[Arc<TracedStorage>],
    values: Vec<RecordedValue>,
) {
    let mut current = recorder.storage_values().borrow_mut();
    for (storage, value) in storages.iter().zip(values) {
        current.insert(storage.clone(), value);
    }
}

/// The error if a region has another number of graphs than of bodies.
pub(super) fn missing_body(_: Vec<Graph>) -> Error {
    Error::internal("a region lost a body")
}
