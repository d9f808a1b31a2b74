//! Row kernels: reductions over the same trailing axes of a value and the pointwise work around them, in one kernel.
//!
//! A kernel reads each row once per stage. The first stage holds reductions that need no other result, the next one those
//! that need the results of the first stage, and so on; the last pass writes the elements. A mean, a variance and the
//! normalised elements are three stages. Invocations share a row of contiguous elements. For rows with strided elements,
//! which are columns, an invocation processes some adjacent ones.

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

/// Most elements that an invocation keeps in registers between stages. The source repeats the code for each of them. For
/// functions at least as expensive as an exponential, which another stage would recompute, more code pays off.
const MAX_REGISTER_ELEMENTS: i64 = 32;
const MAX_REGISTER_ELEMENTS_IF_EXPENSIVE: i64 = 128;
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
    let kept = max_register_elements(scope.graph, &rows.computed);
    let Granularity {
        rows: across,
        width,
    } = Granularity::of(&scope, group, rows, kept);
    scope.inline_values(&rows.computed);
    let count = frame.rows.floor_div(&Dim::from(across));
    let (index, surplus) = invocation(&mut scope, &count);
    let mut row = RowKernel {
        sharing: RowSharing::of(&scope, frame),
        frame,
        count,
        rows: vec8::element_indices(&index, across),
        width,
        kept,
        scope,
        statements: vec![surplus],
        names: Vec::new(),
        exchanged_types: Vec::new(),
    };
    for stage in &rows.stages {
        row.emit_stage(stage)?;
    }
    row.write(&rows.written)?;
    Ok(row.finish())
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
    kept: i64,
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
    row: usize,
    running: Accumulator,
}

impl<'a> RowKernel<'a, '_> {
    /// Emits a stage: one pass over the rows for independent reductions.
    fn emit_stage(&mut self, nodes: &[usize]) -> Result<()> {
        let graph = self.scope.graph;
        let mut parts = Vec::new();
        for node in nodes.iter().filter_map(|node| graph.nodes.get(*node)) {
            parts.extend(self.row_reductions(node)?);
        }
        let start = parts.iter().map(|part| part.running.declare());
        self.statements.extend(start);
        let around =
            accumulator::piece_statements(&mut self.scope, parts.iter().map(|part| &part.running));
        let through = self.for_each_element(around, |scope, rows| {
            let each = parts.iter();
            each.map(|part| part.accumulate(scope, &rows[part.row]))
                .collect()
        })?;
        self.statements.extend(through);
        for part in &parts {
            let total = part.running.total;
            self.combine_invocations(&part.running);
            self.statements.push(Statement::Freeze(total));
            let dtype = graph.ty(part.result).dtype;
            let value = scalar::narrow(&mut self.scope.pool, total, dtype);
            let row = &self.rows[part.row];
            self.scope.set_computed_at(part.result, value, row);
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
        let in_parts = reduce.function == ReduceFunction::Sum && dtype.is_float() && self.is_long();
        let total = self.unique_name(reduce::accumulator_name(reduce.function));
        let part = in_parts.then(|| self.unique_name("part"));
        let rows = 0..self.rows.len();
        rows.map(|row| {
            let of_row = |name: &String| match self.rows.len() {
                1 => name.clone(),
                _ => format!("{name}_{row}"),
            };
            let (total, part) = (of_row(&total), part.as_ref().map(of_row));
            Ok(RowReduction {
                operand,
                result: *result,
                row,
                running: Accumulator::new(
                    &mut self.scope,
                    reduce.function,
                    dtype,
                    &total,
                    part.as_deref(),
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
        let units = self.frame.length.floor_div(&Dim::from(self.width));
        (ceil_div(&units, self.sharing.lanes()), units)
    }

    fn is_long(&self) -> bool {
        let rounds = self.rounds().0.as_const();
        rounds.is_none_or(|rounds| rounds > reduce::PARTIAL_SUM_LENGTH)
    }

    /// Number of iterations, if the invocations keep their elements in registers between the stages. The loop is unrolled
    /// then.
    fn unrolled_rounds(&self) -> Option<i64> {
        let rounds = self.rounds().0.as_const()?;
        let at_once = self.width * self.rows.len();
        (rounds * at_once as i64 <= self.kept).then_some(rounds)
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
        let is_cheap = self.kept == MAX_REGISTER_ELEMENTS && self.rows.len() == 1;
        let at_once = if is_cheap && vec4::is_multiple_of_4(&rounds) {
            VEC4_LEN
        } else {
            1
        };
        let rounds = rounds.floor_div(&Dim::from(at_once));
        let (variable, round) = self.scope.counter("trip", &rounds);
        let first = round.scale(&Dim::from(at_once));
        let numbers = (0..at_once).map(|number| first.add_size(&Dim::from(number)));
        let all = numbers.map(|number| self.emit_round(&number, &body));
        let body = all.collect::<Result<Vec<_>>>()?.concat();
        Ok(reduce::repeat_in_chunks(
            &mut self.scope,
            &rounds,
            reduce::PARTIAL_SUM_LENGTH / at_once as i64,
            variable,
            |piece| {
                before.push(piece(body));
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
        let units = self.rounds().1;
        let scope = &mut self.scope;
        let (unit, inside) = invocation_vector(scope, round, &units, lanes, &lane);
        let numbers = vec8::element_indices(&unit, self.width);
        let along = |row: &Index| {
            let places = numbers
                .iter()
                .map(|number| self.frame.element_index(row, number));
            places.map(Position::from_index).collect()
        };
        let places: Vec<Vec<Position>> = self.rows.iter().map(along).collect();
        let neighbours = self.width * self.rows.len();
        let body = scope.with_vector_width(neighbours, |scope| body(scope, &places))?;
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

    /// Combines the partial results of the invocations and broadcasts the result.
    fn combine_invocations(&mut self, running: &Accumulator) {
        let total = running.total;
        let scope = &mut self.scope;
        let ty = scope.pool.ty(total);
        match self.sharing {
            RowSharing::Invocation => {}
            RowSharing::Subgroup(lanes) => {
                for step in lanes::shuffle_distances(lanes) {
                    let exchange = match ty {
                        WgslType::Bool => format!("subgroupShuffleXor(u32(x), {step}u) != 0u"),
                        _ => format!("subgroupShuffleXor(x, {step}u)"),
                    };
                    let other = scope.pool.call(exchange, ty, &[total]);
                    let both = running.combine_with(scope, other);
                    self.statements.push(Statement::Assign(total, both));
                }
            }
            RowSharing::Workgroup => {
                let shares = exchange_array(ty);
                let (tree, whole) =
                    reduce::combine_workgroup(scope, running.function, total, &shares);
                self.statements.extend(tree);
                self.statements.push(Statement::Assign(total, whole));
                let barrier = Statement::Line("workgroupBarrier();".to_string());
                self.statements.push(barrier);
                if !self.exchanged_types.contains(&ty) {
                    self.exchanged_types.push(ty);
                }
            }
        }
    }

    /// Writes the values per element and those per row.
    fn write(&mut self, values: &[ValueId]) -> Result<()> {
        let graph = self.scope.graph;
        let is_wide = |value: &&ValueId| graph.ty(**value).numel() != self.frame.rows;
        let (wide, narrow): (Vec<&ValueId>, Vec<&ValueId>) = values.iter().partition(is_wide);
        if !wide.is_empty() {
            let through = self.for_each_element([Vec::new(), Vec::new()], |scope, rows| {
                let each = wide.iter();
                let stores = each.map(|value| write_each(scope, **value, rows));
                Ok(stores.collect::<Result<Vec<_>>>()?.concat())
            })?;
            self.statements.extend(through);
        }
        let mut last = Vec::new();
        let places = self.rows.iter().cloned().map(Position::from_index);
        let places: Vec<Vec<Position>> = places.map(|place| vec![place]).collect();
        for value in narrow {
            let scope = &mut self.scope;
            let store = |scope: &mut KernelScope| write_each(scope, *value, &places);
            last.extend(scope.with_vector_width(places.len(), store)?);
        }
        let lane = self.lane().0;
        if !last.is_empty() && self.sharing != RowSharing::Invocation {
            let zero = self.scope.pool.index(0);
            let is_first = self
                .scope
                .pool
                .call("x == y", WgslType::Bool, &[lane, zero]);
            last = vec![Statement::If(is_first, last)];
        }
        self.statements.extend(last);
        Ok(())
    }

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

/// Vector of a row that an invocation processes in an iteration, and the condition that it exists. The condition is
/// `None` if it always exists.
pub fn invocation_vector(
    scope: &mut KernelScope,
    round: &Index,
    units: &Dim,
    lanes: usize,
    lane: &Index,
) -> (Index, Option<Expr>) {
    let unit = round.scale(&Dim::from(lanes)).add(lane);
    if unit.is_less_than(units) && unit.as_const().is_some() {
        return (unit, None);
    }
    let number = unit.emit(&mut scope.pool);
    let inside = (!unit.is_less_than(units)).then(|| {
        let end = scope.pool.size(units);
        scope.pool.call("x < y", WgslType::Bool, &[number, end])
    });
    (Index::expr(number, units), inside)
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
    /// Accumulates neighbours.
    fn accumulate(&self, scope: &mut KernelScope, places: &[Position]) -> Result<Statement> {
        let places = places.iter();
        let elements = places.map(|place| scope.element(self.operand, place, None));
        let elements = elements.collect::<Result<Vec<_>>>()?;
        Ok(self.running.accumulate(scope, elements))
    }
}

/// Most elements that an invocation keeps in registers instead of rereading the row in each stage: more where a stage
/// would recompute expensive functions.
fn max_register_elements(graph: &Graph, computed: &[ValueId]) -> i64 {
    let is_dear = |value: &ValueId| match graph.value(*value).definition {
        Definition::Node(node, _) => node_cost(&graph.nodes[node]) >= EXPENSIVE_COST,
        _ => false,
    };
    if computed.iter().any(is_dear) {
        MAX_REGISTER_ELEMENTS_IF_EXPENSIVE
    } else {
        MAX_REGISTER_ELEMENTS
    }
}

/// Name of the workgroup array for a type.
fn exchange_array(ty: WgslType) -> String {
    format!("shares_{}", ty.wgsl())
}

/// Writes neighbours in each of some rows: grouped by row if the value has such a layout, else grouped by adjacent rows.
fn write_each(
    scope: &mut KernelScope,
    value: ValueId,
    rows: &[Vec<Position>],
) -> Result<Vec<Statement>> {
    let width = rows.first().map_or(0, Vec::len);
    let of_each = |number: usize| rows.iter().map(move |row| row[number].clone()).collect();
    let vectors: Vec<Vec<Position>> = match scope.layout(value) {
        layout if layout.is_row_major() && rows.len() > 1 => (0..width).map(of_each).collect(),
        _ => rows.to_vec(),
    };
    let mut stores = Vec::new();
    for places in vectors {
        let mut parts = Vec::new();
        for place in places {
            parts.push((scope.element(value, &place, None)?, place));
        }
        stores.extend(vec8::store_all(scope, value, &parts)?);
    }
    Ok(stores)
}
