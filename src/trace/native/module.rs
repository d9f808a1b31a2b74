//! Networks as Rust values: what has parameters, and paths for what is called.

use std::any::type_name;

use crate::error::{Error, Result};
use crate::ir::Weights;
use crate::tensor::Tensor as HostTensor;

use super::recorder::{self, Names};
use super::tensor::Tensor;

/// A part of a network: parameters, buffers and other modules in named fields. `#[derive(Module)]` writes it for structs.
pub trait Module {
    /// Shows the fields to a visitor, by [`Visitor::field`], after itself by [`Visitor::module`] if it is called.
    fn visit(&self, visitor: &mut Visitor<'_>);
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

/// What a visitor sees.
enum Seen<'a> {
    Module(Address),
    Tensor(&'a Tensor),
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
    pub fn tensor(&mut self, tensor: &Tensor) {
        (self.see)(&self.path.join("."), Seen::Tensor(tensor));
    }
}

fn walk<M: Module + ?Sized>(module: &M, prefix: &str, see: &mut dyn FnMut(&str, Seen<'_>)) {
    let path = Vec::from_iter((!prefix.is_empty()).then(|| prefix.to_string()));
    module.visit(&mut Visitor { path, see });
}

/// The parameters and buffers of a module with their paths, in the order of the fields. Shared ones appear under each path.
pub fn state<M: Module + ?Sized>(module: &M) -> Vec<(String, Tensor)> {
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
    let state = state(module);
    let known = |name: &String| state.iter().any(|(path, _)| path == name);
    let unexpected = values.keys().filter(|name| !known(name));
    let unexpected = unexpected.map(|name| Error::input(format!("the module has no {name}")));
    let misfits = state
        .iter()
        .filter_map(|(path, tensor)| misfit(path, tensor, values.get(path)));
    if let Some(error) = Error::all(misfits.chain(unexpected).collect()) {
        return Err(error);
    }
    for (path, tensor) in &state {
        if let Some(value) = values.get(path) {
            tensor.set_value(value)?;
        }
    }
    Ok(())
}

fn misfit(path: &str, tensor: &Tensor, value: Option<&HostTensor>) -> Option<Error> {
    let Some(value) = value else {
        return Some(Error::input(format!("there is no value for {path}")));
    };
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
        });
    }
}

/// While it lives, operators are recorded under a module's path.
struct Inside {
    recorded: bool,
}

fn enter<M: Module + ?Sized>(module: &M) -> Inside {
    let recorder = recorder::active();
    if let Some(recorder) = &recorder {
        let path = path_of(module, &mut recorder.names().borrow_mut());
        recorder.enter_module(&path);
    }
    Inside {
        recorded: recorder.is_some(),
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
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

impl Module for Tensor {
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
