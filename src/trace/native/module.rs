//! Modules: Rust values with parameters, and the module paths of calls.

use std::any::type_name;
use std::fmt;
use std::panic::Location as Caller;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::dtype::DType;
use crate::error::{Error, Result};

use super::call_site;
use super::recorder;
use super::tensor::TracedTensor;
use super::trace_names::TraceNames;

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
///
/// `#[derive(Clone)]` beside it makes a module that can be copied: the copy has parameters of its own, as `copy.deepcopy`
/// makes it in PyTorch. An `Arc` of a module shares them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module, parameter or setting",
    note = "`#[module(skip)]` leaves out a field that holds no parameters"
)]
pub trait Module {
    /// Visits the module itself by [`Visitor::module`] if it can be called, then its fields by [`Visitor::field`].
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Sets training mode for the module and all modules in it. Modules such as dropout behave differently then.
    fn train(&self) {
        set_training(self, true);
    }

    /// Sets evaluation mode for the module and all modules in it. New modules are in evaluation mode, unlike PyTorch's.
    fn eval(&self) {
        set_training(self, false);
    }

    /// Converts the floating-point parameters and buffers of the module to an element type. Others keep theirs.
    ///
    /// # Errors
    /// The element type is no floating-point type.
    fn to(&self, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            let message =
                format!("a module has floating-point parameters, which cannot be {dtype}");
            return Err(Error::usage(message).help("convert single tensors by their method `to`"));
        }
        convert(self, dtype);
        Ok(())
    }

    /// Converts the floating-point parameters and buffers of the module to `f16`.
    fn half(&self) {
        convert(self, DType::F16);
    }

    /// Converts the floating-point parameters and buffers of the module to `bf16`.
    fn bfloat16(&self) {
        convert(self, DType::BF16);
    }

    /// Converts the floating-point parameters and buffers of the module to `f32`.
    fn float(&self) {
        convert(self, DType::F32);
    }

    /// Converts the floating-point parameters and buffers of the module to `f64`.
    fn double(&self) {
        convert(self, DType::F64);
    }
}

/// The training flag of a module, a field of modules that behave differently in training mode: see [`Module::train`].
#[derive(Debug, Default)]
pub struct Training(AtomicBool);

impl Clone for Training {
    fn clone(&self) -> Training {
        Training(AtomicBool::new(self.is_on()))
    }
}

impl Training {
    /// True in training mode.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn set_training<M: Module + ?Sized>(module: &M, on: bool) {
    walk(module, "", &mut |_, visited| {
        if let Visited::Training(training) = visited {
            training.0.store(on, Ordering::Relaxed);
        }
    });
}

/// Converts the floating-point parameters and buffers of a module. One that holds an error keeps it.
fn convert<M: Module + ?Sized>(module: &M, dtype: DType) {
    walk(module, "", &mut |_, visited| {
        let (Visited::Parameter(tensor) | Visited::Buffer(tensor)) = visited else {
            return;
        };
        let value = tensor.value().ok().filter(|value| value.dtype().is_float());
        if let Some(Ok(converted)) = value.map(|value| value.cast(dtype)) {
            tensor.replace_contents(converted);
        }
    });
}

impl Module for Training {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (visitor.on_visit)(&visitor.path.join("."), Visited::Training(self));
    }
}

/// A module that can be called. It may implement this trait for several input types.
pub trait Forward<Input>: Module {
    /// The result.
    type Output;

    /// Computes the result by operators and calls of other modules.
    fn forward(&self, input: Input) -> Self::Output;

    /// Calls the module: [`forward`](Forward::forward), under the module's path in a trace.
    #[track_caller]
    fn call(&self, input: Input) -> Self::Output {
        let _guard = enter_module(self);
        self.forward(input)
    }
}

/// Identifies a module while it is not moved: its address and type name, since a struct and its first field have one
/// address.
pub(super) type ModuleAddress = (usize, &'static str);

/// The address of a module.
pub(super) fn address<M: ?Sized>(module: &M) -> ModuleAddress {
    (
        std::ptr::from_ref(module).cast::<()>().addr(),
        type_name::<M>(),
    )
}

/// The sizes of a tensor with the example's numbers; none of a tensor that holds an error.
pub(in crate::trace) fn example_sizes(tensor: &TracedTensor) -> Option<Vec<usize>> {
    let value = tensor.value().ok()?;
    Some(value.shape().to_vec())
}

/// Walks through a module and its fields.
pub struct Visitor<'v> {
    /// Names of the fields from the outermost module to the current one.
    path: Vec<String>,
    /// Takes the path and the object of each report.
    on_visit: &'v mut dyn FnMut(&str, Visited<'_>),
}

impl fmt::Debug for Visitor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// An object that a visitor reports.
pub(super) enum Visited<'a> {
    /// A module that can be called.
    Module(ModuleAddress),
    /// A parameter.
    Parameter(&'a TracedTensor),
    /// A buffer.
    Buffer(&'a TracedTensor),
    /// The training flag of a module.
    Training(&'a Training),
}

impl Visitor<'_> {
    /// Visits a field.
    pub fn field<M: Module + ?Sized>(&mut self, name: &str, field: &M) {
        self.path.push(name.to_string());
        field.visit(self);
        self.path.pop();
    }

    /// Reports the visited module, whose calls are then recorded under its path.
    pub fn module<M: ?Sized>(&mut self, module: &M) {
        (self.on_visit)(&self.path.join("."), Visited::Module(address(module)));
    }

    /// Reports a parameter.
    pub fn parameter(&mut self, tensor: &TracedTensor) {
        (self.on_visit)(&self.path.join("."), Visited::Parameter(tensor));
    }

    /// Reports a buffer.
    pub fn buffer(&mut self, tensor: &TracedTensor) {
        (self.on_visit)(&self.path.join("."), Visited::Buffer(tensor));
    }
}

/// Visits a module and its fields. Their paths begin with `prefix`, unless it is empty.
pub(super) fn walk<M: Module + ?Sized>(
    module: &M,
    prefix: &str,
    on_visit: &mut dyn FnMut(&str, Visited<'_>),
) {
    let path = Vec::from_iter((!prefix.is_empty()).then(|| prefix.to_string()));
    module.visit(&mut Visitor { path, on_visit });
}

impl TraceNames {
    /// Names all parameters and modules within a module by their paths, which begin with `prefix`.
    pub fn register<M: Module + ?Sized>(&mut self, module: &M, prefix: &str) {
        walk(module, prefix, &mut |path, visited| match visited {
            Visited::Module(address) => {
                self.modules
                    .entry(address)
                    .or_insert_with(|| path.to_string());
            }
            Visited::Parameter(tensor) => {
                let view = tensor.storage_view();
                if view.is_whole() {
                    self.insert_parameter(path.to_string(), &view.storage);
                }
            }
            Visited::Buffer(tensor) => {
                let view = tensor.storage_view();
                if view.is_whole() {
                    self.insert(path.to_string(), &view.storage);
                }
            }
            Visited::Training(_) => {}
        });
    }
}

/// While this guard lives, operators are recorded under a module's path and the line of its call.
struct ModuleCallGuard {
    /// True if the call began while a trace was active.
    is_recorded: bool,
}

/// Starts a call of a module.
#[track_caller]
fn enter_module<M: Module + ?Sized>(module: &M) -> ModuleCallGuard {
    let recorder = recorder::active();
    if let Some(recorder) = &recorder {
        let path = module_path(module, &mut recorder.names().borrow_mut());
        recorder.enter_module(&path);
    }
    call_site::push_call(Caller::caller());
    ModuleCallGuard {
        is_recorded: recorder.is_some(),
    }
}

impl Drop for ModuleCallGuard {
    fn drop(&mut self) {
        call_site::pop_call();
        if let Some(recorder) = recorder::active().filter(|_| self.is_recorded) {
            recorder.leave_module();
        }
    }
}

/// The path of a module. A module that is not part of the traced module is named after its type.
fn module_path<M: Module + ?Sized>(module: &M, names: &mut TraceNames) -> String {
    let address = address(module);
    if let Some(path) = names.modules.get(&address) {
        return path.clone();
    }
    let path = names.unique(&short_name(address.1));
    names.used.insert(path.clone());
    names.register(module, &path);
    names.modules.insert(address, path.clone());
    path
}

/// The name of a type in lower case, without its path and parameters: `batchnorm2d` for `onionskin::nn::BatchNorm2d`.
fn short_name(type_name: &str) -> String {
    let without_parameters = type_name.split('<').next().unwrap_or_default();
    without_parameters
        .rsplit("::")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}
