//! Lowering of matrix products and convolutions by their chosen variants.

use crate::error::Result;
use crate::ir::{Node, Op, Primitive};
use crate::kernel::choice::KernelVariant;
use crate::plan::conv::winograd::filter_gradient;
use crate::plan::conv::{self, direct, grouped, implicit_gemm, winograd};
use crate::plan::group::Group;
use crate::plan::kernel::LoweredKernel;
use crate::plan::product::{Product, dot, matrix, tile, vector, workgroup};
use crate::plan::{Planner, element, variant};

impl<'a> Planner<'a> {
    /// Lowers a matrix product or convolution to the first candidate variant that the device can bind, or else to the
    /// last.
    pub fn lower_best_variant(&self, group: &Group) -> Result<Option<LoweredKernel<'a>>> {
        let Some(node) = group.anchor.map(|anchor| &self.graph.nodes[anchor]) else {
            return Ok(None);
        };
        let mut last = None;
        for choice in
            variant::choices(&self.scope(), node, &self.request.options.variant_overrides)?
        {
            let mut lowered = self.lower_variant(choice.variant, group, node)?;
            lowered.choice = Some(choice);
            if lowered.fits() {
                return Ok(Some(lowered));
            }
            last = Some(lowered);
        }
        Ok(last)
    }

    /// Lowers a matrix product or convolution to one of its variants.
    fn lower_variant(
        &self,
        variant: KernelVariant,
        group: &Group,
        node: &Node,
    ) -> Result<LoweredKernel<'a>> {
        let (scope, tile_shape) = (self.scope(), self.fusion.tile_shape(group.anchor));
        match (&node.op, variant) {
            (Op::Primitive(Primitive::Dot(_)), KernelVariant::Portable) => {
                dot::lower(scope, group, node)
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::Portable) => {
                conv::lower(scope, group, node, conv)
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::SubgroupTile) => {
                implicit_gemm::lower(scope, group, node, conv, tile_shape)
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::Grouped) => {
                grouped::lower(scope, group, node, conv)
            }
            (
                Op::Primitive(Primitive::Conv(conv)),
                KernelVariant::Winograd { tile: output_tile },
            ) => winograd::lower(scope, group, node, conv, output_tile, tile_shape),
            (Op::Primitive(Primitive::Dot(_)), KernelVariant::Winograd { tile: output_tile }) => {
                filter_gradient::lower(scope, group, node, output_tile)
            }
            (_, KernelVariant::SubgroupTile) => {
                let product = Product::of(self.graph, node)?;
                tile::lower(scope, group, &product, tile_shape)
            }
            (_, KernelVariant::ImagePatches) => {
                let product = Product::of(self.graph, node)?;
                tile::lower_values(scope, group, &product)
            }
            (Op::Primitive(Primitive::Conv(conv)), KernelVariant::DepthwiseDirect) => {
                direct::lower(scope, group, node, conv)
            }
            (_, KernelVariant::Gemv) => {
                let product = Product::of(self.graph, node)?;
                vector::lower(scope, group, &product)
            }
            (_, KernelVariant::CooperativeMatrix { size }) => {
                let product = Product::of(self.graph, node)?;
                let factors = variant::matrix_dtype(&scope, node)?;
                let unit = matrix::matrix_unit(self.capabilities, size, factors);
                let unit = unit.ok_or_else(|| element::not_planned(node))?;
                matrix::lower(scope, group, &product, unit)
            }
            (_, KernelVariant::WorkgroupTile { side }) => {
                let product = Product::of(self.graph, node)?;
                let tile_shape = workgroup::WorkgroupTileShape::of(side);
                let tile_shape = tile_shape.ok_or_else(|| element::not_planned(node))?;
                workgroup::lower(scope, group, &product, tile_shape)
            }
            _ => Err(element::not_planned(node)),
        }
    }
}
