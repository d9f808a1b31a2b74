//! Constants that devices compute from indices instead of reading them.

use crate::ir::{Argument, Op, Primitive, ValueId};
use crate::op::{Binary, BinaryFunction};

use super::{ConstantValues, is_view};

/// Largest number in these constants.
const LARGEST_NUMBER: f64 = 4096.0;
/// Largest number of nodes between a constant and an index.
const MAX_DEPTH: usize = 12;

/// True for sums and products of indices and small integers, such as the numbers of the places in a window: a device computes
/// them exactly, and faster than it reads them.
pub(super) fn is_affine(constants: &ConstantValues<'_>, id: ValueId) -> bool {
    is_affine_to(constants, id, MAX_DEPTH)
}

fn is_affine_to(constants: &ConstantValues<'_>, id: ValueId, depth: usize) -> bool {
    let node = constants.known.get(&id).and_then(|constant| constant.node);
    let (Some(node), Some(depth)) = (node, depth.checked_sub(1)) else {
        return false;
    };
    let is_of_operands = match &node.op {
        Op::Primitive(Primitive::Binary(Binary { function })) => {
            matches!(function, BinaryFunction::Add | BinaryFunction::Mul)
        }
        Op::Primitive(Primitive::Full(_) | Primitive::Iota(_)) => true,
        Op::Primitive(primitive) => is_view(primitive),
        _ => false,
    };
    // Numbers of fewer bits are rounded.
    let is_exact = constants.graph.ty(id).dtype.size() >= 4;
    let mut arguments = node.arguments.iter();
    is_of_operands
        && is_exact
        && arguments.all(|argument| match argument {
            Argument::Value(operand) => is_affine_to(constants, *operand, depth),
            Argument::Number(number) => {
                let number = number.to_f64();
                number.fract() == 0.0 && number.abs() <= LARGEST_NUMBER
            }
            _ => false,
        })
}
