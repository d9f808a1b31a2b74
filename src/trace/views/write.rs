//! Writes through views: the value of a storage after the elements that a view shows were replaced.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::geometry::Assumptions;
use crate::ir::{Builder, Value, ValueId};
use crate::op::{Primitive, ScatterFunction, Slice};
use crate::shape::Shape;
use crate::trace::scope_stack::ScopeStack;

use super::View;
use super::step::apply_primitives;

/// Returns the storage's value after a write of `value` to a view of it; `base` is the storage's value before. All are values
/// of the innermost graph.
pub fn write_through<L: Default>(
    scopes: &mut ScopeStack<L>,
    view: &View,
    base: ValueId,
    value: ValueId,
) -> Result<ValueId> {
    let steps = view.steps.iter().map(|step| step.primitives().cloned());
    let steps: Option<Vec<_>> = steps.collect();
    let steps: Option<Vec<_>> = steps.map(|steps| steps.into_iter().flatten().collect());
    match steps {
        Some(steps) if steps.iter().all(|(primitive, _)| is_one_to_one(primitive)) => {
            write_through_steps(&scopes.innermost().builder, &steps, base, value)
        }
        _ => write_at_positions(scopes, view, base, value),
    }
}

/// Writes through any view. The view is applied to the positions of all elements of the storage, which gives the
/// position in the storage for each element of `value`.
fn write_at_positions<L: Default>(
    scopes: &mut ScopeStack<L>,
    view: &View,
    base: ValueId,
    value: ValueId,
) -> Result<ValueId> {
    let builder = scopes.innermost().builder.clone();
    let mut positions = positions_of(builder.value(base)).id();
    builder.check()?;
    for step in &view.steps {
        positions = step.replay(scopes, positions)?;
    }
    let (old, new) = (builder.value(base), builder.value(value));
    let positions = builder.value(positions);
    let assumptions = Assumptions::new(builder.symbols(), &view.guarded.assumed);
    let overlaps = view.guarded.geometry.may_overlap(&assumptions)?;
    builder.symbols().assume(&assumptions.into_guards())?;
    let changed = match overlaps {
        true => replace_changed_elements(old, positions, new),
        false => replace_elements(old, positions, new),
    };
    builder.check()?;
    Ok(changed.id())
}

/// True if each element of the primitive's operand occurs in the result at most once.
fn is_one_to_one(primitive: &Primitive) -> bool {
    matches!(
        primitive,
        Primitive::Reshape(_) | Primitive::Permute(_) | Primitive::Slice(_)
    )
}

/// Writes `value` through steps. From `base` on, each step gives the operand of the next. Then the steps are inverted,
/// the last one first.
fn write_through_steps(
    builder: &Builder,
    steps: &[(Primitive, Shape)],
    base: ValueId,
    value: ValueId,
) -> Result<ValueId> {
    let mut operands = vec![base];
    for step in steps {
        let last = operands.last().copied().unwrap_or(base);
        operands.push(apply_primitives(builder, std::slice::from_ref(step), last)?);
    }
    let mut new = builder.value(value);
    for (step, old) in steps.iter().zip(operands).rev() {
        new = invert_step(step, builder.value(old), new)?;
        builder.check()?;
    }
    Ok(new.id())
}

/// Returns the operand of a step after a write of `new` to the step's result; `old` is the operand before it.
fn invert_step<'g>(step: &(Primitive, Shape), old: Value<'g>, new: Value<'g>) -> Result<Value<'g>> {
    Ok(match &step.0 {
        Primitive::Reshape(_) => new.reshape(old.shape()),
        Primitive::Permute(permute) => new.permute(permute.inverse()),
        Primitive::Slice(slice) if slice.step == 1 => replace_slice(slice, old, new),
        _ => {
            let builder = old.builder();
            let positions =
                apply_primitives(builder, std::slice::from_ref(step), positions_of(old).id())?;
            replace_elements(old, builder.value(positions), new)
        }
    })
}

/// Concatenates the part before the slice, the new part, and the part after the slice.
fn replace_slice<'g>(slice: &Slice, old: Value<'g>, new: Value<'g>) -> Value<'g> {
    let builder = old.builder();
    let axis = slice.axis as i64;
    let end = &slice.start + &slice.length;
    let behind = &old.size(axis) - &end;
    let mut parts = Vec::new();
    if !builder.symbols().resolve(&slice.start).is(0) {
        parts.push(old.narrow(axis, Dim::ZERO, slice.start.clone()));
    }
    parts.push(new);
    if !builder.symbols().resolve(&behind).is(0) {
        parts.push(old.narrow(axis, end, behind));
    }
    builder.concat(&parts, axis)
}

/// The position of each element, counted in row-major order.
fn positions_of(value: Value<'_>) -> Value<'_> {
    let builder = value.builder();
    let flat = vec![value.numel()];
    builder.iota(DType::I64, flat, 0).reshape(value.shape())
}

fn flat(value: Value<'_>) -> Value<'_> {
    let count = vec![value.numel()];
    value.reshape(count)
}

/// Replaces the elements of `old` at these row-major positions, all different, by those of `new`.
fn replace_elements<'g>(old: Value<'g>, positions: Value<'g>, new: Value<'g>) -> Value<'g> {
    let changed = flat(old).scatter(0, flat(positions), flat(new), ScatterFunction::Set);
    changed.reshape(old.shape())
}

/// Replaces the elements of `old` at these row-major positions, which may repeat. `new` holds all elements of the view
/// after the write, but an operator that PyTorch lets write to such a view (`masked_fill_`, `index_put_`) may have
/// written only some of them. So elements of `new` that equal the old ones are ignored. Of several others at one
/// position, the last one is stored.
fn replace_changed_elements<'g>(old: Value<'g>, positions: Value<'g>, new: Value<'g>) -> Value<'g> {
    let builder = old.builder();
    let (old_flat, positions, new) = (flat(old), flat(positions), flat(new));
    let before = old_flat.index_select(0, positions);
    let ordinal = builder.iota(DType::I64, positions.shape(), 0) + 1;
    let ordinal = new.ne(before).where_(ordinal, 0);
    let none = builder.full(DType::I64, old_flat.shape(), 0);
    let last = none.scatter(0, positions, ordinal, ScatterFunction::Max);
    let written = new.index_select(0, (last - 1).maximum(0));
    last.gt(0).where_(written, old_flat).reshape(old.shape())
}
