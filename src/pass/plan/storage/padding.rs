//! Room behind rows that kernels read many of at a time, one element of each: rows a multiple of many lines of the cache apart
//! would all want the same few places of it.

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::Variant;
use crate::kernel::layout::Layout;
use crate::pass::plan::cost::example;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::is_multiple;
use crate::pass::plan::fuse::Fusion;
use crate::pass::plan::group::{Group, Pattern};
use crate::pass::plan::storage::layout::handed;
use crate::pass::plan::storage::precision::Wanted;
use crate::pass::plan::variant;

/// Numbers of a line of the cache, which is the room behind a row: then rows are an odd number of lines apart.
const LINE: usize = 16;
/// So many lines apart, rows share an eighth of the places in a cache of 64 sets, which the rows of a tile do not fit.
const FEW: usize = 8;
/// So many rows have places everywhere: those of a set.
const WAYS: usize = 8;

/// Lays out all values of a graph that are worth it.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    wanted: Wanted,
    fusion: &Fusion,
) -> Vec<Layout> {
    let mut layouts = fusion.layouts.clone();
    if capabilities.lanes().is_none() {
        return layouts;
    }
    let padder = Padder {
        graph,
        capabilities,
        wanted,
        fusion,
        handed: handed(graph),
    };
    let read = fusion.groups.iter().flat_map(|group| padder.read(group));
    for value in read.filter(|value| padder.may_lie(*value)) {
        layouts[value.index()] = Layout::Padded { spare: LINE };
    }
    layouts
}

struct Padder<'a> {
    graph: &'a Graph,
    capabilities: &'a Capabilities,
    wanted: Wanted<'a>,
    fusion: &'a Fusion,
    handed: BTreeSet<ValueId>,
}

impl Padder<'_> {
    /// The values in memory that a group's kernel reads row by row: left factors of products, queries, keys and values.
    fn read(&self, group: &Group) -> BTreeSet<ValueId> {
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

    /// True for a product whose kernel computes tiles in the lanes of a vector. An error is found again where it is made.
    fn is_in_tiles(&self, product: &Node) -> bool {
        let written = vec![false; self.graph.values.len()];
        let scope = Scope::new(self.graph, self.capabilities, &self.fusion.stored, &written);
        let scope = scope.in_memory(&self.fusion.layouts, &self.fusion.storages);
        let choice = variant::best(&scope, product, &self.wanted.options.choices);
        matches!(choice, Ok(Some(choice)) if choice.variant == Variant::Lanes)
    }

    /// True for a value of rows that would lie in the same places, if nothing else wants it as it is.
    fn may_lie(&self, value: ValueId) -> bool {
        let ty = self.graph.ty(value);
        let Some((row, outer)) = ty.shape.split_last() else {
            return false;
        };
        let is_plain =
            ty.dtype == DType::F32 && self.fusion.layouts[value.index()] == Layout::Linear;
        let is_even = row.as_const().is_some() && is_multiple(row, FEW * LINE);
        let rows: usize = outer.iter().map(|size| example(self.graph, size)).product();
        is_plain && is_even && rows > WAYS && self.has_room(value) && self.is_alone(value)
    }

    /// True for a value that takes no more than half of the largest binding, so that room behind rows is not what is too much.
    fn has_room(&self, value: ValueId) -> bool {
        let size = self.fusion.storages[value.index()].size();
        let bytes = example(self.graph, &self.graph.ty(value).numel()) as u64 * size;
        bytes <= self.capabilities.max_binding_size / 2
    }

    /// True for what kernels of ours write, or the host, and what lies in no other value's memory, nor others in its.
    fn is_alone(&self, value: ValueId) -> bool {
        let parts = &self.fusion.parts;
        let is_whole = || parts.values().any(|(whole, _)| *whole == value);
        let is_made = match self.graph.value(value).definition {
            Definition::Node(..) => true,
            Definition::Input(_) => self.wanted.prefix.is_empty(),
            Definition::Weight(_) => false,
        };
        is_made && !self.handed.contains(&value) && !parts.contains_key(&value) && !is_whole()
    }
}
