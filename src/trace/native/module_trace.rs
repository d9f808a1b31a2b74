//! Traces of a whole network: `trace(&net, inputs)`, as `torch.jit.trace(net, inputs)`.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location as Caller;

use crate::error::{Error, Result};
use crate::ir::TreeSpec;
use crate::trace::check::{CheckOptions, CheckReport, Traced};

use super::call_site;
use super::module::{Forward, Module};
use super::subject::trace_method_checked;
use super::tensor::TracedTensor;
use super::trace_entry::{Method, TraceOptions, trace_module};
use super::tree::Tree;

/// Traces a network: calls it once with the example inputs, and records its operations as the graph `forward`. Its
/// parameters are weights, which are named by the paths of the network's fields.
///
/// The network gets its inputs by reference: it implements `Forward<&TracedTensor>` for a tensor, and
/// `Forward<(&TracedTensor, &TracedTensor)>` for a tuple of two. [`NetworkInputs`] has the form for every structure.
///
/// ```
/// use onionskin::nn::{Linear, ReLU, Sequential};
/// use onionskin::trace::{TracedTensor, trace};
///
/// # fn main() -> onionskin::Result<()> {
/// let mlp = Sequential::new().add(Linear::new(4, 8)).add(ReLU::new()).add(Linear::new(8, 2));
/// let traced = trace(&mlp, TracedTensor::from([[1f32, 2.0, 3.0, 4.0]]))?;
/// assert!(traced.module.weights.contains_key("0.weight"));
/// # Ok(())
/// # }
/// ```
///
/// [`trace_fn`](super::trace_fn) traces a closure, [`trace_module`] several methods of a network.
///
/// # Errors
/// An operation failed; a trace is already active on this thread; inputs or outputs have no order or no elements.
#[track_caller]
pub fn trace<M: Module, I: InputsOf<M>>(module: &M, inputs: I) -> Result<Traced> {
    trace_with(module, inputs, &TraceOptions::default())
}

/// [`trace`] with options.
///
/// # Errors
/// Fails as [`trace`] does.
#[track_caller]
pub fn trace_with<M: Module, I: InputsOf<M>>(
    module: &M,
    inputs: I,
    options: &TraceOptions,
) -> Result<Traced> {
    let _site = CallSiteGuard::new();
    let forward = |module: &M, inputs: I| inputs.call_module(module);
    let method = Method::with("forward", inputs, forward, options.clone());
    trace_module(module, [method])
}

/// [`trace`] with a check of the trace. The check calls the network, runs its graph and traces it again, with the example
/// inputs, those of the options, and others derived from them.
///
/// # Errors
/// The network cannot be traced. The report holds the findings of the check.
#[track_caller]
pub fn trace_checked<M: Module, I: InputsOf<M>>(
    module: &M,
    inputs: I,
    options: &CheckOptions,
) -> Result<(Traced, CheckReport)> {
    let _site = CallSiteGuard::new();
    let forward = |module: &M, inputs: I| inputs.call_module(module);
    trace_method_checked(module, inputs, forward, options)
}

/// Inputs of a network, which it takes by reference. The graph's caller passes them as [`Tree`]s.
///
/// | inputs | what the network takes |
/// |---|---|
/// | a tensor | `&TracedTensor` |
/// | a tuple | a tuple of what it takes for the items |
/// | an option | an option of what it takes for the value |
/// | a list, an array, a map, a struct with `#[derive(Tree)]` | a reference to it |
pub trait NetworkInputs: Tree + 'static {
    /// The borrowed form.
    type Borrowed<'a>;

    /// Borrows the inputs.
    fn borrowed(&self) -> Self::Borrowed<'_>;
}

/// NetworkInputs of the network `M`: it implements [`Forward`] for their borrowed form, and returns a [`Tree`].
pub trait InputsOf<M: ?Sized>: NetworkInputs {
    /// Calls the network.
    fn call_module(&self, module: &M) -> NetworkOutputs;
}

impl<I, M> InputsOf<M> for I
where
    I: NetworkInputs,
    M: for<'a> Forward<I::Borrowed<'a>> + ?Sized,
    for<'a> <M as Forward<I::Borrowed<'a>>>::Output: Tree,
{
    fn call_module(&self, module: &M) -> NetworkOutputs {
        let mut leaves = Vec::new();
        let outputs = module.call(self.borrowed());
        let spec = outputs.flatten("output", &mut leaves);
        NetworkOutputs { spec, leaves }
    }
}

/// The outputs of a network, as a structure and its tensors.
pub struct NetworkOutputs {
    spec: Result<TreeSpec>,
    leaves: Vec<TracedTensor>,
}

impl fmt::Debug for NetworkOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetworkOutputs").field(&self.leaves).finish()
    }
}

/// The outputs are a structure of their own, not a part of another one.
impl Tree for NetworkOutputs {
    fn flatten(&self, path: &str, leaves: &mut Vec<TracedTensor>) -> Result<TreeSpec> {
        if !leaves.is_empty() {
            return Err(Error::internal(format!(
                "{path} has outputs of a network in it"
            )));
        }
        leaves.extend(self.leaves.iter().cloned());
        self.spec.clone()
    }

    fn rebuild(_spec: &TreeSpec, _leaves: &[TracedTensor], path: &str) -> Result<NetworkOutputs> {
        Err(Error::internal(format!(
            "{path} cannot be outputs of a network"
        )))
    }
}

impl NetworkInputs for TracedTensor {
    type Borrowed<'a> = &'a TracedTensor;

    fn borrowed(&self) -> &TracedTensor {
        self
    }
}

impl<I: NetworkInputs> NetworkInputs for Option<I> {
    type Borrowed<'a> = Option<I::Borrowed<'a>>;

    fn borrowed(&self) -> Option<I::Borrowed<'_>> {
        self.as_ref().map(I::borrowed)
    }
}

impl<T: Tree + 'static> NetworkInputs for Vec<T> {
    type Borrowed<'a> = &'a [T];

    fn borrowed(&self) -> &[T] {
        self
    }
}

impl<T: Tree + 'static, const N: usize> NetworkInputs for [T; N] {
    type Borrowed<'a> = &'a [T; N];

    fn borrowed(&self) -> &[T; N] {
        self
    }
}

impl<T: Tree + 'static> NetworkInputs for BTreeMap<String, T> {
    type Borrowed<'a> = &'a BTreeMap<String, T>;

    fn borrowed(&self) -> &BTreeMap<String, T> {
        self
    }
}

/// Implements [`NetworkInputs`] for tuples.
macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: NetworkInputs),+> NetworkInputs for ($($name,)+) {
            type Borrowed<'a> = ($($name::Borrowed<'a>,)+);

            fn borrowed(&self) -> Self::Borrowed<'_> {
                ($(self.$index.borrowed(),)+)
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

/// While this guard lives, modules of this library report the line of the trace.
struct CallSiteGuard;

impl CallSiteGuard {
    #[track_caller]
    fn new() -> CallSiteGuard {
        call_site::push_call(Caller::caller());
        CallSiteGuard
    }
}

impl Drop for CallSiteGuard {
    fn drop(&mut self) {
        call_site::pop_call();
    }
}
