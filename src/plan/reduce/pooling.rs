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
    let Ok(parts) = ReductionAxes::new(graph, node, &reduce.axes) else {
        return false;
    };
    let is_of_windows = is_of_windows(graph, parts.operand);
    let window = Dim::product(&parts.reduced).as_const();
    is_of_windows
        && window.is_some_and(|window| window <= MAX_WINDOW)
        && reduce.axes.iter().all(|axis| *axis > CHANNEL_AXIS)
        && (3..=4).contains(&parts.kept.len())
        && parts.dtype == DType::F32
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
    let parts = ReductionAxes::new(scope.graph, node, &reduce.axes)?;
    let block = PoolingBlock::new(&mut scope, &parts);
    let mut statements = vec![block.surplus.clone()];
    let mut totals = Vec::new();
    for place in 0..block.offsets.len() {
        for part in 0..VEC4_LEN {
            let label = format!("{}{place}_{part}", accumulator_name(reduce.function));
            let (total, start) = new_accumulator(&mut scope, reduce.function, parts.dtype, &label)?;
            statements.push(Statement::Declare(total, start));
            totals.push(total);
        }
    }
    statements.extend(block.combine(&mut scope, &parts, reduce, &totals)?);
    statements.extend(totals.iter().copied().map(Statement::Freeze));
    statements.extend(block.write(&mut scope, group, &parts, &totals)?);
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
    fn new(scope: &mut KernelScope, parts: &ReductionAxes) -> PoolingBlock {
        let [down, across] = positions_per_invocation(scope, parts);
        let mut shape = parts.kept.clone();
        let space = shape.iter_mut().skip(CHANNEL_AXIS + 1);
        for (size, along) in space.zip([down, across]) {
            *size = ceil_div(size, along);
        }
        let (mut first, surplus, count) = vec4_layout::invocation_vec4(scope, &shape, CHANNEL_AXIS);
        let space = first.iter_mut().skip(CHANNEL_AXIS + 1);
        for (first, along) in space.zip([down, across]) {
            *first = first.scale(&Dim::from(along));
        }
        let places = (0..down).flat_map(|i| (0..across).map(move |j| [0, 0, i, j]));
        let rank = first.len();
        PoolingBlock {
            count,
            surplus,
            first,
            offsets: places.map(|place| place[..rank].to_vec()).collect(),
        }
    }

    /// Coordinates of a position.
    fn position(&self, place: &[usize]) -> Vec<Index> {
        let axes = self.first.iter().zip(place);
        axes.map(|(first, offset)| first.add_size(&Dim::from(*offset)))
            .collect()
    }

    /// Condition under which a position is within the result; `None` if it always is.
    fn bounds_condition(
        &self,
        scope: &mut KernelScope,
        parts: &ReductionAxes,
        place: &[usize],
    ) -> Option<Expr> {
        let at = self.position(place);
        let mut inside = None;
        for ((at, size), offset) in at.iter().zip(&parts.kept).zip(place) {
            if *offset > 0 && !at.is_less_than(size) {
                let below = scope.is_below(at, size);
                inside = Some(scope.pool.and(inside, below));
            }
        }
        inside
    }

    /// Reduces the windows of all positions, one after the other.
    fn combine(
        &self,
        scope: &mut KernelScope,
        parts: &ReductionAxes,
        reduce: &Reduce,
        totals: &[Expr],
    ) -> Result<Vec<Statement>> {
        let mut elements = LoadedElements {
            function: reduce.function,
            loaded: HashMap::new(),
        };
        if self.offsets.len() == 1 {
            return repeat_all(scope, "k", &parts.reduced, |scope, reduced| {
                self.add(
                    scope,
                    parts,
                    &mut elements,
                    totals,
                    &self.offsets[0],
                    &reduced,
                )
            });
        }
        let mut statements = Vec::new();
        for (place, totals) in self.offsets.iter().zip(totals.chunks(VEC4_LEN)) {
            for reduced in all_coordinates(&parts.reduced) {
                let added = self.add(scope, parts, &mut elements, totals, place, &reduced)?;
                statements.extend(added);
            }
        }
        Ok(statements)
    }

    /// Adds four channels of a window's element to the totals. An element of several windows is loaded once, for the first
    /// of their positions, which is within the result whenever another one is.
    fn add(
        &self,
        scope: &mut KernelScope,
        parts: &ReductionAxes,
        elements: &mut LoadedElements,
        totals: &[Expr],
        place: &[usize],
        reduced: &[Index],
    ) -> Result<Vec<Statement>> {
        let inside = self.bounds_condition(scope, parts, place);
        let mut statements = Vec::new();
        for (total, at) in totals
            .iter()
            .zip(vec4::neighbours(&self.position(place), CHANNEL_AXIS))
        {
            let at = parts.operand_position(&at, reduced);
            let seen = scope.element(parts.operand, &at, None)?;
            let element = match elements.loaded.entry(seen) {
                Entry::Occupied(element) => *element.get(),
                Entry::Vacant(free) => *free.insert(scope.element(parts.operand, &at, inside)?),
            };
            let sum = combine(scope, elements.function, *total, element);
            statements.push(Statement::Assign(*total, sum));
        }
        Ok(statements)
    }

    fn write(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        parts: &ReductionAxes,
        totals: &[Expr],
    ) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        for (place, totals) in self.offsets.iter().zip(totals.chunks(VEC4_LEN)) {
            let quad = scope.separate_all(&self.position(place), &parts.kept);
            let mut results = Vec::new();
            for (total, at) in totals.iter().zip(vec4::neighbours(&quad, CHANNEL_AXIS)) {
                let at = Position::from_coordinates(at);
                results.push(epilogue(scope, group, parts.result, *total, &at)?);
            }
            let store = scope.store_vec4(group.root, CHANNEL_AXIS, &results)?;
            statements.push(match self.bounds_condition(scope, parts, place) {
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

/// Positions of an invocation along the spatial axes: two if the axis has more than one and the unrolled code stays short.
fn positions_per_invocation(scope: &mut KernelScope, parts: &ReductionAxes) -> [usize; 2] {
    let space = |axis: usize| parts.kept.get(CHANNEL_AXIS + 1 + axis).cloned();
    let [down, across] = [0, 1].map(|axis| space(axis).unwrap_or(Dim::ONE));
    let window = Dim::product(&parts.reduced);
    let places = scope.decide(
        [down, across, window, Dim::ONE],
        |[down, across, window, _]| match [down > 1, across > 1] {
            [true, true] if 4 * window <= MAX_UNROLLED => 4,
            [true, _] if 2 * window <= MAX_UNROLLED => 2,
            _ => 1,
        },
    );
    match places {
        4 => [2, 2],
        places => [places, 1],
    }
}

/// All coordinates of a shape with constant sizes.
fn all_coordinates(shape: &[Dim]) -> Vec<Vec<Index>> {
    let count = Dim::product(shape).as_const().unwrap_or(0);
    let places = (0..count).map(|place| index::delinearize(&Dim::from(place).into(), shape));
    places.collect()
}
