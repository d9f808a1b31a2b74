//! Groups of nodes that one kernel computes.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::index::Index;
use crate::op::Reduce;
use crate::plan::cost::node_cost;
use crate::plan::element::operand;

/// Nodes that one kernel computes.
#[derive(Clone, Debug)]
pub struct Group {
    /// The node whose loops the kernel runs; `None` for a pointwise group.
    pub anchor: Option<usize>,
    /// The value that the kernel writes. For a node with several results, all of which are written, this is the first.
    pub root: ValueId,
    /// Further values that a group without an anchor, or with a reduction as its anchor, writes. They have as many elements
    /// as the root.
    pub other_outputs: Vec<ValueId>,
    /// Nodes of the group: those of a pattern in front of the anchor, the anchor, and its epilogue.
    pub nodes: Vec<usize>,
    /// Nodes with loops that the kernel computes together with the anchor; `None` if the anchor is the only one.
    pub pattern: Option<Pattern>,
}

/// Nodes with loops that one kernel computes together.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Reductions of rows, one after the other.
    Rows(RowsPattern),
    /// Attention: scores, their softmax, and the softmax's product with values, the anchor.
    Attention(AttentionPattern),
}

impl Group {
    /// Group that copies a value.
    pub fn copy_of(value: ValueId) -> Group {
        Group {
            anchor: None,
            root: value,
            other_outputs: Vec::new(),
            nodes: Vec::new(),
            pattern: None,
        }
    }

    /// Group of one node without loops, which defines the value.
    pub fn of_value(value: ValueId, node: usize) -> Group {
        Group {
            nodes: vec![node],
            ..Group::copy_of(value)
        }
    }

    /// True for a single reduction with its epilogue.
    pub fn is_reduction(&self, graph: &Graph) -> bool {
        let anchor = self.anchor.map(|anchor| &graph.nodes[anchor]);
        anchor.is_some_and(|node| reduction_of(node).is_some()) && self.pattern.is_none()
    }

    /// The rows pattern, if the group has one.
    pub fn rows(&self) -> Option<&RowsPattern> {
        match &self.pattern {
            Some(Pattern::Rows(rows)) => Some(rows),
            _ => None,
        }
    }

    /// Cost of the epilogue per element, in simple operations.
    pub fn epilogue_cost(&self, graph: &Graph) -> u32 {
        let from_anchor = self
            .nodes
            .iter()
            .skip_while(|node| Some(**node) != self.anchor);
        let epilogue = from_anchor.skip(1);
        epilogue.map(|node| node_cost(&graph.nodes[*node])).sum()
    }

    /// Values that a kernel without an anchor writes, the root last.
    pub fn outputs(&self) -> Vec<ValueId> {
        [self.other_outputs.as_slice(), &[self.root]].concat()
    }

    /// Materialised values that the kernel writes. Empty for a copy, whose target is not the slot of the value.
    pub fn written(&self, graph: &Graph, materialized: &[bool]) -> Vec<ValueId> {
        if let Some(rows) = self.rows() {
            return rows.written.clone();
        }
        let mut written = self.outputs();
        written.retain(|_| !self.nodes.is_empty());
        let results = self.anchor.map(|anchor| &graph.nodes[anchor].results);
        for result in results.into_iter().flatten() {
            if materialized[result.index()] && !written.contains(result) {
                written.push(*result);
            }
        }
        written
    }

    /// All nodes that the kernel computes, given that it reads stored values from memory: the group's nodes and those
    /// inlined.
    pub fn computed(&self, graph: &Graph, materialized: &[bool]) -> BTreeSet<usize> {
        let mut open = self.outputs();
        let mut nodes = BTreeSet::new();
        while let Some(value) = open.pop() {
            let Definition::Node(index, _) = graph.value(value).definition else {
                continue;
            };
            let is_computed = self.nodes.contains(&index) || !materialized[value.index()];
            if is_computed && nodes.insert(index) {
                open.extend(graph.nodes[index].operands());
            }
        }
        nodes
    }
}

/// Reductions of rows that one kernel computes, and the pointwise nodes around them.
#[derive(Clone, Debug)]
pub struct RowsPattern {
    /// Shape of the rows.
    pub frame: RowFrame,
    /// Reductions by stage: indices of nodes. The reductions of a stage depend on results of earlier stages only.
    pub stages: Vec<Vec<usize>>,
    /// All values that the kernel computes.
    pub computed: Vec<ValueId>,
    /// Materialised values, a part of `computed`.
    pub written: Vec<ValueId>,
}

/// Nodes of an attention kernel before its anchor, the product of softmax weights and values.
#[derive(Clone, Debug)]
pub struct AttentionPattern {
    /// Node of the product of queries and keys.
    pub scores: usize,
    /// Operand of the softmax: the scores or the result of their pointwise epilogue.
    pub softmax_of: ValueId,
    /// True if rows with only minus infinity give zeros instead of NaN.
    pub is_safe: bool,
    /// True if the mask is causal: scores of keys after the query are minus infinity.
    pub is_causal: bool,
    /// True if the anchor computes the transposed product: its rows are channels.
    pub is_transposed: bool,
}

/// Number, length and stride of rows. A stride of 1 means rows of contiguous elements; with a larger stride the rows
/// are columns, and neighbouring columns are contiguous.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFrame {
    /// Number of rows.
    pub rows: Dim,
    /// Elements per row.
    pub length: Dim,
    /// Distance between neighbouring elements of a row.
    pub stride: Dim,
}

impl RowFrame {
    /// The rows that a node reduces; `None` if the node is not a reduction over adjacent axes.
    pub fn of(graph: &Graph, node: &Node) -> Option<RowFrame> {
        let reduce = reduction_of(node)?;
        let shape = &graph.ty(operand(node, 0).ok()?).shape;
        let is_reduced = |axis: usize| reduce.axes.contains(&axis);
        let mut axes = (0..shape.len()).filter(|axis| !shape[*axis].is(1));
        let first = axes.find(|axis| is_reduced(*axis))?;
        let end = axes.find(|axis| !is_reduced(*axis)).unwrap_or(shape.len());
        if axes.any(is_reduced) {
            return None;
        }
        let stride = Dim::product(&shape[end..]);
        Some(RowFrame {
            rows: &Dim::product(&shape[..first]) * &stride,
            length: Dim::product(&shape[first..end]),
            stride,
        })
    }

    /// Number of all elements.
    pub fn numel(&self) -> Dim {
        &self.rows * &self.length
    }

    /// True if elements of a row are contiguous.
    pub fn is_contiguous(&self) -> bool {
        self.stride.is(1)
    }

    /// True if `axis` of a value of this shape runs along the rows.
    pub fn has_rows_along(&self, shape: &[Dim], axis: usize) -> bool {
        shape.get(axis) == Some(&self.length) && Dim::product(&shape[axis + 1..]) == self.stride
    }

    /// Linear index of an element of a row.
    pub fn element_index(&self, row: &Index, number: &Index) -> Index {
        let offset = row.div(&self.stride).scale(&self.length).add(number);
        offset.scale(&self.stride).add(&row.rem(&self.stride))
    }
}

/// The node that defines a value; `None` for inputs and weights.
pub fn defining_node(graph: &Graph, value: ValueId) -> Option<&Node> {
    match graph.value(value).definition {
        Definition::Node(node, _) => graph.nodes.get(node),
        _ => None,
    }
}

/// The reduction of a node, if it is one.
pub fn reduction_of(node: &Node) -> Option<&Reduce> {
    match &node.op {
        Op::Primitive(Primitive::Reduce(reduce)) => Some(reduce),
        _ => None,
    }
}
