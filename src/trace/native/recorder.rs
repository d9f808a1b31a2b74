//! The active trace of a thread: operations become nodes of its graph.

use std::cell::{Cell, RefCell};
use std::iter;
use std::panic::Location as Caller;
use std::rc::Rc;

use crate::aten::Operator;
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Location, Result, SourcePlace};
use crate::ir::{Argument, Builder, Graph, ModuleState, NamedTree, TreeSpec, ValueId, Weights};
use crate::shape::{TensorType, wrap_dim};
use crate::trace::check::{AllowList, Finding, Id};
use crate::trace::module_calls::ModuleCalls;
use crate::trace::rng_counters::carry_rng_counters;
use crate::trace::scope_stack::{ScopeStack, ValueRef};
use crate::trace::weight_states::weight_state;

use super::buffer_values::{BufferValue, BufferValues};
use super::tensor::{TracedOrigin, TracedTensor};
use super::trace_names::TraceNames;

thread_local! {
    static ACTIVE: RefCell<Option<Rc<Recorder>>> = const { RefCell::new(None) };
    /// Number of the next trace.
    static NEXT_TRACE: Cell<u64> = const { Cell::new(1) };
    /// Call sites of the running modules, the innermost last.
    static CALL_SITES: RefCell<Vec<&'static Caller<'static>>> = const { RefCell::new(Vec::new()) };
}

/// Folders in paths of the standard library: as it was built, and as a toolchain with the component `rust-src` names
/// it. A function such as `TracedTensor::relu` that is passed to the standard library is called from a line there.
const STANDARD_LIBRARY: [&str; 3] = ["/rustc/", "/rustlib/src/rust/", "\\rustlib\\src\\rust\\"];

/// The folder of this crate's `trace` module, as it occurs in paths of callers.
fn library_folder() -> &'static str {
    let file = file!();
    let folder = file.len().checked_sub("native/recorder.rs".len());
    folder.and_then(|end| file.get(..end)).unwrap_or(file)
}

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
    /// Identifies the trace among those of its thread.
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
    /// Current values of buffers.
    buffer_values: RefCell<BufferValues>,
    /// Number of the graph's values at each call of `manual_seed`.
    sequence_starts: RefCell<Vec<usize>>,
}

/// A traced entry graph, with the weights that it reads.
pub(super) struct RecordedGraph {
    pub graph: Graph,
    pub weights: Weights,
    pub warnings: Vec<Finding>,
    /// The buffers that the graph writes.
    pub states: Vec<ModuleState>,
}

/// The active trace of this thread.
pub(super) fn active() -> Option<Rc<Recorder>> {
    ACTIVE.with_borrow(Clone::clone)
}

/// True while a trace is active on this thread.
pub fn is_tracing() -> bool {
    active().is_some()
}

/// Records an error in the active trace.
pub(super) fn fail(error: Error) {
    if let Some(recorder) = active() {
        recorder.fail(error);
    }
}

/// The source line of the user's program that called into this library, with the path of the module call in progress.
#[track_caller]
pub(super) fn caller() -> SourcePlace {
    let caller = innermost_user_line(Caller::caller());
    let location = Location::new(caller.file(), caller.line());
    SourcePlace {
        module: active()
            .map(|recorder| recorder.module())
            .unwrap_or_default(),
        location: Some(location),
    }
}

/// The innermost call site in the user's code. Modules of this library report the line that calls them.
fn innermost_user_line(innermost: &'static Caller<'static>) -> &'static Caller<'static> {
    let is_user_line = |line: &&Caller<'_>| {
        let file = line.file();
        let is_standard = STANDARD_LIBRARY.iter().any(|folder| file.contains(folder));
        !is_standard && !file.starts_with(library_folder())
    };
    CALL_SITES.with_borrow(|sites| {
        let mut outwards = iter::once(&innermost).chain(sites.iter().rev()).copied();
        outwards.find(is_user_line).unwrap_or(innermost)
    })
}

/// Pushes the call site of a module; [`pop_call`] removes it.
pub(super) fn push_call(site: &'static Caller<'static>) {
    CALL_SITES.with_borrow_mut(|sites| sites.push(site));
}

/// Pops the call site of the module that returns.
pub(super) fn pop_call() {
    CALL_SITES.with_borrow_mut(Vec::pop);
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
        let number = NEXT_TRACE.get();
        NEXT_TRACE.set(number + 1);
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
            buffer_values: RefCell::default(),
            sequence_starts: RefCell::default(),
        })
    }

    /// Runs a program with this trace active.
    pub fn activate<T>(self: &Rc<Recorder>, program: impl FnOnce() -> Result<T>) -> Result<T> {
        let _active = ActivationGuard::new(self)?;
        let result = program();
        match self.error.borrow_mut().take() {
            Some(error) => Err(error),
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
        for BufferValue { name, value, .. } in self.buffer_values.take().into_values() {
            outputs.push(self.value_of(&value)?);
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
        Ok(RecordedGraph {
            graph: carry_rng_counters(graph, &sequence_starts)?,
            weights: recorder.weights.into_inner(),
            warnings: recorder.warnings.into_inner(),
            states,
        })
    }

    /// Stores a value to a buffer; it outlives the call.
    pub fn store(&self, buffer: &TracedTensor, value: &TracedTensor) -> Result<()> {
        if matches!(buffer.origin(), TracedOrigin::Recorded(..)) {
            let error = Error::usage("only a parameter or buffer can be stored to");
            return Err(error.help("make it a field of the module"));
        }
        let (wanted, found) = (buffer.value()?.tensor_type(), value.ty()?);
        if wanted != found {
            let message = format!("expected a value of type {wanted} for a buffer, got {found}");
            return Err(Error::input(message));
        }
        self.weight(buffer, buffer.origin())?;
        let name = self.names.borrow().weights.get(&buffer.address()).cloned();
        let (name, _) = name.ok_or_else(|| Error::internal("a weight has no name"))?;
        let stored = BufferValue {
            name,
            buffer: buffer.clone(),
            value: self.current(value),
        };
        self.buffer_values.borrow_mut().insert(stored);
        Ok(())
    }

    /// Current values of buffers.
    pub fn buffer_values(&self) -> &RefCell<BufferValues> {
        &self.buffer_values
    }

    /// The current value of a tensor, which may be a buffer that was stored to.
    pub fn current(&self, tensor: &TracedTensor) -> TracedTensor {
        self.buffer_values.borrow().current(tensor)
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

    /// Runs a part of the program for its result only. Drops its nodes and warnings. If it records an error, returns
    /// that.
    pub fn probe<T>(&self, program: impl FnOnce() -> Result<T>) -> Result<T> {
        let warning_count = self.warnings.borrow().len();
        let outer_error = self.error.take();
        self.scopes.borrow_mut().open();
        let result = program();
        self.scopes.borrow_mut().close()?;
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

    /// Simplifies a size by the known equalities of its symbols.
    pub fn resolve(&self, size: &Dim) -> Dim {
        self.scopes.borrow().root.builder.symbols().resolve(size)
    }

    /// A tensor for a value of the innermost scope.
    pub fn tensor(&self, id: ValueId, value: crate::tensor::Tensor) -> TracedTensor {
        let scope = self.scopes.borrow().innermost().number;
        self.tensor_of(ValueRef { scope, id }, value)
    }

    /// A tensor for a value of any open scope.
    pub fn tensor_of(&self, id: ValueRef, value: crate::tensor::Tensor) -> TracedTensor {
        TracedTensor::new(Ok(value), TracedOrigin::Recorded(self.number, id))
    }

    /// Type of a value of this trace.
    pub fn type_of(&self, tensor: &TracedTensor) -> Result<TensorType> {
        let value = self.find_value(tensor)?;
        self.scopes.borrow().type_of(value)
    }

    /// Sets the name of a tensor's value in the graph. Ignores tensors that are not values of the trace.
    pub fn set_name(&self, tensor: &TracedTensor, name: &str) {
        let Ok(value) = self.find_value(tensor) else {
            return;
        };
        let scopes = self.scopes.borrow();
        if let Some(scope) = scopes.iter().find(|scope| scope.number == value.scope) {
            scope.builder.set_name(value.id, name);
        }
    }

    /// The value of a tensor in the innermost scope, captured from outer scopes if necessary.
    pub fn value_of(&self, tensor: &TracedTensor) -> Result<ValueId> {
        let value = self.find_value(tensor)?;
        self.scopes.borrow_mut().capture(value)
    }

    /// The value of a tensor in its own scope. A tensor from outside of the trace becomes a weight.
    fn find_value(&self, tensor: &TracedTensor) -> Result<ValueRef> {
        let tensor = &self.current(tensor);
        match tensor.origin() {
            TracedOrigin::Recorded(number, value) if *number == self.number => {
                self.require_open(*value)
            }
            TracedOrigin::Recorded(..) => Err(Error::usage("a tensor of another trace is used")
                .help("pass it as an input, or make a constant of its value outside of the trace")),
            origin => self.weight(tensor, origin),
        }
    }

    /// Returns the value unless its branch or loop has ended.
    fn require_open(&self, value: ValueRef) -> Result<ValueRef> {
        if self.scopes.borrow().is_open(value) {
            return Ok(value);
        }
        let error = Error::usage("a tensor made inside of a branch or loop is used outside of it");
        Err(error.help("return it from the branch or loop"))
    }

    /// Adds a tensor from outside of the trace as a weight: under a parameter's name, or as a constant with a warning.
    fn weight(&self, tensor: &TracedTensor, origin: &TracedOrigin) -> Result<ValueRef> {
        let value = tensor.value()?;
        let known = self.names.borrow().weights.get(&tensor.address()).cloned();
        let name = match known {
            Some((name, _)) => name,
            None => self.new_constant(tensor, origin)?,
        };
        let ty = value.tensor_type();
        self.weights.borrow_mut().insert(name.clone(), value);
        Ok(self.scopes.borrow().weight(&name, ty))
    }

    /// Names a tensor without a name as a new constant. Warns unless it is a parameter.
    fn new_constant(&self, tensor: &TracedTensor, origin: &TracedOrigin) -> Result<String> {
        let mut names = self.names.borrow_mut();
        let name = names.unique("constant");
        names.insert(name.clone(), tensor);
        let ty = tensor.value()?.tensor_type();
        match origin {
            TracedOrigin::Data(place) => {
                self.warn(
                    Id::DataConstructor,
                    format!("{ty}, made from host data, became the constant {name}"),
                    place,
                );
            }
            TracedOrigin::Parameter => {}
            _ => {
                let place = self.scopes.borrow().innermost().builder.place();
                self.warn(
                    Id::CapturedConstant,
                    format!("{ty}, made outside of the trace, became the constant {name}"),
                    &place,
                );
            }
        }
        Ok(name)
    }

    /// Warns of `unbind` along a symbolic axis, which records one value for each element of the example.
    fn warn_of_iteration(&self, operator: &Operator, arguments: &[Argument], builder: &Builder) {
        let ("unbind", [Argument::Value(x), Argument::Number(dim)]) =
            (operator.schema.name.as_str(), arguments)
        else {
            return;
        };
        let shape = builder.ty(*x).shape;
        let axis = wrap_dim(dim.to_i64(), shape.len());
        let size = axis.ok().and_then(|axis| shape.get(axis));
        if let Some(size) = size.filter(|size| size.as_const().is_none()) {
            let message = format!("the size {size} is fixed to the example's");
            self.warn(Id::DynamicIteration, message, &builder.place());
        }
    }

    /// Records a call whose arguments refer to `tensors` by index.
    pub fn call(
        &self,
        operator: &'static Operator,
        arguments: &[Argument],
        tensors: &[TracedTensor],
        place: &SourcePlace,
    ) -> Result<Vec<ValueId>> {
        let builder = self.scopes.borrow().innermost().builder.clone();
        builder.set_place(place);
        let ids = tensors.iter().map(|tensor| self.value_of(tensor));
        let ids: Vec<ValueId> = ids.collect::<Result<_>>()?;
        let mut value = |id: ValueId| ids.get(id.index()).copied().unwrap_or(id);
        let mut size = |size: &Dim| builder.symbols().resolve(size);
        let arguments = arguments.iter();
        let arguments = arguments.map(|argument| argument.map(&mut value, &mut size));
        let arguments: Vec<Argument> = arguments.collect();
        self.warn_of_iteration(operator, &arguments, &builder);
        let results = operator.call(&builder, arguments)?;
        Ok(results.into_iter().map(|value| value.id()).collect())
    }
}
