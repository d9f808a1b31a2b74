//! Scans of rows of contiguous elements, on devices whose subgroups are vector lanes: a subgroup shares a row. An
//! invocation scans the neighbours that it reads. It finds the total of the invocations before it by register exchanges at
//! distances of 1, 2, 4 and so on (Hillis and Steele, "Data parallel algorithms", 1986, by a butterfly).

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
    running: &ScanAccumulator,
    axis: usize,
    lanes: usize,
) -> Result<LoweredKernel<'a>> {
    let shape = &scope.graph.ty(x).shape;
    let (length, rows) = (&shape[axis], AxisRows::new(shape, axis).count);
    let (index, surplus) = invocation(&mut scope, &rows);
    let (_, lane) = scope.counter("lane", &Dim::from(lanes));
    let width = vec8::vector_width(scope.capabilities, length);
    let units = length.floor_div(&Dim::from(width));
    let subgroup_scan = SubgroupScan {
        root,
        x,
        running,
        lanes,
        width,
        first: index.scale(&units),
        units,
        lane,
    };
    let mut statements = vec![surplus];
    statements.extend(running.declarations());
    let rounds = ceil_div(&subgroup_scan.units, lanes);
    statements.extend(repeat(&mut scope, "trip", &rounds, |scope, round| {
        subgroup_scan.emit_round(scope, &round)
    })?);
    Ok(lower_subgroups(scope, statements, &rows, lanes))
}

/// A row that a subgroup scans.
struct SubgroupScan<'r> {
    root: ValueId,
    x: ValueId,
    running: &'r ScanAccumulator,
    lanes: usize,
    /// Neighbours that an invocation processes at once.
    width: usize,
    /// Vectors of `width` elements per row.
    units: Dim,
    /// Vectors before the row.
    first: Index,
    lane: Index,
}

impl SubgroupScan<'_> {
    /// Emits the scan of each invocation's neighbours in an iteration.
    fn emit_round(&self, scope: &mut KernelScope, round: &Index) -> Result<Vec<Statement>> {
        let (unit, inside) = invocation_vector(scope, round, &self.units, self.lanes, &self.lane);
        let places = vec8::element_positions(&self.first.add(&unit), self.width);
        let mut prefixes: Vec<Expr> = Vec::new();
        scope.with_vector_width(self.width, |scope| {
            for place in &places {
                let element = scope.element(self.x, place, inside)?;
                let element = match inside {
                    Some(inside) => scope.pool.select(inside, element, self.running.start),
                    None => element,
                };
                let next = prefixes
                    .last()
                    .map(|sum| self.running.combine(scope, *sum, element));
                prefixes.push(next.unwrap_or(element));
            }
            Ok(())
        })?;
        let whole = prefixes.last().copied().unwrap_or(self.running.start);
        let mut statements: Vec<Statement> = prefixes.iter().copied().map(Statement::Let).collect();
        let (exchange, [before, block]) = self.exchange_totals(scope, whole);
        statements.extend(exchange);
        let mut parts = Vec::new();
        for (prefix, place) in prefixes.into_iter().zip(places) {
            let within = self.running.combine(scope, before, prefix);
            parts.push((self.running.total_with(scope, within), place));
        }
        let written = vec8::store_all(scope, self.root, &parts)?;
        statements.extend(match inside {
            Some(inside) => vec![Statement::If(inside, written)],
            None => written,
        });
        statements.extend(self.running.accumulate(scope, block));
        Ok(statements)
    }

    /// Exchanges totals. Returns the total of the invocations before this one and the total of all.
    fn exchange_totals(&self, scope: &mut KernelScope, own: Expr) -> (Vec<Statement>, [Expr; 2]) {
        let ty = scope.pool.ty(own);
        let before = scope.pool.variable("before", ty);
        let block = scope.pool.variable("block", ty);
        let mut statements = vec![
            Statement::Declare(before, self.running.start),
            Statement::Declare(block, own),
        ];
        let lane = self.lane.emit(&mut scope.pool);
        let mut distances: Vec<usize> = lanes::shuffle_distances(self.lanes).collect();
        distances.reverse();
        for distance in distances {
            let exchange = format!("subgroupShuffleXor(x, {distance}u)");
            let other = scope.pool.call(exchange, ty, &[block]);
            let bit = format!("(x & {distance}u) != 0u");
            let is_behind = scope.pool.call(bit, WgslType::Bool, &[lane]);
            let longer = self.running.combine(scope, other, before);
            let longer = scope.pool.select(is_behind, longer, before);
            let all = self.running.combine(scope, block, other);
            statements.push(Statement::Let(other));
            statements.push(Statement::Assign(before, longer));
            statements.push(Statement::Assign(block, all));
        }
        (statements, [before, block])
    }
}
