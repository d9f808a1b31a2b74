//! Matcher of the attention pattern. It walks from the product with values back to the product of queries and keys.

use std::collections::{BTreeMap, BTreeSet};

use super::AttentionMatch;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::ir::{Argument, Definition, Graph, Node, Op, Primitive, ValueId};
use crate::op::{BinaryFunction, ReduceFunction, UnaryFunction};
use crate::plan::cost::{NodeClass, node_class};
use crate::plan::group::{AttentionPattern, reduction_of};

/// The nodes matched so far. Methods named `match_…` add the nodes that they match, and return `None` if the graph does
/// not have the pattern.
pub(super) struct AttentionMatcher<'a> {
    graph: &'a Graph,
    nodes: BTreeSet<usize>,
}

impl<'a> AttentionMatcher<'a> {
    /// Matches attention that ends with a product of weights and values, or with the transposed product.
    pub(super) fn of(graph: &Graph, anchor: usize) -> Option<AttentionMatch> {
        let node = &graph.nodes[anchor];
        let (Op::Primitive(Primitive::Dot(_)), &[left, right]) =
            (&node.op, node.operands().as_slice())
        else {
            return None;
        };
        let transposed = || AttentionMatcher::match_product(graph, [right, left], true);
        AttentionMatcher::match_product(graph, [left, right], false).or_else(transposed)
    }

    /// Matches attention that ends with the product of two factors.
    fn match_product(
        graph: &Graph,
        [weights, values]: [ValueId; 2],
        is_transposed: bool,
    ) -> Option<AttentionMatch> {
        let mut search = AttentionMatcher {
            graph,
            nodes: BTreeSet::new(),
        };
        let mut inner = search.look_through_reshapes(weights);
        if is_transposed {
            inner = search.match_transposition(inner)?;
            inner = search.look_through_reshapes(inner);
        }
        let (softmax_of, is_safe) = search.match_weights(inner)?;
        let softmax_nodes = search.nodes.clone();
        let mut products = BTreeSet::new();
        search.collect_products(softmax_of, &mut products, &mut BTreeMap::new());
        let [scores] = products.into_iter().collect::<Vec<_>>()[..] else {
            return None;
        };
        let score_nodes = search.nodes.difference(&softmax_nodes).copied();
        let matched = AttentionMatch {
            weights,
            keys: *graph.nodes[scores].operands().get(1)?,
            values,
            score_epilogue: score_nodes.filter(|node| *node != scores).collect(),
            attention: AttentionPattern {
                scores,
                softmax_of,
                is_safe,
                is_causal: search.is_causal(softmax_of),
                is_transposed,
            },
            nodes: search.nodes.into_iter().collect(),
        };
        let is_single = |id: &ValueId| graph.ty(*id).dtype == DType::F32;
        let score_results = &graph.nodes[scores].results;
        // A reshape keeps the order, so that scores are elements of the same rows in any intermediate shape.
        let are_rows = |id: &ValueId| have_same_rows(graph, softmax_of, *id);
        let is_supported = [softmax_of, inner, values].iter().all(is_single)
            && score_results.iter().all(|id| is_single(id) && are_rows(id))
            && !matched.defines(graph, values);
        is_supported.then_some(matched)
    }

    /// Adds the primitive that defines a value to the match and returns it.
    fn add_definition(&mut self, value: ValueId) -> Option<(&'a Node, &'a Primitive)> {
        let (index, node, primitive) = self.primitive(value)?;
        self.nodes.insert(index);
        Some((node, primitive))
    }

    /// The primitive that defines a value.
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

    /// Looks through reshapes that keep rows.
    fn look_through_reshapes(&mut self, value: ValueId) -> ValueId {
        let graph = self.graph;
        self.look_through(value, |primitive, [reshaped, operand]| {
            matches!(primitive, Primitive::Reshape(_)) && have_same_rows(graph, reshaped, operand)
        })
    }

    /// Operand of a transposition, which exchanges rows and columns.
    fn match_transposition(&mut self, value: ValueId) -> Option<ValueId> {
        let (node, Primitive::Permute(permute)) = self.add_definition(value)? else {
            return None;
        };
        let mut axes = permute.axes.clone();
        let [.., row, column] = axes.as_mut_slice() else {
            return None;
        };
        std::mem::swap(row, column);
        let operand = *node.operands().first()?;
        axes.iter().copied().eq(0..axes.len()).then_some(operand)
    }

    /// Operand of the softmax, and whether rows of minus infinity give zeros.
    fn match_weights(&mut self, value: ValueId) -> Option<(ValueId, bool)> {
        let (_, node, Primitive::Select(_)) = self.primitive(value)? else {
            return Some((self.match_softmax(value)?, false));
        };
        let [
            Argument::Value(is_empty),
            Argument::Number(zero),
            Argument::Value(inner),
        ] = node.arguments[..]
        else {
            return None;
        };
        self.add_definition(value);
        let x = self.match_softmax(inner)?;
        let compared = self.match_row_reduction(is_empty, ReduceFunction::Min)?;
        let (node, Primitive::Binary(equals)) = self.add_definition(compared)? else {
            return None;
        };
        let is_lowest = match node.arguments[..] {
            [Argument::Value(operand), Argument::Number(lowest)] => {
                operand == x && lowest.to_f64() == f64::NEG_INFINITY
            }
            _ => false,
        };
        let is_safe = equals.function == BinaryFunction::Eq && is_lowest && zero.to_f64() == 0.0;
        is_safe.then_some((x, true))
    }

    /// Operand of a softmax over the last axis: `exp(x - largest) / sum`.
    fn match_softmax(&mut self, value: ValueId) -> Option<ValueId> {
        let [exponentials, sum] = self.match_binary(value, BinaryFunction::Div)?;
        let summed = self.match_row_reduction(sum, ReduceFunction::Sum)?;
        let (node, Primitive::Unary(exp)) = self.add_definition(exponentials)? else {
            return None;
        };
        let shifted = *node.operands().first()?;
        let [x, largest] = self.match_binary(shifted, BinaryFunction::Sub)?;
        let compared = self.match_row_reduction(largest, ReduceFunction::Max)?;
        let is_softmax =
            exp.function == UnaryFunction::Exp && summed == exponentials && compared == x;
        is_softmax.then_some(x)
    }

    /// True for scores that are minus infinity where the index of the key exceeds that of the query.
    fn is_causal(&self, value: ValueId) -> bool {
        let Some((_, node, Primitive::Select(_))) = self.primitive(value) else {
            return false;
        };
        let [Argument::Value(is_seen), _, Argument::Number(hidden)] = node.arguments[..] else {
            return false;
        };
        let is_seen = self.primitive(self.look_through_expands(is_seen));
        let Some((_, node, Primitive::Binary(compared))) = is_seen else {
            return false;
        };
        let axes = node
            .operands()
            .into_iter()
            .map(|id| self.iota_axis(value, id));
        let axes: Vec<Option<usize>> = axes.collect();
        let is_lower_triangle = match compared.function {
            BinaryFunction::Le => axes == [Some(1), Some(2)],
            BinaryFunction::Ge => axes == [Some(2), Some(1)],
            _ => false,
        };
        is_lower_triangle && hidden.to_f64() == f64::NEG_INFINITY
    }

    /// The value before expands.
    fn look_through_expands(&self, mut value: ValueId) -> ValueId {
        while let Some((_, node, Primitive::Expand(_))) = self.primitive(value)
            && let Some(operand) = node.operands().first()
        {
            value = *operand;
        }
        value
    }

    /// The axis of `scores`, counted from the end, whose indices are the elements of `value`; `None` for any other
    /// value.
    fn iota_axis(&self, scores: ValueId, value: ValueId) -> Option<usize> {
        let (_, _, Primitive::Iota(iota)) = self.primitive(self.look_through_expands(value))?
        else {
            return None;
        };
        let from_end = iota.shape.len().checked_sub(iota.axis)?;
        let shape = &self.graph.ty(scores).shape;
        let size = &shape[shape.len().checked_sub(from_end)?];
        (iota.shape[iota.axis] == *size).then_some(from_end)
    }

    /// Operands of a binary function.
    fn match_binary(&mut self, value: ValueId, function: BinaryFunction) -> Option<[ValueId; 2]> {
        let (node, Primitive::Binary(binary)) = self.add_definition(value)? else {
            return None;
        };
        match node.arguments[..] {
            [Argument::Value(x), Argument::Value(y)] if binary.function == function => Some([x, y]),
            _ => None,
        }
    }

    /// Operand of a reduction over the last axis whose results `value` repeats along the row.
    fn match_row_reduction(&mut self, value: ValueId, function: ReduceFunction) -> Option<ValueId> {
        let row_results = self.look_through(value, |view, _| matches!(view, Primitive::Expand(_)));
        let total = self.look_through(row_results, |view, _| matches!(view, Primitive::Reshape(_)));
        let (node, _) = self.add_definition(total)?;
        let (reduce, operand) = (reduction_of(node)?, *node.operands().first()?);
        let mut row_shape = self.graph.ty(operand).shape.clone();
        *row_shape.last_mut()? = Dim::ONE;
        let has_row_shape = self.graph.ty(row_results).shape == row_shape;
        let last = row_shape.len() - 1;
        (has_row_shape && reduce.function == function && reduce.axes == [last]).then_some(operand)
    }

    /// Looks through views that satisfy `is_view`, called with a value and its operand. Adds the views to the match.
    fn look_through(
        &mut self,
        mut value: ValueId,
        is_view: impl Fn(&Primitive, [ValueId; 2]) -> bool,
    ) -> ValueId {
        while let Some((_, node, primitive)) = self.primitive(value)
            && let Some(operand) = node.operands().first()
            && is_view(primitive, [value, *operand])
        {
            self.add_definition(value);
            value = *operand;
        }
        value
    }

    /// Collects the products that a value depends on element by element, and adds the nodes in between to the match.
    /// True if there are any. `known` has the results for values visited before.
    fn collect_products(
        &mut self,
        value: ValueId,
        products: &mut BTreeSet<usize>,
        known: &mut BTreeMap<ValueId, bool>,
    ) -> bool {
        if let Some(known) = known.get(&value) {
            return *known;
        }
        let depends = match self.primitive(value) {
            Some((index, _, Primitive::Dot(_))) => {
                products.insert(index);
                true
            }
            Some((_, node, primitive)) => {
                let is_reshape = matches!(primitive, Primitive::Reshape(_));
                let keeps_order = is_reshape || node_class(node) == NodeClass::Pointwise;
                let mut depends = false;
                for operand in node.operands().into_iter().filter(|_| keeps_order) {
                    depends |= self.collect_products(operand, products, known);
                }
                depends
            }
            None => false,
        };
        if depends {
            self.add_definition(value);
        }
        known.insert(value, depends);
        depends
    }
}

/// True if the last two axes of two values have equal sizes.
fn have_same_rows(graph: &Graph, x: ValueId, y: ValueId) -> bool {
    let last = |id| graph.ty(id).shape.last_chunk::<2>();
    last(x).is_some() && last(x) == last(y)
}
