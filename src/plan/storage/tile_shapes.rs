//! Tile shapes of products with weights, chosen for a whole graph: they determine the panels and which kernels are
//! shared.

use std::collections::BTreeMap;

use crate::dim::Dim;
use crate::ir::{Graph, Op, Primitive};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::KernelVariant;
use crate::plan::conv::{implicit_gemm, winograd};
use crate::plan::cost::{NodeClass, example_size, node_class};
use crate::plan::element::KernelScope;
use crate::plan::fuse::Fusion;
use crate::plan::group::Group;
use crate::plan::product::Product;
use crate::plan::product::tile::{self, LeftLayout, TileShape, WeightProduct};
use crate::plan::storage::precision::StorageRequest;
use crate::plan::variant;

/// Tile shapes by the node of a product.
pub type TileShapes = BTreeMap<usize, TileShape>;

impl Fusion {
    /// The tile shape of a group's product.
    pub fn tile_shape(&self, anchor: Option<usize>) -> TileShape {
        let known = anchor.and_then(|anchor| self.tile_shapes.get(&anchor));
        known.copied().unwrap_or(TileShape::DEFAULT)
    }
}

/// Chooses the shapes for all groups of a graph.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
    request: StorageRequest,
) -> TileShapes {
    let Some(lanes) = capabilities.simd_lanes() else {
        return TileShapes::new();
    };
    let written = vec![false; graph.values.len()];
    let scope = || {
        let scope = KernelScope::new(graph, capabilities, &fusion.materialized, &written);
        scope.with_layouts(&fusion.layouts, &fusion.storages)
    };
    let tiled = fusion.groups.iter().filter_map(|group| {
        let anchor = group.anchor.filter(|_| group.pattern.is_none())?;
        Some((anchor, tiled_product(scope(), group, anchor, request)?))
    });
    let (anchors, products): (Vec<usize>, Vec<WeightProduct>) = tiled.unzip();
    let shapes = tile::choose_shapes(lanes, capabilities.textures, &products);
    anchors.into_iter().zip(shapes).collect()
}

/// Description of a group's tiled product with a weight in panels; `None` for other groups. Errors are reported when
/// the kernel is generated.
fn tiled_product(
    mut scope: KernelScope,
    group: &Group,
    anchor: usize,
    request: StorageRequest,
) -> Option<WeightProduct> {
    let (graph, capabilities) = (scope.graph, scope.capabilities);
    let node = graph.nodes.get(anchor)?;
    let choice = variant::best_choice(&scope, node, &request.options.variant_overrides).ok()??;
    let nodes = group.computed(graph, scope.materialized).into_iter();
    let nodes = nodes.map(|node| &graph.nodes[node]);
    let nodes = nodes.filter(|node| node_class(node) != NodeClass::View);
    let names: Vec<&str> = nodes.map(|node| node.op.name()).collect();
    match (&node.op, choice.variant) {
        (Op::Primitive(Primitive::Conv(conv)), KernelVariant::SubgroupTile) => {
            // Grouped convolutions have separate kernels.
            let choice_key = if conv.groups == 1 { "" } else { &choice.key };
            let kernel_key = format!("{} {choice_key}", names.join(" "));
            implicit_gemm::weight_product(&scope, node, conv, kernel_key)
        }
        (Op::Primitive(Primitive::Conv(conv)), KernelVariant::Winograd { tile: output_tile }) => {
            winograd::weight_product(
                graph,
                capabilities,
                node,
                conv,
                output_tile,
                &names.join(" "),
            )
        }
        (Op::Primitive(Primitive::Dot(_)), KernelVariant::SubgroupTile) => {
            let product = Product::of(graph, node).ok()?;
            let (_, packed) =
                tile::packed_weight(&mut scope, &product, TileShape::DEFAULT).ok()??;
            let sizes = [&Dim::product(&product.batch), &product.rows];
            Some(WeightProduct {
                kernel_key: names.join(" "),
                left_layout: LeftLayout::Scattered,
                sizes: sizes.map(|size| example_size(graph, size)),
                panels: packed.panels,
                enclosing: None,
            })
        }
        _ => None,
    }
}
