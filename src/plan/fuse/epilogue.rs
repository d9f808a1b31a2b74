//! Epilogues: pointwise primitives that a kernel with loops applies to each result before it writes it. No other kernel
//! may read the intermediate values.

use std::collections::BTreeSet;

use crate::ir::{Definition, Node, Op, Primitive, ValueId};
use crate::kernel::materialization::MaterializeReason;
use crate::op::BinaryFunction;
use crate::plan::cost::{NodeClass, is_plain_view, node_class, primitive_cost};
use crate::plan::fuse::{Fuser, MAX_EXPRESSION_COST, MAX_REPEATED_COST};
use crate::plan::group::{Group, defining_node};
use crate::plan::reduce::argument;

/// Maximal number of values that a search for the producing kernel visits.
const MAX_SEARCHED_VALUES: usize = 64;

/// An epilogue while it grows.
struct Epilogue {
    /// The anchor and the nodes after it, in graph order.
    nodes: Vec<usize>,
    /// Results of these nodes.
    values: BTreeSet<ValueId>,
    /// Materialised values that the kernel reads.
    leaves: BTreeSet<ValueId>,
    /// Cost of the nodes after the anchor per element, in simple operations.
    cost: u32,
}

impl Fuser<'_> {
    /// Makes the group of a node with loops and its epilogue. `result` is the node's first result.
    pub fn kernel(&mut self, index: usize, result: ValueId, claimed: &mut [bool]) -> Group {
        let (mut nodes, mut root) = (vec![index], result);
        if takes_epilogue(&self.graph.nodes[index]) {
            (nodes, root) = self.epilogue(index, result, &|node| claimed[node]);
            for node in &nodes[1..] {
                claimed[*node] = true;
            }
            for node in &nodes {
                for value in &self.graph.nodes[*node].results {
                    self.materialized[value.index()] = *value == root;
                    if *value != root {
                        self.reasons[value.index()] = None;
                    }
                }
            }
            if matches!(
                self.reasons[root.index()],
                None | Some(MaterializeReason::NoEpilogue)
            ) {
                self.reasons[root.index()] = Some(self.end_reason(&nodes, root, claimed));
            }
        }
        Group {
            anchor: Some(index),
            root,
            other_outputs: Vec::new(),
            nodes,
            pattern: None,
        }
    }

    /// Finds the longest epilogue that leaves a single value to other kernels. Returns its nodes and that value.
    fn epilogue(
        &self,
        index: usize,
        result: ValueId,
        is_claimed: &dyn Fn(usize) -> bool,
    ) -> (Vec<usize>, ValueId) {
        let mut growth = self.empty_epilogue(index, result);
        let mut best = (growth.nodes.clone(), result);
        while let Some(next) = self.next_reader(&growth) {
            if is_claimed(next)
                || !keeps_order(&self.graph.nodes[next])
                || !self.grow(&mut growth, next)
            {
                break;
            }
            if let [root] = self.escaping_values(&growth).as_slice()
                && !self.is_reshape_of_image(index, next, *root)
            {
                best = (growth.nodes.clone(), *root);
            }
        }
        best
    }

    /// Epilogue without any nodes yet, after a node with loops.
    fn empty_epilogue(&self, index: usize, result: ValueId) -> Epilogue {
        let operands = self.graph.nodes[index].operands().into_iter();
        let leaves = operands.flat_map(|operand| &self.properties[operand.index()].leaves);
        Epilogue {
            nodes: vec![index],
            values: BTreeSet::from([result]),
            leaves: leaves.copied().collect(),
            cost: 0,
        }
    }

    /// True for a reshape of the result of a convolution, or of a search in windows, on a device with a channel layout for
    /// images: readers look through the reshape, and the image keeps the layout of other images.
    fn is_reshape_of_image(&self, anchor: usize, last: usize, root: ValueId) -> bool {
        let [anchor, last] = [anchor, last].map(|node| &self.graph.nodes[node]);
        let is_reshape = matches!(last.op, Op::Primitive(Primitive::Reshape(_)));
        let is_image = match &anchor.op {
            Op::Primitive(Primitive::Conv(_)) => true,
            Op::Primitive(Primitive::ArgReduce(reduce)) => {
                argument::is_of_images(self.graph, anchor, reduce.axis)
            }
            _ => false,
        };
        let looks_through = |reader: &usize| match &self.graph.nodes[*reader].op {
            Op::Primitive(primitive) => !matches!(primitive, Primitive::Custom(_)),
            _ => false,
        };
        let mut readers = self.readers[root.index()].iter();
        let is_read = !self.is_output[root.index()] && readers.all(looks_through);
        is_reshape && is_image && is_read && self.capabilities.simd_lanes().is_some()
    }

    /// The first node outside an epilogue that reads one of its values.
    fn next_reader(&self, growth: &Epilogue) -> Option<usize> {
        let readers = growth
            .values
            .iter()
            .flat_map(|id| &self.readers[id.index()]);
        let others = readers.filter(|reader| !growth.nodes.contains(reader));
        others.min().copied()
    }

    /// The values of an epilogue that other nodes read.
    fn escaping_values(&self, growth: &Epilogue) -> Vec<ValueId> {
        let values = growth.values.iter().copied();
        let is_open = |id: &ValueId| {
            let readers = &self.readers[id.index()];
            self.is_output[id.index()]
                || readers.iter().any(|reader| !growth.nodes.contains(reader))
        };
        values.filter(is_open).collect()
    }

    /// Adds a node to an epilogue. Returns false if a kernel then cannot bind all that it reads, or gets too long.
    fn grow(&self, growth: &mut Epilogue, next: usize) -> bool {
        let node = &self.graph.nodes[next];
        let mut cost = match &node.op {
            Op::Primitive(primitive) => primitive_cost(primitive),
            _ => 0,
        };
        let operands = node.operands().into_iter();
        for operand in operands.filter(|id| !growth.values.contains(id)) {
            let info = &self.properties[operand.index()];
            growth.leaves.extend(&info.leaves);
            cost = cost.saturating_add(info.cost);
        }
        growth.cost = growth.cost.saturating_add(cost);
        growth.nodes.push(next);
        growth.values.extend(&node.results);
        growth.cost <= MAX_EXPRESSION_COST && growth.leaves.len() <= self.max_read_buffers
    }

    /// Reason why an epilogue ends with a value.
    fn end_reason(&self, nodes: &[usize], root: ValueId, claimed: &[bool]) -> MaterializeReason {
        let readers = &self.readers[root.index()];
        match readers.as_slice() {
            _ if self.is_output[root.index()] => MaterializeReason::Output,
            [reader] if !keeps_order(&self.graph.nodes[*reader]) => {
                MaterializeReason::NotElementwise
            }
            [reader] if claimed[*reader] => MaterializeReason::AlreadyFused,
            [reader] => self.refusal_reason(nodes, root, *reader),
            readers => MaterializeReason::TooManyReaders(readers.len()),
        }
    }

    /// Reason why an epilogue cannot include the only reader of its last value.
    fn refusal_reason(&self, nodes: &[usize], root: ValueId, reader: usize) -> MaterializeReason {
        let Some((anchor, others)) = nodes.split_first() else {
            return MaterializeReason::AlreadyFused;
        };
        let mut growth = self.empty_epilogue(*anchor, root);
        others.iter().for_each(|node| {
            self.grow(&mut growth, *node);
        });
        let fits = self.grow(&mut growth, reader);
        let result = self.graph.nodes[reader].results.first();
        if self.max_read_buffers < growth.leaves.len() {
            MaterializeReason::TooManyBuffers
        } else if !fits {
            MaterializeReason::TooLong { cost: growth.cost }
        } else if result.is_some_and(|result| self.is_reshape_of_image(*anchor, reader, *result)) {
            MaterializeReason::Reshaped
        } else {
            MaterializeReason::MultipleResults
        }
    }

    /// Materialises a value that a kernel reads often. Looks through views to a value that another kernel writes, and,
    /// if the value is a factor of a product, through multiplications by a number too.
    pub fn store_behind_views(&mut self, value: ValueId, is_factor: bool) {
        let mut views = Vec::new();
        let mut base = value;
        while let Some(node) = self.node(base)
            && let Some(operand) = match &node.op {
                Op::Primitive(view) if is_plain_view(view) => node.operands().first().copied(),
                _ => self.scaled_operand(node).filter(|_| is_factor),
            }
        {
            views.push(base);
            base = operand;
        }
        if is_factor && self.materialized[base.index()] {
            return;
        }
        let candidates = views.iter().copied().chain([base]);
        let stored_value = self.find_epilogue_end(base, &candidates.collect());
        let stored_value = stored_value.unwrap_or_else(|| self.storage_point(value));
        self.materialize(stored_value.index(), MaterializeReason::ReadManyTimes);
        let outer_views = views.into_iter().take_while(|view| *view != stored_value);
        let outer_views: Vec<ValueId> = outer_views.collect();
        outer_views
            .into_iter()
            .rev()
            .for_each(|view| self.refresh_properties(view));
    }

    /// Operand that a node multiplies by constants; `None` for other nodes.
    pub fn scaled_operand(&self, node: &Node) -> Option<ValueId> {
        let Op::Primitive(Primitive::Binary(binary)) = &node.op else {
            return None;
        };
        let is_read = |id: &ValueId| !self.properties[id.index()].leaves.is_empty();
        let is_cheap = |id: &ValueId| self.properties[id.index()].cost <= 1;
        let operands = node.operands().into_iter();
        let (read, constants): (Vec<ValueId>, Vec<ValueId>) = operands.partition(is_read);
        let is_product = binary.function == BinaryFunction::Mul && constants.iter().all(is_cheap);
        match read.as_slice() {
            [only] if is_product => Some(*only),
            _ => None,
        }
    }

    /// Materialises a value that a kernel reads repeatedly, or the operand behind windows, padding and views if these
    /// are cheap.
    pub fn store_repeated(&mut self, value: ValueId) {
        let cost = self.properties[value.index()].cost;
        let (mut views, mut base, mut read_cost) = (Vec::new(), value, 1);
        while let Some(node) = self.node(base)
            && let Op::Primitive(primitive) = &node.op
            && (is_plain_view(primitive)
                || matches!(primitive, Primitive::Pad(_) | Primitive::Unfold(_)))
            && let Some(operand) = node.operands().first()
        {
            views.push(base);
            base = *operand;
            read_cost += primitive_cost(primitive);
        }
        if read_cost > MAX_REPEATED_COST {
            return self.materialize(value.index(), MaterializeReason::Repeated { cost });
        }
        self.materialize(base.index(), MaterializeReason::Repeated { cost });
        views
            .into_iter()
            .rev()
            .for_each(|view| self.refresh_properties(view));
    }

    /// Recomputes the properties of a value whose operand is now stored.
    fn refresh_properties(&mut self, view: ValueId) {
        if let Some(node) = self.node(view)
            && let Op::Primitive(primitive) = &node.op
            && !self.materialized[view.index()]
        {
            self.properties[view.index()] = self.combine(&node.operands(), primitive);
        }
    }

    /// Finds one of the `wanted` values that ends the epilogue of a kernel which the value depends on.
    fn find_epilogue_end(&self, value: ValueId, wanted: &BTreeSet<ValueId>) -> Option<ValueId> {
        let mut open = vec![value];
        let mut seen = BTreeSet::new();
        while let Some(value) = open.pop() {
            let Definition::Node(index, _) = self.graph.value(value).definition else {
                continue;
            };
            if seen.len() == MAX_SEARCHED_VALUES || !seen.insert(value) {
                continue;
            }
            let node = &self.graph.nodes[index];
            if takes_epilogue(node) {
                let root = self.epilogue(index, value, &|_| false).1;
                if wanted.contains(&root) {
                    return Some(root);
                }
            } else if keeps_order(node) {
                open.extend(node.operands());
            }
        }
        None
    }

    /// The node that defines a value; `None` for inputs and weights.
    pub(super) fn node(&self, value: ValueId) -> Option<&Node> {
        defining_node(self.graph, value)
    }
}

/// True if element i of a node depends only on elements i of its operands, in row-major order, for any shape. Checks
/// are excluded: they are evaluated for elements in use, and an epilogue's elements may be unused.
fn keeps_order(node: &Node) -> bool {
    let is_check = matches!(node.op, Op::Primitive(Primitive::Check(_)));
    node_class(node) == NodeClass::Pointwise && !is_check
        || matches!(node.op, Op::Primitive(Primitive::Reshape(_)))
}

/// True for a node with loops whose kernel can apply an epilogue.
fn takes_epilogue(node: &Node) -> bool {
    use Primitive::{ArgReduce, Conv, Dot, Reduce};
    matches!(
        node.op,
        Op::Primitive(Reduce(_) | ArgReduce(_) | Dot(_) | Conv(_))
    )
}
