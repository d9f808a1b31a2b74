//! Split reductions: a reduction with few results of many elements each is computed in two steps. Parts are reduced first,
//! then the partial results, in an order that depends only on the sizes. Otherwise few invocations would do all the work.
//!
//! The elements of one result are a row if they are contiguous, and a column if they are strided.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::dim::Dim;
use crate::ir::rewrite::Replay;
use crate::ir::{Builder, Graph, Node, Value, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::op::{Reduce, ReduceFunction};
use crate::plan::group::{RowFrame, reduction_of};
use crate::plan::reduce::rows;
use crate::shape::TensorType;

/// Minimal number of elements of the operand for which a second dispatch pays off.
const MIN_ELEMENTS: i64 = 1 << 16;
/// Number of rows that keeps a GPU busy without a split.
const BUSY_ROWS: i64 = 16;
/// Longest row that one core of a software rasteriser reduces sooner than several cores in several dispatches.
const MAX_ROW_OF_ONE_CORE: i64 = 1 << 18;
/// Approximate number of partial columns into which the columns of a reduction are split.
const PARTIAL_COLUMNS: i64 = 1 << 11;
/// Minimal length of a row that a row kernel should reduce, and of a column that is split.
const MIN_ROW_LENGTH: i64 = 32;
/// Number of partial rows that two workgroups reduce, one on each of two cores.
const ROWS_OF_TWO_WORKGROUPS: i64 = 16;
/// The length of a part is a multiple of this where possible.
const PART_MULTIPLE: i64 = 8;

/// Split of a reduction. Its first reduced axis, together with all axes after it if they are reduced too, is divided into
/// an axis of parts and one within them. A remainder is a separate part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitReduction {
    axis: usize,
    /// True if all axes after `axis` are reduced too and are merged with it.
    joins_inner_axes: bool,
    /// Number of parts, without the remainder.
    parts: i64,
    /// Length of a part.
    length: i64,
    /// Length of the remainder; 0 if there is none.
    rest: i64,
}

impl SplitReduction {
    /// The split of a node; `None` if the node is not split.
    pub fn of(graph: &Graph, capabilities: &Capabilities, node: &Node) -> Option<SplitReduction> {
        let (reduce, x) = (reduction_of(node)?, *node.operands().first()?);
        let shape = &graph.ty(x).shape;
        let sizes: Vec<i64> = shape.iter().map(Dim::as_const).collect::<Option<_>>()?;
        let elements = sizes
            .iter()
            .try_fold(1i64, |all, size| all.checked_mul(*size))?;
        let is_reduced = |axis: &usize| reduce.axes.contains(axis) && sizes[*axis] > 1;
        let axis = (0..sizes.len()).find(is_reduced)?;
        let results = graph.ty(*node.results.first()?).numel().as_const()?;
        if !rows::is_supported(capabilities) || elements < MIN_ELEMENTS || results == 0 {
            return None;
        }
        let to_usize = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        let keep_busy = rows::keep_busy(capabilities, to_usize(results), to_usize(sizes[axis]));
        let last = sizes.len() - 1;
        // Product of the reduced axes at the end of the shape, without `axis`: as many elements are contiguous.
        let innermost = (axis + 1..=last).rev().take_while(|axis| is_reduced(axis));
        let contiguous: i64 = innermost.map(|axis| sizes[axis]).product();
        if RowFrame::of(graph, node).is_some_and(|frame| frame.is_contiguous()) {
            let stays_whole = match capabilities.software {
                true => results > 1 || elements <= MAX_ROW_OF_ONE_CORE,
                false => results >= BUSY_ROWS,
            };
            (!stays_whole)
                .then(|| SplitReduction::split_row(axis, true, elements / results, results))
        } else if contiguous >= MIN_ROW_LENGTH {
            capabilities
                .software
                .then(|| SplitReduction::single_elements(axis, sizes[axis]))
        } else if contiguous == 1 && !keep_busy && sizes[axis] >= MIN_ROW_LENGTH {
            let fewest = (sizes[axis] / (rows::MAX_LOOP_LENGTH as i64 / 2)).max(2);
            let wanted = (PARTIAL_COLUMNS / results).clamp(fewest, sizes[axis] / PART_MULTIPLE);
            let parts = (1..=wanted).rev().find(|parts| sizes[axis] % parts == 0);
            let parts = parts.filter(|parts| 2 * parts >= wanted).unwrap_or(wanted);
            Some(SplitReduction::of_parts(axis, false, sizes[axis], parts))
                .filter(|split| split.parts > 1)
        } else {
            None
        }
    }

    /// Makes every element of the axis a part, so that the inner axes become rows.
    fn single_elements(axis: usize, size: i64) -> SplitReduction {
        SplitReduction::of_parts(axis, false, size, size)
    }

    /// Divides a row into equal parts whose length is a multiple of [`PART_MULTIPLE`], if such a number of parts
    /// exists. Of these numbers it takes one with which the partial rows of all results come closest to filling whole
    /// pairs of workgroups, and the smallest of several.
    fn split_row(axis: usize, joins_inner_axes: bool, size: i64, results: i64) -> SplitReduction {
        let utilisation_per_mille = |parts: i64| {
            let rows = parts * results;
            rows * 1000
                / ((rows + ROWS_OF_TWO_WORKGROUPS - 1) / ROWS_OF_TWO_WORKGROUPS
                    * ROWS_OF_TWO_WORKGROUPS)
        };
        let candidates = (64 / results).max(2)..=256 / results;
        let equal = candidates.filter(|parts| size % (parts * PART_MULTIPLE) == 0);
        match equal.max_by_key(|parts| (utilisation_per_mille(*parts), Reverse(*parts))) {
            Some(parts) => SplitReduction::of_parts(axis, joins_inner_axes, size, parts),
            None => {
                let parts = (64 / results).max(2);
                let length = size / parts / PART_MULTIPLE * PART_MULTIPLE;
                SplitReduction {
                    rest: size - parts * length,
                    length,
                    ..SplitReduction::of_parts(axis, joins_inner_axes, size, parts)
                }
            }
        }
    }

    /// Divides the axis into this number of parts; what the division leaves is the remainder.
    fn of_parts(axis: usize, joins_inner_axes: bool, size: i64, parts: i64) -> SplitReduction {
        SplitReduction {
            axis,
            joins_inner_axes,
            parts,
            length: size / parts,
            rest: size % parts,
        }
    }

    /// True if no elements are left over.
    pub fn has_equal_parts(self) -> bool {
        self.rest == 0
    }

    /// Builds the reduction in two steps. Returns its result and the partial results.
    pub fn reduce<'g>(self, replay: &mut Replay<'_, 'g>, node: &Node) -> Option<[Value<'g>; 2]> {
        let (reduce, x) = (reduction_of(node)?, *node.operands().first()?);
        // Partial results keep the precision of the accumulation.
        let x = replay.value(x).to_compute();
        let parts = self.parts(x, reduce);
        let mut partial = parts.reduce(parts.elements, reduce.function);
        if self.rest > 0 {
            let (x, axes) = self.flattened(x, reduce);
            let rest = x.narrow(self.axis as i64, self.parts * self.length, self.rest);
            let rest = reduce_axes(rest, reduce.function, axes).unsqueeze(parts.axis as i64);
            partial = x.builder().concat(&[partial, rest], parts.axis as i64);
        }
        let ty = replay.graph.ty(*node.results.first()?);
        Some([parts.combine(partial, reduce.function, ty), partial])
    }

    /// Divides an operand into parts, without the remainder.
    pub fn parts<'g>(self, x: Value<'g>, reduce: &Reduce) -> Parts<'g> {
        let (x, axes) = self.flattened(x, reduce);
        let covered = self.parts * self.length;
        let inner_axes = axes
            .iter()
            .map(|axis| axis + usize::from(*axis >= self.axis));
        Parts {
            elements: self.split_axis(x.narrow(self.axis as i64, 0, covered)),
            inner_axes: inner_axes.collect(),
            axis: self.axis - axes.iter().filter(|axis| **axis < self.axis).count(),
        }
    }

    /// The operand and its reduced axes. Axes that are joined are one.
    fn flattened<'g>(self, x: Value<'g>, reduce: &Reduce) -> (Value<'g>, Vec<usize>) {
        match self.joins_inner_axes {
            true => (x.flatten(self.axis as i64, -1), vec![self.axis]),
            false => (x, reduce.axes.clone()),
        }
    }

    /// Splits the axis into an axis of parts and one within them.
    fn split_axis(self, x: Value<'_>) -> Value<'_> {
        let mut shape = x.shape();
        let sizes = [self.parts, self.length].map(Dim::from);
        shape.splice(self.axis..=self.axis, sizes);
        x.reshape(shape)
    }
}

/// Partial results of split reductions in the rewritten graph.
#[derive(Default)]
pub struct PartialResults(HashMap<ValueId, ValueId>);

impl PartialResults {
    /// Partial results of the reduction to a value of the original graph.
    pub fn of<'g>(&self, builder: &'g Builder, result: ValueId) -> Option<Value<'g>> {
        self.0.get(&result).map(|partial| builder.value(*partial))
    }

    /// Records the partial results of a node, and returns its result.
    pub fn record<'g>(&mut self, node: &Node, results: Option<[Value<'g>; 2]>) -> Vec<Value<'g>> {
        let (Some([result, partial]), [original]) = (results, node.results.as_slice()) else {
            return Vec::new();
        };
        self.0.insert(*original, partial.id());
        vec![result]
    }
}

/// Equal parts of the operand of a reduction.
pub struct Parts<'g> {
    /// The elements, with an axis of parts.
    pub elements: Value<'g>,
    /// Axes that are reduced within a part.
    pub inner_axes: Vec<usize>,
    /// The axis of parts in partial results.
    pub axis: usize,
}

impl<'g> Parts<'g> {
    /// Reduces values of the shape of the elements to partial results.
    pub fn reduce(&self, values: Value<'g>, function: ReduceFunction) -> Value<'g> {
        reduce_axes(values, function, self.inner_axes.clone())
    }

    /// Reduces partial results to a result of this type.
    pub fn combine(
        &self,
        partial: Value<'g>,
        function: ReduceFunction,
        ty: &TensorType,
    ) -> Value<'g> {
        let reduced = reduce_axes(partial, function, vec![self.axis]);
        reduced.to(ty.dtype).reshape(ty.shape.clone())
    }
}

fn reduce_axes(x: Value<'_>, function: ReduceFunction, axes: Vec<usize>) -> Value<'_> {
    x.builder().apply(Reduce { function, axes }, vec![x.into()])
}
