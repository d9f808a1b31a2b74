//! Constants that devices compute from indices instead of reading them.

use crate::ir::{Argument, Op, Primitive, ValueId};
use crate::op::{Binary, BinaryFunction};

use super::{ConstantValues, is_view};

/// Largest number up to which 32-bit floats represent every integer.
const LARGEST_EXACT: f64 = 16_777_216.0;
/// Largest number of nodes between a constant and an index.
const MAX_DEPTH: usize = 12;

/// True for integers that are sums and products of indices and numbers, such as the numbers of the places in a window, if no
/// step is too large for a 32-bit float: a device computes them exactly, and faster than it reads them.
pub(super) fn is_affine(constants: &ConstantValues<'_>, id: ValueId) -> bool {
    largest(constants, id, MAX_DEPTH).is_some()
}

/// A bound on the magnitude of such a constant; `None` for others.
fn largest(constants: &ConstantValues<'_>, id: ValueId, depth: usize) -> Option<f64> {
    let node = constants.known.get(&id)?.node?;
    let depth = depth.checked_sub(1)?;
    let ty = constants.graph.ty(id);
    let mut arguments = node.arguments.iter().map(|argument| match argument {
        Argument::Value(operand) => largest(constants, *operand, depth),
        Argument::Number(number) => {
            let number = number.to_f64();
            (number.fract() == 0.0).then_some(number.abs())
        }
        _ => None,
    });
    let bound = match &node.op {
        Op::Primitive(Primitive::Iota(_)) => Some(ty.numel().as_const()? as f64),
        Op::Primitive(Primitive::Binary(Binary { function })) => {
            let (x, y) = (arguments.next()??, arguments.next()??);
            match function {
                BinaryFunction::Add => Some(x + y),
                BinaryFunction::Mul => Some(x * y),
                _ => None,
            }
        }
        Op::Primitive(primitive)
            if matches!(primitive, Primitive::Full(_)) || is_view(primitive) =>
        {
            arguments.next()?
        }
        _ => None,
    };
    // Numbers of fewer bits are rounded.
    bound.filter(|bound| ty.dtype.size() >= 4 && *bound <= LARGEST_EXACT)
}
