//! Storage precision of `f32` values. Kernels compute in `f32` in any case; half-precision storage halves the bytes of
//! intermediate values.
//!
//! Half precision ranges from 6e-8 to 65504 with 11 bits. Values that may be larger, or must be more exact, keep `f32`:
//! operands and results of the application, of control flow and of user-defined operators; row statistics, cumulative
//! and partial sums; values that become integers, such as indices; vectors, such as biases and scales, which are small
//! anyway.

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::{Capabilities, StorageType};
use crate::kernel::materialization::{F32StorageReason, Precision};
use crate::op::ReduceFunction;
use crate::plan::PlanOptions;
use crate::plan::cost::{NodeClass, node_class};
use crate::plan::fuse::{Fusion, readers};
use crate::plan::group::{Group, reduction_of};
use crate::plan::storage::layout::external_values;
use crate::plan::storage::panels::PaneledWeights;

/// Storage type of a value, and the reason if it keeps `f32`.
pub type StorageDecision = (StorageType, Option<F32StorageReason>);

/// Storage requirements of a plan.
#[derive(Clone, Copy)]
pub struct StorageRequest<'a> {
    /// Options of the plan.
    pub options: &'a PlanOptions,
    /// Slot names of values of which some kernel writes single elements. They are not stored in half-precision pairs.
    pub scalar_writes: &'a BTreeSet<String>,
    /// Slot names of values that are stored because a kernel would otherwise read too many buffers.
    pub stored: &'a BTreeSet<String>,
    /// Weights stored only as panels.
    pub paneled: &'a PaneledWeights,
    /// Prefix of the slot names of the graph's values.
    pub prefix: &'a str,
}

impl<'a> StorageRequest<'a> {
    /// Returns whether a value of this name is stored because a kernel would otherwise read too many buffers.
    pub fn is_stored(&self, name: &str) -> bool {
        !self.stored.is_empty() && self.stored.contains(&format!("{}{name}", self.prefix))
    }

    /// Requirements for a nested graph.
    pub fn within(self, prefix: &'a str) -> StorageRequest<'a> {
        StorageRequest { prefix, ..self }
    }
}

/// Chooses the storage type of every value of a graph.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
    request: StorageRequest,
) -> Result<Vec<StorageDecision>> {
    let all = (0..).map(ValueId).zip(&graph.values);
    let full_precision = |dtype| Ok((StorageType::of(dtype, capabilities)?, None));
    if request.options.precision == Precision::Single {
        return all.map(|(_, info)| full_precision(info.ty.dtype)).collect();
    }
    let chooser = PrecisionChooser {
        graph,
        fusion,
        request,
        storage: StorageType::half(capabilities),
        external: external_values(graph),
        integer_sources: integer_sources(graph),
        writers: writing_groups(graph, fusion),
        readers: readers(graph),
    };
    all.map(|(id, info)| match info.ty.dtype {
        DType::F32 => Ok(match chooser.f32_reason(id) {
            None => (chooser.storage, None),
            reason => (StorageType::F32, reason),
        }),
        dtype => full_precision(dtype),
    })
    .collect()
}

/// Chooses the storage precision of `f32` values if half precision is requested.
struct PrecisionChooser<'a> {
    graph: &'a Graph,
    fusion: &'a Fusion,
    request: StorageRequest<'a>,
    /// Storage type of values in half precision.
    storage: StorageType,
    /// Values that something other than our kernels reads or writes, and outputs of the graph.
    external: BTreeSet<ValueId>,
    /// Values that integers are computed from.
    integer_sources: BTreeSet<ValueId>,
    /// The group that writes each value.
    writers: Vec<Option<usize>>,
    /// The nodes that read each value.
    readers: Vec<Vec<usize>>,
}

impl PrecisionChooser<'_> {
    /// Reason why a value keeps single precision; `None` if it need not.
    fn f32_reason(&self, value: ValueId) -> Option<F32StorageReason> {
        if self.external.contains(&value) {
            return Some(F32StorageReason::External);
        }
        if self.integer_sources.contains(&value) {
            return Some(F32StorageReason::IntegerOperand);
        }
        let concat = self.fusion.planned_parts.get(&value);
        if let Some(reason) = concat.and_then(|concat| self.f32_reason(*concat)) {
            return Some(reason);
        }
        let info = self.graph.value(value);
        match info.definition {
            Definition::Input(_) => Some(F32StorageReason::External),
            Definition::Weight(_) => (info.ty.rank() < 2).then_some(F32StorageReason::Vector),
            Definition::Node(..) => self.result_reason(value),
        }
    }

    /// Reason why a kernel's result keeps single precision.
    fn result_reason(&self, value: ValueId) -> Option<F32StorageReason> {
        let name = &self.graph.value(value).name;
        let name = format!("{}{name}", self.request.prefix);
        let is_scalar_write =
            self.storage == StorageType::F16x2 && self.request.scalar_writes.contains(&name);
        let group = self.writers[value.index()].map(|group| &self.fusion.groups[group]);
        let reason = group.and_then(|group| self.group_reason(group, value));
        reason.or(is_scalar_write.then_some(F32StorageReason::UnpairedStore))
    }

    /// Reason why a value that a group writes keeps single precision.
    fn group_reason(&self, group: &Group, value: ValueId) -> Option<F32StorageReason> {
        if let Some(rows) = group.rows() {
            let is_wide = self.graph.ty(value).numel() != rows.frame.rows;
            return (!is_wide).then_some(F32StorageReason::Statistic);
        }
        let node = &self.graph.nodes[group.anchor?];
        let Op::Primitive(primitive) = &node.op else {
            return Some(F32StorageReason::External);
        };
        match primitive {
            Primitive::Dot(_) | Primitive::Conv(_) => {
                (self.is_partial_product(value)).then_some(F32StorageReason::PartialSums)
            }
            Primitive::Reduce(_) if self.is_of_windows(node) => None,
            Primitive::Reduce(_) | Primitive::ArgReduce(_) => Some(F32StorageReason::Statistic),
            _ => Some(F32StorageReason::Accumulated),
        }
    }

    /// True for a partial product: a sum is the value's only reader.
    fn is_partial_product(&self, value: ValueId) -> bool {
        let is_sum = |node: &usize| {
            let reduce = reduction_of(&self.graph.nodes[*node]);
            reduce.is_some_and(|reduce| reduce.function == ReduceFunction::Sum)
        };
        matches!(self.readers[value.index()].as_slice(), [only] if is_sum(only))
    }

    /// True for a reduction of windows, whose results are as many as an image's elements.
    fn is_of_windows(&self, node: &Node) -> bool {
        let operand = node.operands().first().copied();
        let definition = operand.map(|operand| self.graph.value(operand).definition.clone());
        let Some(Definition::Node(node, _)) = definition else {
            return false;
        };
        matches!(
            self.graph.nodes[node].op,
            Op::Primitive(Primitive::Unfold(_))
        )
    }
}

/// The group that writes each value.
fn writing_groups(graph: &Graph, fusion: &Fusion) -> Vec<Option<usize>> {
    let mut writers = vec![None; graph.values.len()];
    for (index, group) in fusion.groups.iter().enumerate() {
        for value in group.written(graph, &fusion.materialized) {
            writers[value.index()] = Some(index);
        }
    }
    writers
}

/// Values that integers are computed from, element by element.
fn integer_sources(graph: &Graph) -> BTreeSet<ValueId> {
    let mut sources = BTreeSet::new();
    for node in graph.nodes.iter().rev() {
        let operands = node.operands();
        let is_integer_cast = matches!(node.op, Op::Primitive(Primitive::Cast(_)))
            && node
                .results
                .iter()
                .all(|id| graph.ty(*id).dtype.is_integer());
        let is_source = node.results.iter().any(|id| sources.contains(id));
        if is_integer_cast || is_source && node_class(node) != NodeClass::Kernel {
            sources.extend(operands);
        }
    }
    sources
}
