//! Recurrent layers: one kernel for all steps of a sequence, since each step needs all results of the previous one.
//! Barriers synchronise the invocations of a workgroup in every step, but not different workgroups. So a workgroup
//! computes some rows of the batch alone, in one direction, and reads the whole weight in each step.

mod cell;
mod states;
mod weight;

use self::states::RecurrentStates;
use self::weight::RecurrentWeight;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Node, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::{Recurrent, RecurrentCell};
use crate::plan::cost::example_size;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::element::{KernelScope, operand, vec8};
use crate::plan::kernel::{
    LoweredKernel, bounds_guard, ceil_div, clamped_index, invocation, repeat,
};
use crate::plan::lanes;

const TEMPLATE: &str = include_str!("../../shaders/recurrent.wgsl");

/// Most batch rows of a workgroup. They share the loads of the weight.
const MAX_ROWS: usize = 4;
/// Number of threads that batch rows are distributed over first.
const THREADS: usize = 2;
/// Most invocations of a workgroup on a GPU.
const MAX_INVOCATIONS: usize = 128;

/// Lowers a recurrent layer.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    node: &Node,
    recurrent: &Recurrent,
) -> Result<LoweredKernel<'a>> {
    let layer = LayerKernel::new(&mut scope, node, recurrent)?;
    let mut statements = vec![layer.surplus.clone()];
    statements.extend(layer.load_initial_states(&mut scope)?);
    statements.extend(repeat(&mut scope, "step", &layer.steps, |scope, step| {
        layer.step(scope, &step)
    })?);
    statements.extend(layer.write_cell_state(&mut scope)?);
    let count = layer.count.clone();
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, count);
    lowered
        .template_values
        .push(lanes::workgroup_size(layer.invocations));
    lowered
        .template_values
        .push(("memory", layer.states.declarations()));
    Ok(lowered)
}

/// A recurrent layer from the view of a workgroup.
struct LayerKernel {
    cell: RecurrentCell,
    x: ValueId,
    bias: ValueId,
    /// Initial states.
    initial: Vec<ValueId>,
    results: Vec<ValueId>,
    weight: RecurrentWeight,
    steps: Dim,
    batch: Dim,
    units: usize,
    directions: usize,
    states: RecurrentStates,
    invocations: usize,
    count: Dim,
    surplus: Statement,
    direction: Index,
    /// First batch row of the workgroup.
    row: Index,
    local: Index,
}

impl LayerKernel {
    fn new(scope: &mut KernelScope, node: &Node, recurrent: &Recurrent) -> Result<LayerKernel> {
        let graph = scope.graph;
        let (x, weight) = (operand(node, 0)?, operand(node, 1)?);
        let missing = || Error::internal("a recurrent layer of unknown sizes");
        let known = |size: &Dim| size.as_const().and_then(|size| usize::try_from(size).ok());
        let ([steps, batch, _], [directions, _, units, _]) = (
            graph.ty(x).shape.as_slice(),
            graph.ty(weight).shape.as_slice(),
        ) else {
            return Err(missing());
        };
        let (Some(directions), Some(units)) = (known(directions), known(units)) else {
            return Err(missing());
        };
        let invocations = match scope.capabilities.simd_lanes() {
            Some(lanes) => lanes,
            None => units
                .div_ceil(VEC4_LEN)
                .next_power_of_two()
                .clamp(VEC4_LEN, MAX_INVOCATIONS),
        };
        let cell = recurrent.cell;
        let rows = batch_rows(scope, [directions, units], batch, cell);
        let pieces = [Dim::from(directions), ceil_div(batch, rows)];
        let count = Dim::product(&pieces);
        let (index, surplus) = invocation(scope, &count);
        let mut place = index::delinearize(&index, &pieces);
        let row = place.pop().unwrap_or_else(Index::zero);
        let (_, local) = scope.counter("local", &Dim::from(invocations));
        Ok(LayerKernel {
            cell,
            x,
            bias: operand(node, 2)?,
            initial: (0..cell.states())
                .map(|state| operand(node, 3 + state))
                .collect::<Result<_>>()?,
            results: node.results.clone(),
            weight: RecurrentWeight::new(scope, weight, invocations)?,
            steps: steps.clone(),
            batch: batch.clone(),
            units,
            directions,
            states: RecurrentStates::new(cell, rows, units),
            invocations,
            count,
            surplus,
            direction: place.pop().unwrap_or_else(Index::zero),
            row: row.scale(&Dim::from(rows)),
            local,
        })
    }

    /// Statements for all vec4 of units. An invocation processes several, one after the other. `body` returns statements
    /// for all invocations and those for invocations with a valid vec4: invocations without one still take part in
    /// subgroup shuffles.
    fn for_each_vec4(
        &self,
        scope: &mut KernelScope,
        body: impl FnOnce(&mut KernelScope, &Index) -> Result<[Vec<Statement>; 2]>,
    ) -> Result<Vec<Statement>> {
        let quads = Dim::from(self.states.vec4s);
        let rounds = ceil_div(&quads, self.invocations);
        repeat(scope, "round", &rounds, |scope, round| {
            let quad = round.scale(&Dim::from(self.invocations)).add(&self.local);
            let [mut together, own] = body(scope, &quad)?;
            together.extend(bounds_guard(scope, &quad, &quads, own));
            Ok(together)
        })
    }

    /// Units of a vec4, clamped to the number of units unless that is a multiple of four.
    fn vec4_units(&self, scope: &mut KernelScope, quad: &Index) -> Vec<Index> {
        let quad = clamped_index(scope, quad, &Dim::from(self.states.vec4s));
        let first = quad.scale(&Dim::from(VEC4_LEN));
        let units = (0..VEC4_LEN).map(|part| first.add_size(&Dim::from(part)));
        match self.units.is_multiple_of(VEC4_LEN) {
            true => units.collect(),
            false => units
                .map(|unit| clamped_index(scope, &unit, &Dim::from(self.units)))
                .collect(),
        }
    }

    /// A batch row, clamped to the batch size.
    fn clamped_row(&self, scope: &mut KernelScope, row: usize) -> Index {
        clamped_index(scope, &self.row.add_size(&Dim::from(row)), &self.batch)
    }

    /// Loads the elements of a value for each unit of a vec4.
    fn load_vec4(
        &self,
        scope: &mut KernelScope,
        value: ValueId,
        units: &[Index],
        place: impl Fn(&Index) -> Vec<Index>,
    ) -> Result<Expr> {
        let factor = |unit| ((value, Position::from_coordinates(place(unit))), None);
        vec4::load_vec4(scope, &units.iter().map(factor).collect::<Vec<_>>())
    }

    /// Copies the initial states to workgroup memory.
    fn load_initial_states(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let mut statements = self.for_each_vec4(scope, |scope, quad| {
            let units = self.vec4_units(scope, quad);
            let mut statements = Vec::new();
            for row in 0..self.states.rows {
                let of_batch = self.clamped_row(scope, row);
                let at =
                    |unit: &Index| vec![self.direction.clone(), of_batch.clone(), unit.clone()];
                let place = self
                    .states
                    .vec4_index(&Index::zero(), &Dim::from(row).into(), quad);
                for (state, value) in self.initial.iter().enumerate() {
                    let vector = self.load_vec4(scope, *value, &units, at)?;
                    let kept = self
                        .states
                        .store_vec4(&mut scope.pool, state, &place, vector);
                    statements.push(kept);
                }
            }
            Ok([Vec::new(), statements])
        })?;
        statements.push(barrier());
        Ok(statements)
    }

    fn step(&self, scope: &mut KernelScope, step: &Index) -> Result<Vec<Statement>> {
        let mut statements = self.for_each_vec4(scope, |scope, quad| {
            let sums = self.accumulators(scope);
            let all = || sums.iter().flatten().copied();
            let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
            let mut together: Vec<Statement> =
                all().map(|sum| Statement::Declare(sum, zero)).collect();
            let rounds = ceil_div(&Dim::from(self.units), self.weight.units_per_iteration());
            together.extend(repeat(scope, "k", &rounds, |scope, k| {
                self.accumulate(scope, step, quad, &k, &sums)
            })?);
            together.extend(all().map(Statement::Freeze));
            Ok([together, self.compute_states(scope, step, quad, &sums)?])
        })?;
        statements.push(barrier());
        Ok(statements)
    }

    /// One accumulator for each row and gate.
    fn accumulators(&self, scope: &mut KernelScope) -> Vec<Vec<Expr>> {
        let name = |row, gate| format!("sum{row}_{gate}");
        let mut sum = |row, gate| scope.pool.variable(&name(row, gate), WgslType::F32x4);
        let row = |row| (0..self.cell.gates()).map(|gate| sum(row, gate)).collect();
        (0..self.states.rows).map(row).collect()
    }

    /// Adds the products of a block of state units to the accumulators of a vec4 of units.
    fn accumulate(
        &self,
        scope: &mut KernelScope,
        step: &Index,
        quad: &Index,
        k: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let parts = self.weight.units_per_iteration() / VEC4_LEN;
        let first = k.scale(&Dim::from(parts));
        let lane = self.weight.is_in_panels().then_some(&self.local);
        let held = self.states.load_hidden(scope, step, &first, parts, lane);
        let mut statements = Vec::new();
        for (part, held) in held.iter().enumerate() {
            for gate in 0..self.cell.gates() {
                let block = self.weight.load_block(scope, self, gate, quad, k, part)?;
                for (row, sums) in sums.iter().enumerate() {
                    let total =
                        block.multiply(&mut scope.pool, |pool, unit| held.unit(pool, row, unit));
                    let total = scope
                        .pool
                        .call("x + y", WgslType::F32x4, &[sums[gate], total]);
                    statements.push(Statement::Assign(sums[gate], total));
                }
            }
        }
        Ok(statements)
    }

    /// Index of a gate among the gates of all directions.
    fn gate_index(&self, gate: usize) -> Index {
        let gates = Dim::from(self.cell.gates());
        self.direction.scale(&gates).add_size(&Dim::from(gate))
    }

    /// Computes the states after a step, writes the result and stores the states for the next step.
    fn compute_states(
        &self,
        scope: &mut KernelScope,
        step: &Index,
        quad: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let units = self.vec4_units(scope, quad);
        let at = self.sequence_index(scope, step);
        let mut statements = Vec::new();
        for (row, sums) in sums.iter().enumerate() {
            let of_batch = self.clamped_row(scope, row);
            let (mut input, mut own) = (Vec::new(), Vec::new());
            for (gate, sum) in sums.iter().enumerate() {
                let first = self.gate_index(gate);
                let column = |unit: &Index| first.scale(&Dim::from(self.units)).add(unit);
                let place = |unit: &Index| vec![at.clone(), of_batch.clone(), column(unit)];
                input.push(self.load_vec4(scope, self.x, &units, place)?);
                let gate = Index::from(Dim::from(gate));
                let place = |unit: &Index| vec![self.direction.clone(), gate.clone(), unit.clone()];
                let bias = self.load_vec4(scope, self.bias, &units, place)?;
                own.push(scope.pool.call("x + y", WgslType::F32x4, &[*sum, bias]));
            }
            let in_row = Index::from(Dim::from(row));
            let place = self.states.vec4_index(step, &in_row, quad);
            let before = (0..self.states.count)
                .map(|state| self.states.load_vec4(&mut scope.pool, state, &place))
                .collect::<Vec<Expr>>();
            let states = cell::next_states(&mut scope.pool, self.cell, [&input, &own], &before);
            let next = self
                .states
                .vec4_index(&step.add_size(&Dim::ONE), &in_row, quad);
            for (state, value) in states.iter().enumerate() {
                statements.push(
                    self.states
                        .store_vec4(&mut scope.pool, state, &next, *value),
                );
            }
            let of_direction = self.direction.scale(&Dim::from(self.units));
            let place = |unit: &Index| vec![at.clone(), of_batch.clone(), of_direction.add(unit)];
            statements.extend(self.write_vec4(
                scope,
                row,
                quad,
                self.results[0],
                states[0],
                place,
            )?);
        }
        Ok(statements)
    }

    /// Sequence position of a step. The second direction runs backwards.
    fn sequence_index(&self, scope: &mut KernelScope, step: &Index) -> Index {
        if self.directions == 1 || self.steps.is(1) {
            return step.clone();
        }
        let [direction, step] = [&self.direction, step].map(|index| index.emit(&mut scope.pool));
        let pool = &mut scope.pool;
        let last = pool.size(&(&self.steps - 1));
        let time = pool.call(
            "select(x, y - x, z == 1u)",
            WgslType::U32,
            &[step, last, direction],
        );
        pool.set_label(time, "time");
        Index::expr(time, &self.steps)
    }

    /// Writes a vector, except for rows and units out of bounds.
    fn write_vec4(
        &self,
        scope: &mut KernelScope,
        row: usize,
        quad: &Index,
        value: ValueId,
        vector: Expr,
        place: impl Fn(&Index) -> Vec<Index>,
    ) -> Result<Vec<Statement>> {
        let first = quad.scale(&Dim::from(VEC4_LEN));
        let parts: Vec<(Index, Expr, Position)> = (0..VEC4_LEN)
            .map(|part| {
                let unit = first.add_size(&Dim::from(part));
                let number = vec4::component(&mut scope.pool, vector, part, WgslType::F32);
                let position = Position::from_coordinates(place(&unit));
                (unit, number, position)
            })
            .collect();
        let units = Dim::from(self.units);
        let mut statements = Vec::new();
        if self.units.is_multiple_of(VEC4_LEN) {
            let parts: Vec<_> = parts.into_iter().map(|(_, x, at)| (x, at)).collect();
            statements = vec8::store_all(scope, value, &parts)?;
        } else {
            for (unit, number, position) in parts {
                let one = vec8::store_all(scope, value, &[(number, position)])?;
                statements.extend(bounds_guard(scope, &unit, &units, one));
            }
        }
        let of_batch = self.row.add_size(&Dim::from(row));
        Ok(match row {
            0 => statements,
            _ => bounds_guard(scope, &of_batch, &self.batch, statements),
        })
    }

    /// Writes the cell state after the last step.
    fn write_cell_state(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let Some(memory) = self.results.get(1) else {
            return Ok(Vec::new());
        };
        self.for_each_vec4(scope, |scope, quad| {
            let last = self.step_count(scope);
            let mut statements = Vec::new();
            for row in 0..self.states.rows {
                let of_batch = self.clamped_row(scope, row);
                let place = self.states.vec4_index(&last, &Dim::from(row).into(), quad);
                let state = self.states.load_vec4(&mut scope.pool, 1, &place);
                let place =
                    |unit: &Index| vec![self.direction.clone(), of_batch.clone(), unit.clone()];
                statements.extend(self.write_vec4(scope, row, quad, *memory, state, place)?);
            }
            Ok([Vec::new(), statements])
        })
    }

    /// The number of steps as an index.
    fn step_count(&self, scope: &mut KernelScope) -> Index {
        match self.steps.as_const() {
            Some(_) => Index::from(self.steps.clone()),
            None => {
                let steps = scope.pool.size(&self.steps);
                Index::expr(steps, &(&self.steps + 1))
            }
        }
    }
}

fn barrier() -> Statement {
    Statement::Line(String::from("workgroupBarrier();"))
}

/// Batch rows of a workgroup. On a rasteriser it leaves work for all threads and fits the workgroup memory.
fn batch_rows(
    scope: &KernelScope,
    [directions, units]: [usize; 2],
    batch: &Dim,
    cell: RecurrentCell,
) -> usize {
    let capabilities = scope.capabilities;
    if capabilities.simd_lanes().is_none() {
        return 1;
    }
    let room =
        capabilities.max_workgroup_memory as usize / RecurrentStates::bytes(cell, units).max(1);
    let shared = (example_size(scope.graph, batch) * directions).div_ceil(THREADS);
    shared.min(room).clamp(1, MAX_ROWS)
}
