//! Row padding of values that kernels read column by column. Rows whose distance is a multiple of many cache lines
//! would map to the same few cache sets.

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::KernelVariant;
use crate::kernel::layout::Layout;
use crate::plan::cost::example_size;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::is_multiple;
use crate::plan::fuse::Fusion;
use crate::plan::group::{Group, Pattern};
use crate::plan::storage::layout::external_values;
use crate::plan::storage::precision::StorageRequest;
use crate::plan::variant;

/// Elements of a cache line, which is the padding of a row. Padded rows are an odd number of lines apart.
const CACHE_LINE_ELEMENTS: usize = 16;
/// Row distance in cache lines from which on rows share an eighth of the 64 sets of a cache, too few for the rows of a
/// tile.
const CONFLICT_LINES: usize = 8;
/// Number of rows that never conflict: the associativity of the cache.
const CACHE_WAYS: usize = 8;

/// Pads all values of a graph that benefit.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    request: StorageRequest,
    fusion: &Fusion,
) -> Vec<Layout> {
    let mut layouts = fusion.layouts.clone();
    if capabilities.simd_lanes().is_none() {
        return layouts;
    }
    let padder = Padder {
        graph,
        capabilities,
        request,
        fusion,
        external: external_values(graph),
        unwritten: vec![false; graph.values.len()],
        wholes: fusion
            .concat_parts
            .values()
            .map(|(whole, _)| *whole)
            .collect(),
    };
    let read = fusion
        .groups
        .iter()
        .flat_map(|group| padder.row_reads(group));
    for value in read.filter(|value| padder.benefits_from_padding(*value)) {
        layouts[value.index()] = Layout::Padded {
            padding: CACHE_LINE_ELEMENTS,
        };
    }
    layouts
}

/// Finds the values to pad.
struct Padder<'a> {
    graph: &'a Graph,
    capabilities: &'a Capabilities,
    request: StorageRequest<'a>,
    fusion: &'a Fusion,
    external: BTreeSet<ValueId>,
    /// For each value, that no kernel writes an input or weight.
    unwritten: Vec<bool>,
    /// Concatenations that other values are stored within.
    wholes: BTreeSet<ValueId>,
}

impl Padder<'_> {
    /// Stored values that the group's kernel reads row by row: left factors of products, queries, keys and values.
    fn row_reads(&self, group: &Group) -> BTreeSet<ValueId> {
        let node = group.anchor.map(|anchor| &self.graph.nodes[anchor]);
        let Some(node) = node.filter(|node| matches!(node.op, Op::Primitive(Primitive::Dot(_))))
        else {
            return BTreeSet::new();
        };
        let mut operands = node.operands();
        match group.pattern {
            Some(Pattern::Attention(_)) => {}
            None if self.is_in_tiles(node) => operands.truncate(1),
            _ => operands.clear(),
        }
        self.fusion.leaves(self.graph, &operands)
    }

    /// True for a product whose kernel computes tiles in vector lanes. Errors are reported when the kernel is
    /// generated.
    fn is_in_tiles(&self, product: &Node) -> bool {
        let scope = KernelScope::new(
            self.graph,
            self.capabilities,
            &self.fusion.materialized,
            &self.unwritten,
        );
        let scope = scope.with_layouts(&self.fusion.layouts, &self.fusion.storages);
        let choice = variant::best_choice(&scope, product, &self.request.options.variant_overrides);
        matches!(choice, Ok(Some(choice)) if choice.variant == KernelVariant::SubgroupTile)
    }

    /// True for a value whose rows would conflict and whose layout may change.
    fn benefits_from_padding(&self, value: ValueId) -> bool {
        let ty = self.graph.ty(value);
        let Some((row, outer)) = ty.shape.split_last() else {
            return false;
        };
        let is_plain =
            ty.dtype == DType::F32 && self.fusion.layouts[value.index()] == Layout::Linear;
        let conflicts =
            row.as_const().is_some() && is_multiple(row, CONFLICT_LINES * CACHE_LINE_ELEMENTS);
        let rows: usize = outer
            .iter()
            .map(|size| example_size(self.graph, size))
            .product();
        is_plain
            && conflicts
            && rows > CACHE_WAYS
            && self.fits_half_binding(value)
            && self.is_unshared(value)
    }

    /// True for a value that takes at most half of the largest binding, so that padding does not exceed the limit.
    fn fits_half_binding(&self, value: ValueId) -> bool {
        let size = self.fusion.storages[value.index()].size();
        let bytes = example_size(self.graph, &self.graph.ty(value).numel()) as u64 * size;
        bytes <= self.capabilities.max_binding_size / 2
    }

    /// True for values that our kernels write or the host uploads, and that share no memory with others.
    fn is_unshared(&self, value: ValueId) -> bool {
        let parts = &self.fusion.concat_parts;
        let is_part = parts.contains_key(&value);
        let is_ours = match self.graph.value(value).definition {
            Definition::Node(..) => true,
            Definition::Input(_) => self.request.prefix.is_empty(),
            Definition::Weight(_) => false,
        };
        is_ours && !self.external.contains(&value) && !is_part && !self.wholes.contains(&value)
    }
}
