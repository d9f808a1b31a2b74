use std::collections::{BTreeMap, HashMap};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::rewrite::{Replay, apply_to_all_graphs, replay};
use crate::ir::{Argument, Definition, Graph, Node, Op, Primitive, Value, ValueId};
use crate::op::{Binary, BinaryFunction, Dot, Expand, Reshape};
use crate::scalar::Scalar;
use crate::shape::Shape;

use super::dce;

/// Sibling-matmul fusion: computes products of one matrix with several weights as one product with the concatenated
/// weights, biases and scale factors included. The original products become slices of it. Applies only where the products
/// are materialised anyway, because a reader accesses them in another order or many times, and reads a slice as easily as
/// a buffer: the projections to queries, keys and values.
pub fn fuse_sibling_matmuls(graph: &Graph) -> Result<Graph> {
    // Dead readers do not count.
    apply_to_all_graphs(&dce(graph)?, &mut |graph| {
        let families = SiblingProducts::all(graph).into_iter();
        let families: HashMap<ValueId, SiblingProducts> =
            families.map(|family| (family.first, family)).collect();
        let mut slices: HashMap<ValueId, ValueId> = HashMap::new();
        replay(graph, |replay, node| {
            let first = node.results.first();
            if let Some(family) = first.and_then(|first| families.get(first)) {
                let fused = family.build(replay)?;
                for (member, slice) in family.members.iter().zip(family.slices(fused)) {
                    slices.insert(member.value, slice.id());
                }
            }
            match first.and_then(|id| slices.get(id)) {
                Some(slice) => Ok(vec![replay.builder.value(*slice)]),
                None => replay.copy(node),
            }
        })
    })
}

/// Sibling products: products of one left factor, each with a weight of its own.
struct SiblingProducts {
    /// The result of the first product.
    first: ValueId,
    /// The common left factor.
    left: ValueId,
    /// The products, in the order of their nodes.
    members: Vec<SiblingProduct>,
    /// Nodes that follow every product alike and are computed once on the fused product, in order.
    shared_nodes: Vec<SharedNode>,
}

/// One of the products, with the follow-up nodes matched so far.
struct SiblingProduct {
    /// The right factor.
    right: ValueId,
    /// Number of columns of the right factor and the product.
    columns: Dim,
    /// The result of the last matched node.
    value: ValueId,
}

/// A node that follows each of the sibling products.
enum SharedNode {
    /// Reshapes the axes in front of the columns to these sizes.
    Reshape(Shape),
    /// Applies a binary function to each product and a row of numbers, one row for each product.
    Row(BinaryFunction, Vec<RowOperand>),
}

/// A row of numbers, one per column.
enum RowOperand {
    /// A weight or a view of one.
    Weight(ValueId),
    /// One number for all columns.
    Number(f64),
}

impl SiblingProducts {
    /// All groups of sibling products of a graph that can be fused.
    fn all(graph: &Graph) -> Vec<SiblingProducts> {
        let mut by_left_factor: BTreeMap<(ValueId, DType), SiblingProducts> = BTreeMap::new();
        for node in &graph.nodes {
            let Some((left, member)) = match_product(graph, node) else {
                continue;
            };
            let key = (left, graph.ty(member.value).dtype);
            let family = by_left_factor
                .entry(key)
                .or_insert_with(|| SiblingProducts {
                    first: member.value,
                    left,
                    members: Vec::new(),
                    shared_nodes: Vec::new(),
                });
            family.members.push(member);
        }
        let mut families: Vec<SiblingProducts> = by_left_factor.into_values().collect();
        let readers = ValueReaders::of(graph);
        families.retain_mut(|family| {
            family.members.len() > 1
                && family.owns_weights(&readers)
                && family.match_shared_nodes(&readers)
        });
        families
    }

    /// True if only products read the weights. Any other reader needs the original weights, which would then be stored
    /// twice.
    fn owns_weights(&self, readers: &ValueReaders) -> bool {
        let weights = self
            .members
            .iter()
            .map(|member| base_weight(readers.graph, member.right));
        weights
            .flatten()
            .all(|weight| readers.are_all_products(weight))
    }

    /// Matches follow-up nodes as long as they are equal for all members. True if the remaining readers can read slices at
    /// no cost.
    fn match_shared_nodes(&mut self, readers: &ValueReaders) -> bool {
        while let Some((node, values)) = self.match_shared_node(readers) {
            self.shared_nodes.push(node);
            for (member, value) in self.members.iter_mut().zip(values) {
                member.value = value;
            }
        }
        let mut members = self.members.iter();
        members.all(|member| readers.can_read_slices(member.value))
    }

    /// Matches the next follow-up node. Returns it and the value of each member after it.
    fn match_shared_node(&self, readers: &ValueReaders) -> Option<(SharedNode, Vec<ValueId>)> {
        let only_readers: Vec<Option<&Node>> = self
            .members
            .iter()
            .map(|member| readers.only_reader(member.value))
            .collect();
        self.match_reshape(readers, &only_readers)
            .or_else(|| self.match_row(readers, &only_readers))
            .or_else(|| self.match_factors(readers, &only_readers))
    }

    /// Matches a reshape of every member that keeps the columns. `only_readers` has the only reader of each member's
    /// value, if there is one.
    fn match_reshape(
        &self,
        readers: &ValueReaders,
        only_readers: &[Option<&Node>],
    ) -> Option<(SharedNode, Vec<ValueId>)> {
        let mut rows: Option<Shape> = None;
        let mut values = Vec::new();
        for (member, node) in self.members.iter().zip(only_readers) {
            let node = (*node)?;
            let result = *node.results.first()?;
            let shape = &readers.graph.ty(result).shape;
            let (last, leading) = shape.split_last()?;
            let is_reshape = matches!(node.op, Op::Primitive(Primitive::Reshape(_)));
            if !is_reshape
                || *last != member.columns
                || rows.get_or_insert(leading.to_vec()) != leading
            {
                return None;
            }
            values.push(result);
        }
        Some((SharedNode::Reshape(rows?), values))
    }

    /// Matches a combination of every member with a row of weights by one binary function.
    fn match_row(
        &self,
        readers: &ValueReaders,
        only_readers: &[Option<&Node>],
    ) -> Option<(SharedNode, Vec<ValueId>)> {
        let mut function = None;
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        for (member, node) in self.members.iter().zip(only_readers) {
            let node = (*node)?;
            let (
                Op::Primitive(Primitive::Binary(binary)),
                [Argument::Value(x), Argument::Value(y)],
            ) = (&node.op, node.arguments.as_slice())
            else {
                return None;
            };
            let row = readers.repeated_row(*y, &member.columns)?;
            if *x != member.value || *function.get_or_insert(binary.function) != binary.function {
                return None;
            }
            rows.push(RowOperand::Weight(row));
            values.push(*node.results.first()?);
        }
        Some((SharedNode::Row(function?, rows), values))
    }

    /// Matches a multiplication of some members by a number. For the others the number is 1.
    fn match_factors(
        &self,
        readers: &ValueReaders,
        only_readers: &[Option<&Node>],
    ) -> Option<(SharedNode, Vec<ValueId>)> {
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        let mut is_any = false;
        for (member, node) in self.members.iter().zip(only_readers) {
            let factor =
                node.and_then(|node| Some((constant_factor(node)?, *node.results.first()?)));
            is_any |= factor.is_some();
            let (number, value) = factor.unwrap_or((1.0, member.value));
            let is_float = readers.graph.ty(member.value).dtype.is_float();
            rows.push(is_float.then_some(RowOperand::Number(number))?);
            values.push(value);
        }
        is_any.then_some((SharedNode::Row(BinaryFunction::Mul, rows), values))
    }

    /// Builds the fused product and its follow-up nodes.
    fn build<'g>(&self, replay: &mut Replay<'_, 'g>) -> Result<Value<'g>> {
        let builder = replay.builder;
        let mut weights = Vec::new();
        for member in &self.members {
            weights.push(rebuild_views(replay, member.right)?);
        }
        let weight = builder.concat(&weights, 1);
        let left = replay.value(self.left);
        let mut fused = builder.apply(Dot {}, vec![left.into(), weight.into()]);
        let columns = self.columns();
        for shared_node in &self.shared_nodes {
            fused = match shared_node {
                SharedNode::Reshape(rows) => {
                    let shape = [rows.as_slice(), std::slice::from_ref(&columns)].concat();
                    builder.apply(Reshape { shape }, vec![fused.into()])
                }
                SharedNode::Row(function, rows) => {
                    let row = self.concatenated_row(replay, rows, fused.dtype())?;
                    let shape = fused.shape();
                    let row = builder.apply(Expand { shape }, vec![row.into()]);
                    let binary = Binary {
                        function: *function,
                    };
                    builder.apply(binary, vec![fused.into(), row.into()])
                }
            };
        }
        Ok(fused)
    }

    /// The rows of all members as one row for the fused product.
    fn concatenated_row<'g>(
        &self,
        replay: &mut Replay<'_, 'g>,
        rows: &[RowOperand],
        dtype: DType,
    ) -> Result<Value<'g>> {
        let mut member_rows = Vec::new();
        for (row, member) in rows.iter().zip(&self.members) {
            let columns = member.columns.clone();
            member_rows.push(match row {
                RowOperand::Weight(id) => {
                    let row = rebuild_views(replay, *id)?;
                    let shape = vec![columns];
                    replay.builder.apply(Reshape { shape }, vec![row.into()])
                }
                RowOperand::Number(number) => replay.builder.full(dtype, [columns], *number),
            });
        }
        Ok(replay.builder.concat(&member_rows, 0))
    }

    /// Number of columns of the fused product.
    fn columns(&self) -> Dim {
        let columns = self.members.iter().map(|member| &member.columns);
        columns.fold(Dim::ZERO, |sum, columns| &sum + columns)
    }

    /// Slices of the fused product, one for each member.
    fn slices<'g>(&self, fused: Value<'g>) -> Vec<Value<'g>> {
        let mut start = Dim::ZERO;
        let mut slices = Vec::new();
        for member in &self.members {
            slices.push(fused.narrow(-1, start.clone(), member.columns.clone()));
            start = &start + &member.columns;
        }
        slices
    }
}

/// Matches a product of a matrix with a weight of known width. Returns the matrix and the product.
fn match_product(graph: &Graph, node: &Node) -> Option<(ValueId, SiblingProduct)> {
    let (Op::Primitive(Primitive::Dot(_)), [result]) = (&node.op, node.results.as_slice()) else {
        return None;
    };
    let [Argument::Value(left), Argument::Value(right)] = node.arguments.as_slice() else {
        return None;
    };
    let [_, columns] = graph.ty(*right).shape.as_slice() else {
        return None;
    };
    let is_candidate = columns.as_const().is_some() && is_weight(graph, *right);
    let member = SiblingProduct {
        right: *right,
        columns: columns.clone(),
        value: *result,
    };
    (is_candidate && !is_weight(graph, *left)).then_some((*left, member))
}

/// The number by which a node multiplies, if it is such a multiplication.
fn constant_factor(node: &Node) -> Option<f64> {
    let (Op::Primitive(Primitive::Binary(binary)), [Argument::Value(_), Argument::Number(number)]) =
        (&node.op, node.arguments.as_slice())
    else {
        return None;
    };
    match number {
        Scalar::Float(number) if binary.function == BinaryFunction::Mul => Some(*number),
        _ => None,
    }
}

/// True for weights and their views.
fn is_weight(graph: &Graph, value: ValueId) -> bool {
    base_weight(graph, value).is_some()
}

/// Weight that a value is a view of.
fn base_weight(graph: &Graph, mut value: ValueId) -> Option<ValueId> {
    loop {
        match graph.value(value).definition {
            Definition::Weight(_) => return Some(value),
            Definition::Node(node, _) => value = viewed_operand(&graph.nodes[node])?,
            _ => return None,
        }
    }
}

/// Operand that a node is a view of.
fn viewed_operand(node: &Node) -> Option<ValueId> {
    use Primitive::{Permute, Reshape, Slice};
    match (&node.op, node.arguments.as_slice()) {
        (Op::Primitive(Reshape(_) | Permute(_) | Slice(_)), [Argument::Value(x)]) => Some(*x),
        _ => None,
    }
}

/// Rebuilds a weight or its views where the first product needs them.
fn rebuild_views<'g>(replay: &mut Replay<'_, 'g>, value: ValueId) -> Result<Value<'g>> {
    let graph = replay.graph;
    let (mut base, mut views) = (value, Vec::new());
    while let Definition::Node(node, _) = graph.value(base).definition
        && let Some(inner) = viewed_operand(&graph.nodes[node])
    {
        views.push(&graph.nodes[node]);
        base = inner;
    }
    let mut rebuilt = replay.value(base);
    for view in views.into_iter().rev() {
        let Op::Primitive(primitive) = &view.op else {
            return Err(Error::internal("a view of a weight is not a primitive"));
        };
        rebuilt = replay
            .builder
            .apply(primitive.clone(), vec![rebuilt.into()]);
    }
    Ok(rebuilt)
}

/// The nodes that read each value of a graph.
struct ValueReaders<'a> {
    graph: &'a Graph,
    nodes: HashMap<ValueId, Vec<&'a Node>>,
}

impl<'a> ValueReaders<'a> {
    fn of(graph: &'a Graph) -> ValueReaders<'a> {
        let mut nodes: HashMap<ValueId, Vec<&Node>> = HashMap::new();
        for node in &graph.nodes {
            for operand in node.operands() {
                nodes.entry(operand).or_default().push(node);
            }
        }
        ValueReaders { graph, nodes }
    }

    /// The nodes that read a value, one entry for each operand that they read it as.
    fn nodes_reading(&self, value: ValueId) -> &[&'a Node] {
        self.nodes.get(&value).map_or(&[], Vec::as_slice)
    }

    /// The only reader of a value; `None` for several readers and for graph outputs.
    fn only_reader(&self, value: ValueId) -> Option<&'a Node> {
        match self.nodes_reading(value) {
            [node] if !self.graph.outputs.contains(&value) => Some(node),
            _ => None,
        }
    }

    /// True if only products read a value or its views.
    fn are_all_products(&self, value: ValueId) -> bool {
        self.nodes_reading(value)
            .iter()
            .all(|node| match viewed_operand(node) {
                Some(_) => node.results.iter().all(|id| self.are_all_products(*id)),
                None => matches!(node.op, Op::Primitive(Primitive::Dot(_))),
            })
    }

    /// The row of weights that a value repeats.
    fn repeated_row(&self, value: ValueId, columns: &Dim) -> Option<ValueId> {
        let Definition::Node(node, _) = self.graph.value(value).definition else {
            return None;
        };
        let node = &self.graph.nodes[node];
        let (Op::Primitive(Primitive::Expand(_)), [Argument::Value(row)]) =
            (&node.op, node.arguments.as_slice())
        else {
            return None;
        };
        let shape = &self.graph.ty(*row).shape;
        let is_row = shape.last() == Some(columns) && Dim::product(shape) == *columns;
        (is_row && is_weight(self.graph, *row)).then_some(*row)
    }

    /// True if a slice can replace a value at no cost because the value is materialised anyway: a reader needs it that the
    /// product's kernel cannot compute in its epilogue.
    fn can_read_slices(&self, value: ValueId) -> bool {
        let (mut worklist, mut is_materialised) = (vec![value], false);
        while let Some(value) = worklist.pop() {
            if self.graph.outputs.contains(&value) {
                return false;
            }
            for node in self.nodes_reading(value) {
                is_materialised |= reorders_operands(self.graph, node);
                if matches!(node.op, Op::Primitive(Primitive::Reshape(_))) {
                    worklist.extend(&node.results);
                }
            }
        }
        is_materialised
    }
}

/// True for nodes that read their operands in another order than they write results, so that the operands are
/// materialised. A concatenation counts only if its operands are not contiguous in the result; otherwise a product can
/// write directly to its part of the result.
fn reorders_operands(graph: &Graph, node: &Node) -> bool {
    use Primitive::{Concat, Dot, Expand, Permute, Reduce, Slice};
    let [result, ..] = node.results.as_slice() else {
        return false;
    };
    let shape = &graph.ty(*result).shape;
    match &node.op {
        Op::Primitive(Concat(concat)) => shape[..concat.axis].iter().any(|size| !size.is(1)),
        Op::Primitive(Dot(_) | Expand(_) | Permute(_) | Reduce(_) | Slice(_)) => true,
        _ => false,
    }
}
