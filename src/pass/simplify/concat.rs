//! Concatenations that are less than they look.

use super::{Site, Step};
use crate::ir::{Argument, Builder, Op, Primitive, ValueId};
use crate::op::Slice;

pub(super) fn of_one(site: &Site) -> Option<Step> {
    let Primitive::Concat(_) = site.primitive else {
        return None;
    };
    let (x, _) = site.only_operand()?;
    Some(Step::Value(x))
}

pub(super) fn of_neighbours(site: &Site) -> Option<Step> {
    let Primitive::Concat(concat) = &site.primitive else {
        return None;
    };
    let pairs = site.arguments.windows(2).enumerate();
    let mut joined = pairs.filter_map(|(place, pair)| {
        let [Argument::Value(first), Argument::Value(second)] = pair else {
            return None;
        };
        let [first, second] = [first, second].map(|id| piece(site.builder, *id, concat.axis));
        Some((place, first?.joined(site.builder, &second?)?))
    });
    let (place, whole) = joined.next()?;
    let mut arguments = site.arguments.clone();
    arguments.splice(place..place + 2, [Argument::Value(whole)]);
    Some(Step::Node(site.primitive.clone(), arguments))
}

/// A slice of a value.
struct Piece {
    of: ValueId,
    slice: Slice,
}

/// The slice along an axis that a value is.
fn piece(builder: &Builder, value: ValueId, axis: usize) -> Option<Piece> {
    let node = builder.node_of(value)?;
    match (node.op, node.arguments.first()?) {
        (Op::Primitive(Primitive::Slice(slice)), Argument::Value(of)) if slice.axis == axis => {
            Some(Piece { of: *of, slice })
        }
        _ => None,
    }
}

impl Piece {
    /// This one and the next as one, if that begins where this one ends.
    fn joined(self, builder: &Builder, next: &Piece) -> Option<ValueId> {
        let Slice { step, length, .. } = &self.slice;
        let end = &self.slice.start + &(length * *step);
        if next.of != self.of || next.slice.step != *step || next.slice.start != end {
            return None;
        }
        let slice = Slice {
            length: length + &next.slice.length,
            ..self.slice
        };
        if slice.is_everything(&builder.ty(self.of).shape) {
            return Some(self.of);
        }
        let made = builder.try_apply(slice, vec![Argument::Value(self.of)]);
        Some(made.ok()?.first()?.id())
    }
}
