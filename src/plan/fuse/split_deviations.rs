//! Sums of squared deviations from a mean, as a variance has: `sum((x - sum(x) / count)²)`. Where both sums are split, a part's
//! deviations are those from its own mean. So one kernel computes both sums of a part, and reads its elements from memory
//! once. For each element of a part, the combined sum has the squared distance between the part's mean and the mean as well
//! (T. F. Chan, G. H. Golub, R. J. LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances,
//! 1979).

use crate::dim::Dim;
use crate::ir::rewrite::Replay;
use crate::ir::{Argument, Graph, Node, Op, Primitive, Value, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::op::BinaryFunction::{self, Mul, Sub};
use crate::op::{Reduce, ReduceFunction};
use crate::plan::fuse::split_reduction::{PartialResults, SplitReduction};
use crate::plan::group::{defining_node, reduction_of};
use crate::shape::Shape;

/// A split sum of squared deviations of elements from their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitDeviations {
    split: SplitReduction,
    /// The elements.
    x: ValueId,
    /// Sum of the elements, from which the mean is computed.
    sum: ValueId,
}

impl SplitDeviations {
    /// The split of a node; `None` if the node is not such a sum, or is not split into equal parts.
    pub fn of(graph: &Graph, capabilities: &Capabilities, node: &Node) -> Option<SplitDeviations> {
        let split = SplitReduction::of(graph, capabilities, node)?;
        let reduce = reduction_of(node).filter(|reduce| reduce.function == ReduceFunction::Sum)?;
        let [Argument::Value(deviation), Argument::Value(factor)] =
            operands_of(graph, *node.operands().first()?, Mul)?
        else {
            return None;
        };
        let [Argument::Value(x), Argument::Value(mean)] = operands_of(graph, *deviation, Sub)?
        else {
            return None;
        };
        let [Argument::Value(sum), count] =
            quotient_per_result(graph, *mean, &reduced_shape(graph, *x, reduce))?
        else {
            return None;
        };
        let sum = look_through(graph, *sum, |view| matches!(view, Primitive::Reshape(_)));
        let sum_node = defining_node(graph, sum)?;
        let is_sum_of_x = reduction_of(sum_node) == Some(reduce) && sum_node.operands() == [*x];
        let is_mean =
            is_sum_of_x && is_number(count, &count_along(&graph.ty(*x).shape, &reduce.axes));
        let is_float = graph.ty(*x).dtype.is_float();
        let is_split = is_float && is_mean && deviation == factor && split.has_equal_parts();
        is_split.then_some(SplitDeviations { split, x: *x, sum })
    }

    /// Builds the sum in two steps. Returns its result and the partial results. The sum of the elements was split into the
    /// same parts.
    pub fn reduce<'g>(
        self,
        replay: &mut Replay<'_, 'g>,
        node: &Node,
        partial_results: &PartialResults,
    ) -> Option<[Value<'g>; 2]> {
        let (reduce, ty) = (reduction_of(node)?, replay.graph.ty(*node.results.first()?));
        let partial_sums = partial_results.of(replay.builder, self.sum)?;
        let parts = self.split.parts(replay.value(self.x).to_compute(), reduce);
        let part_shape = parts.elements.shape();
        let part_count = count_along(&part_shape, &parts.inner_axes);
        let means = partial_sums / part_count.clone();
        let deviations = parts.elements - means.restore_axes(part_shape, &parts.inner_axes);
        let squares = parts.reduce(deviations * deviations, ReduceFunction::Sum);
        let mut result_shape = partial_sums.shape();
        let part_number = std::mem::replace(&mut result_shape[parts.axis], Dim::ONE);
        // The distance between the means, times the number of elements of a part.
        let sum = replay.value(self.sum).to_compute().reshape(result_shape);
        let distances = partial_sums - sum / part_number;
        let squares = squares + distances * distances / part_count;
        Some([parts.combine(squares, ReduceFunction::Sum, ty), squares])
    }
}

/// Arguments of a binary function that defines a value.
fn operands_of(graph: &Graph, value: ValueId, function: BinaryFunction) -> Option<&[Argument; 2]> {
    let node = defining_node(graph, value)?;
    match &node.op {
        Op::Primitive(Primitive::Binary(binary)) if binary.function == function => {
            node.arguments.as_slice().try_into().ok()
        }
        _ => None,
    }
}

/// Dividend and divisor of a value of a shape that is expanded to `value`.
fn quotient_per_result<'g>(
    graph: &'g Graph,
    value: ValueId,
    shape: &[Dim],
) -> Option<&'g [Argument; 2]> {
    let quotient = look_through(graph, value, |view| matches!(view, Primitive::Expand(_)));
    let has_shape = graph.ty(quotient).shape == shape;
    operands_of(graph, quotient, BinaryFunction::Div).filter(|_| has_shape)
}

/// The value in front of views of a kind.
fn look_through(
    graph: &Graph,
    mut value: ValueId,
    is_view: impl Fn(&Primitive) -> bool,
) -> ValueId {
    while let Some(node) = defining_node(graph, value)
        && let Op::Primitive(primitive) = &node.op
        && let (true, Some(operand)) = (is_view(primitive), node.operands().first())
    {
        value = *operand;
    }
    value
}

/// Shape of a value with size 1 along reduced axes.
fn reduced_shape(graph: &Graph, x: ValueId, reduce: &Reduce) -> Shape {
    let mut shape = graph.ty(x).shape.clone();
    reduce.axes.iter().for_each(|axis| shape[*axis] = Dim::ONE);
    shape
}

/// Number of elements along axes.
fn count_along(shape: &[Dim], axes: &[usize]) -> Dim {
    let sizes = axes.iter().map(|axis| shape[*axis].clone());
    Dim::product(&sizes.collect::<Shape>())
}

/// True for an argument that is this number.
fn is_number(argument: &Argument, number: &Dim) -> bool {
    match argument {
        Argument::Size(size) => size == number,
        Argument::Number(value) => number
            .as_const()
            .is_some_and(|size| value.to_f64() == size as f64),
        _ => false,
    }
}
