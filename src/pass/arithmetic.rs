//! Counts of multiply-adds in matrix products and convolutions, as formulas of the sizes.

use crate::dim::Dim;
use crate::ir::{Argument, Graph, Node, Op, Primitive, Region};
use crate::scalar::Scalar;

/// Multiply-adds of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiplyAdds {
    /// Number of multiply-adds. An `if` counts its larger branch, a loop all its iterations.
    pub count: Dim,
    /// True if the trip count of a loop is not known before it runs; such a loop counts one iteration.
    pub has_unknown_loops: bool,
}

/// Counts the multiply-adds of matrix products, convolutions and recurrent layers in a graph of primitives, regions
/// included.
pub fn multiply_adds(graph: &Graph) -> MultiplyAdds {
    let mut total = MultiplyAdds {
        count: Dim::ZERO,
        has_unknown_loops: false,
    };
    for node in &graph.nodes {
        let of_node = multiply_adds_of_node(graph, node);
        total.count = &total.count + &of_node.count;
        total.has_unknown_loops |= of_node.has_unknown_loops;
    }
    total
}

/// Multiply-adds of a node, those of its nested bodies included.
fn multiply_adds_of_node(graph: &Graph, node: &Node) -> MultiplyAdds {
    let Op::Region(region) = &node.op else {
        return MultiplyAdds {
            count: multiply_adds_of(graph, node),
            has_unknown_loops: false,
        };
    };
    match &**region {
        Region::Call { body } => multiply_adds(body),
        Region::If { then, otherwise } => {
            let [then, otherwise] = [then, otherwise].map(multiply_adds);
            MultiplyAdds {
                count: then.count.maximum(&otherwise.count),
                has_unknown_loops: then.has_unknown_loops || otherwise.has_unknown_loops,
            }
        }
        Region::Loop { body, .. } => {
            let (iteration, trip_count) = (multiply_adds(body), max_trip_count(node));
            MultiplyAdds {
                has_unknown_loops: iteration.has_unknown_loops || trip_count.is_none(),
                count: &iteration.count * &trip_count.unwrap_or(Dim::ONE),
            }
        }
    }
}

/// Upper bound of a loop's trip count, if that is a number or a size.
fn max_trip_count(node: &Node) -> Option<Dim> {
    match node.arguments.first()? {
        Argument::Number(Scalar::Int(trip_count)) => Some(Dim::from(*trip_count)),
        Argument::Size(trip_count) => Some(trip_count.clone()),
        _ => None,
    }
}

/// Multiply-adds of a primitive. For a convolution they include those with zeros of the padding.
pub fn multiply_adds_of(graph: &Graph, node: &Node) -> Dim {
    let operands = node.operands();
    let shape = |index: usize| {
        let operand = operands.get(index);
        operand.map_or(&[][..], |id| graph.ty(*id).shape.as_slice())
    };
    let result = node.results.first();
    let result_numel = result.map_or(Dim::ZERO, |id| graph.ty(*id).numel());
    let last = |index: usize| shape(index).last().cloned().unwrap_or(Dim::ZERO);
    match &node.op {
        Op::Primitive(Primitive::Dot(_)) => &result_numel * &last(0),
        Op::Primitive(Primitive::Conv(_)) => &result_numel * &Dim::product(shape(1).iter().skip(1)),
        Op::Primitive(Primitive::Recurrent(_)) => &Dim::product(shape(0)) * &last(1),
        _ => Dim::ZERO,
    }
}
