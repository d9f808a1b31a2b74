//! The active trace of a thread: operations become nodes of its graph.

mod call_warnings;
mod storages;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::aten::Operator;
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result, SourcePlace};
use crate::ir::{Argument, Builder, Graph, ModuleState, NamedTree, TreeSpec, ValueId, Weights};
use crate::pass::dce;
use crate::shape::TensorType;
use crate::symbols::{Symbols, with_sizes};
use crate::tensor::Tensor;
use crate::trace::check::{AllowList, Finding, Id, fold_repeated};
use crate::trace::module_calls::ModuleCalls;
use crate::trace::rng_counters::carry_rng_counters;
use crate::trace::scope_stack::{ScopeStack, ValueRef};
use crate::trace::views::GuardedGeometry;
use crate::trace::weight_states::weight_state;

use super::recorded_form::add_call;
use super::size::Size;
use super::storage::{Contents, Geometries, TracedOrigin, TracedStorage};
use super::storage_values::{RecordedValue, StorageValues};
use super::tensor::TracedTensor;
use super::trace_names::TraceNames;

thread_local! {
    static ACTIVE: RefCell<Option<Rc<Recorder>>> = const { RefCell::new(None) };
    /// The suspended trace whose example the program runs for.
    static RUNS_EXAMPLE_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Number of the next trace.
static NEXT_TRACE: AtomicU64 = AtomicU64::new(1);

/// A snapshot of a recorder without its graph.
pub(super) struct RecorderSnapshot {
    names: TraceNames,
    weights: Weights,
    calls: ModuleCalls,
    /// Number of warnings.
    warnings: usize,
}

/// Records one graph.
pub(super) struct Recorder {
    /// Identifies the trace.
    number: u64,
    scopes: RefCell<ScopeStack<()>>,
    names: Rc<RefCell<TraceNames>>,
    /// Values of the weights that the graph reads.
    weights: RefCell<Weights>,
    /// Paths of the module calls in progress, the innermost last.
    call_paths: RefCell<Vec<String>>,
    /// Numbers of calls of each module so far.
    calls: RefCell<ModuleCalls>,
    warnings: RefCell<Vec<Finding>>,
    /// The warnings that the [`allow`] calls in progress suppress.
    allowed: RefCell<Vec<AllowList>>,
    /// The first error of the trace.
    error: RefCell<Option<Error>>,
    /// Current values of the storages that were written.
    storage_values: RefCell<StorageValues>,
    /// Number of the graph's values at each call of `manual_seed`.
    sequence_starts: RefCell<Vec<usize>>,
}

/// A traced entry graph, with the weights that it reads.
pub(super) struct RecordedGraph {
    pub graph: Graph,
    pub weights: Weights,
    /// Names of the weights that are parameters.
    pub parameters: BTreeSet<String>,
    pub warnings: Vec<Finding>,
    /// The buffers that the graph writes.
    pub states: Vec<ModuleState>,
}

/// Names of those weights that are parameters.
fn parameters_of(weights: &Weights, names: &TraceNames) -> BTreeSet<String> {
    let parameters = names.parameters.iter();
    let parameters = parameters.filter(|name| weights.contains_key(*name));
    parameters.cloned().collect()
}

/// A call in the innermost graph.
pub(super) struct RecordedCall {
    pub operator: &'static Operator,
    /// Arguments of the node.
    pub arguments: Vec<Argument>,
    /// Results of the node.
    pub ids: Vec<ValueId>,
}

/// The active trace of this thread.
pub(super) fn active() -> Option<Rc<Recorder>> {
    ACTIVE.with_borrow(Clone::clone)
}

/// True while a trace is active on this thread.
pub fn is_tracing() -> bool {
    active().is_some()
}

/// The active trace and the innermost scope of its graph; none outside of traces.
pub(super) fn scope() -> Option<(u64, u32)> {
    active().map(|recorder| (recorder.number, recorder.innermost().1))
}

/// Contents of a storage with their version, after the writes of the active trace.
pub(super) fn contents(storage: &TracedStorage) -> (Result<Tensor>, u64) {
    let written = active().and_then(|recorder| recorder.written(storage));
    match written {
        Some(written) => (Ok(written.value.example), written.version),
        None => {
            let Contents { value, version } = storage.contents();
            (value, version)
        }
    }
}

/// Records an error in the active trace.
pub(super) fn fail(error: Error) {
    if let Some(recorder) = active() {
        recorder.fail(error);
    }
}

/// Runs a part of the program and suppresses its warnings of an id: `allow("W0201", || x.to_vec::<f32>())`.
pub fn allow<T>(id: &str, program: impl FnOnce() -> T) -> T {
    let Some(recorder) = active() else {
        return program();
    };
    recorder.allowed.borrow_mut().push(AllowList::new([id]));
    let result = program();
    recorder.allowed.borrow_mut().pop();
    result
}

/// Runs a part of the program without recording it.
pub(super) fn suspend<T>(program: impl FnOnce() -> T) -> T {
    let suspended = SuspendGuard(ACTIVE.take());
    let result = program();
    drop(suspended);
    result
}

/// Runs a part of the program for the example of the active trace, without recording it. Sizes of the trace are the
/// example's numbers meanwhile.
pub(super) fn run_example<T>(program: impl FnOnce() -> T) -> T {
    let trace = active().map(|recorder| recorder.number());
    let _reset = ExampleGuard(RUNS_EXAMPLE_OF.replace(trace));
    suspend(program)
}

/// The suspended trace whose example the program runs for.
pub(super) fn runs_example_of() -> Option<u64> {
    RUNS_EXAMPLE_OF.get()
}

/// A guard that ends the run of an example when dropped.
struct ExampleGuard(Option<u64>);

impl Drop for ExampleGuard {
    fn drop(&mut self) {
        RUNS_EXAMPLE_OF.set(self.0);
    }
}

/// A guard that reactivates the trace when dropped.
struct SuspendGuard(Option<Rc<Recorder>>);

impl Drop for SuspendGuard {
    fn drop(&mut self) {
        ACTIVE.set(self.0.take());
    }
}

/// A guard that ends the trace of this thread when dropped, even by a panic.
struct ActivationGuard;

impl ActivationGuard {
    fn new(recorder: &Rc<Recorder>) -> Result<ActivationGuard> {
        if is_tracing() {
            let error = Error::usage("traces can't be nested: one is active on this thread");
            return Err(error.help("call the inner function directly, or trace it before"));
        }
        ACTIVE.set(Some(recorder.clone()));
        Ok(ActivationGuard)
    }
}

impl Drop for ActivationGuard {
    fn drop(&mut self) {
        ACTIVE.set(None);
    }
}

impl Recorder {
    /// Starts a trace for a graph called `name`. `names` are shared with the other graphs of the module.
    pub fn new(name: &str, names: Rc<RefCell<TraceNames>>) -> Rc<Recorder> {
        let number = NEXT_TRACE.fetch_add(1, Ordering::Relaxed);
        Rc::new(Recorder {
            number,
            scopes: RefCell::new(ScopeStack::new(name)),
            names,
            weights: RefCell::default(),
            call_paths: RefCell::default(),
            calls: RefCell::default(),
            warnings: RefCell::default(),
            allowed: RefCell::default(),
            error: RefCell::default(),
            storage_values: RefCell::default(),
            sequence_starts: RefCell::default(),
        })
    }

    /// Runs a program with this trace active.
    pub fn activate<T>(self: &Rc<Recorder>, program: impl FnOnce() -> Result<T>) -> Result<T> {
        let _active = ActivationGuard::new(self)?;
        let result = program();
        match self.error.borrow_mut().take() {
            Some(error) => {
                let hints = self.hints();
                Err(error.with_message(|message| with_sizes(message, &hints)))
            }
            None => result,
        }
    }

    /// Returns the graph, its weights and the warnings. `inputs` and `output` are the structures of arguments and
    /// result.
    pub fn finish(
        self: Rc<Recorder>,
        outputs: &[ValueId],
        inputs: Vec<NamedTree>,
        output: TreeSpec,
    ) -> Result<RecordedGraph> {
        let still_active = || Error::internal("a trace is still active");
        let mut outputs = outputs.to_vec();
        let mut writes = Vec::new();
        for written in self.storage_values.take().into_values() {
            let Some(name) = self.state_name(&written.storage) else {
                continue;
            };
            outputs.push(self.scopes.borrow_mut().capture(written.value.id)?);
            let tree = TreeSpec::Tensor(outputs.len() - 1);
            writes.push(NamedTree { name, tree });
        }
        let states = writes
            .iter()
            .map(|write| weight_state(&write.name))
            .collect();
        let recorder = Rc::into_inner(self).ok_or_else(still_active)?;
        let builder = recorder.scopes.into_inner().root.builder;
        let builder = Rc::into_inner(builder).ok_or_else(still_active)?;
        builder.set_states(Vec::new(), writes);
        let graph = builder.finish(&outputs, inputs, Some(output))?;
        let sequence_starts = recorder.sequence_starts.into_inner();
        let graph = dce(&carry_rng_counters(graph, &sequence_starts)?)?;
        let read: BTreeSet<&str> = graph.weights().map(|(name, _)| name).collect();
        let mut weights = recorder.weights.into_inner();
        weights.retain(|name, _| read.contains(name.as_str()));
        Ok(RecordedGraph {
            graph,
            parameters: parameters_of(&weights, &recorder.names.borrow()),
            weights,
            warnings: fold_repeated(recorder.warnings.into_inner()),
            states,
        })
    }

    /// Number that identifies the trace.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Builder of the innermost graph, and the number of its scope.
    pub fn innermost(&self) -> (Rc<Builder>, u32) {
        let scopes = self.scopes.borrow();
        let innermost = scopes.innermost();
        (innermost.builder.clone(), innermost.number)
    }

    /// Refers to a value of the innermost graph.
    pub fn value_ref(&self, id: ValueId) -> ValueRef {
        let (_, scope) = self.innermost();
        ValueRef { scope, id }
    }

    /// Takes a snapshot of everything but the graph.
    pub fn snapshot(&self) -> RecorderSnapshot {
        RecorderSnapshot {
            names: self.names.borrow().clone(),
            weights: self.weights.borrow().clone(),
            calls: self.calls.borrow().clone(),
            warnings: self.warnings.borrow().len(),
        }
    }

    /// Restores a snapshot; the program can then be recorded again from there.
    pub fn restore(&self, snapshot: RecorderSnapshot) {
        self.names.replace(snapshot.names);
        self.weights.replace(snapshot.weights);
        self.calls.replace(snapshot.calls);
        self.warnings.borrow_mut().truncate(snapshot.warnings);
    }

    /// Notes that `manual_seed` starts a sequence of random numbers here.
    pub fn begin_sequence(&self, place: &SourcePlace) {
        let scopes = self.scopes.borrow();
        if scopes.depth() > 0 {
            let error = Error::unsupported("random numbers are seeded within a branch or loop");
            self.fail(error.help("call manual_seed outside of it").at_place(place));
        }
        let values = scopes.root.builder.value_count();
        self.sequence_starts.borrow_mut().push(values);
    }

    /// Runs a part of the program for its result only. Drops its nodes, warnings and writes. If it records an error,
    /// returns that.
    pub fn probe<T>(&self, program: impl FnOnce() -> Result<T>) -> Result<T> {
        let warning_count = self.warnings.borrow().len();
        let outer_error = self.error.take();
        let storage_values = self.storage_values.borrow().clone();
        self.scopes.borrow_mut().open();
        let result = program();
        self.scopes.borrow_mut().close()?;
        self.storage_values.replace(storage_values);
        self.warnings.borrow_mut().truncate(warning_count);
        let error = self.error.replace(outer_error);
        error.map_or(result, Err)
    }

    /// Records an error, if it is the first.
    pub fn fail(&self, error: Error) {
        self.error.borrow_mut().get_or_insert(error);
    }

    /// Records a warning unless [`allow`] suppresses it here.
    pub fn warn(&self, id: Id, message: impl Into<String>, place: &SourcePlace) {
        let finding = Finding::new(id, message).at(place);
        let allowed = self.allowed.borrow();
        if !allowed.iter().any(|allow| allow.covers(&finding)) {
            self.warnings.borrow_mut().push(finding);
        }
    }

    /// Path of the innermost module call in progress.
    pub fn module(&self) -> String {
        self.call_paths.borrow().last().cloned().unwrap_or_default()
    }

    /// Starts a call of the module at `path`.
    pub fn enter_module(&self, path: &str) {
        let call = self.calls.borrow_mut().enter(&self.module(), path);
        self.call_paths.borrow_mut().push(call);
    }

    /// Ends the innermost module call.
    pub fn leave_module(&self) {
        self.call_paths.borrow_mut().pop();
    }

    /// Names of weights and modules.
    pub fn names(&self) -> &RefCell<TraceNames> {
        &self.names
    }

    /// The graph under construction and the open region bodies.
    pub fn scopes(&self) -> &RefCell<ScopeStack<()>> {
        &self.scopes
    }

    /// The example's values of all symbolic sizes.
    pub fn hints(&self) -> Bindings {
        self.scopes.borrow().root.builder.symbols().hints()
    }

    /// The arguments with all sizes simplified by [`resolve`](Recorder::resolve), so that [`hints`](Recorder::hints)
    /// binds their symbols.
    pub fn resolve_arguments(&self, arguments: &[Argument]) -> Vec<Argument> {
        let mut size = |size: &Dim| self.resolve(size);
        let arguments = arguments.iter();
        let arguments = arguments.map(|argument| argument.map(&mut |id| id, &mut size));
        arguments.collect()
    }

    /// The example's value of a size. The trace is valid for that value only.
    pub fn freeze(&self, size: &Dim) -> Result<i64> {
        self.scopes.borrow().root.builder.symbols().specialize(size)
    }

    /// A size for the program, of a tensor of this trace.
    pub fn size(&self, size: &Dim) -> Result<Size> {
        let example = self.scopes.borrow().root.builder.symbols().hint(size)?;
        Ok(Size::of_trace(size.clone(), example, self.number))
    }

    /// Answers a question about two sizes. Records the answer as a guard, at the place in the program.
    pub fn compare(
        &self,
        left: &Dim,
        right: &Dim,
        question: fn(&Symbols, &Dim, &Dim) -> Result<bool>,
        place: &SourcePlace,
    ) -> Result<bool> {
        let builder = self.scopes.borrow().root.builder.clone();
        builder.set_place(place);
        question(builder.symbols(), left, right)
    }

    /// Simplifies a size by the known equalities of its symbols.
    pub fn resolve(&self, size: &Dim) -> Dim {
        self.scopes.borrow().root.builder.symbols().resolve(size)
    }

    /// A tensor for a value of the innermost scope.
    pub fn tensor(&self, id: ValueId, example: Tensor) -> TracedTensor {
        let id = self.value_ref(id);
        self.tensor_of(RecordedValue { id, example })
    }

    /// A contiguous tensor for a value of any open scope.
    pub fn tensor_of(&self, value: RecordedValue) -> TracedTensor {
        let mut geometry = Geometries::contiguous(value.example.shape());
        if let Ok(ty) = self.scopes.borrow().type_of(value.id) {
            geometry.symbolic = Some((self.number, GuardedGeometry::contiguous(ty.shape)));
        }
        let origin = TracedOrigin::Recorded(self.number, value.id);
        TracedTensor::of_storage(TracedStorage::new(Ok(value.example), origin, geometry))
    }

    /// Type of a tensor of this trace.
    pub fn type_of(&self, tensor: &TracedTensor) -> Result<TensorType> {
        let view = tensor.storage_view();
        let guarded = view.in_trace(self.number)?.guarded.clone();
        if let (TracedOrigin::Recorded(_, value), None) =
            (&view.storage.origin, self.written(&view.storage))
        {
            self.require_open(*value)?;
        }
        let shape = guarded.resolve(&self.innermost().0).geometry.sizes;
        Ok(TensorType::new(tensor.value()?.dtype(), shape))
    }

    /// Sets the name of a tensor's value in the graph. Ignores tensors that are not values of the trace.
    pub fn set_name(&self, tensor: &TracedTensor, name: &str) {
        let Ok(RecordedValue { id: value, .. }) = self.read(tensor) else {
            return;
        };
        let scopes = self.scopes.borrow();
        if let Some(scope) = scopes.iter().find(|scope| scope.number == value.scope) {
            scope.builder.set_name(value.id, name);
        }
    }

    /// The value of a tensor in the innermost scope, captured from outer scopes if necessary.
    pub fn value_of(&self, tensor: &TracedTensor) -> Result<ValueId> {
        let value = self.read(tensor)?;
        self.scopes.borrow_mut().capture(value.id)
    }

    /// Records a call whose arguments refer to `tensors` by index.
    pub fn call(
        &self,
        operator: &'static Operator,
        arguments: &[Argument],
        tensors: &[TracedTensor],
        place: &SourcePlace,
    ) -> Result<RecordedCall> {
        let (builder, _) = self.innermost();
        builder.set_place(place);
        let ids = tensors.iter().map(|tensor| self.value_of(tensor));
        let ids: Vec<ValueId> = ids.collect::<Result<_>>()?;
        let mut value = |id: ValueId| ids.get(id.index()).copied().unwrap_or(id);
        let mut sizes = Vec::new();
        let mut size = |size: &Dim| {
            let size = builder.symbols().resolve(size);
            sizes.push(size.clone());
            size
        };
        let arguments = arguments.iter();
        let arguments = arguments.map(|argument| argument.map(&mut value, &mut size));
        let arguments: Vec<Argument> = arguments.collect();
        let mut sizes = sizes.iter();
        sizes.try_for_each(|size| self.scopes.borrow_mut().capture_symbols(size))?;
        self.warn_of_iteration(operator, &arguments, &builder);
        let results = add_call(operator, &builder, arguments.clone())?;
        self.warn_of_frozen_arguments(operator, &arguments, &builder);
        let ids = results.into_iter().map(|value| value.id()).collect();
        Ok(RecordedCall {
            operator,
            arguments,
            ids,
        })
    }
}
