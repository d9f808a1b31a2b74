//! What values of single precision are stored in. Kernels compute in `f32` in any case; in half precision, what lies between
//! them takes half the bytes.
//!
//! Half precision counts from 6e-8 to 65504 with 11 bits. So whatever can be larger, or must be more exact, stays as it is:
//! what the application, control flow and operators of the user's take and give; statistics of rows, running sums and sums
//! in parts; what becomes integers, such as places; vectors, such as biases and scales, which are small anyway.

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::{Capabilities, Storage};
use crate::kernel::stored::{Kept, Precision};
use crate::op::ReduceFunction;
use crate::pass::plan::PlanOptions;
use crate::pass::plan::cost::{Class, class};
use crate::pass::plan::fuse::Fusion;
use crate::pass::plan::group::{Group, reduction};
use crate::pass::plan::storage::layout::handed;
use crate::pass::plan::storage::panels::InPanels;

/// What a value is stored in, and why that is not half precision where it could be.
pub type Stored = (Storage, Option<Kept>);

/// What a plan of a graph must heed.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// What is asked for.
    pub options: &'a PlanOptions,
    /// Values by the names of their slots, of which some kernel writes single elements: these are not stored in pairs.
    pub singles: &'a BTreeSet<String>,
    /// Weights that lie in panels alone.
    pub in_panels: &'a InPanels,
    /// What stands in front of the names of a graph's values.
    pub prefix: &'a str,
}

impl<'a> Wanted<'a> {
    /// The same for a graph within this one.
    pub fn within(self, prefix: &'a str) -> Wanted<'a> {
        Wanted { prefix, ..self }
    }
}

/// Decides for every value of a graph.
pub fn assign(
    graph: &Graph,
    capabilities: &Capabilities,
    fusion: &Fusion,
    wanted: Wanted,
) -> Result<Vec<Stored>> {
    let all = (0..).map(ValueId).zip(&graph.values);
    let whole = |dtype| Ok((Storage::of(dtype, capabilities)?, None));
    if wanted.options.precision == Precision::Single {
        return all.map(|(_, info)| whole(info.ty.dtype)).collect();
    }
    let chooser = Chooser {
        graph,
        fusion,
        wanted,
        storage: Storage::half(capabilities),
        handed: handed(graph),
        counted: counted(graph),
        written: written(graph, fusion),
    };
    all.map(|(id, info)| match info.ty.dtype {
        DType::F32 => Ok(match chooser.kept(id) {
            None => (chooser.storage, None),
            kept => (Storage::F32, kept),
        }),
        dtype => whole(dtype),
    })
    .collect()
}

struct Chooser<'a> {
    graph: &'a Graph,
    fusion: &'a Fusion,
    wanted: Wanted<'a>,
    storage: Storage,
    handed: BTreeSet<ValueId>,
    counted: BTreeSet<ValueId>,
    /// The group that writes each value.
    written: Vec<Option<usize>>,
}

impl Chooser<'_> {
    /// Why a value stays in single precision; none if it need not.
    fn kept(&self, value: ValueId) -> Option<Kept> {
        if self.handed.contains(&value) {
            return Some(Kept::Handed);
        }
        if self.counted.contains(&value) {
            return Some(Kept::Counted);
        }
        let whole = self.fusion.planned.get(&value);
        if let Some(kept) = whole.and_then(|whole| self.kept(*whole)) {
            return Some(kept);
        }
        let info = self.graph.value(value);
        match info.definition {
            Definition::Input(_) => Some(Kept::Handed),
            Definition::Weight(_) => (info.ty.rank() < 2).then_some(Kept::Vector),
            Definition::Node(..) => self.result(value),
        }
    }

    /// Why what a kernel writes stays in single precision.
    fn result(&self, value: ValueId) -> Option<Kept> {
        let name = &self.graph.value(value).name;
        let name = format!("{}{name}", self.wanted.prefix);
        let is_single = self.storage == Storage::F16x2 && self.wanted.singles.contains(&name);
        let group = self.written[value.index()].map(|group| &self.fusion.groups[group]);
        let kept = group.and_then(|group| self.of_group(group, value));
        kept.or(is_single.then_some(Kept::Single))
    }

    fn of_group(&self, group: &Group, value: ValueId) -> Option<Kept> {
        if let Some(rows) = group.rows() {
            let is_wide = self.graph.ty(value).numel() != rows.frame.rows;
            return (!is_wide).then_some(Kept::Statistic);
        }
        let node = &self.graph.nodes[group.anchor?];
        let Op::Primitive(primitive) = &node.op else {
            return Some(Kept::Handed);
        };
        match primitive {
            Primitive::Dot(_) | Primitive::Conv(_) => {
                (self.is_added_up(value)).then_some(Kept::Partial)
            }
            Primitive::Reduce(_) if self.is_of_windows(node) => None,
            Primitive::Reduce(_) | Primitive::ArgReduce(_) => Some(Kept::Statistic),
            _ => Some(Kept::Accumulated),
        }
    }

    /// True for a value that a sum alone reads, as it stands: a product in parts.
    fn is_added_up(&self, value: ValueId) -> bool {
        let nodes = self.graph.nodes.iter();
        let mut readers = nodes.filter(|node| node.operands().contains(&value));
        let is_sum = |node: &Node| {
            reduction(node).is_some_and(|reduce| reduce.function == ReduceFunction::Sum)
        };
        matches!((readers.next(), readers.next()), (Some(only), None) if is_sum(only))
    }

    /// True for a reduction of windows: of as many elements as an image has.
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
fn written(graph: &Graph, fusion: &Fusion) -> Vec<Option<usize>> {
    let mut written = vec![None; graph.values.len()];
    for (index, group) in fusion.groups.iter().enumerate() {
        for value in group.written(graph, &fusion.stored) {
            written[value.index()] = Some(index);
        }
    }
    written
}

/// Numbers that integers are made of, element by element.
fn counted(graph: &Graph) -> BTreeSet<ValueId> {
    let mut counted = BTreeSet::new();
    for node in graph.nodes.iter().rev() {
        let operands = node.operands();
        let counts = matches!(node.op, Op::Primitive(Primitive::Cast(_)))
            && node
                .results
                .iter()
                .all(|id| graph.ty(*id).dtype.is_integer());
        let is_counted = node.results.iter().any(|id| counted.contains(id));
        if counts || is_counted && class(node) != Class::Kernel {
            counted.extend(operands);
        }
    }
    counted
}
