//! Pooling: reductions over small windows of images in a vec4 layout. An invocation computes four channels.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::kernel::index::{self, Index};
use crate::op::{Reduce, ReduceFunction};
use crate::plan::element::KernelScope;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, ceil_div, epilogue, repeat_all};
use crate::plan::reduce::{ReductionAxes, TEMPLATE, accumulator_name, combine, new_accumulator};
use crate::plan::vec4_layout::{self, CHANNEL_AXIS};

/// Most elements of a window. Longer sums are made of partial sums.
const MAX_WINDOW: i64 = 128;

/// Most elements of all windows of an invocation with several windows, whose loops are unrolled.
const MAX_UNROLLED: usize = 64;

/// True for a reduction of small windows of images that keeps channels.
pub fn is_supported(graph: &Graph, node: &Node) -> bool {
    let Op::Primitive(Primitive::Reduce(reduce)) = &node.op else {
        return false;
    };
    let Ok(reduction) = ReductionAxes::new(graph, node, &reduce.axes) else {
        return false;
    };
    let is_of_windows = is_of_windows(graph, reduction.operand);
    let window = Dim::product(&reduction.reduced).as_const();
    is_of_windows
        && window.is_some_and(|window| window <= MAX_WINDOW)
        && reduce.axes.iter().all(|axis| *axis > CHANNEL_AXIS)
        && (3..=4).contains(&reduction.kept.len())
        && reduction.dtype == DType::F32
}

/// True for the result of an unfold, or a slice of it.
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

/// Lowers a pooling with its epilogue.
pub fn lower<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    reduce: &Reduce,
) -> Result<LoweredKernel<'a>> {
    let mut scope = scope.reading_u64();
    let reduction = ReductionAxes::new(scope.graph, node, &reduce.axes)?;
    let block = PoolingBlock::new(&mut scope, &reduction);
    let mut statements = vec![block.surplus.clone()];
    let mut totals = Vec::new();
    for position in 0..block.offsets.len() {
        for channel in 0..VEC4_LEN {
            let label = format!("{}{position}_{channel}", accumulator_name(reduce.function));
            let (total, start) =
                new_accumulator(&mut scope, reduce.function, reduction.dtype, &label)?;
            statements.push(Statement::Declare(total, start));
            totals.push(total);
        }
    }
    statements.extend(block.combine(&mut scope, &reduction, reduce, &totals)?);
    statements.extend(totals.iter().copied().map(Statement::Freeze));
    statements.extend(block.write(&mut scope, group, &reduction, &totals)?);
    Ok(LoweredKernel::new(
        scope,
        TEMPLATE,
        statements,
        &block.count,
    ))
}

/// Results of an invocation: four channels of neighbouring positions, whose windows share elements.
struct PoolingBlock {
    count: Dim,
    surplus: Statement,
    /// Image, channel vec4 and first position.
    first: Vec<Index>,
    /// Offsets of the positions from the first one along each axis.
    offsets: Vec<Vec<usize>>,
}

impl PoolingBlock {
    fn new(scope: &mut KernelScope, reduction: &ReductionAxes) -> PoolingBlock {
        let [down, across] = positions_per_invocation(scope, reduction);
        let mut shape = reduction.kept.clone();
        let spatial = shape.iter_mut().skip(CHANNEL_AXIS + 1);
        for (size, step) in spatial.zip([down, across]) {
            *size = ceil_div(size, step);
        }
        let (mut first, surplus, count) = vec4_layout::invocation_vec4(scope, &shape, CHANNEL_AXIS);
        let spatial = first.iter_mut().skip(CHANNEL_AXIS + 1);
        for (first, step) in spatial.zip([down, across]) {
            *first = first.scale(&Dim::from(step));
        }
        let offsets = (0..down).flat_map(|i| (0..across).map(move |j| [0, 0, i, j]));
        let rank = first.len();
        PoolingBlock {
            count,
            surplus,
            first,
            offsets: offsets.map(|offset| offset[..rank].to_vec()).collect(),
        }
    }

    /// Coordinates of the position at `offsets` from the first one.
    fn position(&self, offsets: &[usize]) -> Vec<Index> {
        let axes = self.first.iter().zip(offsets);
        axes.map(|(first, offset)| first.add_size(&Dim::from(*offset)))
            .collect()
    }

    /// Condition under which a position is within the result; `None` if it always is.
    fn bounds_condition(
        &self,
        scope: &mut KernelScope,
        reduction: &ReductionAxes,
        offsets: &[usize],
    ) -> Option<Expr> {
        let coordinates = self.position(offsets);
        let mut inside = None;
        for ((coordinate, size), offset) in coordinates.iter().zip(&reduction.kept).zip(offsets) {
            if *offset > 0 && !coordinate.is_less_than(size) {
                let below = scope.is_below(coordinate, size);
                inside = Some(scope.pool.and(inside, below));
            }
        }
        inside
    }

    /// Reduces the windows of all positions, one after the other.
    fn combine(
        &self,
        scope: &mut KernelScope,
        reduction: &ReductionAxes,
        reduce: &Reduce,
        totals: &[Expr],
    ) -> Result<Vec<Statement>> {
        let mut elements = LoadedElements {
            function: reduce.function,
            loaded: HashMap::new(),
        };
        if self.offsets.len() == 1 {
            return repeat_all(scope, "k", &reduction.reduced, |scope, reduced| {
                self.add(
                    scope,
                    reduction,
                    &mut elements,
                    totals,
                    &self.offsets[0],
                    &reduced,
                )
            });
        }
        let mut statements = Vec::new();
        for (offsets, totals) in self.offsets.iter().zip(totals.chunks(VEC4_LEN)) {
            for reduced in all_coordinates(&reduction.reduced) {
                let added = self.add(scope, reduction, &mut elements, totals, offsets, &reduced)?;
                statements.extend(added);
            }
        }
        Ok(statements)
    }

    /// Adds four channels of a window's element to the totals. An element of several windows is loaded once, for the
    /// first of their positions, which is within the result whenever another one is.
    fn add(
        &self,
        scope: &mut KernelScope,
        reduction: &ReductionAxes,
        elements: &mut LoadedElements,
        totals: &[Expr],
        offsets: &[usize],
        reduced: &[Index],
    ) -> Result<Vec<Statement>> {
        let inside = self.bounds_condition(scope, reduction, offsets);
        let mut statements = Vec::new();
        for (total, position) in totals
            .iter()
            .zip(vec4::neighbours(&self.position(offsets), CHANNEL_AXIS))
        {
            let position = reduction.operand_position(&position, reduced);
            let unguarded = scope.element(reduction.operand, &position, None)?;
            let element = match elements.loaded.entry(unguarded) {
                Entry::Occupied(element) => *element.get(),
                Entry::Vacant(vacant) => {
                    *vacant.insert(scope.element(reduction.operand, &position, inside)?)
                }
            };
            let sum = combine(scope, elements.function, *total, element);
            statements.push(Statement::Assign(*total, sum));
        }
        Ok(statements)
    }

    /// Applies the epilogue to the totals and writes the positions that are within the result.
    fn write(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        reduction: &ReductionAxes,
        totals: &[Expr],
    ) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        for (offsets, totals) in self.offsets.iter().zip(totals.chunks(VEC4_LEN)) {
            let coordinates = scope.separate_all(&self.position(offsets), &reduction.kept);
            let mut results = Vec::new();
            for (total, position) in totals
                .iter()
                .zip(vec4::neighbours(&coordinates, CHANNEL_AXIS))
            {
                let position = Position::from_coordinates(position);
                results.push(epilogue(
                    scope,
                    group.root,
                    reduction.result,
                    *total,
                    &position,
                )?);
            }
            let store = scope.store_vec4(group.root, CHANNEL_AXIS, &results)?;
            statements.push(match self.bounds_condition(scope, reduction, offsets) {
                Some(inside) => Statement::If(inside, vec![store]),
                None => store,
            });
        }
        Ok(statements)
    }
}

/// The elements that a block of windows has loaded, and how they are combined.
struct LoadedElements {
    function: ReduceFunction,
    /// The loaded value of each element, by the element read without a bounds check.
    loaded: HashMap<Expr, Expr>,
}

/// Positions of an invocation along the spatial axes: two if the axis has more than one and the unrolled code stays
/// short.
fn positions_per_invocation(scope: &mut KernelScope, reduction: &ReductionAxes) -> [usize; 2] {
    let spatial_size = |axis: usize| reduction.kept.get(CHANNEL_AXIS + 1 + axis).cloned();
    let [down, across] = [0, 1].map(|axis| spatial_size(axis).unwrap_or(Dim::ONE));
    let window = Dim::product(&reduction.reduced);
    let count = scope.decide(
        [down, across, window, Dim::ONE],
        |[down, across, window, _]| match [down > 1, across > 1] {
            [true, true] if 4 * window <= MAX_UNROLLED => 4,
            [true, _] if 2 * window <= MAX_UNROLLED => 2,
            _ => 1,
        },
    );
    match count {
        4 => [2, 2],
        count => [count, 1],
    }
}

/// All coordinates of a shape with constant sizes.
fn all_coordinates(shape: &[Dim]) -> Vec<Vec<Index>> {
    let count = Dim::product(shape).as_const().unwrap_or(0);
    let coordinates = (0..count).map(|number| index::delinearize(&Dim::from(number).into(), shape));
    coordinates.collect()
}
