//! Nodes that one attention kernel computes: scores, their pointwise epilogue, their softmax, and its product with
//! values.

mod matcher;

use std::collections::{BTreeMap, BTreeSet};

use self::matcher::AttentionMatcher;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::plan::attention;
use crate::plan::cost::node_cost;
use crate::plan::element::KernelScope;
use crate::plan::fuse::Fuser;
use crate::plan::group::AttentionPattern;
use crate::plan::variant;

/// Largest cost of the pointwise work on scores. The kernel's source repeats that work for many scores.
const MAX_SCORE_COST: u32 = 24;

/// A match of the attention pattern.
pub struct AttentionMatch {
    /// Parameters of the kernel.
    pub attention: AttentionPattern,
    /// Attention weights: the left factor of the anchor, or the right one if the anchor computes the transposed
    /// product.
    weights: ValueId,
    /// The other factor of the anchor.
    values: ValueId,
    /// Right factor of the product that computes the scores.
    keys: ValueId,
    /// All nodes of the match before the anchor, from the product that computes the scores on.
    pub nodes: Vec<usize>,
    /// Pointwise nodes between scores and softmax, a part of `nodes`.
    score_epilogue: Vec<usize>,
}

impl Fuser<'_> {
    /// Finds candidates for attention kernels before storage is decided, so that keys and values are materialised in
    /// the form in which the kernels read them.
    pub fn find_attention(&mut self) {
        if self.capabilities.simd_lanes().is_none() {
            return;
        }
        for anchor in 0..self.graph.nodes.len() {
            if let Some(matched) = self.attention(anchor) {
                self.attention_keys.insert(matched.keys);
                self.attention_values.insert(matched.values);
                self.attention.insert(anchor, matched);
            }
        }
    }

    /// Matches attention that ends with a product and whose sizes suit an attention kernel.
    fn attention(&self, anchor: usize) -> Option<AttentionMatch> {
        let matched = AttentionMatcher::of(self.graph, anchor)?;
        let is_requested = |node: usize| {
            variant::is_requested(self.graph, node, &self.request.options.variant_overrides)
        };
        let is_inside = |node: &usize| self.is_read_only_inside(*node, anchor, &matched.nodes);
        let is_self_contained = matched.nodes.iter().all(is_inside);
        let has_no_override = !is_requested(anchor) && !is_requested(matched.attention.scores);
        let suits =
            || attention::is_preferred(self.graph, self.capabilities, anchor, &matched.attention);
        (is_self_contained && has_no_override && suits().unwrap_or(false)).then_some(matched)
    }

    /// Claims attention patterns. Returns them by their last node, the product with values. Nodes in front of that node
    /// are claimed and none of their values is materialised.
    pub fn claim_attention(&mut self, claimed: &mut [bool]) -> BTreeMap<usize, AttentionMatch> {
        let mut all = BTreeMap::new();
        for (anchor, matched) in std::mem::take(&mut self.attention) {
            let is_free = |node: &usize| !claimed[*node] && !all.contains_key(node);
            if matched.nodes.iter().all(is_free) && self.is_claimable(anchor, &matched) {
                for node in &matched.nodes {
                    claimed[*node] = true;
                }
                self.unstore_inner_values(&matched);
                all.insert(anchor, matched);
            }
        }
        all
    }

    /// True if the kernel's operands are stored and its pointwise work is short enough.
    fn is_claimable(&self, anchor: usize, matched: &AttentionMatch) -> bool {
        let is_short = self.cost(matched) <= MAX_SCORE_COST;
        let fits = self.leaves_of_match(matched).len() < self.max_read_buffers;
        let (materialized, written) = (&self.materialized, &self.unwritten);
        let mut scope = KernelScope::new(self.graph, self.capabilities, materialized, written);
        let mut reads = || attention::can_read_operands(&mut scope, anchor, &matched.attention);
        is_short && fits && reads().unwrap_or(false)
    }

    /// The value to materialise in place of an operand that a kernel reads often. Keys and values of attention are
    /// stored once, however often heads are repeated; keys are stored before their transposition, so that channels are
    /// contiguous.
    pub fn storage_point(&self, mut value: ValueId) -> ValueId {
        let are_keys = self.attention_keys.contains(&value);
        let are_values = self.attention_values.contains(&value);
        let is_read_through = |view: &Primitive| match view {
            Primitive::Reshape(_) | Primitive::Expand(_) => are_keys || are_values,
            Primitive::Permute(_) => are_keys,
            _ => false,
        };
        while let Definition::Node(node, _) = self.graph.value(value).definition
            && let Op::Primitive(view) = &self.graph.nodes[node].op
            && is_read_through(view)
            && let Some(operand) = self.graph.nodes[node].operands().first()
        {
            value = *operand;
        }
        value
    }

    /// True if only the anchor and the given nodes read the results of a node.
    fn is_read_only_inside(&self, node: usize, anchor: usize, nodes: &[usize]) -> bool {
        let mut results = self.graph.nodes[node].results.iter();
        results.all(|result| {
            let mut readers = self.readers[result.index()].iter();
            let is_known = |reader: &usize| *reader == anchor || nodes.contains(reader);
            !self.is_output[result.index()] && readers.all(is_known)
        })
    }

    /// Cost of the pointwise work on each score, operands included.
    fn cost(&self, matched: &AttentionMatch) -> u32 {
        let epilogue = matched
            .score_epilogue
            .iter()
            .map(|node| &self.graph.nodes[*node]);
        let node_total = |node: &Node| {
            let operands = node.operands().into_iter();
            let outer_operands = operands.filter(|id| !matched.defines(self.graph, *id));
            let operand_costs = outer_operands.map(|id| self.properties[id.index()].cost);
            operand_costs.fold(node_cost(node), u32::saturating_add)
        };
        epilogue.map(node_total).fold(0, u32::saturating_add)
    }

    /// The stored values that the nodes in front of the anchor read.
    fn leaves_of_match(&self, matched: &AttentionMatch) -> BTreeSet<ValueId> {
        let nodes = matched.nodes.iter().map(|node| &self.graph.nodes[*node]);
        let operands = nodes.flat_map(Node::operands);
        let outer_operands = operands.filter(|id| !matched.defines(self.graph, *id));
        outer_operands
            .flat_map(|id| self.properties[id.index()].leaves.iter().copied())
            .collect()
    }

    /// Marks no value in front of the anchor as materialised. The anchor reads the operands of those nodes.
    fn unstore_inner_values(&mut self, matched: &AttentionMatch) {
        let leaves = self.leaves_of_match(matched);
        for node in &matched.nodes {
            for result in &self.graph.nodes[*node].results {
                self.materialized[result.index()] = false;
                self.reasons[result.index()] = None;
            }
        }
        self.properties[matched.weights.index()].leaves = leaves;
    }
}

impl AttentionMatch {
    /// True if one of the nodes in front of the anchor defines the value.
    fn defines(&self, graph: &Graph, value: ValueId) -> bool {
        match graph.value(value).definition {
            Definition::Node(node, _) => self.nodes.contains(&node),
            _ => false,
        }
    }
}
