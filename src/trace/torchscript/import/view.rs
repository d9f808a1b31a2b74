//! Writes through views: the value below a view after the view's elements were replaced.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Argument, Builder, Value, ValueId};
use crate::op::ScatterFunction;
use crate::shape::{Shape, wrap_dim};

use super::tensor::{View, ViewOperator, replay_view};

/// What `below` becomes when the elements that `view` shows of it are replaced by `value`.
pub fn put_back(builder: &Builder, view: &View, below: ValueId, value: ValueId) -> Result<ValueId> {
    let (old, new) = (builder.value(below), builder.value(value));
    let special = match &view.operator {
        ViewOperator::Reshape(_) => Some(new.reshape(old.shape())),
        ViewOperator::Call(operator, arguments) => {
            put_special(operator.schema.name.as_str(), arguments, old, new)
        }
    };
    let result = match special {
        Some(result) => result,
        None => put_anywhere(builder, view, old, new)?,
    };
    builder.check()?;
    Ok(result.id())
}

/// Views for which there is a shorter way than the general one.
fn put_special<'g>(
    name: &str,
    arguments: &[Argument],
    old: Value<'g>,
    new: Value<'g>,
) -> Option<Value<'g>> {
    match name {
        "select" => {
            let (dim, index) = (int(arguments, 1)?, size(arguments, 2)?);
            let start = from_end(old, dim, index)?;
            put_slice(old, new.unsqueeze(axis_of(old, dim)?), dim, start)
        }
        "slice" => {
            let dim = int(arguments, 1)?;
            if int(arguments, 4) != Some(1) {
                return None;
            }
            let start = size(arguments, 2).unwrap_or(Dim::ZERO);
            put_slice(old, new, dim, from_end(old, dim, start)?)
        }
        "narrow" => {
            let (dim, start) = (int(arguments, 1)?, size(arguments, 2)?);
            put_slice(old, new, dim, from_end(old, dim, start)?)
        }
        "transpose" | "swapaxes" | "swapdims" => {
            Some(new.transpose(int(arguments, 1)?, int(arguments, 2)?))
        }
        "t" | "numpy_T" if old.rank() < 3 => match old.rank() {
            2 => Some(new.transpose(0, 1)),
            _ => Some(new),
        },
        "mT" | "adjoint" => Some(new.transpose(-1, -2)),
        "permute" => {
            let Argument::List(axes) = arguments.get(1)? else {
                return None;
            };
            let axes = axes.iter().map(|axis| match axis {
                Argument::Number(axis) => wrap_dim(axis.to_i64(), old.rank()).ok(),
                _ => None,
            });
            let axes: Vec<usize> = axes.collect::<Option<_>>()?;
            let back = (0..axes.len()).map(|axis| axes.iter().position(|a| *a == axis));
            Some(new.permute(back.collect::<Option<Vec<usize>>>()?))
        }
        _ => None,
    }
}

fn int(arguments: &[Argument], index: usize) -> Option<i64> {
    match arguments.get(index)? {
        Argument::Number(number) => Some(number.to_i64()),
        _ => None,
    }
}

fn size(arguments: &[Argument], index: usize) -> Option<Dim> {
    match arguments.get(index)? {
        Argument::Number(number) => Some(Dim::from(number.to_i64())),
        Argument::Size(dim) => Some(dim.clone()),
        _ => None,
    }
}

fn axis_of(value: Value<'_>, dim: i64) -> Option<i64> {
    let axis = wrap_dim(dim, value.rank()).ok()?;
    i64::try_from(axis).ok()
}

/// A start that counts from the end if it is negative, and is never beyond the end.
fn from_end(old: Value<'_>, dim: i64, start: Dim) -> Option<Dim> {
    let symbols = old.builder().symbols();
    let length = old.size(dim);
    if symbols.less_equal(&Dim::ZERO, &start).ok()? {
        let within = symbols.less_equal(&start, &length).ok()?;
        return Some(if within { start } else { length });
    }
    let start = &start + &length;
    let positive = symbols.less_equal(&Dim::ZERO, &start).ok()?;
    Some(if positive { start } else { Dim::ZERO })
}

/// What lies in front, the new part, and what lies behind, joined.
fn put_slice<'g>(old: Value<'g>, new: Value<'g>, dim: i64, start: Dim) -> Option<Value<'g>> {
    let builder = old.builder();
    let length = old.size(dim);
    let part = new.size(dim);
    let end = &start + &part;
    let behind = &length - &end;
    let mut parts = Vec::new();
    if !builder.symbols().resolve(&start).is(0) {
        parts.push(old.narrow(dim, Dim::ZERO, start));
    }
    parts.push(new);
    if !builder.symbols().resolve(&behind).is(0) {
        parts.push(old.narrow(dim, end, behind));
    }
    Some(builder.concat(&parts, dim))
}

/// The rule for every view: the view of the positions of all elements says where the new ones belong.
fn put_anywhere<'g>(
    builder: &'g Builder,
    view: &View,
    old: Value<'g>,
    new: Value<'g>,
) -> Result<Value<'g>> {
    let shape: Shape = old.shape();
    let flat = vec![old.numel()];
    let positions = builder
        .iota(DType::I64, flat.clone(), 0)
        .reshape(shape.clone());
    builder.check()?;
    let seen = builder.value(replay_view(builder, view, positions.id())?);
    let count = vec![seen.numel()];
    let changed = old.reshape(flat).scatter(
        0,
        seen.reshape(count.clone()),
        new.reshape(count),
        ScatterFunction::Set,
    );
    Ok(changed.reshape(shape))
}
