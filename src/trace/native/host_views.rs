//! Reads and writes of views of host tensors.

use crate::error::{Error, Result};
use crate::interp;
use crate::ir::{ValueId, Weights};
use crate::tensor::Tensor;
use crate::trace::scope_stack::ScopeStack;
use crate::trace::views::{View, write_through};

/// The elements that a view of `base` shows.
pub(super) fn read_view(view: &View, base: &Tensor) -> Result<Tensor> {
    compute(&[base], |scopes, inputs| {
        let base = inputs.first().copied().unwrap_or(ValueId(0));
        let mut steps = view.steps.iter();
        steps.try_fold(base, |value, step| step.replay(scopes, value))
    })
}

/// The value of a storage after a write of `value` to a view of it; `base` is the storage's value before.
pub(super) fn write_view(view: &View, base: &Tensor, value: &Tensor) -> Result<Tensor> {
    compute(&[base, value], |scopes, inputs| match inputs {
        [base, value] => write_through(scopes, view, *base, *value),
        _ => Err(Error::internal("a write has two operands")),
    })
}

/// Builds a graph of these inputs, and returns its output.
fn compute(
    inputs: &[&Tensor],
    build: impl FnOnce(&mut ScopeStack<()>, &[ValueId]) -> Result<ValueId>,
) -> Result<Tensor> {
    let mut scopes = ScopeStack::new("view");
    let declared = inputs
        .iter()
        .map(|tensor| scopes.input("x", tensor.tensor_type()).id);
    let declared: Vec<ValueId> = declared.collect();
    let output = build(&mut scopes, &declared)?;
    let builder = std::rc::Rc::into_inner(scopes.root.builder);
    let builder = builder.ok_or_else(|| Error::internal("a builder is still in use"))?;
    let graph = builder.finish(&[output], Vec::new(), None)?;
    let inputs: Vec<Tensor> = inputs.iter().map(|tensor| (*tensor).clone()).collect();
    let results = interp::run(&graph, &Weights::new(), &inputs)?;
    results
        .into_iter()
        .next()
        .ok_or_else(|| Error::internal("a graph has no output"))
}
