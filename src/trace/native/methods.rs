//! The dictionary's operators as methods of [`TracedTensor`] or functions of [`ops`]. `build.rs` generates them from the
//! operators' schemas.
//!
//! Required parameters are arguments in PyTorch's order. Parameters with defaults are set by name in the method's `_with`
//! variant: `x.conv2d_with(&w, kw!(stride = [2, 2]))`, with a type of [`options`] for each method. Overloads that differ only in types are one method, whose argument is
//! anything that converts to [`Arg`]. Other overloads end with PyTorch's name of the overload: `sum()`, `sum_dim([1])`.

use std::borrow::Borrow;

use crate::dtype::DType;
use crate::error::Error;

use super::argument::Arg;
use super::call::{call_operators, failed_at};
use super::call_site;
use super::tensor::TracedTensor;

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// A method or function with the operators that it calls.
#[derive(Debug)]
pub struct Binding {
    /// Name of the method or function: `sum_dim`.
    pub name: &'static str,
    /// True for a method of the operator's first tensor, false for a function of [`ops`].
    pub on_tensor: bool,
    /// Names of its overloads in the IR's text form: `aten.sum.dim_IntList`.
    pub operators: &'static [&'static str],
    /// Number of required arguments, without the tensor of a method.
    pub required: usize,
}

/// All methods and functions of operators.
pub fn bindings() -> &'static [Binding] {
    BINDINGS
}

/// Names the arguments of a `_with` method as in Python: `kw!(stride = [2, 2], bias = &b)`.
///
/// It is short for a closure that sets options: `|options| options.stride([2, 2]).bias(&b)`. The values are evaluated at
/// once, so that `?` may be used in them.
///
/// ```
/// use onionskin::kw;
/// use onionskin::trace::TracedTensor;
///
/// let x = TracedTensor::from_vec([2, 2], vec![1f32, 2.0, 3.0, 4.0]);
/// assert_eq!(x.sum_dim_with(0, kw!(keepdim = true)).rank(), 2);
/// assert_eq!(x.sum_dim_with(0, |options| options.keepdim(true)).rank(), 2);
/// ```
///
/// A name that the operator lacks does not compile:
///
/// ```compile_fail,E0599
/// use onionskin::kw;
/// use onionskin::trace::TracedTensor;
///
/// let x = TracedTensor::from_vec([2, 2], vec![1f32, 2.0, 3.0, 4.0]);
/// let sum = x.sum_dim_with(0, kw!(keepdimm = true));
/// ```
#[macro_export]
macro_rules! kw {
    () => {
        |options| options
    };
    ($($name:ident = $value:expr),+ $(,)?) => {{
        let arguments = ($($crate::trace::Arg::from($value),)+);
        move |options| {
            let ($($name,)+) = arguments;
            options$(.$name($name))+
        }
    }};
}

/// Arguments with the names of their parameters, for parameters with defaults.
type Named = Vec<(&'static str, Arg)>;

/// Calls an operator with any number of results. If the call fails, the only result holds the error.
#[track_caller]
fn many(operators: &[&str], positional: Vec<Arg>, named: Named) -> Vec<TracedTensor> {
    call_operators(operators, positional, named)
}

/// Calls an operator with one result.
#[track_caller]
fn one(operators: &[&str], positional: Vec<Arg>, named: Named) -> TracedTensor {
    let [result] = several(operators, positional, named);
    result
}

/// Calls an operator with `N` results. If the call fails, each result holds the error.
#[track_caller]
fn several<const N: usize>(
    operators: &[&str],
    positional: Vec<Arg>,
    named: Named,
) -> [TracedTensor; N] {
    let results = call_operators(operators, positional, named);
    std::array::from_fn(|index| {
        let result = results.get(index).or(results.first()).cloned();
        result
            .unwrap_or_else(|| TracedTensor::failed(Error::internal("an operator without results")))
    })
}

/// The tensors of a list of known length, such as the results of `unbind` or `chunk`: Python's `q, k, v = x.unbind()`.
///
/// If the call that gave the list failed, or the list has another length, all tensors hold the error.
///
/// ```
/// use onionskin::trace::{TracedTensor, unpack};
///
/// let x = TracedTensor::from([[1f32, 2.0], [3.0, 4.0]]);
/// let [first, second] = unpack(x.unbind());
/// assert_eq!((first + second).to_vec::<f32>().unwrap(), [4.0, 6.0]);
/// let [_, _, third] = unpack(x.unbind());
/// assert_eq!(third.error().unwrap().message(), "expected a list of 3 tensors, got 2");
/// ```
#[must_use]
#[track_caller]
pub fn unpack<const N: usize>(list: Vec<TracedTensor>) -> [TracedTensor; N] {
    let place = call_site::caller();
    list.try_into().unwrap_or_else(|list: Vec<TracedTensor>| {
        let failed = match list.as_slice() {
            [only] if only.error().is_some() => only.clone(),
            list => {
                let message = format!("expected a list of {N} tensors, got {}", list.len());
                failed_at(Error::operator(message), &place)
            }
        };
        std::array::from_fn(|_| failed.clone())
    })
}

/// Calls an operator that returns a tensor and a list of tensors.
#[track_caller]
fn one_and_list(
    operators: &[&str],
    positional: Vec<Arg>,
    named: Named,
) -> (TracedTensor, Vec<TracedTensor>) {
    let mut results = call_operators(operators, positional, named);
    (results.remove(0), results)
}

/// Appends named arguments.
fn also(mut named: Named, more: Named) -> Named {
    named.extend(more);
    named
}

/// An argument for a list of tensors.
fn list_of(tensors: &[impl Borrow<TracedTensor>]) -> Arg {
    let items = tensors.iter().map(|tensor| Arg::from(tensor.borrow()));
    Arg::List(items.collect())
}
