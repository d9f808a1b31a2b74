//! Simplifications of concatenations.

use super::{Replacement, RewriteSite};
use crate::ir::{Argument, Builder, Op, Primitive, ValueId};
use crate::op::Slice;

/// A concatenation of one operand is the operand.
pub(super) fn of_one(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Concat(_) = site.primitive else {
        return None;
    };
    let (x, _) = site.only_operand()?;
    Some(Replacement::Value(x))
}

/// Neighbouring slices of one value become one slice.
pub(super) fn of_neighbours(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Concat(concat) = &site.primitive else {
        return None;
    };
    let mut operands: Vec<ConcatOperand> = Vec::new();
    for argument in &site.arguments {
        let next = ConcatOperand::of(site.builder, argument, concat.axis);
        let is_merged = operands
            .last_mut()
            .is_some_and(|operand| operand.merge(&next));
        if !is_merged {
            operands.push(next);
        }
    }
    if operands.len() == site.arguments.len() {
        return None;
    }
    let results = operands
        .into_iter()
        .map(|operand| operand.build(site.builder));
    let arguments = results.collect::<Option<_>>()?;
    Some(Replacement::Node(site.primitive.clone(), arguments))
}

/// An operand of a concatenation.
struct ConcatOperand {
    argument: Argument,
    /// Source and slice, if the operand is a slice along the axis of the concatenation.
    slice: Option<(ValueId, Slice)>,
    /// True if a following operand was merged into this one.
    is_merged: bool,
}

impl ConcatOperand {
    fn of(builder: &Builder, argument: &Argument, axis: usize) -> ConcatOperand {
        let slice = || {
            let Argument::Value(value) = argument else {
                return None;
            };
            let node = builder.node_of(*value)?;
            match (node.op, node.arguments.first()?) {
                (Op::Primitive(Primitive::Slice(slice)), Argument::Value(source)) => {
                    Some((*source, slice))
                }
                _ => None,
            }
        };
        ConcatOperand {
            argument: argument.clone(),
            slice: slice().filter(|(_, slice)| slice.axis == axis),
            is_merged: false,
        }
    }

    /// Merges the next slice into this one if it begins where this one ends.
    fn merge(&mut self, next: &ConcatOperand) -> bool {
        let (Some((source, slice)), Some((next_source, next))) = (&mut self.slice, &next.slice)
        else {
            return false;
        };
        let end = &slice.start + &(&slice.length * slice.step);
        let follows = source == next_source && slice.step == next.step && next.start == end;
        if follows {
            slice.length = &slice.length + &next.length;
            self.is_merged = true;
        }
        follows
    }

    /// The operand as an argument. Adds a slice to the graph if operands were merged, unless the slice is the whole
    /// source.
    fn build(self, builder: &Builder) -> Option<Argument> {
        let (source, slice) = match self.slice {
            Some(source_and_slice) if self.is_merged => source_and_slice,
            _ => return Some(self.argument),
        };
        if slice.is_identity(&builder.ty(source).shape) {
            return Some(Argument::Value(source));
        }
        let results = builder
            .try_apply(slice, vec![Argument::Value(source)])
            .ok()?;
        Some(Argument::Value(results.first()?.id()))
    }
}
