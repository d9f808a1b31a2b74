//! Prologues: pointwise primitives that a convolution applies to each element that it reads, where another kernel would
//! write these elements for the convolution alone.

use crate::ir::{Definition, Node, Op, Primitive, ValueId};
use crate::kernel::choice::KernelVariant;
use crate::plan::conv::ConvSizes;
use crate::plan::cost::{NodeClass, example_size, node_class};
use crate::plan::element::vec4::is_multiple_of_4;
use crate::plan::fuse::Fuser;
use crate::plan::variant;

/// Cost of writing an element and reading it again on a rasteriser, in simple operations.
const STORE_AND_LOAD_COST: usize = 48;
/// Columns of a tile. Each tile computes each element of the prologue once, so that an element is computed as often as
/// there are tiles along the output channels.
const TILE_COLUMNS: usize = 32;

impl Fuser<'_> {
    /// True for an operand that a convolution computes in its prologue: an image without other readers in which each
    /// output position reads one input position.
    pub fn is_prologue(&self, node: &Node, primitive: &Primitive, operand: ValueId) -> bool {
        let Primitive::Conv(conv) = primitive else {
            return false;
        };
        let has_one_reader =
            self.readers[operand.index()].len() == 1 && !self.materialized[operand.index()];
        let Some(sizes) = ConvSizes::new(self.graph, node, conv)
            .ok()
            .filter(|_| has_one_reader)
        else {
            return false;
        };
        let tiles = example_size(self.graph, &sizes.outputs).div_ceil(TILE_COLUMNS);
        let cost = usize::try_from(self.properties[operand.index()].cost).unwrap_or(usize::MAX);
        cost.saturating_mul(tiles) <= STORE_AND_LOAD_COST
            && conv.groups == 1
            && sizes.reads_each_position_once()
            && is_multiple_of_4(&sizes.channels)
            && variant::vec4_conv_variant(self.graph, self.capabilities, node, conv)
                == Some(KernelVariant::SubgroupTile)
            && self.is_elementwise_of_images(operand)
    }

    /// True for elementwise work on stored images of the same shape and on values that are expanded to that shape.
    fn is_elementwise_of_images(&self, image: ValueId) -> bool {
        let shape = &self.graph.ty(image).shape;
        let mut open = vec![image];
        while let Some(value) = open.pop() {
            let info = self.graph.value(value);
            let Definition::Node(node, _) = info.definition else {
                return false;
            };
            let node = &self.graph.nodes[node];
            let is_image = info.ty.shape == *shape && !self.is_output[value.index()];
            let is_expanded = matches!(node.op, Op::Primitive(Primitive::Expand(_)));
            match (self.materialized[value.index()], node_class(node)) {
                (true, _) if is_image => {}
                (false, NodeClass::Pointwise) => open.extend(node.operands()),
                (false, NodeClass::Generator) => {}
                (false, _) if is_expanded => {}
                _ => return false,
            }
        }
        true
    }
}
