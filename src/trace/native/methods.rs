//! A method of [`TracedTensor`] for every operator of the dictionary, or a function of [`ops`]; `build.rs` writes them from the schemas
//! of the rows.
//!
//! Required parameters are arguments in PyTorch's order. Those with defaults are given by name to the method's `_with` twin:
//! `x.conv2d_with(&w, kw!(stride = [2, 2]))`. Overloads that differ in types only are one method whose argument is
//! anything that becomes an [`Arg`]; others have PyTorch's name of the overload at the end: `sum()`, `sum_dim([1])`.

use std::borrow::Borrow;

use crate::dtype::DType;
use crate::error::{Error, Result};

use super::argument::Arg;
use super::call::call_operators;
use super::recorder;
use super::tensor::TracedTensor;

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// A method of a tensor or a function, and the operators that it calls.
#[derive(Debug)]
pub struct Binding {
    /// `sum_dim`
    pub name: &'static str,
    /// A method of the operator's first tensor; a function of [`ops`] otherwise.
    pub on_tensor: bool,
    /// Names of its overloads in the text form: `aten.sum.dim_IntList`.
    pub operators: &'static [&'static str],
    /// How many arguments it takes beside the tensor that it is a method of.
    pub required: usize,
}

/// All methods and functions of operators.
pub fn bindings() -> &'static [Binding] {
    BINDINGS
}

/// Arguments by name, for the methods that take them: `kw!(stride = [2, 2], bias = &b)`.
#[macro_export]
macro_rules! kw {
    ($($name:ident = $value:expr),* $(,)?) => {
        vec![$((stringify!($name), $crate::trace::Arg::from($value))),*]
    };
}

/// Arguments by name.
type Named<'n> = Vec<(&'n str, Arg)>;

#[track_caller]
fn many(operators: &[&str], positional: Vec<Arg>, named: Named) -> Vec<TracedTensor> {
    call_operators(operators, positional, named)
}

#[track_caller]
fn one(operators: &[&str], positional: Vec<Arg>, named: Named) -> TracedTensor {
    let [result] = several(operators, positional, named);
    result
}

/// A known number of results; each has the error of a call that failed.
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

#[track_caller]
fn one_and_list(
    operators: &[&str],
    positional: Vec<Arg>,
    named: Named,
) -> (TracedTensor, Vec<TracedTensor>) {
    let mut results = call_operators(operators, positional, named);
    (results.remove(0), results)
}

/// Arguments by name, and more of them.
fn also<'n>(mut named: Named<'n>, more: Named<'n>) -> Named<'n> {
    named.extend(more);
    named
}

fn list_of(tensors: &[impl Borrow<TracedTensor>]) -> Arg {
    let items = tensors.iter().map(|tensor| Arg::from(tensor.borrow()));
    Arg::List(items.collect())
}

impl TracedTensor {
    /// Stands for a result from here on, converted to the element type.
    #[track_caller]
    fn write(&mut self, result: TracedTensor) -> &mut TracedTensor {
        *self = self.written(result).unwrap_or_else(|error| {
            let error = error.at_place(&recorder::caller());
            recorder::fail(error.clone());
            TracedTensor::failed(error)
        });
        self
    }

    #[track_caller]
    fn written(&self, result: TracedTensor) -> Result<TracedTensor> {
        let (own, new) = (self.ty()?, result.ty()?);
        if new.dtype.category() > own.dtype.category() {
            return Err(Error::operator(format!("{new} can't be written to {own}")));
        }
        if self.value()?.shape() != result.value()?.shape() {
            return Err(Error::operator(format!(
                "{new} is written to {own} of another shape"
            )));
        }
        let result = if new.dtype == own.dtype {
            result
        } else {
            result.to(own.dtype)
        };
        Ok(if new.shape == own.shape {
            result
        } else {
            result.expand(own.shape)
        })
    }
}
