//! Costs and classes of nodes, and sizes of the example.

use crate::dim::Dim;
use crate::ir::{Graph, Node, Op, Primitive};
use crate::op::{BinaryFunction, UnaryFunction};

/// How a kernel computes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeClass {
    /// Generated without operands.
    Generator,
    /// By reading an operand at another index.
    View,
    /// Element by element.
    Pointwise,
    /// By loops of a kernel; also a region, whose body has kernels of its own.
    Kernel,
}

/// Class of a node.
pub fn node_class(node: &Node) -> NodeClass {
    let Op::Primitive(primitive) = &node.op else {
        return NodeClass::Kernel;
    };
    match primitive {
        Primitive::Full(_) | Primitive::Iota(_) => NodeClass::Generator,
        Primitive::Reshape(_)
        | Primitive::Permute(_)
        | Primitive::Expand(_)
        | Primitive::Slice(_)
        | Primitive::Pad(_)
        | Primitive::Concat(_)
        | Primitive::Unfold(_)
        | Primitive::Gather(_) => NodeClass::View,
        Primitive::Unary(_)
        | Primitive::Binary(_)
        | Primitive::Select(_)
        | Primitive::Cast(_)
        | Primitive::Check(_) => NodeClass::Pointwise,
        _ => NodeClass::Kernel,
    }
}

/// True for a view that returns elements of its operand unchanged.
pub fn is_plain_view(primitive: &Primitive) -> bool {
    matches!(
        primitive,
        Primitive::Reshape(_) | Primitive::Permute(_) | Primitive::Expand(_) | Primitive::Slice(_)
    )
}

/// Cost of a node per element, in simple operations.
pub fn node_cost(node: &Node) -> u32 {
    match &node.op {
        Op::Primitive(primitive) => primitive_cost(primitive),
        _ => 0,
    }
}

/// Cost of a primitive per element, in simple operations.
pub fn primitive_cost(primitive: &Primitive) -> u32 {
    match primitive {
        Primitive::Reshape(_) | Primitive::Expand(_) | Primitive::Permute(_) => 0,
        // Checks must not influence fusion decisions.
        Primitive::Check(_) => 0,
        Primitive::Unary(unary) => unary_cost(unary.function),
        Primitive::Binary(binary) => binary_cost(binary.function),
        Primitive::Concat(_) | Primitive::Gather(_) => 3,
        Primitive::Pad(_) => 2,
        _ => 1,
    }
}

fn unary_cost(function: UnaryFunction) -> u32 {
    use UnaryFunction::{
        Abs, BitwiseNot, Ceil, Exp, Exp2, Floor, IsNan, LogicalNot, Neg, Round, Rsqrt, Sigmoid,
        Sign, SignBit, Sqrt, Trunc,
    };
    match function {
        Neg | Abs | Floor | Ceil | Round | Trunc | BitwiseNot | LogicalNot | IsNan | SignBit => 1,
        Sign | Sqrt | Rsqrt => 2,
        Exp | Exp2 | Sigmoid => 5,
        _ => 10,
    }
}

fn binary_cost(function: BinaryFunction) -> u32 {
    use BinaryFunction::{Atan2, Div, FloorDivide, Fmod, MulHigh, Pow, Remainder, TruncDivide};
    match function {
        Div => 2,
        MulHigh | FloorDivide | TruncDivide | Remainder | Fmod => 6,
        Pow | Atan2 => 15,
        _ => 1,
    }
}

/// Value of a size for the example's sizes; zero if the example does not determine it.
pub fn example_size(graph: &Graph, size: &Dim) -> usize {
    let size = size.eval(&graph.hints).unwrap_or_default();
    usize::try_from(size).unwrap_or_default()
}
