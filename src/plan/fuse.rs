//! Fusion: decides which values are materialised and which nodes one kernel computes.
//!
//! Pointwise primitives and views are inlined into their readers, unless that would repeat work. Primitives with loops
//! get kernels. The pointwise primitives that follow one and have no other readers become its epilogue; some in front
//! of convolutions become a prologue. Patterns of several such primitives claim their nodes first: a claimed node
//! belongs to the kernel of its pattern. Remaining kernels that depend on each other element by element are merged.

pub mod blocked;
mod broadcast;
pub mod claim;
pub mod epilogue;
pub mod merge;
pub mod order;
pub mod prologue;
pub mod split;
pub mod split_deviations;
pub mod split_reduction;
pub mod topk_split;

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::layout::Layout;
use crate::kernel::materialization::{F32StorageReason, MaterializeReason};
use crate::op::Unfold;
use crate::plan::cost::{NodeClass, example_size, is_plain_view, node_class, primitive_cost};
use crate::plan::element::not_planned;
use crate::plan::fuse::claim::attention::AttentionMatch;
use crate::plan::group::{Group, Pattern};
use crate::plan::product::{Product, tile};
use crate::plan::storage::concat::{self, ConcatParts, PlannedParts};
use crate::plan::storage::precision::StorageRequest;
use crate::plan::storage::tile_shapes::TileShapes;
use crate::plan::variant;

/// A value that costs more is not computed twice.
const MAX_DUPLICATED_COST: u32 = 12;
/// A value that costs more is not recomputed by a broadcast or overlapping windows.
pub const MAX_REPEATED_COST: u32 = 8;
/// Upper bound of the cost of an expression.
pub const MAX_EXPRESSION_COST: u32 = 160;

/// The fusion decisions of a graph.
pub struct Fusion {
    /// Whether a value is materialised, by index.
    pub materialized: Vec<bool>,
    /// Why a value is materialised, by index; `None` for inputs and weights.
    pub reasons: Vec<Option<MaterializeReason>>,
    /// Layout of a value, by index.
    pub layouts: Vec<Layout>,
    /// Storage type of a value, by index.
    pub storages: Vec<StorageType>,
    /// Whether kernels may read a value as a texture, by index.
    pub texture_aliased: Vec<bool>,
    /// Why a value keeps `f32` storage though half precision was requested, by index.
    pub f32_reasons: Vec<Option<F32StorageReason>>,
    /// Values that are materialised to be stored within concatenations.
    pub planned_parts: PlannedParts,
    /// Values that are stored within concatenations.
    pub concat_parts: ConcatParts,
    /// Kernel groups in execution order.
    pub groups: Vec<Group>,
    /// Tile shapes of products with weights, by node.
    pub tile_shapes: TileShapes,
}

impl Fusion {
    /// Materialised values that these values are or are computed from.
    pub fn leaves(&self, graph: &Graph, values: &[ValueId]) -> BTreeSet<ValueId> {
        let (mut leaves, mut open) = (BTreeSet::new(), values.to_vec());
        while let Some(value) = open.pop() {
            if self.materialized[value.index()] {
                leaves.insert(value);
            } else if let Definition::Node(node, _) = graph.value(value).definition {
                open.extend(graph.nodes[node].operands());
            }
        }
        leaves
    }
}

/// Properties of a value, found while nodes are visited in order.
#[derive(Clone, Default)]
pub struct ValueProperties {
    /// Cost of computing one element, in simple operations.
    pub cost: u32,
    /// Leaves: the materialised values that a kernel reads to compute it.
    pub leaves: BTreeSet<ValueId>,
    /// How kernels read an element.
    access: Access,
}

/// How a kernel reads an element of a value, the cheapest first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    /// As an element of a buffer or a number: the value is a buffer or filled with the number, or views and casts of such
    /// a value.
    Plain,
    /// As an element of a buffer, or as padding: the value is views of a padded buffer.
    Padded,
    /// By computing it.
    #[default]
    Computed,
}

/// Decides the fusion of a graph of primitives and regions. The error lists every node that a device cannot run.
pub fn fuse(graph: &Graph, capabilities: &Capabilities, request: StorageRequest) -> Result<Fusion> {
    let calls = graph
        .nodes
        .iter()
        .filter(|node| matches!(node.op, Op::Call(_)));
    if let Some(error) = Error::all(calls.map(not_planned).collect()) {
        return Err(error);
    }
    let planned_parts = concat::plan_parts(graph, capabilities);
    let mut fuser = Fuser {
        graph,
        capabilities,
        request,
        // One binding is reserved for the result.
        max_read_buffers: (capabilities.max_storage_buffers as usize).saturating_sub(1),
        properties: vec![ValueProperties::default(); graph.values.len()],
        materialized: vec![false; graph.values.len()],
        reasons: vec![None; graph.values.len()],
        readers: readers(graph),
        is_output: graph.output_flags(),
        unwritten: vec![false; graph.values.len()],
        planned_wholes: planned_parts.values().copied().collect(),
        planned_parts,
        attention: BTreeMap::new(),
        attention_keys: BTreeSet::new(),
        attention_values: BTreeSet::new(),
    };
    fuser.find_attention();
    for (index, info) in graph.values.iter().enumerate() {
        if !matches!(info.definition, Definition::Node(..)) {
            fuser.materialize(index, None);
        }
    }
    for node in &graph.nodes {
        match &node.op {
            Op::Primitive(Primitive::Custom(_)) => fuser.materialize_operands_and_results(node),
            Op::Primitive(primitive) => fuser.visit(node, primitive),
            _ => fuser.materialize_operands_and_results(node),
        }
    }
    let groups = fuser.groups(capabilities);
    Ok(Fusion {
        materialized: fuser.materialized,
        reasons: fuser.reasons,
        layouts: vec![Layout::Linear; graph.values.len()],
        storages: Vec::new(),
        texture_aliased: Vec::new(),
        f32_reasons: Vec::new(),
        planned_parts: fuser.planned_parts,
        concat_parts: ConcatParts::new(),
        groups,
        tile_shapes: TileShapes::new(),
    })
}

/// The nodes that read each value.
pub fn readers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for operand in node.operands() {
            let operand_readers = &mut readers[operand.index()];
            if operand_readers.last() != Some(&index) {
                operand_readers.push(index);
            }
        }
    }
    readers
}

/// Makes the fusion decisions.
pub struct Fuser<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Capabilities of the device.
    pub capabilities: &'a Capabilities,
    /// Requirements of the plan.
    pub request: StorageRequest<'a>,
    /// Maximal number of buffers that a kernel can read.
    pub max_read_buffers: usize,
    /// Properties of each value.
    pub properties: Vec<ValueProperties>,
    /// Whether each value is materialised.
    pub materialized: Vec<bool>,
    /// Why each value is materialised.
    pub reasons: Vec<Option<MaterializeReason>>,
    /// The nodes that read each value.
    pub readers: Vec<Vec<usize>>,
    /// Whether each value is an output of the graph.
    pub is_output: Vec<bool>,
    /// For each value, that no kernel writes an input or weight.
    pub unwritten: Vec<bool>,
    /// Values that are materialised to be stored within concatenations.
    planned_parts: PlannedParts,
    /// The concatenations that these are stored within.
    planned_wholes: BTreeSet<ValueId>,
    /// Candidates for attention kernels, by their last node.
    attention: BTreeMap<usize, AttentionMatch>,
    /// Keys and values of the candidates.
    attention_keys: BTreeSet<ValueId>,
    attention_values: BTreeSet<ValueId>,
}

impl Fuser<'_> {
    /// Marks a value as materialised. The first reason is kept.
    pub fn materialize(&mut self, value: usize, reason: impl Into<Option<MaterializeReason>>) {
        let id = ValueId(u32::try_from(value).unwrap_or(u32::MAX));
        let is_new = !std::mem::replace(&mut self.materialized[value], true);
        if is_new {
            self.reasons[value] = reason.into();
        }
        self.properties[value] = ValueProperties {
            cost: 1,
            leaves: BTreeSet::from([id]),
            access: Access::Plain,
        };
    }

    /// Materialises operands and results of a node that is not fused.
    fn materialize_operands_and_results(&mut self, node: &Node) {
        let results = node.results.iter().copied();
        for value in node.operands().into_iter().chain(results) {
            self.materialize(value.index(), MaterializeReason::External);
        }
    }

    /// Materialises operands that a node reads too often, and decides whether its result is materialised.
    fn visit(&mut self, node: &Node, primitive: &Primitive) {
        let operands = node.operands();
        for (operand_index, operand) in operands.iter().enumerate() {
            let properties = &self.properties[operand.index()];
            let is_costly = properties.cost > MAX_REPEATED_COST
                && reads_repeatedly(self.graph, node, primitive, operand_index);
            // Each load of the left factor of a product serves many columns.
            let is_factor = operand_index == 0 && matches!(primitive, Primitive::Dot(_));
            let reads_in_place = match properties.access {
                Access::Plain => true,
                Access::Padded => self.is_tiled_product(node, primitive),
                Access::Computed => false,
            };
            let is_read_often = rereads_elements(primitive, operand_index) && !reads_in_place
                || operand_index == 0
                    && !self.materialized[operand.index()]
                    && self.is_vec4_conv(node, primitive);
            if is_read_often && !(operand_index == 0 && self.is_prologue(node, primitive, *operand))
            {
                self.store_behind_views(*operand, is_factor);
            } else if is_costly {
                self.store_repeated(*operand);
            }
        }
        let is_concat = matches!(primitive, Primitive::Concat(_));
        // A concatenation may get a kernel for each operand.
        self.fit_bindings(&operands, if is_concat { operands.len().max(1) } else { 1 });
        if node_class(node) == NodeClass::Kernel {
            for result in &node.results {
                self.materialize(result.index(), MaterializeReason::NoEpilogue);
            }
            return;
        }
        let Some(result) = node.results.first() else {
            return;
        };
        self.properties[result.index()] = self.combine(&operands, primitive);
        if let Some(reason) = self.reason_to_store(*result) {
            self.materialize(result.index(), reason);
        }
    }

    /// True for a matrix product of which subgroups compute tiles. A tile loads each element of its rows and columns once,
    /// so that testing the bounds of windows takes less time than storing them.
    fn is_tiled_product(&self, node: &Node, primitive: &Primitive) -> bool {
        let (Primitive::Dot(_), Ok(product)) = (primitive, Product::of(self.graph, node)) else {
            return false;
        };
        let dtype = self.graph.ty(product.result).dtype;
        let sizes = [&product.rows, &product.columns, &product.k_size];
        let sizes = sizes.map(|size| example_size(self.graph, size));
        tile::is_preferred(self.capabilities, dtype, sizes)
    }

    /// True for a convolution that reads channels as vec4, a layout that views of a value do not have.
    fn is_vec4_conv(&self, node: &Node, primitive: &Primitive) -> bool {
        match primitive {
            Primitive::Conv(conv) => {
                variant::vec4_conv_variant(self.graph, self.capabilities, node, conv).is_some()
            }
            _ => false,
        }
    }

    /// Reason why no reader may inline a value, whichever primitive reads it.
    fn reason_to_store(&self, value: ValueId) -> Option<MaterializeReason> {
        let ValueProperties { cost, leaves, .. } = &self.properties[value.index()];
        let (cost, readers) = (*cost, self.readers[value.index()].len());
        if self.is_output[value.index()] {
            Some(MaterializeReason::Output)
        } else if self.is_assertion(value) {
            Some(MaterializeReason::Assertion)
        } else if self.planned_parts.contains_key(&value) || self.planned_wholes.contains(&value) {
            Some(MaterializeReason::Concatenated)
        } else if readers > 1 && cost > MAX_DUPLICATED_COST {
            Some(MaterializeReason::Shared { readers, cost })
        } else if cost > MAX_EXPRESSION_COST {
            Some(MaterializeReason::TooLong { cost })
        } else if leaves.len() > self.max_read_buffers
            || self.request.is_stored(&self.graph.value(value).name)
        {
            Some(MaterializeReason::TooManyBuffers)
        } else {
            None
        }
    }

    /// True for a check that takes effect even if nothing reads its result.
    fn is_assertion(&self, value: ValueId) -> bool {
        match self.graph.value(value).definition {
            Definition::Node(node, _) => self.graph.nodes[node].has_side_effect(),
            _ => false,
        }
    }

    /// Materialises operands until one kernel can bind the remaining reads. Does nothing if several `kernels` share the
    /// operands.
    fn fit_bindings(&mut self, operands: &[ValueId], kernels: usize) {
        loop {
            let mut leaves = BTreeSet::new();
            for operand in operands {
                leaves.extend(self.properties[operand.index()].leaves.iter().copied());
            }
            let widest = operands
                .iter()
                .max_by_key(|operand| self.properties[operand.index()].leaves.len());
            match widest {
                Some(widest)
                    if leaves.len() > self.max_read_buffers
                        && self.properties[widest.index()].leaves.len() > 1
                        && kernels == 1 =>
                {
                    self.materialize(widest.index(), MaterializeReason::TooManyBuffers);
                }
                _ => return,
            }
        }
    }

    /// Properties of a result, from those of its operands.
    pub fn combine(&self, operands: &[ValueId], primitive: &Primitive) -> ValueProperties {
        let mut info = ValueProperties {
            cost: primitive_cost(primitive),
            leaves: BTreeSet::new(),
            access: access(primitive),
        };
        for operand in operands {
            let other = &self.properties[operand.index()];
            info.cost = info.cost.saturating_add(other.cost);
            info.leaves.extend(other.leaves.iter().copied());
            info.access = info.access.max(other.access);
        }
        info
    }

    /// Divides the nodes into groups, in execution order.
    fn groups(&mut self, capabilities: &Capabilities) -> Vec<Group> {
        let mut claimed = vec![false; self.graph.nodes.len()];
        let mut attention = self.claim_attention(&mut claimed);
        let mut groups = self.claim_rows(capabilities, &mut claimed);
        // Later nodes choose their epilogues first, so that values which an epilogue reads are computed before it.
        for index in (0..self.graph.nodes.len()).rev() {
            let node = &self.graph.nodes[index];
            let is_kernel =
                node_class(node) == NodeClass::Kernel && !claimed[index] && self.is_used(index);
            if let (true, Some(first)) = (is_kernel, node.results.first()) {
                let mut group = self.kernel(index, *first, &mut claimed);
                if let Some(matched) = attention.remove(&index) {
                    group.nodes.splice(0..0, matched.nodes);
                    group.pattern = Some(Pattern::Attention(matched.attention));
                }
                groups.push(group);
            }
        }
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let is_free = node_class(node) != NodeClass::Kernel && !claimed[index];
            if let (true, Some(first)) = (is_free, node.results.first())
                && self.materialized[first.index()]
            {
                groups.push(Group::of_value(*first, index));
            }
        }
        self.store_broadcast_values(&mut groups, &claimed);
        let groups = self.merge_pointwise(groups);
        order::topological_order(self, groups)
    }

    /// True if a result of a node is read, or if the node has an effect.
    pub fn is_used(&self, index: usize) -> bool {
        let node = &self.graph.nodes[index];
        let mut results = node.results.iter();
        let is_read = |result: &ValueId| {
            !self.readers[result.index()].is_empty() || self.is_output[result.index()]
        };
        node.has_side_effect() || results.any(is_read)
    }

    /// Index of the node that defines a value; 0 for inputs and weights.
    pub fn definition_index(&self, value: ValueId) -> usize {
        match self.graph.value(value).definition {
            Definition::Node(node, _) => node,
            _ => 0,
        }
    }
}

/// True if the kernel reads each element of an operand many times.
fn rereads_elements(primitive: &Primitive, operand_index: usize) -> bool {
    match primitive {
        Primitive::Dot(_) | Primitive::Conv(_) => true,
        Primitive::Sort(sort) => sort.k.is_none(),
        // The weight and its biases are read in each step.
        Primitive::Recurrent(_) => operand_index == 1 || operand_index == 2,
        _ => false,
    }
}

/// True for a view that reads elements of an operand more than once.
fn reads_repeatedly(
    graph: &Graph,
    node: &Node,
    primitive: &Primitive,
    operand_index: usize,
) -> bool {
    let grows = || {
        let operand = node
            .operands()
            .get(operand_index)
            .map(|id| graph.ty(*id).numel());
        let result = node.results.first().map(|id| graph.ty(*id).numel());
        operand != result
    };
    match primitive {
        Primitive::Expand(_) => grows(),
        Primitive::Gather(_) => operand_index == 0 && grows(),
        Primitive::Unfold(Unfold { size, stride, .. }) => size > stride,
        _ => false,
    }
}

/// How kernels read an element of the result, if the operands are buffers.
fn access(primitive: &Primitive) -> Access {
    match primitive {
        Primitive::Unfold(_) | Primitive::Cast(_) | Primitive::Full(_) => Access::Plain,
        Primitive::Pad(_) => Access::Padded,
        view if is_plain_view(view) => Access::Plain,
        _ => Access::Computed,
    }
}
