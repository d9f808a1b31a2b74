//! Scans of rows of contiguous elements, on devices whose subgroups are vector lanes: a subgroup shares a row. An
//! invocation scans the neighbours that it reads. It finds the total of the invocations before it by register exchanges
//! at distances of 1, 2, 4 and so on (Hillis and Steele, "Data parallel algorithms", 1986, by a butterfly).

use super::{AxisRows, ScanAccumulator};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::op::Scan;
use crate::plan::cost::example_size;
use crate::plan::element::vec4::VEC4_LEN;
use crate::plan::element::{KernelScope, vec8};
use crate::plan::kernel::{LoweredKernel, ceil_div, invocation, repeat};
use crate::plan::lanes;
use crate::plan::reduce::rows::{invocation_vector, lower_subgroups};

/// Number of invocations that share a row; `None` if each invocation scans its own row.
pub fn invocations_per_row(scope: &KernelScope, x: ValueId, scan: &Scan) -> Option<usize> {
    let shape = &scope.graph.ty(x).shape;
    let (lanes, length) = (scope.capabilities.simd_lanes()?, shape.get(scan.axis)?);
    let is_last = scan.axis + 1 == shape.len();
    (is_last && example_size(scope.graph, length) >= lanes * VEC4_LEN).then_some(lanes)
}

/// Lowers a scan along the last axis by subgroups of `lanes` invocations.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    root: ValueId,
    x: ValueId,
    accumulator: &ScanAccumulator,
    axis: usize,
    lanes: usize,
) -> Result<LoweredKernel<'a>> {
    let shape = &scope.graph.ty(x).shape;
    let (length, rows) = (&shape[axis], AxisRows::new(shape, axis).count);
    let (index, surplus) = invocation(&mut scope, &rows);
    let (_, lane) = scope.counter("lane", &Dim::from(lanes));
    let width = vec8::vector_width(scope.capabilities, length);
    let vectors = length.floor_div(&Dim::from(width));
    let subgroup_scan = SubgroupScan {
        root,
        x,
        accumulator,
        lanes,
        width,
        first: index.scale(&vectors),
        vectors,
        lane,
    };
    let mut statements = vec![surplus];
    statements.extend(accumulator.declarations());
    let rounds = ceil_div(&subgroup_scan.vectors, lanes);
    statements.extend(repeat(&mut scope, "trip", &rounds, |scope, round| {
        subgroup_scan.emit_round(scope, &round)
    })?);
    Ok(lower_subgroups(scope, statements, &rows, lanes))
}

/// A row that a subgroup scans.
struct SubgroupScan<'r> {
    root: ValueId,
    x: ValueId,
    accumulator: &'r ScanAccumulator,
    /// Number of invocations of the subgroup.
    lanes: usize,
    /// Number of contiguous elements that an invocation processes at once.
    width: usize,
    /// Number of vectors of `width` elements per row.
    vectors: Dim,
    /// Index of the row's first vector.
    first: Index,
    /// Index of the invocation in its subgroup.
    lane: Index,
}

impl SubgroupScan<'_> {
    /// Emits the scan of each invocation's neighbours in an iteration.
    fn emit_round(&self, scope: &mut KernelScope, round: &Index) -> Result<Vec<Statement>> {
        let (vector, inside) =
            invocation_vector(scope, round, &self.vectors, self.lanes, &self.lane);
        let positions = vec8::element_positions(&self.first.add(&vector), self.width);
        let mut prefixes: Vec<Expr> = Vec::new();
        scope.with_vector_width(self.width, |scope| {
            for position in &positions {
                let element = scope.element(self.x, position, inside)?;
                let element = match inside {
                    Some(inside) => scope.pool.select(inside, element, self.accumulator.start),
                    None => element,
                };
                let next = prefixes
                    .last()
                    .map(|sum| self.accumulator.combine(scope, *sum, element));
                prefixes.push(next.unwrap_or(element));
            }
            Ok(())
        })?;
        let own_total = prefixes.last().copied().unwrap_or(self.accumulator.start);
        let mut statements: Vec<Statement> = prefixes.iter().copied().map(Statement::Let).collect();
        let (exchange, [before, block]) = self.exchange_totals(scope, own_total);
        statements.extend(exchange);
        let mut results = Vec::new();
        for (prefix, position) in prefixes.into_iter().zip(positions) {
            let total = self.accumulator.combine(scope, before, prefix);
            results.push((self.accumulator.total_with(scope, total), position));
        }
        let written = vec8::store_all(scope, self.root, &results)?;
        statements.extend(match inside {
            Some(inside) => vec![Statement::If(inside, written)],
            None => written,
        });
        statements.extend(self.accumulator.accumulate(scope, block));
        Ok(statements)
    }

    /// Exchanges totals among the invocations of a subgroup, `own` being that of this one. Returns the statements, and
    /// the totals of the invocations before this one and of all.
    fn exchange_totals(&self, scope: &mut KernelScope, own: Expr) -> (Vec<Statement>, [Expr; 2]) {
        let ty = scope.pool.ty(own);
        let before = scope.pool.variable("before", ty);
        let block = scope.pool.variable("block", ty);
        let mut statements = vec![
            Statement::Declare(before, self.accumulator.start),
            Statement::Declare(block, own),
        ];
        let lane = self.lane.emit(&mut scope.pool);
        let mut distances: Vec<usize> = lanes::shuffle_distances(self.lanes).collect();
        distances.reverse();
        for distance in distances {
            let exchange = format!("subgroupShuffleXor(x, {distance}u)");
            let other = scope.pool.call(exchange, ty, &[block]);
            let bit = format!("(x & {distance}u) != 0u");
            let is_other_before = scope.pool.call(bit, WgslType::Bool, &[lane]);
            let extended = self.accumulator.combine(scope, other, before);
            let extended = scope.pool.select(is_other_before, extended, before);
            let all = self.accumulator.combine(scope, block, other);
            statements.push(Statement::Let(other));
            statements.push(Statement::Assign(before, extended));
            statements.push(Statement::Assign(block, all));
        }
        (statements, [before, block])
    }
}
