//! What one kernel computes.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::index::Index;
use crate::op::Reduce;
use crate::pass::plan::cost::weight_of;
use crate::pass::plan::element::operand;

/// What one kernel computes.
#[derive(Clone, Debug)]
pub struct Group {
    /// The node whose loops the kernel runs; none if it is pointwise.
    pub anchor: Option<usize>,
    /// The value that it writes; a node with several results writes them all, of which this is the first.
    pub root: ValueId,
    /// What it writes besides, without an anchor: values of as many elements.
    pub also: Vec<ValueId>,
    /// The nodes that it computes: what a pattern has in front of the anchor, the anchor, and its epilogue.
    pub nodes: Vec<usize>,
    /// What it computes besides or instead of the anchor and what is pointwise, if it is made of several loops.
    pub pattern: Option<Pattern>,
}

/// Nodes with loops of their own that one kernel computes.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Reductions of rows, one after the other.
    Rows(Rows),
    /// Scores, their softmax, and its product with values, which is the anchor.
    Attention(Attention),
}

impl Group {
    /// A kernel that copies a value.
    pub fn copy_of(value: ValueId) -> Group {
        Group {
            anchor: None,
            root: value,
            also: Vec::new(),
            nodes: Vec::new(),
            pattern: None,
        }
    }

    /// Pointwise work that one value is, and views.
    pub fn of_value(value: ValueId, node: usize) -> Group {
        Group {
            nodes: vec![node],
            ..Group::copy_of(value)
        }
    }

    /// What it computes of each row, if it is a kernel of rows.
    pub fn rows(&self) -> Option<&Rows> {
        match &self.pattern {
            Some(Pattern::Rows(rows)) => Some(rows),
            _ => None,
        }
    }

    /// What the epilogue costs for an element, in simple operations.
    pub fn epilogue_cost(&self, graph: &Graph) -> u32 {
        let from_anchor = self
            .nodes
            .iter()
            .skip_while(|node| Some(**node) != self.anchor);
        let behind = from_anchor.skip(1);
        behind.map(|node| weight_of(&graph.nodes[*node])).sum()
    }

    /// What a kernel without an anchor writes, the root last.
    pub fn values(&self) -> Vec<ValueId> {
        [self.also.as_slice(), &[self.root]].concat()
    }

    /// The values in memory that its kernel writes; none of a copy, which lies elsewhere than what it is a copy of.
    pub fn written(&self, graph: &Graph, stored: &[bool]) -> Vec<ValueId> {
        if let Some(rows) = self.rows() {
            return rows.written.clone();
        }
        let mut written = self.values();
        written.retain(|_| !self.nodes.is_empty());
        let results = self.anchor.map(|anchor| &graph.nodes[anchor].results);
        for result in results.into_iter().flatten() {
            if stored[result.index()] && !written.contains(result) {
                written.push(*result);
            }
        }
        written
    }

    /// All nodes that its kernel computes where values that are stored are read from memory: its own, and those on the way.
    pub fn computed(&self, graph: &Graph, stored: &[bool]) -> BTreeSet<usize> {
        let mut open = self.values();
        let mut nodes = BTreeSet::new();
        while let Some(value) = open.pop() {
            let Definition::Node(index, _) = graph.value(value).definition else {
                continue;
            };
            let is_computed = self.nodes.contains(&index) || !stored[value.index()];
            if is_computed && nodes.insert(index) {
                open.extend(graph.nodes[index].operands());
            }
        }
        nodes
    }
}

/// What a kernel of rows computes.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Where the elements are.
    pub frame: Frame,
    /// Reductions by stage: indices of nodes.
    pub stages: Vec<Vec<usize>>,
    /// All values that it computes itself.
    pub computed: Vec<ValueId>,
    /// Those of them that lie in memory.
    pub written: Vec<ValueId>,
}

/// What a kernel of attention computes in front of its anchor.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The product that the scores are.
    pub scores: usize,
    /// What softmax is taken of: the scores, or what is pointwise behind them.
    pub softmax_of: ValueId,
    /// Rows of nothing but minus infinity give zeros; else not-a-number.
    pub is_safe: bool,
    /// A query sees no keys behind it: their scores are minus infinity.
    pub is_causal: bool,
    /// The anchor multiplies values with weights, both transposed: its rows are channels.
    pub is_transposed: bool,
}

/// A number of rows and their length. Elements of a row are neighbours in memory, or as far apart as others lie between them:
/// then the rows are columns, of which neighbours lie side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// How many rows there are.
    pub rows: Dim,
    /// Elements of each.
    pub length: Dim,
    /// From one element of a row to the next.
    pub stride: Dim,
}

impl Frame {
    /// The rows that a node reduces; none if it is no reduction over axes next to each other.
    pub fn of(graph: &Graph, node: &Node) -> Option<Frame> {
        let reduce = reduction(node)?;
        let shape = &graph.ty(operand(node, 0).ok()?).shape;
        let is_reduced = |axis: usize| reduce.axes.contains(&axis);
        let mut axes = (0..shape.len()).filter(|axis| !shape[*axis].is(1));
        let first = axes.find(|axis| is_reduced(*axis))?;
        let end = axes.find(|axis| !is_reduced(*axis)).unwrap_or(shape.len());
        if axes.any(is_reduced) {
            return None;
        }
        let stride = Dim::product(&shape[end..]);
        Some(Frame {
            rows: &Dim::product(&shape[..first]) * &stride,
            length: Dim::product(&shape[first..end]),
            stride,
        })
    }

    /// All elements.
    pub fn numel(&self) -> Dim {
        &self.rows * &self.length
    }

    /// True if elements of a row are neighbours.
    pub fn is_contiguous(&self) -> bool {
        self.stride.is(1)
    }

    /// True if the rows of a value of this shape lie along an axis.
    pub fn is_along(&self, shape: &[Dim], axis: usize) -> bool {
        shape.get(axis) == Some(&self.length) && Dim::product(&shape[axis + 1..]) == self.stride
    }

    /// Where an element of a row is among all elements.
    pub fn element(&self, row: &Index, number: &Index) -> Index {
        let outer = row.div(&self.stride).scale(&self.length).add(number);
        outer.scale(&self.stride).add(&row.rem(&self.stride))
    }
}

/// The reduction that a node is.
pub fn reduction(node: &Node) -> Option<&Reduce> {
    match &node.op {
        Op::Primitive(Primitive::Reduce(reduce)) => Some(reduce),
        _ => None,
    }
}
