//! Concatenations without copies: operands are written directly to their parts of the result. This applies to images
//! joined along channels and to operands that are contiguous in row-major order.
//!
//! In this module, `whole` is the result of a concatenation, and a part is an operand stored within it.

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::{Dim, Symbol};
use crate::error::Result;
use crate::ir::{Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::layout::Layout;
use crate::kernel::names::unique;
use crate::op::Concat;
use crate::plan::cost::example_size;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple, is_multiple_of_4};
use crate::plan::element::vec8::VEC8_LEN;
use crate::plan::fuse::Fusion;
use crate::plan::group::{Group, defining_node};
use crate::plan::plan_builder::GroupKernels;
use crate::plan::storage::layout::{external_values, foreign_values};
use crate::plan::vec4_layout::{CHANNEL_AXIS, IMAGE_LAYOUT};
use crate::plan::{Planner, map};

/// Values stored within others, with the containing value and the offset in elements.
pub type ConcatParts = BTreeMap<ValueId, (ValueId, Dim)>;

/// Values that are materialised to be stored within a concatenation, with that concatenation.
pub type PlannedParts = BTreeMap<ValueId, ValueId>;

/// Smallest size of a stored element in bytes.
const MIN_ELEMENT_BYTES: u64 = 2;
/// Most operands of a concatenation in one kernel. With more, each element searches too many operands.
const MAX_OPERANDS: usize = 4;
/// Smallest concatenation, in elements, for which a kernel per operand pays off.
const MIN_ELEMENTS: usize = 1 << 16;

/// True if a kernel per operand is faster than one kernel that searches all operands for each element, or if no kernel
/// can bind all operands.
fn is_worth_kernels(
    graph: &Graph,
    capabilities: &Capabilities,
    whole: ValueId,
    operands: usize,
) -> bool {
    let are_many = operands > MAX_OPERANDS;
    are_many && (is_large(graph, whole) || operands >= capabilities.max_storage_buffers as usize)
}

/// True if a concatenation has enough elements for a kernel per operand.
fn is_large(graph: &Graph, whole: ValueId) -> bool {
    example_size(graph, &graph.ty(whole).numel()) >= MIN_ELEMENTS
}

/// Images that convolutions read. They are materialised anyway, so that operands can be written to them directly.
fn convolved_images(graph: &Graph) -> BTreeSet<ValueId> {
    let is_convolution = |node: &&Node| matches!(node.op, Op::Primitive(Primitive::Conv(_)));
    let convolutions = graph.nodes.iter().filter(is_convolution);
    convolutions
        .filter_map(|node| node.operands().first().copied())
        .collect()
}

/// Operands to materialise so that concatenations of many operands need no kernels, including operands of nested
/// concatenations.
pub fn plan_parts(graph: &Graph, capabilities: &Capabilities) -> PlannedParts {
    let external = external_values(graph);
    let alignment = capabilities.offset_alignment / MIN_ELEMENT_BYTES;
    let convolved = convolved_images(graph);
    let mut planned = PlannedParts::new();
    // Outer concatenations come last in graph order.
    for node in graph.nodes.iter().rev() {
        let whole = node.results.first().copied();
        let Some(whole) = whole.filter(|whole| !planned.contains_key(whole)) else {
            continue;
        };
        let is_free = |value: ValueId| !external.contains(&value) && !planned.contains_key(&value);
        let Some(parts) = operands_to_store(graph, whole, alignment, &is_free) else {
            continue;
        };
        let wholes: BTreeSet<ValueId> = parts.values().copied().collect();
        let innermost = parts.keys().filter(|value| !wholes.contains(value));
        if is_worth_kernels(graph, capabilities, whole, innermost.count())
            || is_large(graph, whole) && convolved.contains(&whole)
        {
            planned.extend(parts);
        }
    }
    planned
}

/// Operands of a concatenation and of nested ones, without the reshapes after them; `None` if they cannot be stored
/// within it. Their offsets must be multiples of `alignment` elements.
fn operands_to_store(
    graph: &Graph,
    whole: ValueId,
    alignment: u64,
    is_free: &dyn Fn(ValueId) -> bool,
) -> Option<PlannedParts> {
    let mut parts = PlannedParts::new();
    for (operand, _) in contiguous_offsets(graph, whole, alignment)? {
        let base = look_through_reshapes(graph, operand, |_| false);
        let mut within = operands_to_store(graph, base, alignment, is_free).unwrap_or_default();
        within.insert(base, whole);
        let is_new = |value: &ValueId| is_free(*value) && !parts.contains_key(value);
        if !is_node_result(graph, base) || !within.keys().all(is_new) {
            return None;
        }
        parts.extend(within);
    }
    Some(parts)
}

/// Removes the kernels of concatenations whose operands can be stored within the result. Planned concatenations come
/// first. Outputs of a region's body have a slot already and are excluded.
pub fn assign_parts(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &mut Fusion,
    is_body: bool,
) {
    let mut excluded = foreign_values(graph);
    if is_body {
        excluded.extend(&graph.outputs);
    }
    let wholes: BTreeSet<ValueId> = fusion.planned_parts.values().copied().collect();
    let (planned, others): (Vec<&Group>, Vec<&Group>) =
        (fusion.groups.iter()).partition(|group| wholes.contains(&group.root));
    let roots = planned.into_iter().chain(others);
    let roots: Vec<ValueId> = roots
        .filter(|group| group.rows().is_none())
        .map(|group| group.root)
        .collect();
    let outputs: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
    let mut replaced = BTreeSet::new();
    for root in roots.into_iter().filter(|root| !excluded.contains(root)) {
        let alignment = capabilities.offset_alignment;
        if let Some(parts) = operand_offsets(graph, fusion, root, alignment, [&excluded, &outputs])
        {
            fusion.concat_parts.extend(parts);
            replaced.insert(root);
        }
    }
    fusion
        .groups
        .retain(|group| !replaced.contains(&group.root));
}

/// Offsets of a concatenation's operands in the result, if all have its layout and storage type. `None` if a kernel has
/// to copy them.
fn operand_offsets(
    graph: &Graph,
    fusion: &Fusion,
    root: ValueId,
    alignment: u64,
    [excluded, outputs]: [&BTreeSet<ValueId>; 2],
) -> Option<ConcatParts> {
    let layout = &fusion.layouts[root.index()];
    let storage = fusion.storages[root.index()];
    let is_image = *layout == IMAGE_LAYOUT;
    // An output has its own memory. An operand in another shape may be stored within it.
    let is_materialized =
        |id: ValueId| id != root && fusion.materialized[id.index()] && !outputs.contains(&id);
    let base_of = |value| match is_image {
        true => value,
        false => look_through_reshapes(graph, value, is_materialized),
    };
    let whole = base_of(root);
    if !is_image && *layout != Layout::Linear || whole != root && fusion.materialized[whole.index()]
    {
        return None;
    }
    let (mut parts, mut begins_vec4) = (ConcatParts::new(), true);
    for (operand, start) in contiguous_offsets(graph, whole, alignment / storage.size())? {
        let base = base_of(operand);
        let is_free = !excluded.contains(&base)
            && !outputs.contains(&base)
            && !fusion.concat_parts.contains_key(&base)
            && !parts.contains_key(&base);
        let matches_storage = fusion.materialized[base.index()]
            && fusion.layouts[base.index()] == *layout
            && fusion.storages[base.index()] == storage;
        if !is_node_result(graph, base) || !is_free || !matches_storage || !begins_vec4 {
            return None;
        }
        begins_vec4 = !is_image || is_multiple_of_4(&graph.ty(base).shape[CHANNEL_AXIS]);
        parts.insert(base, (root, start));
    }
    Some(parts)
}

impl<'a> Planner<'a> {
    /// True for a concatenation in row-major order whose operands deserve a kernel each.
    pub fn has_many_operands(&self, group: &Group) -> bool {
        let operands = concatenation(self.graph, group.root).map(|(node, _)| node.operands());
        let is_in_rows = self.fusion.layouts[group.root.index()].is_row_major();
        let is_worth = |operands: Vec<ValueId>| {
            is_worth_kernels(self.graph, self.capabilities, group.root, operands.len())
        };
        is_in_rows && operands.is_some_and(is_worth)
    }

    /// Kernels of a concatenation, one per operand; `None` for other groups. Offsets are sizes of the kernels, so that
    /// operands that differ only in the offset share a kernel.
    pub fn kernels_by_operand(&self, group: &Group, label: &str) -> Result<Option<GroupKernels>> {
        let Some((node, concat)) = concatenation(self.graph, group.root) else {
            return Ok(None);
        };
        let (mut start, mut kernels) = (Dim::ZERO, Vec::new());
        for operand in node.operands() {
            let (offset, sizes) = self.symbolic_offset(&start);
            let kernel =
                map::copy_concat_operand(|| self.scope(), group, operand, concat.axis, &offset)?;
            let generated = kernel.finish(label.to_string())?.substitute_sizes(&sizes);
            kernels.push((generated, Some(operand)));
            start = &start + &self.graph.ty(operand).shape[concat.axis];
        }
        Ok(Some(kernels))
    }

    /// The offset of an operand as a symbol, times the store width if it is a multiple of that, and the value of the
    /// symbol.
    fn symbolic_offset(&self, start: &Dim) -> (Dim, BTreeMap<Symbol, Dim>) {
        let Some(number) = start.as_const() else {
            return (start.clone(), BTreeMap::new());
        };
        let mut used_names = self.graph.hints.keys().map(ToString::to_string).collect();
        let symbol: Symbol = unique(&mut used_names, "start").into();
        let mut units = [VEC8_LEN, VEC4_LEN].map(|unit| unit as i64).into_iter();
        let unit = units.find(|unit| number % unit == 0).unwrap_or(1);
        let offset = &Dim::symbol(symbol.clone()) * unit;
        (offset, BTreeMap::from([(symbol, Dim::from(number / unit))]))
    }
}

/// Operands of a concatenation and their offsets, if the operands are contiguous and the offsets are multiples of
/// `alignment`. `None` otherwise.
fn contiguous_offsets(
    graph: &Graph,
    whole: ValueId,
    alignment: u64,
) -> Option<Vec<(ValueId, Dim)>> {
    let (node, concat) = concatenation(graph, whole)?;
    let before = graph.ty(whole).shape.get(..concat.axis)?;
    let (mut starts, mut start) = (Vec::new(), Dim::ZERO);
    for operand in node.operands() {
        let next = &start + &graph.ty(operand).numel();
        starts.push((operand, std::mem::replace(&mut start, next)));
    }
    let has_no_outer_axes = before.iter().all(|size| size.is(1));
    let are_aligned = starts
        .iter()
        .all(|(_, start)| is_multiple(start, alignment as usize));
    (has_no_outer_axes && are_aligned).then_some(starts)
}

/// Looks through reshapes, up to a value for which `is_kept` is true.
fn look_through_reshapes(
    graph: &Graph,
    value: ValueId,
    is_kept: impl Fn(ValueId) -> bool,
) -> ValueId {
    let mut base = value;
    while let Some(node) = defining_node(graph, base).filter(|_| !is_kept(base))
        && matches!(node.op, Op::Primitive(Primitive::Reshape(_)))
        && let Some(operand) = node.operands().first()
    {
        base = *operand;
    }
    base
}

/// The concatenation node of a value.
fn concatenation(graph: &Graph, whole: ValueId) -> Option<(&Node, &Concat)> {
    let node = defining_node(graph, whole)?;
    match &node.op {
        Op::Primitive(Primitive::Concat(concat)) => Some((node, concat)),
        _ => None,
    }
}

fn is_node_result(graph: &Graph, value: ValueId) -> bool {
    defining_node(graph, value).is_some()
}
