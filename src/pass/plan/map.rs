//! Kernels without loops of their own: one invocation computes one element, or four neighbours.

use super::element::Scope;
use super::fuse::Group;
use super::kernel::{Lowered, invocation, write};
use super::position::Position;
use super::quad::{self, QUAD};
use super::{quads, scalar};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::capabilities::Storage;
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::kernel::index;
use crate::kernel::layout::Layout;
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../../shaders/map.wgsl");

/// All elements of a pointwise value or view.
pub fn lower<'a>(mut scope: Scope<'a>, group: &Group) -> Result<Lowered<'a>> {
    let count = scope.graph.ty(group.root).numel();
    let (index, surplus) = invocation(&mut scope, &count);
    let position = Position::at(index);
    let value = scope.produce(group.root, &position)?;
    let store = write(&mut scope, group.root, value, &position)?;
    Ok(finish(scope, &count, vec![surplus, store]))
}

/// The same by four neighbours, which are read and written at once; none if the value does not come in fours.
pub fn lower_quads<'a>(mut scope: Scope<'a>, group: &Group) -> Result<Option<Lowered<'a>>> {
    if let Layout::Quads { axis } = scope.layout(group.root) {
        return along(scope, group.root, *axis, Scope::produce).map(Some);
    }
    let numel = scope.graph.ty(group.root).numel();
    if !quad::is_whole(&numel) {
        return Ok(None);
    }
    let count = numel.floor_div(&Dim::from(QUAD));
    let (index, surplus) = invocation(&mut scope, &count);
    let neighbours = quad::neighbours(&[index], 0);
    let parts = quad::each(&mut scope, neighbours, |scope, _, place| {
        let position = Position::at(place[0].clone());
        let value = scope.produce(group.root, &position)?;
        Ok((value, position))
    })?;
    let store = quad::write(&mut scope, group.root, &parts)?;
    Ok(store.map(|store| finish(scope, &count, vec![surplus, store])))
}

/// A copy of a value in quads.
pub fn to_quads(scope: Scope, value: ValueId, axis: usize) -> Result<Lowered> {
    along(scope, value, axis, |scope, value, position| {
        scope.element(value, position, None)
    })
}

/// Four neighbours along an axis at a time, into quads.
fn along<'a>(
    mut scope: Scope<'a>,
    root: ValueId,
    axis: usize,
    element: impl Fn(&mut Scope<'a>, ValueId, &Position) -> Result<Expr>,
) -> Result<Lowered<'a>> {
    let shape = &scope.graph.ty(root).shape;
    let (quad, surplus, count) = quads::each(&mut scope, shape, axis);
    let mut parts = Vec::new();
    for at in quad::neighbours(&quad, axis) {
        let position = Position::of(at);
        parts.push((element(&mut scope, root, &position)?, position));
    }
    let store = scope.store_quad(root, axis, &parts)?;
    Ok(finish(scope, &count, vec![surplus, store]))
}

/// A copy of an input or weight, which may not be an output itself.
pub fn copy<'a>(mut scope: Scope<'a>, value: ValueId) -> Result<Lowered<'a>> {
    let ty = scope.graph.ty(value);
    let count = ty.numel();
    let (index, surplus) = invocation(&mut scope, &count);
    let element = scope.element(value, &Position::at(index.clone()), None)?;
    let storage = Storage::of(ty.dtype, scope.capabilities)?;
    let store = Statement::Store {
        buffer: scope.copy_of(value, storage)?,
        index: index.emit(&mut scope.pool),
        value: scalar::to_storage(&mut scope.pool, element, ty.dtype, storage),
    };
    Ok(finish(scope, &count, vec![surplus, store]))
}

/// One operand of a concatenation, written to its place: for those that read from more buffers than a kernel can bind.
pub fn part<'a>(
    mut scope: Scope<'a>,
    joined: ValueId,
    part: ValueId,
    axis: usize,
    start: &Dim,
) -> Result<Lowered<'a>> {
    let graph = scope.graph;
    let shape: &Shape = &graph.ty(part).shape;
    let count = Dim::product(shape);
    let (index, surplus) = invocation(&mut scope, &count);
    let mut coordinates = index::coordinates(&index, shape);
    let value = scope.element(part, &Position::both(index, coordinates.clone()), None)?;
    coordinates[axis] = coordinates[axis].add_size(start);
    let store = write(&mut scope, joined, value, &Position::of(coordinates))?;
    Ok(finish(scope, &count, vec![surplus, store]))
}

fn finish<'a>(scope: Scope<'a>, count: &Dim, statements: Vec<Statement>) -> Lowered<'a> {
    Lowered::new(scope, TEMPLATE, statements, count)
}
