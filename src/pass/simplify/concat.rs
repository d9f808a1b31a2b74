//! Simplifications of concatenations.

use super::{Replacement, RewriteSite};
use crate::ir::{Argument, Builder, Op, Primitive, ValueId};
use crate::op::Slice;

pub(super) fn of_one(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Concat(_) = site.primitive else {
        return None;
    };
    let (x, _) = site.only_operand()?;
    Some(Replacement::Value(x))
}

pub(super) fn of_neighbours(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Concat(concat) = &site.primitive else {
        return None;
    };
    let mut pieces: Vec<ConcatOperand> = Vec::new();
    for argument in &site.arguments {
        let next = ConcatOperand::of(site.builder, argument, concat.axis);
        let is_taken = pieces.last_mut().is_some_and(|piece| piece.merge(&next));
        if !is_taken {
            pieces.push(next);
        }
    }
    if pieces.len() == site.arguments.len() {
        return None;
    }
    let made = pieces.into_iter().map(|piece| piece.build(site.builder));
    let arguments = made.collect::<Option<_>>()?;
    Some(Replacement::Node(site.primitive.clone(), arguments))
}

/// An operand, and its source if it is a slice along the axis.
struct ConcatOperand {
    argument: Argument,
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
                (Op::Primitive(Primitive::Slice(slice)), Argument::Value(of)) => Some((*of, slice)),
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
        let (Some((of, slice)), Some((next_of, next))) = (&mut self.slice, &next.slice) else {
            return false;
        };
        let end = &slice.start + &(&slice.length * slice.step);
        let follows = of == next_of && slice.step == next.step && next.start == end;
        if follows {
            slice.length = &slice.length + &next.length;
            self.is_merged = true;
        }
        follows
    }

    fn build(self, builder: &Builder) -> Option<Argument> {
        let (of, slice) = match self.slice {
            Some(of) if self.is_merged => of,
            _ => return Some(self.argument),
        };
        if slice.is_identity(&builder.ty(of).shape) {
            return Some(Argument::Value(of));
        }
        let made = builder.try_apply(slice, vec![Argument::Value(of)]).ok()?;
        Some(Argument::Value(made.first()?.id()))
    }
}
