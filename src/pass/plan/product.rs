//! Contractions and convolutions as one thing: a product of matrices for each element of what is in front of them.
//!
//! A convolution is the product of its filters (a row is an output channel) and the patches of its input (a column is a
//! position in one of the images); a step of the sum is an input channel and a tap.

use super::conv::Sizes;
use super::element::{Scope, operand};
use super::position::Position;
use super::quad::Factor;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Node, Op, Primitive, ValueId};
use crate::kernel::expr::Expr;
use crate::kernel::index::{self, Index};
use crate::op::Conv;
use crate::shape::Shape;

/// A product of matrices for each element of what is in front of them.
pub struct Product<'a> {
    /// The value that the product is, before the epilogue.
    pub result: ValueId,
    /// What is in front of rows and columns.
    pub outer: Shape,
    /// Rows of the left factor.
    pub rows: Dim,
    /// Columns of the right factor.
    pub columns: Dim,
    /// Steps of a sum.
    pub depth: Dim,
    factors: Factors<'a>,
}

/// Where the factors come from.
enum Factors<'a> {
    Matrices(ValueId, ValueId),
    Patches(Box<Sizes>, &'a Conv),
}

impl<'a> Product<'a> {
    /// The product that a node is; an error if it is neither contraction nor convolution.
    pub fn of(scope: &Scope, node: &'a Node) -> Result<Product<'a>> {
        match &node.op {
            Op::Primitive(Primitive::Dot(_)) => Product::matrices(scope, node),
            Op::Primitive(Primitive::Conv(conv)) => Product::patches(scope, node, conv),
            _ => Err(super::element::not_planned(node)),
        }
    }

    fn matrices(scope: &Scope, node: &Node) -> Result<Product<'a>> {
        let (a, b) = (operand(node, 0)?, operand(node, 1)?);
        let graph = scope.graph;
        let result = node.results.first().copied().unwrap_or(a);
        let ([outer @ .., rows, columns], Some(depth)) =
            (graph.ty(result).shape.as_slice(), graph.ty(a).shape.last())
        else {
            return Err(Error::internal("operands of dot have too few axes"));
        };
        Ok(Product {
            result,
            outer: outer.to_vec(),
            rows: rows.clone(),
            columns: columns.clone(),
            depth: depth.clone(),
            factors: Factors::Matrices(a, b),
        })
    }

    fn patches(scope: &Scope, node: &Node, conv: &'a Conv) -> Result<Product<'a>> {
        let sizes = Sizes::new(scope, node, conv)?;
        Ok(Product {
            result: sizes.result,
            outer: vec![sizes.groups.clone()],
            rows: sizes.outputs.clone(),
            columns: &sizes.batch * &sizes.positions,
            depth: Dim::product(&sizes.patch()),
            factors: Factors::Patches(Box::new(sizes), conv),
        })
    }

    /// The element of the left factor at a row and a step.
    pub fn left(&self, outer: &[Index], row: &Index, step: &Index) -> Factor {
        match &self.factors {
            Factors::Matrices(a, _) => (*a, within(outer, row, step)),
            Factors::Patches(sizes, _) => {
                let channel = outer.iter().fold(row.clone(), |row, group| {
                    group.scale(&sizes.outputs).add(&row)
                });
                let place = channel.scale(&self.depth).add(step);
                (sizes.filter, Position::at(place))
            }
        }
    }

    /// The element of the right factor at a step and a column, and where it is one: elsewhere it is zero.
    pub fn right(
        &self,
        scope: &mut Scope,
        outer: &[Index],
        step: &Index,
        column: &Index,
    ) -> (Factor, Option<Expr>) {
        match &self.factors {
            Factors::Matrices(_, b) => ((*b, within(outer, step, column)), None),
            Factors::Patches(sizes, conv) => {
                let group = outer.first().cloned().unwrap_or_else(Index::zero);
                let mut taps = index::coordinates(step, &sizes.patch());
                let mut position = index::coordinates(column, &sizes.columns());
                let (channel, item) = (taps.remove(0), position.remove(0));
                let place = [item, group.scale(&sizes.channels).add(&channel)];
                let (place, inside) = sizes.source(scope, conv, place, &taps, &position);
                ((sizes.x, place), inside)
            }
        }
    }

    /// Where in the result a row and a column are.
    pub fn place(&self, outer: &[Index], row: &Index, column: &Index) -> Position {
        match &self.factors {
            Factors::Matrices(..) => within(outer, row, column),
            Factors::Patches(sizes, _) => {
                let channel = outer.iter().fold(row.clone(), |row, group| {
                    group.scale(&sizes.outputs).add(&row)
                });
                let mut place = index::coordinates(column, &sizes.columns());
                place.insert(1, channel);
                Position::of(place)
            }
        }
    }
}

fn within(outer: &[Index], i: &Index, j: &Index) -> Position {
    Position::of([outer, &[i.clone(), j.clone()]].concat())
}
