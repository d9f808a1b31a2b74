//! Recurrent layers: one kernel for all steps of a sequence, since each step needs all results of the previous one.
//! Barriers synchronise the invocations of a workgroup in every step, but not different workgroups. So a workgroup
//! computes some rows of the batch alone, in one direction, and reads the whole weight of that direction in each step.
//!
//! A unit is one element of a hidden state; each unit has one or several gates. An invocation computes units in vec4s.

mod cell;
mod states;
mod weight;

use self::states::RecurrentStates;
use self::weight::RecurrentWeight;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Node, ValueId};
use crate::kernel::capabilities::Capabilities;
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

/// Largest number of batch rows of a workgroup. They share the loads of the weight.
const MAX_ROWS: usize = 4;
/// Number of workgroups that keep the threads of a rasteriser busy. Batch rows are distributed over this many
/// workgroups before a workgroup takes several rows.
const THREADS: usize = 2;
/// Most invocations of a workgroup on a GPU.
const MAX_INVOCATIONS: usize = 128;

/// The largest power of two of invocations that fits [`MAX_INVOCATIONS`] and the device.
fn most_invocations(capabilities: &Capabilities) -> usize {
    let most = MAX_INVOCATIONS.min(capabilities.max_invocations as usize);
    1 << most.max(VEC4_LEN).ilog2()
}

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
    /// Contributions of the inputs to the gates, for each step and batch row.
    x: ValueId,
    bias: ValueId,
    /// Initial states.
    initial: Vec<ValueId>,
    results: Vec<ValueId>,
    /// Weight by which the hidden state is multiplied.
    weight: RecurrentWeight,
    /// Length of the sequence.
    steps: Dim,
    batch: Dim,
    /// Number of units per direction.
    units: usize,
    directions: usize,
    states: RecurrentStates,
    /// Invocations per workgroup.
    invocations: usize,
    /// Number of workgroups.
    count: Dim,
    /// Statement that ends surplus workgroups.
    surplus: Statement,
    /// Direction of the workgroup.
    direction: Index,
    /// First batch row of the workgroup.
    row: Index,
    /// Index of the invocation in its workgroup.
    local: Index,
}

impl LayerKernel {
    fn new(scope: &mut KernelScope, node: &Node, recurrent: &Recurrent) -> Result<LayerKernel> {
        let graph = scope.graph;
        let (x, weight) = (operand(node, 0)?, operand(node, 1)?);
        let missing = || Error::internal("a recurrent layer of unknown sizes");
        let const_size = |size: &Dim| size.as_const().and_then(|size| usize::try_from(size).ok());
        let ([steps, batch, _], [directions, _, units, _]) = (
            graph.ty(x).shape.as_slice(),
            graph.ty(weight).shape.as_slice(),
        ) else {
            return Err(missing());
        };
        let (Some(directions), Some(units)) = (const_size(directions), const_size(units)) else {
            return Err(missing());
        };
        let invocations = match scope.capabilities.simd_lanes() {
            Some(lanes) => lanes,
            None => units
                .div_ceil(VEC4_LEN)
                .next_power_of_two()
                .clamp(VEC4_LEN, most_invocations(scope.capabilities)),
        };
        let cell = recurrent.cell;
        let rows = batch_rows(scope, [directions, units], batch, cell);
        let grid = [Dim::from(directions), ceil_div(batch, rows)];
        let count = Dim::product(&grid);
        let (index, surplus) = invocation(scope, &count);
        let mut coordinates = index::delinearize(&index, &grid);
        let row = coordinates.pop().unwrap_or_else(Index::zero);
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
            direction: coordinates.pop().unwrap_or_else(Index::zero),
            row: row.scale(&Dim::from(rows)),
            local,
        })
    }

    /// Statements for all vec4s of units. An invocation processes several, one after the other. `body` receives the
    /// index of a vec4 and returns two lists: statements that all invocations run, since those without a valid vec4
    /// still take part in subgroup shuffles, and statements that only invocations with a valid vec4 run.
    fn for_each_vec4(
        &self,
        scope: &mut KernelScope,
        body: impl FnOnce(&mut KernelScope, &Index) -> Result<[Vec<Statement>; 2]>,
    ) -> Result<Vec<Statement>> {
        let vec4s = Dim::from(self.states.vec4s);
        let rounds = ceil_div(&vec4s, self.invocations);
        repeat(scope, "round", &rounds, |scope, round| {
            let vec4_index = round.scale(&Dim::from(self.invocations)).add(&self.local);
            let [mut statements, guarded] = body(scope, &vec4_index)?;
            statements.extend(bounds_guard(scope, &vec4_index, &vec4s, guarded));
            Ok(statements)
        })
    }

    /// Indices of the units of a vec4, clamped to the number of units unless that is a multiple of four.
    fn vec4_units(&self, scope: &mut KernelScope, vec4_index: &Index) -> Vec<Index> {
        let vec4_index = clamped_index(scope, vec4_index, &Dim::from(self.states.vec4s));
        let first = vec4_index.scale(&Dim::from(VEC4_LEN));
        let units = (0..VEC4_LEN).map(|component| first.add_size(&Dim::from(component)));
        match self.units.is_multiple_of(VEC4_LEN) {
            true => units.collect(),
            false => units
                .map(|unit| clamped_index(scope, &unit, &Dim::from(self.units)))
                .collect(),
        }
    }

    /// Index in the batch of the workgroup's row number `row`, clamped to the batch size.
    fn clamped_row(&self, scope: &mut KernelScope, row: usize) -> Index {
        clamped_index(scope, &self.row.add_size(&Dim::from(row)), &self.batch)
    }

    /// Loads an element of a value for each unit of a vec4. `coordinates` returns the element's coordinates for a unit.
    fn load_vec4(
        &self,
        scope: &mut KernelScope,
        value: ValueId,
        units: &[Index],
        coordinates: impl Fn(&Index) -> Vec<Index>,
    ) -> Result<Expr> {
        let load = |unit| ((value, Position::from_coordinates(coordinates(unit))), None);
        vec4::load_vec4(scope, &units.iter().map(load).collect::<Vec<_>>())
    }

    /// Copies the initial states to workgroup memory.
    fn load_initial_states(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let mut statements = self.for_each_vec4(scope, |scope, vec4_index| {
            let units = self.vec4_units(scope, vec4_index);
            let mut statements = Vec::new();
            for row in 0..self.states.rows {
                let batch_row = self.clamped_row(scope, row);
                let coordinates =
                    |unit: &Index| vec![self.direction.clone(), batch_row.clone(), unit.clone()];
                let state_index =
                    self.states
                        .vec4_index(&Index::zero(), &Dim::from(row).into(), vec4_index);
                for (state, value) in self.initial.iter().enumerate() {
                    let vector = self.load_vec4(scope, *value, &units, coordinates)?;
                    let store =
                        self.states
                            .store_vec4(&mut scope.pool, state, &state_index, vector);
                    statements.push(store);
                }
            }
            Ok([Vec::new(), statements])
        })?;
        statements.push(barrier());
        Ok(statements)
    }

    /// Statements of a step: they compute the next states, write the results and end with a barrier.
    fn step(&self, scope: &mut KernelScope, step: &Index) -> Result<Vec<Statement>> {
        let mut statements = self.for_each_vec4(scope, |scope, vec4_index| {
            let sums = self.accumulators(scope);
            let all_sums = || sums.iter().flatten().copied();
            let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
            let mut unguarded: Vec<Statement> = all_sums()
                .map(|sum| Statement::Declare(sum, zero))
                .collect();
            let rounds = ceil_div(&Dim::from(self.units), self.weight.units_per_iteration());
            unguarded.extend(repeat(scope, "k", &rounds, |scope, k| {
                self.accumulate(scope, step, vec4_index, &k, &sums)
            })?);
            unguarded.extend(all_sums().map(Statement::Freeze));
            Ok([
                unguarded,
                self.compute_states(scope, step, vec4_index, &sums)?,
            ])
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

    /// Adds the products of state units with the weight to the accumulators of a vec4 of units. `k` is the iteration of
    /// the loop over state units.
    fn accumulate(
        &self,
        scope: &mut KernelScope,
        step: &Index,
        vec4_index: &Index,
        k: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let vec4_count = self.weight.units_per_iteration() / VEC4_LEN;
        let first = k.scale(&Dim::from(vec4_count));
        let lane = self.weight.is_in_panels().then_some(&self.local);
        let hidden = self
            .states
            .load_hidden(scope, step, &first, vec4_count, lane);
        let mut statements = Vec::new();
        for (k_vec4, hidden) in hidden.iter().enumerate() {
            for gate in 0..self.cell.gates() {
                let block = self
                    .weight
                    .load_block(scope, self, gate, vec4_index, k, k_vec4)?;
                for (row, sums) in sums.iter().enumerate() {
                    let total =
                        block.multiply(&mut scope.pool, |pool, unit| hidden.unit(pool, row, unit));
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
        vec4_index: &Index,
        sums: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let units = self.vec4_units(scope, vec4_index);
        let time = self.sequence_index(scope, step);
        let mut statements = Vec::new();
        for (row, sums) in sums.iter().enumerate() {
            let batch_row = self.clamped_row(scope, row);
            let (mut input, mut hidden) = (Vec::new(), Vec::new());
            for (gate, sum) in sums.iter().enumerate() {
                let first = self.gate_index(gate);
                let column = |unit: &Index| first.scale(&Dim::from(self.units)).add(unit);
                let coordinates =
                    |unit: &Index| vec![time.clone(), batch_row.clone(), column(unit)];
                input.push(self.load_vec4(scope, self.x, &units, coordinates)?);
                let gate = Index::from(Dim::from(gate));
                let coordinates =
                    |unit: &Index| vec![self.direction.clone(), gate.clone(), unit.clone()];
                let bias = self.load_vec4(scope, self.bias, &units, coordinates)?;
                hidden.push(scope.pool.call("x + y", WgslType::F32x4, &[*sum, bias]));
            }
            let row_index = Index::from(Dim::from(row));
            let state_index = self.states.vec4_index(step, &row_index, vec4_index);
            let previous = (0..self.states.count)
                .map(|state| self.states.load_vec4(&mut scope.pool, state, &state_index))
                .collect::<Vec<Expr>>();
            let states =
                cell::next_states(&mut scope.pool, self.cell, [&input, &hidden], &previous);
            let next = self
                .states
                .vec4_index(&step.add_size(&Dim::ONE), &row_index, vec4_index);
            for (state, value) in states.iter().enumerate() {
                statements.push(
                    self.states
                        .store_vec4(&mut scope.pool, state, &next, *value),
                );
            }
            let first_column = self.direction.scale(&Dim::from(self.units));
            let coordinates =
                |unit: &Index| vec![time.clone(), batch_row.clone(), first_column.add(unit)];
            statements.extend(self.write_vec4(
                scope,
                row,
                vec4_index,
                self.results[0],
                states[0],
                coordinates,
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

    /// Writes a vector of units, except for rows and units out of bounds. `coordinates` returns the coordinates of a
    /// unit in `value`.
    fn write_vec4(
        &self,
        scope: &mut KernelScope,
        row: usize,
        vec4_index: &Index,
        value: ValueId,
        vector: Expr,
        coordinates: impl Fn(&Index) -> Vec<Index>,
    ) -> Result<Vec<Statement>> {
        let first = vec4_index.scale(&Dim::from(VEC4_LEN));
        let elements: Vec<(Index, Expr, Position)> = (0..VEC4_LEN)
            .map(|component| {
                let unit = first.add_size(&Dim::from(component));
                let number = vec4::component(&mut scope.pool, vector, component, WgslType::F32);
                let position = Position::from_coordinates(coordinates(&unit));
                (unit, number, position)
            })
            .collect();
        let units = Dim::from(self.units);
        let mut statements = Vec::new();
        if self.units.is_multiple_of(VEC4_LEN) {
            let elements: Vec<_> = elements
                .into_iter()
                .map(|(_, number, position)| (number, position))
                .collect();
            statements = vec8::store_all(scope, value, &elements)?;
        } else {
            for (unit, number, position) in elements {
                let store = vec8::store_all(scope, value, &[(number, position)])?;
                statements.extend(bounds_guard(scope, &unit, &units, store));
            }
        }
        let batch_row = self.row.add_size(&Dim::from(row));
        Ok(match row {
            0 => statements,
            _ => bounds_guard(scope, &batch_row, &self.batch, statements),
        })
    }

    /// Writes the cell state after the last step, if the cell has one.
    fn write_cell_state(&self, scope: &mut KernelScope) -> Result<Vec<Statement>> {
        let Some(cell_state) = self.results.get(1) else {
            return Ok(Vec::new());
        };
        self.for_each_vec4(scope, |scope, vec4_index| {
            let last = self.step_count(scope);
            let mut statements = Vec::new();
            for row in 0..self.states.rows {
                let batch_row = self.clamped_row(scope, row);
                let state_index = self
                    .states
                    .vec4_index(&last, &Dim::from(row).into(), vec4_index);
                let state = self.states.load_vec4(&mut scope.pool, 1, &state_index);
                let coordinates =
                    |unit: &Index| vec![self.direction.clone(), batch_row.clone(), unit.clone()];
                statements.extend(self.write_vec4(
                    scope,
                    row,
                    vec4_index,
                    *cell_state,
                    state,
                    coordinates,
                )?);
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

/// Number of batch rows of a workgroup: one on a GPU; on a rasteriser as many as leave work for all threads and fit the
/// workgroup memory, up to [`MAX_ROWS`].
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
    let rows_in_memory =
        capabilities.max_workgroup_memory as usize / RecurrentStates::bytes(cell, units).max(1);
    let rows_per_thread = (example_size(scope.graph, batch) * directions).div_ceil(THREADS);
    rows_per_thread.min(rows_in_memory).clamp(1, MAX_ROWS)
}
