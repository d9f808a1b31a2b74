//! Positions at which views read their operands.

use super::{KernelScope, not_planned, operand};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Node, Primitive, ValueId};
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::op::{Concat, Expand, Gather, Pad, Slice, Unfold};
use crate::plan::element::position::Position;
use crate::plan::element::scalar;
use crate::plan::element::vec4::{self, VEC4_LEN};

impl KernelScope<'_> {
    /// Returns the operand of a view, and the position in it.
    pub fn view_source(
        &mut self,
        primitive: &Primitive,
        node: &Node,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<(ValueId, Position)> {
        let operand = operand(node, 0)?;
        let graph = self.graph;
        let (shape, operand_shape) = (&graph.ty(value).shape, &graph.ty(operand).shape);
        let coordinates = || position.coordinates(shape);
        let position = match primitive {
            Primitive::Reshape(_) => position.reshape(shape, operand_shape),
            Primitive::Permute(permute) => {
                let mut source = vec![Index::zero(); operand_shape.len()];
                for (coordinate, axis) in coordinates().into_iter().zip(&permute.axes) {
                    source[*axis] = coordinate;
                }
                Position::from_coordinates(source)
            }
            Primitive::Expand(Expand {
                shape: expanded_shape,
            }) => {
                if operand_shape.iter().all(|size| size.is(1)) {
                    return Ok((operand, Position::from_index(Index::zero())));
                }
                let new_axes = expanded_shape.len() - operand_shape.len();
                let operand_axes = coordinates().into_iter().skip(new_axes).zip(operand_shape);
                Position::from_coordinates(
                    operand_axes
                        .map(|(coordinate, size)| {
                            if size.is(1) {
                                Index::zero()
                            } else {
                                coordinate
                            }
                        })
                        .collect(),
                )
            }
            Primitive::Slice(Slice {
                axis, start, step, ..
            }) => {
                let mut source = coordinates();
                source[*axis] = source[*axis].scale(&Dim::from(*step)).add_size(start);
                Position::from_coordinates(source)
            }
            Primitive::Unfold(Unfold {
                axis,
                stride,
                dilation,
                ..
            }) => {
                let mut source = coordinates();
                let window_offset = source.pop().unwrap_or_else(Index::zero);
                let window = source[*axis].scale(&Dim::from(*stride));
                source[*axis] = window.add(&window_offset.scale(&Dim::from(*dilation)));
                Position::from_coordinates(source)
            }
            Primitive::Gather(Gather { axis }) => {
                let index = self.gather_index(node, *axis, operand_shape, position, guard)?;
                let mut source = coordinates();
                source[*axis] = index;
                Position::from_coordinates(source)
            }
            _ => return Err(not_planned(node)),
        };
        Ok((operand, position))
    }

    /// Reads an index from a value: negative indices count from the end, out-of-range indices are clamped.
    fn gather_index(
        &mut self,
        node: &Node,
        axis: usize,
        shape: &[Dim],
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Index> {
        let index = self.element(operand(node, 1)?, position, guard)?;
        Ok(self.wrapped_index(index, &shape[axis]))
    }

    /// Converts a signed index to a coordinate of an axis of this size.
    pub fn wrapped_index(&mut self, index: Expr, size: &Dim) -> Index {
        let pool = &mut self.pool;
        let index = scalar::cast(pool, index, DType::I64, DType::I32, self.capabilities);
        let number = pool.size(size);
        let within = pool.call("wrap_index(x, y)", WgslType::U32, &[index, number]);
        pool.set_label(within, "picked");
        Index::expr(within, size)
    }

    /// Returns an element of a concatenation: a select among the elements of its operands.
    pub(super) fn concat(
        &mut self,
        concat: &Concat,
        node: &Node,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let coordinates = position.coordinates(&self.graph.ty(value).shape);
        let coordinate = &coordinates[concat.axis];
        let mut start = Dim::ZERO;
        let mut result: Option<Expr> = None;
        for operand in node.operands() {
            let size = self.graph.ty(operand).shape[concat.axis].clone();
            let mut source = coordinates.clone();
            source[concat.axis] = coordinate.add_size(&-&start);
            let inside = self.is_below(&source[concat.axis], &size);
            let operand_guard = self.pool.and(guard, inside);
            let element = self.element(
                operand,
                &Position::from_coordinates(source),
                Some(operand_guard),
            )?;
            result = Some(match result {
                Some(previous) => self.pool.select(inside, element, previous),
                None => element,
            });
            start = start + size;
        }
        result.ok_or_else(|| not_planned(node))
    }

    /// Returns an element of a padded value.
    pub(super) fn pad(
        &mut self,
        pad: &Pad,
        node: &Node,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let operand = operand(node, 0)?;
        let graph = self.graph;
        let ty = graph.ty(operand);
        let mut source = position.coordinates(&graph.ty(value).shape);
        let mut inside = None;
        for (axis, size) in ty.shape.iter().enumerate() {
            if pad.low[axis].is(0) && pad.high[axis].is(0) {
                continue;
            }
            source[axis] = source[axis].add_size(&-&pad.low[axis]);
            let is_inside_axis = self.is_below(&source[axis], size);
            inside = Some(self.pool.and(inside, is_inside_axis));
        }
        let Some(inside) = inside else {
            return self.element(operand, &Position::from_coordinates(source), guard);
        };
        let operand_guard = self.pool.and(guard, inside);
        let element = self.element(
            operand,
            &Position::from_coordinates(source),
            Some(operand_guard),
        )?;
        let fill = self.number(&node.arguments[1], ty.dtype)?;
        Ok(self.pool.select(inside, element, fill))
    }

    /// Tests that a coordinate is below a size. A negative coordinate has wrapped around and fails the test.
    pub fn is_below(&mut self, coordinate: &Index, size: &Dim) -> Expr {
        let vec4_len = Dim::from(VEC4_LEN);
        if self.vector_width >= VEC4_LEN
            && vec4::is_multiple_of_4(size)
            && coordinate.rem(&vec4_len).as_const().is_some()
        {
            // All components of a vec4 lie on the same side, so that they share one test.
            let (coordinate, size) = (coordinate.div(&vec4_len), size.floor_div(&vec4_len));
            return self.is_less(&coordinate, &size);
        }
        self.is_less(coordinate, size)
    }

    /// Emits the comparison of a coordinate with a size.
    fn is_less(&mut self, coordinate: &Index, size: &Dim) -> Expr {
        let coordinate = coordinate.emit(&mut self.pool);
        let size = self.pool.size(size);
        self.pool.call("x < y", WgslType::Bool, &[coordinate, size])
    }
}
