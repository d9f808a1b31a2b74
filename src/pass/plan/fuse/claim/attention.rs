//! Which nodes one kernel of attention computes: scores, what is pointwise behind them, their softmax, and its product with
//! values.

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{Argument, Definition, Graph, Node, Op, Primitive, ValueId};
use crate::op::{BinaryFunction, ReduceFunction, UnaryFunction};
use crate::pass::plan::attention;
use crate::pass::plan::cost::{Class, class, weight_of};
use crate::pass::plan::element::Scope;
use crate::pass::plan::fuse::Fuser;
use crate::pass::plan::group::{Attention, reduction};
use crate::pass::plan::variant;

/// What is pointwise behind scores costs no more than this: the text is there for many of them.
const LONGEST: u32 = 24;

/// What a kernel of attention reads again and again, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attended {
    /// The right factor of scores: channels, which are its steps, shall be neighbours in memory.
    Keys,
    /// The right factor of the product with values: so shall channels be, which are its columns.
    Values,
}

impl Attended {
    /// True for a view behind which channels are neighbours as well, and that repeats nothing which is stored.
    fn is_read_through(self, view: &Primitive) -> bool {
        match view {
            Primitive::Reshape(_) | Primitive::Expand(_) => true,
            Primitive::Permute(_) => self == Attended::Keys,
            _ => false,
        }
    }
}

/// Attention, and what of the graph it is.
pub struct Found {
    /// What a kernel needs to know.
    pub attention: Attention,
    /// All nodes in front of the anchor, from the scores on.
    pub nodes: Vec<usize>,
    /// Those of them that are pointwise between scores and softmax.
    between: Vec<usize>,
}

impl Fuser<'_> {
    /// Finds what kernels of attention may compute, before it is known what lies in memory: keys and values that kernels write
    /// for them are placed as they read them.
    pub fn find_attention(&mut self) {
        if self.capabilities.lanes().is_none() {
            return;
        }
        for anchor in 0..self.graph.nodes.len() {
            if let Some(found) = self.attention(anchor) {
                let scores = &self.graph.nodes[found.attention.scores];
                let factors = [scores, &self.graph.nodes[anchor]].map(Node::operands);
                if let [[_, keys], [_, values]] = factors.each_ref().map(Vec::as_slice) {
                    self.attended.insert(*values, Attended::Values);
                    self.attended.insert(*keys, Attended::Keys);
                }
                self.attention.insert(anchor, found);
            }
        }
    }

    /// The attention that ends with a product, if it does and its sizes are those for a kernel of it.
    fn attention(&self, anchor: usize) -> Option<Found> {
        let found = Search::of(self.graph, anchor)?;
        let is_asked = |node: usize| variant::is_asked(self.graph, node, self.choices);
        let is_inside = |node: &usize| self.is_inside(*node, anchor, &found.nodes);
        let is_ours = found.nodes.iter().all(is_inside);
        let is_free = !is_asked(anchor) && !is_asked(found.attention.scores);
        let suits = || attention::suits(self.graph, self.capabilities, anchor, &found.attention);
        (is_ours && is_free && suits().unwrap_or(false)).then_some(found)
    }

    /// Attention by the product with values that it ends with. The nodes in front of that are claimed, and nothing of them
    /// lies in memory.
    pub fn claim_attention(&mut self, claimed: &mut [bool]) -> BTreeMap<usize, Found> {
        let mut all = BTreeMap::new();
        for (anchor, found) in std::mem::take(&mut self.attention) {
            if self.is_claimable(anchor, &found, claimed) {
                for node in &found.nodes {
                    claimed[*node] = true;
                }
                self.pass_through(anchor, &found);
                all.insert(anchor, found);
            }
        }
        all
    }

    /// True for attention whose kernel reads what lies in memory, and is short enough.
    fn is_claimable(&self, anchor: usize, found: &Found, claimed: &[bool]) -> bool {
        let is_free = found.nodes.iter().all(|node| !claimed[*node]);
        let is_short = self.cost(found) <= LONGEST;
        let fits = self.read_by(found).len() < self.limit;
        let written = vec![false; self.graph.values.len()];
        let mut scope = Scope::new(self.graph, self.capabilities, &self.stored, &written);
        let mut reads = || attention::reads(&mut scope, anchor, &found.attention);
        is_free && is_short && fits && reads().unwrap_or(false)
    }

    /// Where what a kernel reads often is best stored: of keys and values behind views that attention reads through.
    pub fn placed(&self, mut value: ValueId) -> ValueId {
        let Some(attended) = self.attended.get(&value) else {
            return value;
        };
        while let Definition::Node(node, _) = self.graph.value(value).definition
            && let Op::Primitive(view) = &self.graph.nodes[node].op
            && attended.is_read_through(view)
            && let Some(operand) = self.graph.nodes[node].operands().first()
        {
            value = *operand;
        }
        value
    }

    /// True for a node whose results only others of some nodes read, and the anchor.
    fn is_inside(&self, node: usize, anchor: usize, nodes: &[usize]) -> bool {
        let mut results = self.graph.nodes[node].results.iter();
        results.all(|result| {
            let mut readers = self.readers[result.index()].iter();
            let is_known = |reader: &usize| *reader == anchor || nodes.contains(reader);
            !self.graph.outputs.contains(result) && readers.all(is_known)
        })
    }

    /// What is computed for each score behind the product, with what that reads.
    fn cost(&self, found: &Found) -> u32 {
        let between = found.between.iter().map(|node| &self.graph.nodes[*node]);
        let of_node = |node: &Node| {
            let operands = node.operands().into_iter();
            let outside = operands.filter(|id| !found.makes(self.graph, *id));
            let read = outside.map(|id| self.infos[id.index()].cost);
            read.fold(weight_of(node), u32::saturating_add)
        };
        between.map(of_node).fold(0, u32::saturating_add)
    }

    /// The stored values that the nodes in front of the anchor read.
    fn read_by(&self, found: &Found) -> BTreeSet<ValueId> {
        let nodes = found.nodes.iter().map(|node| &self.graph.nodes[*node]);
        let operands = nodes.flat_map(Node::operands);
        let outside = operands.filter(|id| !found.makes(self.graph, *id));
        outside
            .flat_map(|id| self.infos[id.index()].leaves.iter().copied())
            .collect()
    }

    /// Stores nothing of what lies in front of the anchor, which reads what that is made of.
    fn pass_through(&mut self, anchor: usize, found: &Found) {
        let leaves = self.read_by(found);
        for node in &found.nodes {
            for result in &self.graph.nodes[*node].results {
                self.stored[result.index()] = false;
                self.reasons[result.index()] = None;
            }
        }
        if let Some(weights) = self.graph.nodes[anchor].operands().first() {
            self.infos[weights.index()].leaves = leaves;
        }
    }
}

impl Found {
    /// True for a value that one of the nodes in front of the anchor makes.
    fn makes(&self, graph: &Graph, value: ValueId) -> bool {
        match graph.value(value).definition {
            Definition::Node(node, _) => self.nodes.contains(&node),
            _ => false,
        }
    }
}

/// Nodes while a pattern is held against them, from its end on.
struct Search<'a> {
    graph: &'a Graph,
    nodes: BTreeSet<usize>,
}

impl<'a> Search<'a> {
    fn of(graph: &Graph, anchor: usize) -> Option<Found> {
        let node = &graph.nodes[anchor];
        let (Op::Primitive(Primitive::Dot(_)), &[weights, values]) =
            (&node.op, node.operands().as_slice())
        else {
            return None;
        };
        let mut search = Search {
            graph,
            nodes: BTreeSet::new(),
        };
        let inner = search.behind(weights, |view, [of, by]| {
            matches!(view, Primitive::Reshape(_)) && are_of_same_rows(graph, of, by)
        });
        let (softmax_of, is_safe) = search.weights(inner)?;
        let before = search.nodes.clone();
        let mut products = BTreeSet::new();
        search.products(softmax_of, &mut products, &mut BTreeMap::new());
        let [scores] = products.into_iter().collect::<Vec<_>>()[..] else {
            return None;
        };
        let between = search.nodes.difference(&before).copied();
        let found = Found {
            between: between.filter(|node| *node != scores).collect(),
            attention: Attention {
                scores,
                softmax_of,
                is_safe,
                is_causal: search.is_causal(softmax_of),
            },
            nodes: search.nodes.into_iter().collect(),
        };
        let is_single = |id: &ValueId| graph.ty(*id).dtype == DType::F32;
        let of_scores = &graph.nodes[scores].results;
        // A reshape keeps the order, so that scores are elements of the same rows whatever shape they have in between.
        let are_rows = |id: &ValueId| are_of_same_rows(graph, softmax_of, *id);
        let is_plain = [softmax_of, inner, values].iter().all(is_single)
            && of_scores.iter().all(|id| is_single(id) && are_rows(id))
            && !found.makes(graph, values);
        is_plain.then_some(found)
    }

    /// The primitive that makes a value, which belongs to the pattern from now on.
    fn take(&mut self, value: ValueId) -> Option<(&'a Node, &'a Primitive)> {
        let (index, node, primitive) = self.primitive(value)?;
        self.nodes.insert(index);
        Some((node, primitive))
    }

    /// The primitive that makes a value.
    fn primitive(&self, value: ValueId) -> Option<(usize, &'a Node, &'a Primitive)> {
        let Definition::Node(index, _) = self.graph.value(value).definition else {
            return None;
        };
        let node = &self.graph.nodes[index];
        match &node.op {
            Op::Primitive(primitive) => Some((index, node, primitive)),
            _ => None,
        }
    }

    /// What softmax is taken of, and whether rows of minus infinity give zeros.
    fn weights(&mut self, value: ValueId) -> Option<(ValueId, bool)> {
        let (_, node, Primitive::Select(_)) = self.primitive(value)? else {
            return Some((self.softmax(value)?, false));
        };
        let [
            Argument::Value(is_empty),
            Argument::Number(zero),
            Argument::Value(inner),
        ] = node.arguments[..]
        else {
            return None;
        };
        self.take(value);
        let x = self.softmax(inner)?;
        let compared = self.reduced(is_empty, ReduceFunction::Min)?;
        let (node, Primitive::Binary(equals)) = self.take(compared)? else {
            return None;
        };
        let is_lowest = match node.arguments[..] {
            [Argument::Value(of), Argument::Number(lowest)] => {
                of == x && lowest.to_f64() == f64::NEG_INFINITY
            }
            _ => false,
        };
        let is_safe = equals.function == BinaryFunction::Eq && is_lowest && zero.to_f64() == 0.0;
        is_safe.then_some((x, true))
    }

    /// What softmax over the last axis is taken of: `exp(x - largest) / sum`.
    fn softmax(&mut self, value: ValueId) -> Option<ValueId> {
        let [exponentials, sum] = self.binary(value, BinaryFunction::Div)?;
        let summed = self.reduced(sum, ReduceFunction::Sum)?;
        let (node, Primitive::Unary(exp)) = self.take(exponentials)? else {
            return None;
        };
        let shifted = *node.operands().first()?;
        let [x, largest] = self.binary(shifted, BinaryFunction::Sub)?;
        let compared = self.reduced(largest, ReduceFunction::Max)?;
        let is_softmax =
            exp.function == UnaryFunction::Exp && summed == exponentials && compared == x;
        is_softmax.then_some(x)
    }

    /// True for scores that are minus infinity where the number of the key is larger than that of the query.
    fn is_causal(&self, value: ValueId) -> bool {
        let Some((_, node, Primitive::Select(_))) = self.primitive(value) else {
            return false;
        };
        let [Argument::Value(is_seen), _, Argument::Number(hidden)] = node.arguments[..] else {
            return false;
        };
        let is_seen = self.primitive(self.behind_expansions(is_seen));
        let Some((_, node, Primitive::Binary(compared))) = is_seen else {
            return false;
        };
        let numbers = node
            .operands()
            .into_iter()
            .map(|id| self.axis_counted(value, id));
        let numbers: Vec<Option<usize>> = numbers.collect();
        let is_behind = match compared.function {
            BinaryFunction::Le => numbers == [Some(1), Some(2)],
            BinaryFunction::Ge => numbers == [Some(2), Some(1)],
            _ => false,
        };
        is_behind && hidden.to_f64() == f64::NEG_INFINITY
    }

    fn behind_expansions(&self, mut value: ValueId) -> ValueId {
        while let Some((_, node, Primitive::Expand(_))) = self.primitive(value)
            && let Some(operand) = node.operands().first()
        {
            value = *operand;
        }
        value
    }

    /// The axis of a value whose numbers another one gives, counted from the end; none if it gives something else.
    fn axis_counted(&self, of: ValueId, value: ValueId) -> Option<usize> {
        let (_, _, Primitive::Iota(iota)) = self.primitive(self.behind_expansions(value))? else {
            return None;
        };
        let from_end = iota.shape.len().checked_sub(iota.axis)?;
        let shape = &self.graph.ty(of).shape;
        let size = &shape[shape.len().checked_sub(from_end)?];
        (iota.shape[iota.axis] == *size).then_some(from_end)
    }

    fn binary(&mut self, value: ValueId, function: BinaryFunction) -> Option<[ValueId; 2]> {
        let (node, Primitive::Binary(binary)) = self.take(value)? else {
            return None;
        };
        match node.arguments[..] {
            [Argument::Value(x), Argument::Value(y)] if binary.function == function => Some([x, y]),
            _ => None,
        }
    }

    /// What is reduced over its last axis to a number for each row, which a value repeats along the row.
    fn reduced(&mut self, value: ValueId, function: ReduceFunction) -> Option<ValueId> {
        let of_rows = self.behind(value, |view, _| matches!(view, Primitive::Expand(_)));
        let total = self.behind(of_rows, |view, _| matches!(view, Primitive::Reshape(_)));
        let (node, _) = self.take(total)?;
        let (reduce, operand) = (reduction(node)?, *node.operands().first()?);
        let mut narrow = self.graph.ty(operand).shape.clone();
        *narrow.last_mut()? = Dim::ONE;
        let is_of_rows = self.graph.ty(of_rows).shape == narrow;
        let last = narrow.len() - 1;
        (is_of_rows && reduce.function == function && reduce.axes == [last]).then_some(operand)
    }

    /// What a value is made of by views of a kind, each told with the value and its operand. They belong to the pattern from
    /// now on.
    fn behind(
        &mut self,
        mut value: ValueId,
        is_view: impl Fn(&Primitive, [ValueId; 2]) -> bool,
    ) -> ValueId {
        while let Some((_, node, primitive)) = self.primitive(value)
            && let Some(operand) = node.operands().first()
            && is_view(primitive, [value, *operand])
        {
            self.take(value);
            value = *operand;
        }
        value
    }

    /// Collects the products that a value is made of element by element; true if there are any. What makes it of them
    /// belongs to the pattern.
    fn products(
        &mut self,
        value: ValueId,
        products: &mut BTreeSet<usize>,
        known: &mut BTreeMap<ValueId, bool>,
    ) -> bool {
        if let Some(known) = known.get(&value) {
            return *known;
        }
        let reaches = match self.primitive(value) {
            Some((index, _, Primitive::Dot(_))) => {
                products.insert(index);
                true
            }
            Some((_, node, primitive)) => {
                let is_reshape = matches!(primitive, Primitive::Reshape(_));
                let keeps_order = is_reshape || class(node) == Class::Pointwise;
                let mut reaches = false;
                for operand in node.operands().into_iter().filter(|_| keeps_order) {
                    reaches |= self.products(operand, products, known);
                }
                reaches
            }
            None => false,
        };
        if reaches {
            self.take(value);
        }
        known.insert(value, reaches);
        reaches
    }
}

fn are_of_same_rows(graph: &Graph, x: ValueId, y: ValueId) -> bool {
    let last = |id| graph.ty(id).shape.last_chunk::<2>();
    last(x).is_some() && last(x) == last(y)
}
