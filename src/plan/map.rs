//! Kernels without loops: an invocation computes one element, or four or eight neighbours.

use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::capabilities::StorageType;
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::kernel::index::{self, Index};
use crate::kernel::layout::Layout;
use crate::plan::cost::node_cost;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::element::{KernelScope, scalar, vec8, write};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, invocation};
use crate::plan::vec4_layout;
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../shaders/map.wgsl");

/// Neighbouring 4x4 blocks whose loads share the lines of a cache.
const BLOCKS_OF_LINE: usize = 4;
/// Largest cost, in simple operations, for which the store width matters.
const MAX_WIDE_STORE_COST: u32 = 12;

/// Lowers a pointwise value or view to a kernel with one invocation per element.
pub fn lower<'a>(mut scope: KernelScope<'a>, group: &Group) -> Result<LoweredKernel<'a>> {
    let count = scope.graph.ty(group.root).numel();
    let (index, surplus) = invocation(&mut scope, &count);
    let position = Position::from_index(index);
    scope.inline_values(&group.other_outputs);
    let mut statements = vec![surplus];
    for value in group.outputs() {
        let element = scope.produce(value, &position)?;
        statements.push(write(&mut scope, value, element, &position)?);
    }
    Ok(finish(scope, &count, statements))
}

/// Lowers a value to a kernel of four neighbours per invocation, or eight for cheap elements, with vector loads and
/// stores. `None` if the number of elements is not a multiple of four.
pub fn lower_vec4<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
) -> Result<Option<LoweredKernel<'a>>> {
    let root = group.root;
    if let Layout::Vec4 { axis } = scope.layout(root) {
        let shape = &scope.graph.ty(root).shape;
        return lower_vec4_along(scope, shape, root, *axis, |scope, at| {
            let position = Position::from_coordinates(at);
            Ok((scope.produce(root, &position)?, position))
        })
        .map(Some);
    }
    let numel = scope.graph.ty(group.root).numel();
    let width = width(&scope, group, &numel)?;
    scope.inline_values(&group.other_outputs);
    lower_contiguous(
        scope,
        &group.outputs(),
        &numel,
        width,
        |scope, value, place| {
            let position = Position::from_index(place);
            Ok((scope.produce(value, &position)?, position))
        },
    )
}

/// Lowers to a kernel of neighbours, in rows or blocks, if the device allows it; otherwise of single elements.
pub fn lower_any<'a>(
    scope: impl Fn() -> KernelScope<'a>,
    group: &Group,
) -> Result<LoweredKernel<'a>> {
    match lower_vec4(scope(), group)? {
        Some(row_kernel) if row_kernel.fits() => {
            Ok(lower_blocks(&scope, group, &row_kernel)?.unwrap_or(row_kernel))
        }
        _ => lower(scope(), group),
    }
}

/// Lowers a transposition to a kernel whose invocations compute 4x4 blocks, with vector loads along another axis than
/// the last one and four vector stores each. `row_kernel` is the kernel that computes vectors along rows; `None` if it
/// takes no longer.
fn lower_blocks<'a>(
    scope: &impl Fn() -> KernelScope<'a>,
    group: &Group,
    row_kernel: &LoweredKernel,
) -> Result<Option<LoweredKernel<'a>>> {
    let shape = &scope().graph.ty(group.root).shape;
    let is_in_rows = scope().layout(group.root).is_row_major();
    let (Some(outer_axes), [_]) = (row_axis(shape), group.outputs().as_slice()) else {
        return Ok(None);
    };
    if !is_in_rows {
        return Ok(None);
    }
    let width = width(&scope(), group, &Dim::product(shape))?;
    let loads = row_kernel.scope.pool.loads();
    if loads < VEC4_LEN {
        return Ok(None);
    }
    for axis in (0..outer_axes)
        .rev()
        .filter(|axis| vec4::is_multiple_of_4(&shape[*axis]))
    {
        if let Some(block) = lower_block_4x4(scope(), group, axis)?
            && block.fits()
            && access_time(block.scope.pool.loads(), VEC4_LEN) * width
                < access_time(loads, 1) * VEC4_LEN * VEC4_LEN
        {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// First of the fewest last axes that form rows of whole vec4s. `None` if no axes do.
fn row_axis(shape: &[Dim]) -> Option<usize> {
    let mut axes = (0..shape.len()).rev();
    axes.find(|axis| vec4::is_multiple_of_4(&Dim::product(&shape[*axis..])))
}

/// Relative time that a rasteriser needs for vector loads and stores.
fn access_time(loads: usize, stores: usize) -> usize {
    2 * loads + 3 * stores
}

/// Kernel of 4x4 blocks along `axis` and rows; `None` if the rows of a block are not vectors in memory.
fn lower_block_4x4<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    axis: usize,
) -> Result<Option<LoweredKernel<'a>>> {
    scope.inline_values(&group.other_outputs);
    let (rows, surplus, count) = block_4x4(&mut scope, group.root, axis);
    let mut statements = vec![surplus];
    for row in rows {
        let elements = scope.with_vec4(|scope| {
            let elements = row.into_iter();
            elements
                .map(|position| Ok((scope.produce(group.root, &position)?, position)))
                .collect::<Result<Vec<_>>>()
        })?;
        match vec4::store_vec4(&mut scope, group.root, &elements)? {
            Some(store) => statements.push(store),
            None => return Ok(None),
        }
    }
    Ok(Some(finish(scope, &count, statements)))
}

/// Positions of the elements of an invocation's 4x4 block along `axis` and rows, by place along `axis` and then along the
/// row; a statement that ends surplus invocations; and the number of invocations. Rows are the fewest last axes that hold
/// whole vec4s, or the last axis. Neighbouring invocations compute neighbouring blocks of rows, or of `axis` if rows have
/// several axes: then neighbours in a row are far apart where they are loaded from.
fn block_4x4(
    scope: &mut KernelScope,
    value: ValueId,
    axis: usize,
) -> ([[Position; VEC4_LEN]; VEC4_LEN], Statement, Dim) {
    let shape = &scope.graph.ty(value).shape;
    let last = row_axis(shape).unwrap_or(shape.len() - 1);
    let (outer, row_shape) = shape.split_at(last);
    let row_size = Dim::product(row_shape);
    let vec4_count = row_size.floor_div(&Dim::from(VEC4_LEN));
    let mut blocks = [outer, &[vec4_count]].concat();
    let shares_lines =
        row_shape.len() > 1 && vec4::is_multiple(&blocks[axis], VEC4_LEN * BLOCKS_OF_LINE);
    let together = Dim::from(if shares_lines { BLOCKS_OF_LINE } else { 1 });
    blocks[axis] = blocks[axis].ceil_div(&(&Dim::from(VEC4_LEN) * &together));
    blocks.push(together.clone());
    let count = Dim::product(&blocks);
    let (index, surplus) = invocation(scope, &count);
    let mut coordinates = index::delinearize(&index, &blocks);
    if let Some(block) = coordinates.pop() {
        coordinates[axis] = coordinates[axis].scale(&together).add(&block);
    }
    let rows_shape = [outer, &[row_size]].concat();
    let position = |at: Vec<Index>| match row_shape {
        [_] => Position::from_coordinates(at),
        _ => Position::from_index(index::linearize(&at, &rows_shape)),
    };
    let rows = vec4::neighbours(&coordinates, axis);
    let block = rows.map(|row| vec4::neighbours(&row, last).map(position));
    (block, surplus, count)
}

/// Number of neighbours that an invocation computes: eight for cheap elements that are faster to write as words, else
/// four.
fn width(scope: &KernelScope, group: &Group, numel: &Dim) -> Result<usize> {
    let graph = scope.graph;
    let nodes = group.computed(graph, scope.materialized).into_iter();
    let cost: u32 = nodes.map(|node| node_cost(&graph.nodes[node])).sum();
    Ok(
        match cost <= MAX_WIDE_STORE_COST && scope.can_access_u64(group.root)? {
            true => vec8::vector_width(scope.capabilities, numel),
            false => VEC4_LEN,
        },
    )
}

/// Kernel that computes `width` contiguous elements of each target per invocation. `element` computes the element at a
/// linear index, and its position in the target. `None` if the number of elements is no multiple of four.
fn lower_contiguous<'a>(
    mut scope: KernelScope<'a>,
    targets: &[ValueId],
    numel: &Dim,
    width: usize,
    element: impl Fn(&mut KernelScope, ValueId, Index) -> Result<(Expr, Position)>,
) -> Result<Option<LoweredKernel<'a>>> {
    if !vec4::is_multiple_of_4(numel) {
        return Ok(None);
    }
    let count = numel.floor_div(&Dim::from(width));
    let (index, surplus) = invocation(&mut scope, &count);
    let first = index.scale(&Dim::from(width));
    let mut statements = vec![surplus];
    for target in targets {
        let elements = scope.with_vector_width(width, |scope| {
            let indices = (0..width).map(|offset| first.add_size(&Dim::from(offset)));
            indices
                .map(|index| element(scope, *target, index))
                .collect::<Result<Vec<_>>>()
        })?;
        let Some(stores) = vec8::store_vectors(&mut scope, *target, &elements)? else {
            return Ok(None);
        };
        statements.extend(stores);
    }
    Ok(Some(finish(scope, &count, statements)))
}

/// Copies a value to a vec4 layout.
pub fn copy_to_vec4(scope: KernelScope, value: ValueId, axis: usize) -> Result<LoweredKernel> {
    let shape = &scope.graph.ty(value).shape;
    match shape.split_last() {
        Some((size, outer)) if vec4::is_multiple_of_4(size) && outer.len() > axis => {
            copy_transposed_to_vec4(scope, value, axis)
        }
        _ => lower_vec4_along(scope, shape, value, axis, |scope, at| {
            let position = Position::from_coordinates(at);
            Ok((scope.element(value, &position, None)?, position))
        }),
    }
}

/// Copies a value to a vec4 layout along another axis than its last one, with vector loads along the last axis.
fn copy_transposed_to_vec4(
    mut scope: KernelScope,
    value: ValueId,
    axis: usize,
) -> Result<LoweredKernel> {
    let shape = &scope.graph.ty(value).shape;
    let size = &shape[axis];
    let (rows, surplus, count) = block_4x4(&mut scope, value, axis);
    let mut vectors: [Vec<(Expr, Position)>; VEC4_LEN] = Default::default();
    for (row_number, row) in rows.into_iter().enumerate() {
        let may_exceed = row_number > 0 && !vec4::is_multiple_of_4(size);
        let inside = may_exceed.then(|| scope.is_below(&row[0].coordinates(shape)[axis], size));
        for (vector, position) in vectors.iter_mut().zip(row) {
            let number = scope.with_vec4(|scope| scope.element(value, &position, inside))?;
            vector.push((number, position));
        }
    }
    let mut statements = vec![surplus];
    for vector in &vectors {
        statements.push(scope.store_vec4(value, axis, vector)?);
    }
    Ok(finish(scope, &count, statements))
}

/// Kernel that writes four neighbours along `axis` of a shape to a vec4 of `root`. `element` computes an element and
/// its position in `root` from its coordinates in the shape.
fn lower_vec4_along<'a>(
    mut scope: KernelScope<'a>,
    shape: &Shape,
    root: ValueId,
    axis: usize,
    element: impl Fn(&mut KernelScope, Vec<Index>) -> Result<(Expr, Position)>,
) -> Result<LoweredKernel<'a>> {
    let (vec4_coordinates, surplus, count) = vec4_layout::invocation_vec4(&mut scope, shape, axis);
    let neighbours = vec4::neighbours(&vec4_coordinates, axis);
    let elements =
        vec4::for_each_neighbour(&mut scope, neighbours, |scope, _, at| element(scope, at))?;
    let store = scope.store_vec4(root, axis, &elements)?;
    Ok(finish(scope, &count, vec![surplus, store]))
}

/// Copies an input or weight, which cannot be an output itself.
pub fn copy_value<'a>(mut scope: KernelScope<'a>, value: ValueId) -> Result<LoweredKernel<'a>> {
    let ty = scope.graph.ty(value);
    let count = ty.numel();
    let (index, surplus) = invocation(&mut scope, &count);
    let element = scope.element(value, &Position::from_index(index.clone()), None)?;
    let storage = StorageType::of(ty.dtype, scope.capabilities)?;
    let store = Statement::Store {
        buffer: scope.bind_copy(value, storage)?,
        index: index.emit(&mut scope.pool),
        value: scalar::to_storage(&mut scope.pool, element, ty.dtype, storage),
    };
    Ok(finish(scope, &count, vec![surplus, store]))
}

/// Copies one operand of a concatenation to its part of the result, which begins at `start` along `axis`: for
/// concatenations that read more buffers than a kernel can bind, or that run faster as separate kernels.
pub fn copy_concat_operand<'a>(
    scope: impl Fn() -> KernelScope<'a>,
    concat: &Group,
    operand: ValueId,
    axis: usize,
    start: &Dim,
) -> Result<LoweredKernel<'a>> {
    let mut scalar_scope = scope();
    let graph = scalar_scope.graph;
    let shape: &Shape = &graph.ty(operand).shape;
    let count = Dim::product(shape);
    let load = |scope: &mut KernelScope, position: Position| {
        let value = scope.element(operand, &position, None)?;
        let mut coordinates = position.coordinates(shape);
        coordinates[axis] = coordinates[axis].add_size(start);
        Ok((value, Position::from_coordinates(coordinates)))
    };
    if let Layout::Vec4 { axis: vec4_axis } = scalar_scope.layout(concat.root) {
        return lower_vec4_along(scalar_scope, shape, concat.root, *vec4_axis, |scope, at| {
            load(scope, Position::from_coordinates(at))
        });
    }
    let element = |scope: &mut KernelScope, _, index: Index| {
        let coordinates = index::delinearize(&index, shape);
        load(scope, Position::from_both(index, coordinates))
    };
    let width = width(&scalar_scope, concat, &count)?;
    if let Some(vector_kernel) = lower_contiguous(scope(), &[concat.root], &count, width, element)?
    {
        return Ok(vector_kernel);
    }
    let (index, surplus) = invocation(&mut scalar_scope, &count);
    let (value, position) = element(&mut scalar_scope, operand, index)?;
    let store = write(&mut scalar_scope, concat.root, value, &position)?;
    Ok(finish(scalar_scope, &count, vec![surplus, store]))
}

fn finish<'a>(
    scope: KernelScope<'a>,
    count: &Dim,
    statements: Vec<Statement>,
) -> LoweredKernel<'a> {
    LoweredKernel::new(scope, TEMPLATE, statements, count)
}
