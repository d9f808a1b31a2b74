//! Sorting: one invocation finds the rank of one element by counting those of its row that come before it.

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Node;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::{self, Index};
use crate::op::{BinaryFunction, Sort};
use crate::pass::plan::element::position::Position;
use crate::pass::plan::element::{Scope, operand, scalar, write};
use crate::pass::plan::kernel::{Lowered, invocation, repeat};
use crate::pass::plan::scan::Rows;

const TEMPLATE: &str = include_str!("../../../shaders/sort.wgsl");

/// Sorted values and their indices.
pub fn lower<'a>(mut scope: Scope<'a>, node: &Node, sort: &Sort) -> Result<Lowered<'a>> {
    let x = operand(node, 0)?;
    let graph = scope.graph;
    let shape = &graph.ty(x).shape;
    let size = &shape[sort.axis];
    let count = graph.ty(x).numel();
    let rows = Rows::new(shape, sort.axis);
    let (index, surplus) = invocation(&mut scope, &count);
    let mut row = index::coordinates(&index, shape);
    let own = row.remove(sort.axis);
    let key = scope.element(x, &Position::at(index), None)?;
    scope.pool.set_label(key, "key");
    let rank = scope.pool.variable("rank", Type::U32);
    let zero = scope.pool.number(0);
    let mut statements = vec![surplus, Statement::Declare(rank, zero)];
    statements.extend(repeat(&mut scope, "k", size, |scope, k| {
        let other = scope.element(x, &rows.at(&row, &k), None)?;
        scope.pool.set_label(other, "other");
        let before = is_before(scope, sort.descending, other, key);
        let after = is_before(scope, sort.descending, key, other);
        let (k, own) = (k.emit(&mut scope.pool), own.emit(&mut scope.pool));
        let pool = &mut scope.pool;
        // Equals keep their order.
        let is_earlier = pool.call("x < y", Type::Bool, &[k, own]);
        let stays = pool.call("x && !y", Type::Bool, &[is_earlier, after]);
        let counts = pool.call("x || y", Type::Bool, &[before, stays]);
        let one = pool.call("u32(x)", Type::U32, &[counts]);
        let next = pool.call("x + y", Type::U32, &[rank, one]);
        Ok(vec![Statement::Assign(rank, next)])
    })?);
    statements.push(Statement::Freeze(rank));
    let target = rows.at(&row, &Index::expr(rank, size));
    let own = own.emit(&mut scope.pool);
    let number = scalar::size(&mut scope.pool, own, DType::I64, scope.capabilities);
    for (result, value) in node.results.iter().zip([key, number]) {
        statements.push(write(&mut scope, *result, value, &target)?);
    }
    Ok(Lowered::new(scope, TEMPLATE, statements, &count))
}

/// True if an element comes before another; not-a-number counts as the largest.
fn is_before(scope: &mut Scope, descending: bool, x: Expr, y: Expr) -> Expr {
    let (low, high) = if descending { (y, x) } else { (x, y) };
    let pool = &mut scope.pool;
    match pool.ty(x) {
        Type::F32 | Type::F64 => {
            let template = scalar::typed("is_before(x, y)", pool.ty(x));
            pool.call(template, Type::Bool, &[low, high])
        }
        _ => scalar::binary(pool, BinaryFunction::Lt, low, high, DType::I64),
    }
}
