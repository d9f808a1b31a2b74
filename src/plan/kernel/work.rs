//! Lower bounds of a kernel's work: operations and bytes, counted from its nodes.

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::work::Work;
use crate::pass::multiply_adds_of;
use crate::plan::element::KernelScope;
use crate::plan::group::Group;

/// Counts the work of a group. If `copied_operand` is set, counts the work of copying that operand of a concatenation
/// to its range of the result.
pub fn group_work(
    scope: &KernelScope,
    group: &Group,
    copied_operand: Option<ValueId>,
) -> Result<Work> {
    let written = match copied_operand {
        Some(operand) => vec![operand],
        None => match group.written(scope.graph, scope.materialized) {
            empty if empty.is_empty() => vec![group.root],
            values => values,
        },
    };
    count_group(scope, group, copied_operand).work(&written)
}

/// Number of elements that the kernel of a group reads of each stored value. If `copied_operand` is set, the kernel is
/// the one that copies that operand of a concatenation.
pub fn elements_read(
    scope: &KernelScope,
    group: &Group,
    copied_operand: Option<ValueId>,
) -> BTreeMap<ValueId, Dim> {
    count_group(scope, group, copied_operand).read
}

/// Counts the operations and reads of a group, or of copying one operand of a concatenation.
fn count_group<'a>(
    scope: &'a KernelScope<'a>,
    group: &Group,
    copied_operand: Option<ValueId>,
) -> WorkCounter<'a> {
    let mut counter = WorkCounter::new(scope);
    match copied_operand {
        Some(operand) => counter.value(operand, scope.graph.ty(operand).numel()),
        None => counter.group(group),
    }
    counter
}

/// Counts the work of a group without its anchor.
pub fn epilogue_work(scope: &KernelScope, group: &Group) -> Result<Work> {
    let mut counter = WorkCounter::new(scope);
    counter.excluded = group.anchor;
    counter.group(group);
    counter.work(&[group.root])
}

/// Name of a node's first result.
fn name(graph: &Graph, node: &Node) -> Option<String> {
    let result = node.results.first()?;
    Some(graph.value(*result).name.clone())
}

/// Counter of the operations and reads of a kernel.
struct WorkCounter<'a> {
    graph: &'a Graph,
    scope: &'a KernelScope<'a>,
    /// A node whose work is not counted.
    excluded: Option<usize>,
    /// Operations counted so far.
    operations: Dim,
    /// Nodes that are inlined into the kernel.
    inlined: BTreeSet<usize>,
    /// Elements that are read of each stored value.
    read: BTreeMap<ValueId, Dim>,
}

impl<'a> WorkCounter<'a> {
    fn new(scope: &'a KernelScope<'a>) -> WorkCounter<'a> {
        WorkCounter {
            graph: scope.graph,
            scope,
            excluded: None,
            operations: Dim::ZERO,
            inlined: BTreeSet::new(),
            read: BTreeMap::new(),
        }
    }

    /// The total work, including the writes.
    fn work(&self, written: &[ValueId]) -> Result<Work> {
        let size = |value: ValueId| -> Result<Dim> {
            Ok(Dim::from(self.scope.storage(value)?.size() as i64))
        };
        let read = self.read.iter().map(|(value, dim)| (*value, dim.clone()));
        let written = written.iter();
        let written = written.map(|value| (*value, self.graph.ty(*value).numel()));
        let mut bytes = Dim::ZERO;
        for (value, elements) in read.chain(written) {
            bytes = &bytes + &(&elements * &size(value)?);
        }
        let inlined_nodes = self.inlined.iter();
        let names = inlined_nodes.filter_map(|node| name(self.graph, self.graph.nodes.get(*node)?));
        Ok(Work {
            operations: self.operations.clone(),
            bytes,
            fused_producers: names.collect(),
            writes: Vec::new(),
        })
    }

    /// Adds the work of a group: the operations of its nodes, and the reads of operands that it does not compute.
    fn group(&mut self, group: &Group) {
        if group.nodes.is_empty() {
            self.value(group.root, self.graph.ty(group.root).numel());
        }
        let is_group_result = |value: &ValueId| match self.graph.value(*value).definition {
            Definition::Node(node, _) => group.nodes.contains(&node),
            _ => false,
        };
        let excluded = self.excluded;
        let nodes = group.nodes.iter();
        for index in nodes.filter(|index| Some(**index) != excluded) {
            let node = &self.graph.nodes[*index];
            self.operations = &self.operations + &operations(self.graph, node);
            for (operand_index, operand) in node.operands().into_iter().enumerate() {
                if !is_group_result(&operand) {
                    self.value(
                        operand,
                        operand_elements_read(self.graph, node, operand_index, operand),
                    );
                }
            }
        }
    }

    /// Adds a read of `elements_read` elements of a value: from memory, or by computing it.
    fn value(&mut self, value: ValueId, elements_read: Dim) {
        let graph = self.graph;
        let Definition::Node(index, _) = graph.value(value).definition else {
            return self.read(value, elements_read);
        };
        if self.scope.materialized[value.index()] {
            return self.read(value, elements_read);
        }
        if self.inlined.insert(index) {
            let node = &graph.nodes[index];
            self.operations = &self.operations + &operations(graph, node);
            for (operand_index, operand) in node.operands().into_iter().enumerate() {
                self.value(
                    operand,
                    operand_elements_read(graph, node, operand_index, operand),
                );
            }
        }
    }

    /// Adds a read of elements from memory. No more than all elements of a value are counted.
    fn read(&mut self, value: ValueId, elements: Dim) {
        let all = self.graph.ty(value).numel();
        let sum = self.read.entry(value).or_insert(Dim::ZERO);
        *sum = (&*sum + &elements).minimum(&all);
    }
}

/// Number of elements of an operand that a node reads.
fn operand_elements_read(
    graph: &Graph,
    node: &Node,
    operand_index: usize,
    operand: ValueId,
) -> Dim {
    let all = graph.ty(operand).numel();
    let reads_selection = match &node.op {
        Op::Primitive(Primitive::Gather(_)) => operand_index == 0,
        Op::Primitive(Primitive::Slice(_)) => true,
        _ => false,
    };
    match node.results.first() {
        Some(result) if reads_selection => graph.ty(*result).numel().minimum(&all),
        _ => all,
    }
}

/// Number of arithmetic operations of a node, as far as sizes determine it; see [`Work::operations`].
fn operations(graph: &Graph, node: &Node) -> Dim {
    let operands = node.operands();
    let numel = |operand_index: usize| {
        let operand = operands.get(operand_index);
        operand.map_or(Dim::ZERO, |id| graph.ty(*id).numel())
    };
    let results = node.results.first();
    let result = results.map_or(Dim::ZERO, |id| graph.ty(*id).numel());
    let Op::Primitive(primitive) = &node.op else {
        return Dim::ZERO;
    };
    match primitive {
        Primitive::Dot(_) | Primitive::Conv(_) | Primitive::Recurrent(_) => {
            multiply_adds_of(graph, node) * 2
        }
        Primitive::Reduce(_) | Primitive::ArgReduce(_) | Primitive::Scan(_) => numel(0),
        Primitive::Scatter(_) => numel(operands.len().saturating_sub(1)),
        Primitive::Unary(_) | Primitive::Binary(_) | Primitive::Select(_) => result,
        _ => Dim::ZERO,
    }
}
