//! Layout of values: on devices whose subgroups are vector lanes, images between convolutions use vec4 of channels.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::layout::Layout;
use crate::plan::element::vec4::is_multiple_of_4;
use crate::plan::fuse::Fusion;
use crate::plan::group::{Group, Pattern};
use crate::plan::reduce::{argument, pooling};
use crate::plan::variant;
use crate::plan::vec4_layout::{CHANNEL_AXIS, IMAGE_LAYOUT, may_be_image};

/// Chooses the layout of each value.
pub fn assign(graph: &Graph, capabilities: &Capabilities, fusion: &Fusion) -> Vec<Layout> {
    let mut assigner = LayoutAssigner {
        graph,
        capabilities,
        fusion,
        layouts: vec![Layout::Linear; graph.values.len()],
        external: external_values(graph),
        convolved: convolved_values(graph, capabilities, fusion),
    };
    if capabilities.simd_lanes().is_some() {
        fusion.groups.iter().for_each(|group| assigner.visit(group));
    }
    assigner.layouts
}

/// Values that something other than our kernels reads or writes, and outputs of the graph.
pub fn external_values(graph: &Graph) -> BTreeSet<ValueId> {
    let mut values = foreign_values(graph);
    values.extend(&graph.outputs);
    values
}

/// Values that something other than our kernels reads or writes.
pub fn foreign_values(graph: &Graph) -> BTreeSet<ValueId> {
    let has_kernel = |node: &&Node| match &node.op {
        Op::Primitive(primitive) => !matches!(primitive, Primitive::Custom(_)),
        _ => false,
    };
    let others = graph.nodes.iter().filter(|node| !has_kernel(node));
    let foreign = others.flat_map(|node| [node.operands(), node.results.clone()].concat());
    foreign.collect()
}

/// Chooses the layouts of values, group by group.
struct LayoutAssigner<'a> {
    graph: &'a Graph,
    capabilities: &'a Capabilities,
    fusion: &'a Fusion,
    layouts: Vec<Layout>,
    external: BTreeSet<ValueId>,
    /// Values that a convolution which wants the vec4 layout reads, directly or through inlined nodes of their shape.
    convolved: BTreeSet<ValueId>,
}

impl LayoutAssigner<'_> {
    /// Chooses the layout of a group's root.
    fn visit(&mut self, group: &Group) {
        let leaves = self.leaves(group.root);
        // A kernel may bind a buffer twice, for elements and for vectors.
        let fits = 2 * leaves.len() < self.capabilities.max_storage_buffers as usize
            || self.is_channel_concat(group.root);
        if fits && self.may_use_vec4(group.root) && self.benefits_from_vec4(group, &leaves) {
            self.layouts[group.root.index()] = IMAGE_LAYOUT;
        }
    }

    /// True for a concatenation of images along channels in which each operand starts at a vec4. The operands can be
    /// stored within it, so no kernel has to read all of them.
    fn is_channel_concat(&self, value: ValueId) -> bool {
        let Definition::Node(node, _) = self.graph.value(value).definition else {
            return false;
        };
        let node = &self.graph.nodes[node];
        let operands = node.operands();
        let leading = operands.split_last().map_or(&[][..], |(_, before)| before);
        let ends_at_vec4 = |id: &ValueId| is_multiple_of_4(&self.graph.ty(*id).shape[CHANNEL_AXIS]);
        matches!(&node.op, Op::Primitive(Primitive::Concat(concat)) if concat.axis == CHANNEL_AXIS)
            && leading.iter().all(ends_at_vec4)
    }

    /// Stored values that a kernel reads to compute `root`.
    fn leaves(&self, root: ValueId) -> BTreeSet<ValueId> {
        leaves_of(self.graph, self.fusion, root)
    }

    /// True for images in single precision that only our kernels access.
    fn may_use_vec4(&self, value: ValueId) -> bool {
        may_be_image(self.graph.ty(value)) && !self.external.contains(&value)
    }

    /// True if the group's kernel can write four channels at a time and a reader benefits.
    fn benefits_from_vec4(&self, group: &Group, leaves: &BTreeSet<ValueId>) -> bool {
        let reads_images = || {
            let rank = self.graph.ty(group.root).rank();
            let mut leaves = leaves.iter();
            leaves.any(|leaf| {
                self.layouts[leaf.index()] == IMAGE_LAYOUT && self.graph.ty(*leaf).rank() == rank
            })
        };
        match &group.pattern {
            Some(Pattern::Rows(rows)) => {
                let (frame, shape) = (&rows.frame, &self.graph.ty(group.root).shape);
                let is_of_channels =
                    !frame.is_contiguous() && frame.has_rows_along(shape, CHANNEL_AXIS);
                let is_vec4 = is_of_channels && is_multiple_of_4(&frame.length);
                return is_vec4 && (reads_images() || self.is_convolved(group.root));
            }
            Some(Pattern::Attention(attention)) => {
                return attention.is_transposed && self.has_channel_rows(group);
            }
            None => {}
        }
        let Some(node) = group.anchor.map(|anchor| &self.graph.nodes[anchor]) else {
            return reads_images() || self.is_convolved(group.root);
        };
        let keeps_shape = node
            .results
            .first()
            .is_some_and(|result| self.graph.ty(*result).shape == self.graph.ty(group.root).shape);
        match &node.op {
            Op::Primitive(Primitive::Conv(conv)) => {
                keeps_shape
                    && variant::vec4_conv_variant(self.graph, self.capabilities, node, conv)
                        .is_some()
            }
            Op::Primitive(Primitive::Reduce(_)) => {
                keeps_shape && reads_images() && pooling::is_supported(self.graph, node)
            }
            Op::Primitive(Primitive::ArgReduce(reduce)) => {
                keeps_shape
                    && reads_images()
                    && argument::is_of_images(self.graph, node, reduce.axis)
            }
            _ => false,
        }
    }

    /// True if four neighbouring rows of the anchor's result are channels of the image that the group writes.
    fn has_channel_rows(&self, group: &Group) -> bool {
        let results = group.anchor.map(|anchor| &self.graph.nodes[anchor].results);
        let result = results.and_then(|results| results.first());
        let Some([.., rows, columns]) = result.map(|id| self.graph.ty(*id).shape.as_slice()) else {
            return false;
        };
        let shape = &self.graph.ty(group.root).shape;
        let are_columns_positions = Dim::product(&shape[CHANNEL_AXIS + 1..]) == *columns;
        are_columns_positions && is_multiple_of_4(rows) && is_multiple_of_4(&shape[CHANNEL_AXIS])
    }

    /// True if a convolution that wants the vec4 layout reads the value, directly, through inlined nodes or as part of
    /// a concatenation.
    fn is_convolved(&self, value: ValueId) -> bool {
        if let Some(whole) = self.fusion.planned_parts.get(&value) {
            return self.is_convolved(*whole);
        }
        self.convolved.contains(&value)
    }
}

/// Stored values that a kernel reads to compute `root`.
fn leaves_of(graph: &Graph, fusion: &Fusion, root: ValueId) -> BTreeSet<ValueId> {
    let Definition::Node(node, _) = graph.value(root).definition else {
        return BTreeSet::new();
    };
    fusion.leaves(graph, &graph.nodes[node].operands())
}

/// Values that a convolution which wants the vec4 layout reads, directly or through inlined nodes of their shape.
fn convolved_values(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
) -> BTreeSet<ValueId> {
    let mut convolved = BTreeSet::new();
    for node in &graph.nodes {
        let (Op::Primitive(Primitive::Conv(conv)), Some(x)) =
            (&node.op, node.operands().first().copied())
        else {
            continue;
        };
        if variant::vec4_conv_variant(graph, capabilities, node, conv).is_none() {
            continue;
        }
        convolved.insert(x);
        if !fusion.materialized[x.index()] {
            let leaves = leaves_of(graph, fusion, x).into_iter();
            convolved.extend(leaves.filter(|leaf| graph.ty(*leaf).shape == graph.ty(x).shape));
        }
    }
    convolved
}
