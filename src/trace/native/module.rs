//! Networks as Rust values: what has parameters, and paths for what is called.

use std::any::type_name;
use std::cell::RefCell;
use std::fmt;
use std::panic::Location as Caller;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::ir::Weights;
use crate::tensor::Tensor;

use super::names::Names;
use super::recorder;
use super::tensor::TracedTensor;

/// A part of a network: parameters, buffers and other modules in named fields. `#[derive(Module)]` writes it for structs.
///
/// ```
/// use onionskin::nn::{Linear, ReLU};
/// use onionskin::trace::{Forward, Module, TracedTensor};
///
/// #[derive(Module)]
/// struct Mlp {
///     hidden: Linear,
///     relu: ReLU,
///     out: Linear,
///     #[module(skip)]
///     labels: Vec<&'static str>,
/// }
///
/// impl Forward<&TracedTensor> for Mlp {
///     type Output = TracedTensor;
///
///     fn forward(&self, x: &TracedTensor) -> TracedTensor {
///         self.out.call(self.relu.call(self.hidden.call(x)))
///     }
/// }
/// ```
///
/// A field that is neither a module, a parameter nor a setting has to be skipped:
///
/// ```compile_fail,E0277
/// #[derive(onionskin::trace::Module)]
/// struct Net {
///     log: std::fs::File,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module, parameter or setting",
    note = "`#[module(skip)]` leaves out a field that holds no parameters"
)]
pub trait Module {
    /// Shows the fields to a visitor, by [`Visitor::field`], after itself by [`Visitor::module`] if it is called.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Everything in it that behaves differently while it is trained, such as dropout, does so from now on.
    fn train(&self) {
        set_training(self, true);
    }

    /// Everything in it behaves as it does when it is used, not trained; so do new modules, unlike PyTorch's.
    fn eval(&self) {
        set_training(self, false);
    }
}

/// The field of a module that behaves differently while it is trained: see [`Module::train`].
#[derive(Debug, Default)]
pub struct Training(AtomicBool);

impl Training {
    /// True while the module is trained.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn set_training<M: Module + ?Sized>(module: &M, on: bool) {
    walk(module, "", &mut |_, seen| {
        if let Seen::Training(training) = seen {
            training.0.store(on, Ordering::Relaxed);
        }
    });
}

impl Module for Training {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (visitor.see)(&visitor.path.join("."), Seen::Training(self));
    }
}

thread_local! {
    /// Values that buffers had before calls that are to leave no traces, the first ones first.
    static BEFORE: RefCell<Option<Vec<(TracedTensor, Tensor)>>> = const { RefCell::new(None) };
}

/// Gives a buffer another value of its type.
pub(super) fn store(buffer: &TracedTensor, value: &Tensor) -> Result<()> {
    let before = buffer.value()?;
    let (wanted, found) = (before.tensor_type(), value.tensor_type());
    if wanted != found {
        let message = format!("a buffer of {wanted} is to keep {found}");
        return Err(Error::input(message));
    }
    BEFORE.with_borrow_mut(|known| {
        if let Some(known) = known {
            known.push((buffer.clone(), before));
        }
    });
    buffer.set_value(value)
}

/// Runs a part of the program; what it stored in buffers is taken back.
pub(super) fn without_effects<T>(part: impl FnOnce() -> T) -> T {
    let outer = BEFORE.replace(Some(Vec::new()));
    let result = part();
    for (buffer, value) in BEFORE.replace(outer).into_iter().flatten().rev() {
        // The value is the buffer's own.
        let _ = buffer.set_value(&value);
    }
    result
}

/// A module that computes something. A module may do so for several kinds of input.
pub trait Forward<Input>: Module {
    /// The result.
    type Output;

    /// What the module computes, in terms of operators and calls of other modules.
    fn forward(&self, input: Input) -> Self::Output;

    /// Calls the module: [`forward`](Forward::forward), under the module's path in a trace.
    #[track_caller]
    fn call(&self, input: Input) -> Self::Output {
        let _inside = enter(self);
        self.forward(input)
    }
}

/// What tells a module from others while it is not moved: where it is, and its type, since a struct begins where its first
/// field does.
pub(super) type Address = (usize, &'static str);

pub(super) fn address<M: ?Sized>(module: &M) -> Address {
    (
        std::ptr::from_ref(module).cast::<()>().addr(),
        type_name::<M>(),
    )
}

/// Walks through a module and what is in it.
pub struct Visitor<'v> {
    path: Vec<String>,
    see: &'v mut dyn FnMut(&str, Seen<'_>),
}

impl fmt::Debug for Visitor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What a visitor sees.
enum Seen<'a> {
    Module(Address),
    Tensor(&'a TracedTensor),
    Training(&'a Training),
}

impl Visitor<'_> {
    /// Visits a field.
    pub fn field<M: Module + ?Sized>(&mut self, name: &str, field: &M) {
        self.path.push(name.to_string());
        field.visit(self);
        self.path.pop();
    }

    /// Notes the module that is being visited, so that its calls get its path.
    pub fn module<M: ?Sized>(&mut self, module: &M) {
        (self.see)(&self.path.join("."), Seen::Module(address(module)));
    }

    /// Notes a parameter or buffer.
    pub fn tensor(&mut self, tensor: &TracedTensor) {
        (self.see)(&self.path.join("."), Seen::Tensor(tensor));
    }
}

fn walk<M: Module + ?Sized>(module: &M, prefix: &str, see: &mut dyn FnMut(&str, Seen<'_>)) {
    let path = Vec::from_iter((!prefix.is_empty()).then(|| prefix.to_string()));
    module.visit(&mut Visitor { path, see });
}

/// The parameters and buffers of a module with their paths, in the order of the fields. Shared ones appear under each path.
pub fn state<M: Module + ?Sized>(module: &M) -> Vec<(String, TracedTensor)> {
    let mut found = Vec::new();
    walk(module, "", &mut |path, seen| {
        if let Seen::Tensor(tensor) = seen {
            found.push((path.to_string(), tensor.clone()));
        }
    });
    found
}

/// Gives parameters and buffers the values of the same paths, as `load_state_dict` of PyTorch does; element types stay those of
/// the module.
///
/// # Errors
/// All that does not fit, at once: paths without a value, values without a path, other shapes. Nothing is loaded then.
pub fn load_state_dict<M: Module + ?Sized>(module: &M, values: &Weights) -> Result<()> {
    load(module, values, |unmatched| {
        let missing = unmatched.missing.iter();
        let missing = missing.map(|path| Error::input(format!("there is no value for {path}")));
        let unexpected = unmatched.unexpected.iter();
        let unexpected = unexpected.map(|path| Error::input(format!("the module has no {path}")));
        missing.chain(unexpected).collect()
    })
    .map(drop)
}

/// [`load_state_dict`] for what the module and the values have in common: `strict=False` of PyTorch.
///
/// # Errors
/// Values of other shapes than the parameters of the same paths. Nothing is loaded then.
pub fn load_matching<M: Module + ?Sized>(module: &M, values: &Weights) -> Result<Unmatched> {
    load(module, values, |_| Vec::new())
}

/// What [`load_matching`] left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Paths of the module without a value, in the order of the fields.
    pub missing: Vec<String>,
    /// Values that the module has no parameter or buffer for, in alphabetical order.
    pub unexpected: Vec<String>,
}

fn load<M: Module + ?Sized>(
    module: &M,
    values: &Weights,
    faults: impl Fn(&Unmatched) -> Vec<Error>,
) -> Result<Unmatched> {
    let state = state(module);
    let missing = state.iter().map(|(path, _)| path);
    let missing = missing.filter(|path| !values.contains_key(*path));
    let known = |name: &String| state.iter().any(|(path, _)| path == name);
    let unmatched = Unmatched {
        missing: missing.cloned().collect(),
        unexpected: values.keys().filter(|name| !known(name)).cloned().collect(),
    };
    let misfits = state
        .iter()
        .filter_map(|(path, tensor)| misfit(path, tensor, values.get(path)?));
    let misfits = misfits.chain(faults(&unmatched));
    if let Some(error) = Error::all(misfits.collect()) {
        return Err(error);
    }
    for (path, tensor) in &state {
        if let Some(value) = values.get(path) {
            tensor.set_value(value)?;
        }
    }
    Ok(unmatched)
}

fn misfit(path: &str, tensor: &TracedTensor, value: &Tensor) -> Option<Error> {
    let wanted = tensor.value().ok()?;
    let message = format!(
        "{path} is of shape {:?}, its value of {:?}",
        wanted.shape(),
        value.shape()
    );
    (wanted.shape() != value.shape()).then(|| Error::input(message))
}

impl Names {
    /// Names all parameters and modules within a module.
    pub fn register<M: Module + ?Sized>(&mut self, module: &M, prefix: &str) {
        walk(module, prefix, &mut |path, seen| match seen {
            Seen::Module(address) => {
                self.modules
                    .entry(address)
                    .or_insert_with(|| path.to_string());
            }
            Seen::Tensor(tensor) => self.insert(path.to_string(), tensor),
            Seen::Training(_) => {}
        });
    }
}

/// While it lives, operators are recorded under a module's path, and the line of its call is known.
struct Inside {
    recorded: bool,
}

#[track_caller]
fn enter<M: Module + ?Sized>(module: &M) -> Inside {
    let recorder = recorder::active();
    if let Some(recorder) = &recorder {
        let path = path_of(module, &mut recorder.names().borrow_mut());
        recorder.enter_module(&path);
    }
    recorder::call_at(Caller::caller());
    Inside {
        recorded: recorder.is_some(),
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        recorder::return_from();
        if let Some(recorder) = recorder::active().filter(|_| self.recorded) {
            recorder.leave_module();
        }
    }
}

/// The path of a module. One that is not part of the module that is traced is named after its type.
fn path_of<M: Module + ?Sized>(module: &M, names: &mut Names) -> String {
    let address = address(module);
    if let Some(path) = names.modules.get(&address) {
        return path.clone();
    }
    let path = names.unique(&short_name(address.1));
    names.taken.insert(path.clone());
    names.register(module, &path);
    names.modules.insert(address, path.clone());
    path
}

/// `onionskin::nn::BatchNorm2d` as `batchnorm2d`.
fn short_name(type_name: &str) -> String {
    let plain = type_name.split('<').next().unwrap_or_default();
    plain.rsplit("::").next().unwrap_or_default().to_lowercase()
}

impl Module for TracedTensor {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.tensor(self);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(module) = self {
            module.visit(visitor);
        }
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<M: Module + ?Sized> Module for &M {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<M: Module> Module for [M] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, module) in self.iter().enumerate() {
            visitor.field(&index.to_string(), module);
        }
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

macro_rules! settings {
    ($($type:ty),*) => {$(
        /// A setting, which holds no parameters.
        impl Module for $type {
            fn visit(&self, _visitor: &mut Visitor<'_>) {}
        }
    )*};
}

settings!(
    bool,
    i32,
    i64,
    usize,
    f32,
    f64,
    String,
    &'static str,
    crate::dtype::DType
);
