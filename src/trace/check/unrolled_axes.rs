//! Loops over an axis that a trace unrolled into one copy of the body for each element.

use std::collections::BTreeSet;

use super::canonical::{each_node, node_line};
use super::{Finding, Id};
use crate::dim::Symbol;
use crate::ir::{Argument, Definition, Graph, Node, Op, ValueId};
use crate::scalar::Scalar;

/// An axis of at most this size may hold coordinates or colours if [`may_be_channel_axis`]. Programs read those one by one
/// on purpose.
const MAX_CHANNELS: i64 = 4;

/// An axis of symbolic size whose elements are all read one by one.
pub struct UnrolledAxis {
    /// The finding about the axis.
    pub finding: Finding,
    /// Symbol of the axis's size.
    pub symbol: Symbol,
    /// Names of the values read from the axis.
    pub values: Vec<String>,
}

/// Returns the axes that a graph reads by selects or slices of one element, at the constant indices from 0 to the example's
/// last.
pub fn unrolled_axes(graph: &Graph) -> Vec<UnrolledAxis> {
    let mut axes: Vec<AxisReads> = Vec::new();
    each_node(graph, &mut |graph, node, value| {
        let Some((operand, axis, index)) = element_read(graph, node) else {
            return;
        };
        let is_known = |known: &&mut AxisReads| {
            std::ptr::eq(known.graph, graph) && (known.operand, known.axis) == (operand, axis)
        };
        let read = (index, node, value.unwrap_or_default());
        match axes.iter_mut().find(is_known) {
            Some(known) => known.reads.push(read),
            None => axes.push(AxisReads {
                graph,
                operand,
                axis,
                reads: vec![read],
            }),
        }
    });
    axes.iter().filter_map(AxisReads::unrolled).collect()
}

/// True for axes that may hold coordinates or colours: the last one, and the third from last of images.
pub fn may_be_channel_axis(rank: usize, axis: usize) -> bool {
    axis + 1 == rank && rank > 1 || rank >= 4 && axis + 3 == rank
}

/// Reads of single elements along an axis of a value.
struct AxisReads<'a> {
    graph: &'a Graph,
    operand: ValueId,
    axis: usize,
    /// Index, node and name of the node's value, for each read.
    reads: Vec<(i64, &'a Node, String)>,
}

impl AxisReads<'_> {
    /// Describes the axis if an unrolled loop over it probably left these reads.
    fn unrolled(&self) -> Option<UnrolledAxis> {
        let shape = &self.graph.ty(self.operand).shape;
        let symbol = shape.get(self.axis)?.as_symbol()?;
        let size = *self.graph.hints.get(symbol)?;
        let indices: BTreeSet<i64> = self.reads.iter().map(|(index, ..)| *index).collect();
        if size < 2 || indices != (0..size).collect() {
            return None;
        }
        let is_channels = may_be_channel_axis(shape.len(), self.axis);
        if is_channels && size <= MAX_CHANNELS || self.may_be_edge_list(size) {
            return None;
        }
        // A few elements with different uses are parts of a structure rather than steps of a loop.
        if (is_channels || size < MAX_CHANNELS) && !self.is_uniform() {
            return None;
        }
        let (_, node, value) = self.reads.first()?;
        let name = &self.graph.value(self.operand).name;
        let message = format!(
            "all elements of axis {} of {name} are read one by one: 0 to {} (the example has {symbol} = {size})",
            self.axis,
            size - 1
        );
        let finding = Finding::new(Id::UnrolledAxis, message)
            .at(&node.place)
            .with_value_name(value)
            .details([node_line(self.graph, node)]);
        Some(UnrolledAxis {
            finding,
            symbol: symbol.clone(),
            values: self
                .reads
                .iter()
                .map(|(_, _, value)| value.clone())
                .collect(),
        })
    }

    /// True for a possible edge list of a graph: sources and targets.
    fn may_be_edge_list(&self, size: i64) -> bool {
        size == 2 && self.graph.ty(self.operand).dtype.is_integer()
    }

    /// True if all elements have the same uses, as in a loop.
    fn is_uniform(&self) -> bool {
        let mut uses = self.reads.iter().map(|(_, node, _)| self.uses(node));
        let first = uses.next();
        uses.all(|other| Some(other) == first)
    }

    /// Uses of the element that a node reads: the operations that take it, each with the operand index.
    fn uses(&self, read: &Node) -> BTreeSet<(String, usize)> {
        let result = read.results.first();
        let nodes = self.graph.nodes.iter();
        let uses = nodes.flat_map(|node| {
            let operands = node.operands().into_iter().enumerate();
            let matching = operands.filter(|(_, id)| Some(id) == result);
            let indices: Vec<usize> = matching.map(|(index, _)| index).collect();
            let name = node.op.name();
            indices
                .into_iter()
                .map(move |index| (name.to_string(), index))
        });
        uses.collect()
    }
}

/// The value, axis and index of a node that reads one element.
fn element_read(graph: &Graph, node: &Node) -> Option<(ValueId, usize, i64)> {
    let numbers: Vec<Option<i64>> = node.arguments.iter().map(integer).collect();
    let index = match (node.op.name(), numbers.as_slice()) {
        ("aten.select.int", [_, _, index]) => *index,
        ("aten.slice.Tensor", [_, _, start, end, Some(1)]) if is_unit_range(*start, *end) => *start,
        ("aten.narrow", [_, _, start, Some(1)]) => *start,
        _ => None,
    };
    let operand = skip_full_slices(graph, *node.operands().first()?);
    let rank = graph.ty(operand).shape.len();
    let axis = usize::try_from(numbers.get(1).copied().flatten()?).ok()?;
    (axis < rank).then_some((operand, axis, index?))
}

/// True if a range contains exactly one index.
fn is_unit_range(start: Option<i64>, end: Option<i64>) -> bool {
    matches!((start, end), (Some(start), Some(end)) if end.checked_sub(start) == Some(1))
}

/// The value of a constant integer argument; none for other arguments.
pub fn integer(argument: &Argument) -> Option<i64> {
    match argument {
        Argument::Number(Scalar::Int(number)) => Some(*number),
        Argument::Size(size) => size.as_const(),
        _ => None,
    }
}

/// Skips slices that take all elements: `x[:, t]` records one of them first.
fn skip_full_slices(graph: &Graph, id: ValueId) -> ValueId {
    let Definition::Node(index, _) = graph.value(id).definition else {
        return id;
    };
    match graph.nodes.get(index) {
        Some(node) if is_full_slice(node) => node
            .operands()
            .first()
            .map_or(id, |operand| skip_full_slices(graph, *operand)),
        _ => id,
    }
}

/// True for a slice that takes all elements of its axis.
fn is_full_slice(node: &Node) -> bool {
    let [_, _, start, end, step] = node.arguments.as_slice() else {
        return false;
    };
    let is_call = matches!(&node.op, Op::Call(name) if &**name == "aten.slice.Tensor");
    is_call
        && integer(start).unwrap_or(0) == 0
        && integer(end).unwrap_or(i64::MAX) == i64::MAX
        && integer(step) == Some(1)
}
