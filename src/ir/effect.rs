//! Side effects of nodes.

use super::graph::{Graph, Node, Op};
use crate::op::Primitive;

impl Node {
    /// True for a node that must run even if nothing reads its results: an assertion, or a region with one in a body.
    pub fn has_side_effect(&self) -> bool {
        match &self.op {
            Op::Primitive(Primitive::Check(check)) => check.is_assertion(),
            _ => self.bodies().into_iter().any(Graph::has_side_effect),
        }
    }
}

impl Graph {
    /// True if a node of the graph has a side effect.
    pub fn has_side_effect(&self) -> bool {
        self.nodes.iter().any(Node::has_side_effect)
    }
}
