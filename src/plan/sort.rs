//! Sorting. For a top-k, and for short rows if there are many, an invocation loops over a row and keeps the first
//! elements in order. For few short rows, an invocation finds the rank of one element by counting the elements before
//! it. Long rows are divided into runs, each of which an invocation sorts, and the runs are merged in pairs. If the
//! length of rows is symbolic, the number of merge passes is unknown, and all runs are merged at once.
//!
//! A run is a sorted sequence of consecutive elements of a row. A key is the value of an element, by which it is
//! ordered.

mod merge;
mod merge_path;
mod topk;

pub use self::topk::MAX_K;

use std::collections::BTreeMap;

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node, Op, Primitive, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::Layout;
use crate::kernel::names::unique;
use crate::op::{BinaryFunction, Sort};
use crate::plan::Planner;
use crate::plan::cost::example_size;
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, operand, scalar, write};
use crate::plan::group::Group;
use crate::plan::kernel::{GeneratedKernel, LoweredKernel, ceil_div, invocation, repeat};
use crate::plan::scan::AxisRows;

const TEMPLATE: &str = include_str!("../../shaders/sort.wgsl");

/// Length of the initial runs, and number of elements of a merged run that an invocation writes.
const INITIAL_RUN: usize = 32;
/// Longest row that is sorted without runs.
const MAX_UNSPLIT_LENGTH: usize = MAX_K;
/// Most comparisons for which rows are sorted without runs.
const MAX_COMPARISONS: usize = 1 << 18;
/// Number of short rows from which on an invocation sorts a row.
const BUSY_ROWS: usize = 16;
/// Number of runs that the example's rows are divided into if the length of rows is symbolic.
const SYMBOLIC_RUNS: usize = 8;

/// Parameters of a sort.
struct SortParameters {
    x: ValueId,
    /// The sorted values and their indices.
    results: [ValueId; 2],
    axis: usize,
    descending: bool,
    /// Number of leading elements to find; `None` for a full sort.
    k: Option<usize>,
    /// Number of elements of a row.
    size: Dim,
    /// Number of elements of all rows.
    count: Dim,
    rows: AxisRows,
}

/// The element of a row that an invocation processes.
struct SortElement {
    /// Linear index in the operand.
    index: Index,
    /// Coordinates of the row: those of the element without the sorted axis.
    row: Vec<Index>,
    /// Coordinate along the sorted axis.
    along: Index,
    /// Statement that ends surplus invocations.
    surplus: Statement,
}

/// Consecutive elements of a row that an invocation processes, as many as an initial run has.
struct SortSegment {
    /// Coordinates of the row.
    row: Vec<Index>,
    /// Coordinate along the sorted axis of the first element.
    first: Index,
    /// Statement that ends surplus invocations.
    surplus: Statement,
    /// Number of segments.
    count: Dim,
}

impl SortParameters {
    fn new(graph: &Graph, node: &Node, sort: &Sort) -> Result<SortParameters> {
        let x = operand(node, 0)?;
        let shape = &graph.ty(x).shape;
        let results = node.results.as_slice().try_into();
        Ok(SortParameters {
            x,
            results: results.map_err(|_| Error::internal("a sort must have two results"))?,
            axis: sort.axis,
            descending: sort.descending,
            k: sort.k,
            size: shape[sort.axis].clone(),
            count: Dim::product(shape),
            rows: AxisRows::new(shape, sort.axis),
        })
    }

    /// Length of the runs whose merge gives whole rows; `None` for a sort without runs. Rows of symbolic length may
    /// have more runs than those of the example.
    fn run_length(&self, graph: &Graph) -> Option<usize> {
        let size = example_size(graph, &self.size);
        let comparisons = example_size(graph, &self.count).saturating_mul(size);
        let is_long = MAX_UNSPLIT_LENGTH < size && MAX_COMPARISONS < comparisons;
        let run_count = match self.size.as_const() {
            Some(_) => 2,
            None => SYMBOLIC_RUNS,
        };
        is_long.then(|| (size.next_power_of_two() / run_count).max(INITIAL_RUN))
    }

    /// Length of a row, if an invocation can keep all of its elements.
    fn keepable_length(&self, graph: &Graph) -> Option<usize> {
        let size = usize::try_from(self.size.as_const()?).ok()?;
        let is_busy = BUSY_ROWS <= example_size(graph, &self.rows.count);
        (is_busy && (1..=MAX_UNSPLIT_LENGTH).contains(&size)).then_some(size)
    }

    fn invocation_element(&self, scope: &mut KernelScope) -> SortElement {
        let shape = &scope.graph.ty(self.x).shape;
        let (index, surplus) = invocation(scope, &self.count);
        let mut row = index::delinearize(&index, shape);
        SortElement {
            along: row.remove(self.axis),
            index,
            row,
            surplus,
        }
    }

    fn invocation_segment(&self, scope: &mut KernelScope) -> SortSegment {
        let mut shape = self.rows.others.clone();
        shape.push(ceil_div(&self.size, INITIAL_RUN));
        let count = Dim::product(&shape);
        let (number, surplus) = invocation(scope, &count);
        let mut row = index::delinearize(&number, &shape);
        let segment = row.pop().unwrap_or_else(Index::zero);
        SortSegment {
            row,
            first: segment.scale(&Dim::from(INITIAL_RUN)),
            surplus,
            count,
        }
    }

    /// Sorts rows by counting ranks.
    fn lower_by_rank<'a>(&self, mut scope: KernelScope<'a>) -> Result<LoweredKernel<'a>> {
        let current = self.invocation_element(&mut scope);
        let key = scope.element(self.x, &Position::from_index(current.index.clone()), None)?;
        scope.pool.set_label(key, "key");
        let rank = scope.pool.variable("rank", WgslType::U32);
        let zero = scope.pool.index(0);
        let mut statements = vec![current.surplus.clone(), Statement::Declare(rank, zero)];
        statements.extend(repeat(&mut scope, "k", &self.size, |scope, k| {
            let other = scope.element(self.x, &self.rows.at(&current.row, &k), None)?;
            scope.pool.set_label(other, "other");
            let before = self.is_before(scope, other, key);
            let after = self.is_before(scope, key, other);
            let [k, current] = [&k, &current.along].map(|index| index.emit(&mut scope.pool));
            let pool = &mut scope.pool;
            // Equal elements keep their order.
            let is_earlier = pool.call("x < y", WgslType::Bool, &[k, current]);
            let precedes_equal = pool.call("x & !y", WgslType::Bool, &[is_earlier, after]);
            let precedes = pool.call("x | y", WgslType::Bool, &[before, precedes_equal]);
            let one = pool.call("u32(x)", WgslType::U32, &[precedes]);
            let next = pool.call("x + y", WgslType::U32, &[rank, one]);
            Ok(vec![Statement::Assign(rank, next)])
        })?);
        statements.push(Statement::Freeze(rank));
        let number = current.along.emit(&mut scope.pool);
        let number = scalar::size_as(&mut scope.pool, number, DType::I64, scope.capabilities);
        let target = self.rows.at(&current.row, &Index::expr(rank, &self.size));
        statements.extend(self.store(&mut scope, &target, None, [key, number])?);
        Ok(LoweredKernel::new(scope, TEMPLATE, statements, &self.count))
    }

    /// True if an element comes before another one. NaN counts as the largest value.
    fn is_before(&self, scope: &mut KernelScope, x: Expr, y: Expr) -> Expr {
        let (low, high) = if self.descending { (y, x) } else { (x, y) };
        let pool = &mut scope.pool;
        match pool.ty(x) {
            WgslType::F32 | WgslType::F64 => {
                let template = scalar::typed("is_before(x, y)", pool.ty(x));
                pool.call(template, WgslType::Bool, &[low, high])
            }
            _ => scalar::binary(pool, BinaryFunction::Lt, low, high, DType::I64),
        }
    }

    /// Writes an element and its index `number` to a position of the results, or of intermediate runs of length `run`.
    fn store(
        &self,
        scope: &mut KernelScope,
        position: &Position,
        run: Option<usize>,
        [element, number]: [Expr; 2],
    ) -> Result<[Statement; 2]> {
        let [values, indices] = self.results;
        let mut store = |result, element| match run {
            None => write(scope, result, element, position),
            Some(run) => {
                let (buffer, storage) = scope.bind_sorted_runs(result, run)?;
                let ty = scope.graph.ty(result);
                Ok(Statement::Store {
                    buffer,
                    index: position.linear_index(&ty.shape).emit(&mut scope.pool),
                    value: scalar::to_storage(&mut scope.pool, element, ty.dtype, storage),
                })
            }
        };
        Ok([store(values, element)?, store(indices, number)?])
    }
}

impl Planner<'_> {
    /// Kernel for a sort group's results; `None` for other groups.
    pub(super) fn sort_kernel(&self, group: &Group) -> Result<Option<GeneratedKernel>> {
        let Some(sorting) = self.sort_parameters(group)? else {
            return Ok(None);
        };
        let k = sorting.k.or_else(|| sorting.keepable_length(self.graph));
        let lowered = match (k, sorting.run_length(self.graph)) {
            (Some(k), _) => sorting.lower_topk(self.scope(), k)?,
            (None, Some(run)) if sorting.size.as_const().is_some() => {
                return self.merge_kernel(&sorting, group, run, None).map(Some);
            }
            (None, Some(run)) => sorting.lower_merge_all(self.scope(), run)?,
            (None, None) => sorting.lower_by_rank(self.scope())?,
        };
        lowered.finish(self.label(group)).map(Some)
    }

    /// Adds the steps that sort runs of `run` elements.
    pub(super) fn sort_runs(&mut self, run: usize, group: &Group) -> Result<()> {
        let missing = || Error::internal("sorted runs of a group that does not sort");
        let sorting = self.sort_parameters(group)?.ok_or_else(missing)?;
        for result in sorting.results {
            self.converted_slot(result, &Layout::SortedRuns(run));
        }
        let generated = match run {
            INITIAL_RUN => {
                let lowered = sorting.lower_initial_runs(self.scope())?;
                lowered.finish(self.label(group))?
            }
            _ => self.merge_kernel(&sorting, group, run / 2, Some(run))?,
        };
        self.add_step(generated, group, None)
    }

    /// Parameters of a group's sort; `None` if the group's anchor is no sort.
    fn sort_parameters(&self, group: &Group) -> Result<Option<SortParameters>> {
        let node = group.anchor.and_then(|anchor| self.graph.nodes.get(anchor));
        let sorts = node.and_then(|node| match &node.op {
            Op::Primitive(Primitive::Sort(sort)) => Some((node, sort)),
            _ => None,
        });
        let sorting = sorts.map(|(node, sort)| SortParameters::new(self.graph, node, sort));
        sorting.transpose()
    }

    /// Kernel that merges runs of `from` elements in pairs, to the results or to runs of `to` elements.
    fn merge_kernel(
        &self,
        sorting: &SortParameters,
        group: &Group,
        from: usize,
        to: Option<usize>,
    ) -> Result<GeneratedKernel> {
        let mut used_names = self.graph.hints.keys().map(ToString::to_string).collect();
        let names = ["run", "halvings"].map(|name| Symbol::from(unique(&mut used_names, name)));
        let [run, search_steps] = names.each_ref().map(|name| Dim::symbol(name.clone()));
        let lowered = sorting.lower_merge_path(self.scope(), from, to, [&run, &search_steps])?;
        let sizes = [Dim::from(from), merge::search_steps(from)];
        let sizes: BTreeMap<Symbol, Dim> = names.into_iter().zip(sizes).collect();
        Ok(lowered.finish(self.label(group))?.substitute_sizes(&sizes))
    }
}
