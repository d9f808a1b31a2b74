//! Reductions of few elements of images whose channels are quads: pooling. One invocation computes four channels.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::op::Reduce;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::position::Position;
use crate::pass::plan::element::quad::{self, QUAD};
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::{Lowered, epilogue, repeat_all};
use crate::pass::plan::quads::{self, CHANNELS};
use crate::pass::plan::reduce::{Parts, TEMPLATE, accumulator, combine, name};

/// Elements of a window; longer sums are made of partial ones.
const LARGEST: i64 = 128;

/// True for a reduction of small windows of images, channels apart.
pub fn suits(graph: &Graph, node: &Node) -> bool {
    let Op::Primitive(Primitive::Reduce(reduce)) = &node.op else {
        return false;
    };
    let Ok(parts) = Parts::new(graph, node, &reduce.axes) else {
        return false;
    };
    let is_of_windows = is_of_windows(graph, parts.operand);
    let window = Dim::product(&parts.reduced).as_const();
    is_of_windows
        && window.is_some_and(|window| window <= LARGEST)
        && reduce.axes.iter().all(|axis| *axis > CHANNELS)
        && (3..=4).contains(&parts.kept.len())
        && parts.dtype == DType::F32
}

/// True for windows of a value, or for some of them.
fn is_of_windows(graph: &Graph, value: ValueId) -> bool {
    let Definition::Node(node, _) = graph.value(value).definition else {
        return false;
    };
    let node = &graph.nodes[node];
    match (&node.op, node.operands().first()) {
        (Op::Primitive(Primitive::Unfold(_)), _) => true,
        (Op::Primitive(Primitive::Slice(_)), Some(operand)) => is_of_windows(graph, *operand),
        _ => false,
    }
}

/// A reduction with its epilogue.
pub fn lower<'a>(
    scope: Scope<'a>,
    group: &Group,
    node: &Node,
    reduce: &Reduce,
) -> Result<Lowered<'a>> {
    let mut scope = scope.by_words();
    let (graph, function) = (scope.graph, reduce.function);
    let parts = Parts::new(graph, node, &reduce.axes)?;
    let (quad, surplus, count) = quads::each(&mut scope, &parts.kept, CHANNELS);
    let mut statements = vec![surplus];
    let mut totals: Vec<Expr> = Vec::new();
    for part in 0..QUAD {
        let label = format!("{}{part}", name(function));
        let (total, start) = accumulator(&mut scope, function, parts.dtype, &label)?;
        statements.push(Statement::Declare(total, start));
        totals.push(total);
    }
    statements.extend(repeat_all(
        &mut scope,
        "k",
        &parts.reduced,
        |scope, reduced| {
            let mut body = Vec::new();
            for (total, at) in totals.iter().zip(quad::neighbours(&quad, CHANNELS)) {
                let at = parts.join(&at, &reduced);
                let element = scope.element(parts.operand, &at, None)?;
                let sum = combine(scope, function, *total, element);
                body.push(Statement::Assign(*total, sum));
            }
            Ok(body)
        },
    )?);
    let mut results = Vec::new();
    for (total, at) in totals.iter().zip(quad::neighbours(&quad, CHANNELS)) {
        statements.push(Statement::Freeze(*total));
        let at = Position::of(at);
        results.push(epilogue(&mut scope, group, parts.result, *total, &at)?);
    }
    statements.push(scope.store_quad(group.root, CHANNELS, &results)?);
    Ok(Lowered::new(scope, TEMPLATE, statements, &count))
}
