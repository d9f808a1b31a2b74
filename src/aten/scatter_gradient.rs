//! Gradients of scatters that reduce: PyTorch's `scatter_reduce_backward` and `index_reduce_backward` in
//! `FunctionsManual.cpp`.

use super::CallGradient;
use super::scatter::{scatter, scatter_reduce};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Value;
use crate::op::ScatterFunction;

/// A call of `scatter_reduce` or `index_reduce`, whose index has the shape of the elements that are scattered.
struct Reduction<'g> {
    x: Value<'g>,
    source: Value<'g>,
    dim: i64,
    index: Value<'g>,
    includes_self: bool,
}

/// Gradients of `self` and of the source, whose parameter has the given name.
pub(super) fn reduction_gradient<'g>(
    call: &CallGradient<'g>,
    source_name: &'static str,
    index: Value<'g>,
) -> Result<Vec<(&'static str, Value<'g>)>> {
    let (a, gradient, result) = (call.args(), call.gradient(0)?, call.result(0)?);
    let (x, whole_source) = (a.tensor("self"), a.tensor(source_name));
    let vector = |value: Value<'g>| match value.rank() {
        0 => value.reshape([Dim::ONE]),
        _ => value,
    };
    let index = vector(index);
    let axes = (0i64..).zip(index.shape());
    let reduction = Reduction {
        x: vector(x),
        source: axes.fold(vector(whole_source), |source, (dim, size)| {
            source.narrow(dim, 0, size)
        }),
        dim: if x.rank() == 0 { 0 } else { a.int("dim") },
        index,
        includes_self: a.bool("include_self"),
    };
    let (gradient, result) = (vector(gradient), vector(result));
    let (of_x, of_source) = match a.str("reduce").as_str() {
        "sum" => (gradient, reduction.gather(gradient)),
        "mean" => reduction.of_mean(gradient)?,
        "prod" => reduction.of_product(gradient, result)?,
        "amax" | "amin" => reduction.of_extreme(gradient, result)?,
        other => return Err(Error::unsupported(format!("reduce = {other:?}"))),
    };
    let of_x = match reduction.includes_self {
        true => of_x,
        false => reduction.fill(of_x, 0.0)?,
    };
    // A source may be larger than its index.
    let rests = vector(whole_source)
        .shape()
        .into_iter()
        .zip(of_source.shape());
    let rests: Vec<Dim> = rests.map(|(whole, used)| whole - used).collect();
    let of_source = of_source.pad(&vec![Dim::ZERO; rests.len()], &rests, 0.0);
    Ok(vec![
        ("self", of_x.reshape(x.shape())),
        (source_name, of_source.reshape(whole_source.shape())),
    ])
}

impl<'g> Reduction<'g> {
    /// For each element of the source, the element of `value` that it is reduced into.
    fn gather(&self, value: Value<'g>) -> Value<'g> {
        value.gather(self.dim, self.index)
    }

    /// The sum of source elements that are reduced into each element, and of `start`.
    fn sum(&self, start: Value<'g>, source: Value<'g>) -> Result<Value<'g>> {
        scatter(start, self.dim, self.index, source, ScatterFunction::Add)
    }

    /// Writes a number into the elements that the index names.
    fn fill(&self, value: Value<'g>, number: f64) -> Result<Value<'g>> {
        let numbers = value
            .builder()
            .full(value.dtype(), self.index.shape(), number);
        scatter(value, self.dim, self.index, numbers, ScatterFunction::Set)
    }

    fn constant(&self, like: Value<'g>, number: f64) -> Value<'g> {
        like.builder().full(self.x.dtype(), like.shape(), number)
    }

    fn of_mean(&self, gradient: Value<'g>) -> Result<(Value<'g>, Value<'g>)> {
        let start = self.constant(self.x, f64::from(u8::from(self.includes_self)));
        let ones = self.constant(self.index, 1.0);
        let share = gradient / self.sum(start, ones)?.maximum(1.0);
        Ok((share, self.gather(share)))
    }

    /// The product of the other factors. It is the result over the factor, unless the factor is zero.
    fn of_product(&self, gradient: Value<'g>, result: Value<'g>) -> Result<(Value<'g>, Value<'g>)> {
        let (x, source) = (self.x, self.source);
        let product =
            |x, source| scatter_reduce(x, self.dim, self.index, source, "prod", self.includes_self);
        let without_zeros = x.eq(0.0).where_(1.0, x);
        let of_x = gradient * product(without_zeros, source)? / without_zeros;
        let is_zero = source.eq(0.0);
        let zeros = self.sum(self.constant(x, 0.0), is_zero.to(x.dtype()))?;
        let is_only_zero = is_zero.logical_and(self.gather(zeros).eq(1.0));
        let others = product(x, is_only_zero.where_(1.0, source))?;
        let quotient = self.gather(gradient * result) / is_zero.where_(1.0, source);
        let of_source = is_only_zero.where_(self.gather(gradient * others), quotient);
        Ok((of_x, of_source))
    }

    /// The elements that equal the result share the gradient. An element of `self` counts even where it is not included.
    fn of_extreme(&self, gradient: Value<'g>, result: Value<'g>) -> Result<(Value<'g>, Value<'g>)> {
        let (x, source) = (self.x, self.source);
        let x_is_result = x.eq(result).to(x.dtype());
        let source_is_result = source.eq(self.gather(result)).to(x.dtype());
        let share = gradient / self.sum(x_is_result, source_is_result)?;
        let of_source = source_is_result * self.gather(share);
        Ok((x_is_result * share, of_source))
    }
}
