//! Row kernels: reductions over the same trailing axes of a value and the pointwise work around them, in one kernel.
//!
//! A kernel reads each row once per stage. The first stage holds reductions that need no other result, the next one
//! those that need the results of the first stage, and so on; the last pass writes the elements. A mean, a variance and
//! the normalised elements are three stages. Invocations share a row of contiguous elements. Rows with strided elements
//! are columns; an invocation processes one or some adjacent ones alone.

mod granularity;
mod sharing;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::op::ReduceFunction;
use crate::plan::cost::{example_size, node_cost};
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::element::vec8;
use crate::plan::element::{KernelScope, operand, scalar};
use crate::plan::group::{Group, RowFrame, RowsPattern, reduction_of};
use crate::plan::kernel::{LoweredKernel, ceil_div, invocation, repeat};
use crate::plan::reduce::accumulator::{self, Accumulator};
use crate::plan::reduce::rows::granularity::Granularity;
use crate::plan::reduce::rows::sharing::RowSharing;
use crate::plan::{lanes, reduce};

/// Template of row kernels by subgroups.
const SUBGROUP_TEMPLATE: &str = include_str!("../../../shaders/rows.wgsl");

/// Fewest vectors of columns that keep two cores of sixteen lanes busy.
const MIN_COLUMN_VECTORS: usize = 32;
/// Most elements that an invocation of a rasteriser can process one by one: Mesa (22.3, not 25.0) ends loops silently
/// after 65,535 iterations of an invocation, counted over all of its loops.
pub const MAX_LOOP_LENGTH: usize = 1 << 15;
/// Number of columns that keeps a GPU busy.
const BUSY_COLUMNS: usize = 1 << 11;

/// Most elements that an invocation keeps in registers between stages. The source repeats the code for each of them.
const MAX_REGISTER_ELEMENTS: i64 = 32;
/// Most elements in registers if another stage would recompute expensive functions: then more code pays off.
const MAX_REGISTER_ELEMENTS_IF_EXPENSIVE: i64 = 128;
/// Cost from which on a function is expensive, in simple operations: that of an exponential.
const EXPENSIVE_COST: u32 = 5;

/// True if a device has row kernels. On other devices a kernel computes one reduction.
pub fn is_supported(capabilities: &Capabilities) -> bool {
    !capabilities.software || capabilities.simd_lanes().is_some()
}

/// True if there are enough columns to keep a device busy with one invocation per column, and the columns are short
/// enough.
pub fn keep_busy(capabilities: &Capabilities, columns: usize, length: usize) -> bool {
    match capabilities.software {
        true => columns >= MIN_COLUMN_VECTORS * VEC4_LEN && length <= MAX_LOOP_LENGTH,
        false => columns >= BUSY_COLUMNS,
    }
}

/// True if a row kernel pays off. For columns, there must be many that are read several times or rewritten.
pub fn pays_off(graph: &Graph, capabilities: &Capabilities, rows: &RowsPattern) -> bool {
    let frame = &rows.frame;
    if frame.is_contiguous() {
        return true;
    }
    let is_wide = |value: &ValueId| graph.ty(*value).numel() != frame.rows;
    let is_written = rows.written.iter().any(is_wide);
    let times = rows.stages.len() + usize::from(is_written);
    let length = frame.length.as_const().map(usize::try_from);
    let Some(Ok(length)) = length.filter(|_| rows.stages.concat().len() > 1 || is_written) else {
        return false;
    };
    keep_busy(
        capabilities,
        example_size(graph, &frame.rows),
        times * length,
    )
}

/// Lowers a row group.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    rows: &RowsPattern,
) -> Result<LoweredKernel<'a>> {
    let frame = &rows.frame;
    let max_registers = max_register_elements(scope.graph, &rows.computed);
    let Granularity {
        rows: rows_per_invocation,
        width,
    } = Granularity::of(&scope, group, rows, max_registers);
    scope.inline_values(&rows.computed);
    let count = frame.rows.floor_div(&Dim::from(rows_per_invocation));
    let (index, surplus) = invocation(&mut scope, &count);
    let mut kernel = RowKernel {
        sharing: RowSharing::of(&scope, frame),
        frame,
        count,
        rows: vec8::element_indices(&index, rows_per_invocation),
        width,
        max_registers,
        scope,
        statements: vec![surplus],
        names: Vec::new(),
        exchanged_types: Vec::new(),
    };
    for stage in &rows.stages {
        kernel.emit_stage(stage)?;
    }
    kernel.write(&rows.written)?;
    Ok(kernel.finish())
}

/// A row kernel under construction.
struct RowKernel<'a, 'r> {
    scope: KernelScope<'a>,
    frame: &'r RowFrame,
    sharing: RowSharing,
    /// Number of invocations, or of sets of invocations that share a row.
    count: Dim,
    /// Indices of the rows.
    rows: Vec<Index>,
    /// Contiguous elements of a row that an invocation processes at once.
    width: usize,
    /// Most elements that an invocation keeps in registers.
    max_registers: i64,
    statements: Vec<Statement>,
    /// Base names of the variables so far.
    names: Vec<&'static str>,
    /// Types that the invocations of a workgroup exchange.
    exchanged_types: Vec<WgslType>,
}

/// A reduction of one row of the invocation, during its stage.
struct RowReduction {
    operand: ValueId,
    result: ValueId,
    /// Number of the row among those of the invocation.
    row: usize,
    accumulator: Accumulator,
}

impl<'a> RowKernel<'a, '_> {
    /// Emits a stage: one pass over the rows for independent reductions.
    fn emit_stage(&mut self, nodes: &[usize]) -> Result<()> {
        let graph = self.scope.graph;
        let mut reductions = Vec::new();
        for node in nodes.iter().filter_map(|node| graph.nodes.get(*node)) {
            reductions.extend(self.row_reductions(node)?);
        }
        let start = reductions
            .iter()
            .map(|reduction| reduction.accumulator.declare());
        self.statements.extend(start);
        let around = accumulator::piece_statements(
            &mut self.scope,
            reductions.iter().map(|reduction| &reduction.accumulator),
        );
        let passes = self.for_each_element(around, |scope, rows| {
            let each = reductions.iter();
            each.map(|reduction| reduction.accumulate(scope, &rows[reduction.row]))
                .collect()
        })?;
        self.statements.extend(passes);
        for reduction in &reductions {
            let total = reduction.accumulator.total;
            self.combine_invocations(&reduction.accumulator);
            self.statements.push(Statement::Freeze(total));
            let dtype = graph.ty(reduction.result).dtype;
            let value = scalar::narrow(&mut self.scope.pool, total, dtype);
            let row = &self.rows[reduction.row];
            self.scope.set_computed_at(reduction.result, value, row);
        }
        Ok(())
    }

    /// The reductions of a node, one for each row.
    fn row_reductions(&mut self, node: &Node) -> Result<Vec<RowReduction>> {
        let (Some(reduce), Some(result)) = (reduction_of(node), node.results.first()) else {
            return Err(Error::internal("a node of a row kernel is not a reduction"));
        };
        let operand = operand(node, 0)?;
        let dtype = self.scope.graph.ty(operand).dtype;
        let uses_partial_sums =
            reduce.function == ReduceFunction::Sum && dtype.is_float() && self.is_long();
        let total = self.unique_name(reduce::accumulator_name(reduce.function));
        let partial_sum = uses_partial_sums.then(|| self.unique_name("part"));
        let rows = 0..self.rows.len();
        rows.map(|row| {
            let name_of_row = |name: &String| match self.rows.len() {
                1 => name.clone(),
                _ => format!("{name}_{row}"),
            };
            let (total, partial_sum) = (name_of_row(&total), partial_sum.as_ref().map(name_of_row));
            Ok(RowReduction {
                operand,
                result: *result,
                row,
                accumulator: Accumulator::new(
                    &mut self.scope,
                    reduce.function,
                    dtype,
                    &total,
                    partial_sum.as_deref(),
                )?,
            })
        })
        .collect()
    }

    /// A unique variable name: the base name, numbered from the second use on.
    fn unique_name(&mut self, name: &'static str) -> String {
        let known = self.names.iter().filter(|known| **known == name).count();
        self.names.push(name);
        match known {
            0 => name.to_string(),
            _ => format!("{name}{}", known + 1),
        }
    }

    /// Number of iterations in which the invocations process a row, and of the row's vectors.
    fn rounds(&self) -> (Dim, Dim) {
        let vectors = self.frame.length.floor_div(&Dim::from(self.width));
        (ceil_div(&vectors, self.sharing.lanes()), vectors)
    }

    /// True if a sum over a row adds partial sums of chunks.
    fn is_long(&self) -> bool {
        let rounds = self.rounds().0.as_const();
        rounds.is_none_or(|rounds| rounds > reduce::PARTIAL_SUM_LENGTH)
    }

    /// Number of iterations, if the invocations keep their elements in registers between the stages. The loop is
    /// unrolled then.
    fn unrolled_rounds(&self) -> Option<i64> {
        let rounds = self.rounds().0.as_const()?;
        let elements_per_round = self.width * self.rows.len();
        (rounds * elements_per_round as i64 <= self.max_registers).then_some(rounds)
    }

    /// Emits `body` for all elements, called with the positions of neighbours in each row. Long rows are divided into
    /// chunks, with statements around each; several iterations are unrolled where their number allows it.
    fn for_each_element(
        &mut self,
        [mut before, after]: [Vec<Statement>; 2],
        body: impl Fn(&mut KernelScope<'a>, &[Vec<Position>]) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        if let Some(rounds) = self.unrolled_rounds() {
            let rounds = (0..rounds).map(|round| self.emit_round(&Dim::from(round).into(), &body));
            return Ok(rounds.collect::<Result<Vec<_>>>()?.concat());
        }
        let rounds = self.rounds().0;
        if !self.is_long() {
            let (_, round) = self.scope.counter("trip", &rounds);
            let body = self.emit_round(&round, &body)?;
            return repeat(&mut self.scope, "trip", &rounds, |_, _| Ok(body));
        }
        let is_cheap = self.max_registers == MAX_REGISTER_ELEMENTS && self.rows.len() == 1;
        let unrolled = if is_cheap && vec4::is_multiple_of_4(&rounds) {
            VEC4_LEN
        } else {
            1
        };
        let rounds = rounds.floor_div(&Dim::from(unrolled));
        let (variable, round) = self.scope.counter("trip", &rounds);
        let first = round.scale(&Dim::from(unrolled));
        let numbers = (0..unrolled).map(|number| first.add_size(&Dim::from(number)));
        let copies = numbers.map(|number| self.emit_round(&number, &body));
        let body = copies.collect::<Result<Vec<_>>>()?.concat();
        Ok(reduce::repeat_in_chunks(
            &mut self.scope,
            &rounds,
            reduce::PARTIAL_SUM_LENGTH / unrolled as i64,
            variable,
            |chunk_loop| {
                before.push(chunk_loop(body));
                before.extend(after);
                before
            },
        ))
    }

    /// Statements of an invocation in an iteration.
    fn emit_round(
        &mut self,
        round: &Index,
        body: &impl Fn(&mut KernelScope<'a>, &[Vec<Position>]) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        let (lanes, lane) = (self.sharing.lanes(), self.lane().1);
        let vectors = self.rounds().1;
        let scope = &mut self.scope;
        let (vector, inside) = invocation_vector(scope, round, &vectors, lanes, &lane);
        let element_numbers = vec8::element_indices(&vector, self.width);
        let row_positions = |row: &Index| {
            let indices = element_numbers
                .iter()
                .map(|number| self.frame.element_index(row, number));
            indices.map(Position::from_index).collect()
        };
        let positions: Vec<Vec<Position>> = self.rows.iter().map(row_positions).collect();
        let element_count = self.width * self.rows.len();
        let body = scope.with_vector_width(element_count, |scope| body(scope, &positions))?;
        Ok(match inside {
            Some(inside) => vec![Statement::If(inside, body)],
            None => body,
        })
    }

    /// Index of an invocation among those that share the row.
    fn lane(&mut self) -> (Expr, Index) {
        let name = match self.sharing {
            RowSharing::Workgroup => "local",
            RowSharing::Invocation | RowSharing::Subgroup(_) => "lane",
        };
        let lanes = Dim::from(self.sharing.lanes());
        self.scope.counter(name, &lanes)
    }

    /// Combines the partial results of the invocations that share a row. All of them get the result.
    fn combine_invocations(&mut self, accumulator: &Accumulator) {
        let total = accumulator.total;
        let scope = &mut self.scope;
        let ty = scope.pool.ty(total);
        match self.sharing {
            RowSharing::Invocation => {}
            RowSharing::Subgroup(lanes) => {
                let exchange = accumulator.combine_subgroup(scope, lanes);
                self.statements.extend(exchange);
            }
            RowSharing::Workgroup => {
                let shares = exchange_array(ty);
                let (tree, result) =
                    reduce::combine_workgroup(scope, accumulator.function, total, &shares);
                self.statements.extend(tree);
                self.statements.push(Statement::Assign(total, result));
                let barrier = Statement::Line("workgroupBarrier();".to_string());
                self.statements.push(barrier);
                if !self.exchanged_types.contains(&ty) {
                    self.exchanged_types.push(ty);
                }
            }
        }
    }

    /// Writes the values with one element per element of the rows, then those with one element per row.
    fn write(&mut self, values: &[ValueId]) -> Result<()> {
        let graph = self.scope.graph;
        let is_wide = |value: &&ValueId| graph.ty(**value).numel() != self.frame.rows;
        let (wide, narrow): (Vec<&ValueId>, Vec<&ValueId>) = values.iter().partition(is_wide);
        if !wide.is_empty() {
            let passes = self.for_each_element([Vec::new(), Vec::new()], |scope, rows| {
                let each = wide.iter();
                let stores = each.map(|value| write_each(scope, **value, rows));
                Ok(stores.collect::<Result<Vec<_>>>()?.concat())
            })?;
            self.statements.extend(passes);
        }
        let mut row_stores = Vec::new();
        let positions = self.rows.iter().cloned().map(Position::from_index);
        let positions: Vec<Vec<Position>> = positions.map(|position| vec![position]).collect();
        for value in narrow {
            let scope = &mut self.scope;
            let store = |scope: &mut KernelScope| write_each(scope, *value, &positions);
            row_stores.extend(scope.with_vector_width(positions.len(), store)?);
        }
        let lane = self.lane().0;
        if !row_stores.is_empty() && self.sharing != RowSharing::Invocation {
            let zero = self.scope.pool.index(0);
            let is_first = self
                .scope
                .pool
                .call("x == y", WgslType::Bool, &[lane, zero]);
            row_stores = vec![Statement::If(is_first, row_stores)];
        }
        self.statements.extend(row_stores);
        Ok(())
    }

    /// The kernel, with workgroups that fit the sharing of rows.
    fn finish(self) -> LoweredKernel<'a> {
        let count = self.count;
        match self.sharing {
            // Short rows take little time, however few they are.
            RowSharing::Invocation if self.frame.is_contiguous() => {
                LoweredKernel::new(self.scope, reduce::TEMPLATE, self.statements, &count)
            }
            RowSharing::Invocation => reduce::by_invocations(self.scope, self.statements, &count),
            RowSharing::Subgroup(lanes) => {
                lower_subgroups(self.scope, self.statements, &count, lanes)
            }
            RowSharing::Workgroup => {
                let memory = self.exchanged_types.iter().map(|ty| {
                    let (name, ty) = (exchange_array(*ty), ty.wgsl());
                    format!(
                        "var<workgroup> {name}: array<{ty}, {}>;\n",
                        reduce::WORKGROUP_INVOCATIONS
                    )
                });
                let memory = memory.collect();
                let (scope, statements) = (self.scope, self.statements);
                let mut lowered = LoweredKernel::of_workgroups(
                    scope,
                    reduce::WORKGROUP_TEMPLATE,
                    statements,
                    count,
                );
                lowered.template_values.push(("memory", memory));
                lowered
            }
        }
    }
}

/// Index of the vector that an invocation processes in an iteration, of the `vectors` of a row, and the condition that
/// it exists. The condition is `None` if it always exists.
pub fn invocation_vector(
    scope: &mut KernelScope,
    round: &Index,
    vectors: &Dim,
    lanes: usize,
    lane: &Index,
) -> (Index, Option<Expr>) {
    let vector = round.scale(&Dim::from(lanes)).add(lane);
    if vector.is_less_than(vectors) && vector.as_const().is_some() {
        return (vector, None);
    }
    let number = vector.emit(&mut scope.pool);
    let inside = (!vector.is_less_than(vectors)).then(|| {
        let end = scope.pool.size(vectors);
        scope.pool.call("x < y", WgslType::Bool, &[number, end])
    });
    (Index::expr(number, vectors), inside)
}

/// A kernel in which each subgroup processes a row.
pub fn lower_subgroups<'a>(
    scope: KernelScope<'a>,
    statements: Vec<Statement>,
    rows: &Dim,
    lanes: usize,
) -> LoweredKernel<'a> {
    let subgroups = lanes::subgroups_per_workgroup(lanes, example_size(scope.graph, rows));
    let workgroups = ceil_div(rows, subgroups);
    let mut lowered =
        LoweredKernel::of_workgroups(scope, SUBGROUP_TEMPLATE, statements, workgroups);
    let size = lanes::workgroup_size(lanes * subgroups);
    lowered
        .template_values
        .extend([size, lanes::subgroup_indices(lanes, subgroups)]);
    lowered
}

impl RowReduction {
    /// Accumulates the elements at some positions.
    fn accumulate(&self, scope: &mut KernelScope, positions: &[Position]) -> Result<Statement> {
        let positions = positions.iter();
        let elements = positions.map(|position| scope.element(self.operand, position, None));
        let elements = elements.collect::<Result<Vec<_>>>()?;
        Ok(self.accumulator.accumulate(scope, elements))
    }
}

/// Most elements that an invocation keeps in registers instead of rereading the row in each stage: more where a stage
/// would recompute expensive functions.
fn max_register_elements(graph: &Graph, computed: &[ValueId]) -> i64 {
    let is_expensive = |value: &ValueId| match graph.value(*value).definition {
        Definition::Node(node, _) => node_cost(&graph.nodes[node]) >= EXPENSIVE_COST,
        _ => false,
    };
    if computed.iter().any(is_expensive) {
        MAX_REGISTER_ELEMENTS_IF_EXPENSIVE
    } else {
        MAX_REGISTER_ELEMENTS
    }
}

/// Name of the workgroup array for a type.
fn exchange_array(ty: WgslType) -> String {
    format!("shares_{}", ty.wgsl())
}

/// Writes the elements at positions in each of some adjacent rows. In row-major order, vectors of several rows span the
/// rows, whose elements at the same number are contiguous; otherwise each vector lies in one row.
fn write_each(
    scope: &mut KernelScope,
    value: ValueId,
    rows: &[Vec<Position>],
) -> Result<Vec<Statement>> {
    let width = rows.first().map_or(0, Vec::len);
    let across_rows = |number: usize| rows.iter().map(move |row| row[number].clone()).collect();
    let vectors: Vec<Vec<Position>> = match scope.layout(value) {
        layout if layout.is_row_major() && rows.len() > 1 => (0..width).map(across_rows).collect(),
        _ => rows.to_vec(),
    };
    let mut stores = Vec::new();
    for positions in vectors {
        let mut elements = Vec::new();
        for position in positions {
            elements.push((scope.element(value, &position, None)?, position));
        }
        stores.extend(vec8::store_all(scope, value, &elements)?);
    }
    Ok(stores)
}
