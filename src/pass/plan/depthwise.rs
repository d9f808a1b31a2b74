//! Convolutions that see each channel by itself, where subgroups are eight invocations: an invocation computes four channels
//! at several positions along the first spatial axis, which see much of the same.

use super::conv::Sizes;
use super::dot::named;
use super::element::Scope;
use super::fuse::Group;
use super::image;
use super::kernel::{Lowered, guarded, pieces, repeat_all};
use super::layout::CHANNELS;
use super::quads;
use super::tile::shared;
use super::variant::example;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::Panels;
use crate::op::Conv;

const TEMPLATE: &str = include_str!("../../../shaders/depthwise.wgsl");

/// Positions of an invocation at most.
const TALLEST: usize = 7;
/// Products of an invocation for a tap of the other axes at most: with more the loop grows too long for the driver.
const LONGEST: usize = 64;

/// A convolution with its epilogue, channels in whole quads.
pub fn lower<'a>(scope: Scope<'a>, group: &Group, node: &Node, conv: &Conv) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let panels = image::known_panels(scope.graph, node, conv)?;
    by_panels(scope, group, &sizes, &panels)
}

/// The same with the filter in given panels.
pub fn by_panels<'a>(
    mut scope: Scope<'a>,
    group: &Group,
    sizes: &Sizes,
    panels: &Panels,
) -> Result<Lowered<'a>> {
    let strip = Strip::new(&mut scope, sizes)?;
    let filter = scope.in_panels(sizes.filter, panels)?;
    let sum = |i| scope.pool.variable(&format!("sum{i}"), Type::F32x4);
    let sums: Vec<Expr> = (0..strip.height).map(sum).collect();
    let zero = scope.pool.call("vec4<f32>()", Type::F32x4, &[]);
    let mut statements = vec![strip.surplus.clone()];
    statements.extend(sums.iter().map(|sum| Statement::Declare(*sum, zero)));
    let across = sizes.taps.get(1..).unwrap_or_default();
    statements.extend(repeat_all(&mut scope, "tap", across, |scope, across| {
        strip.round(scope, sizes, filter, (&across, &sums))
    })?);
    statements.extend(sums.iter().copied().map(Statement::Freeze));
    statements.extend(strip.write(&mut scope, group, sizes, &sums)?);
    Ok(Lowered::new(scope, TEMPLATE, statements, &strip.count))
}

/// What an invocation computes.
struct Strip {
    count: Dim,
    surplus: Statement,
    /// Image and quad of channels.
    place: [Index; 2],
    /// First position along the first spatial axis.
    row: Index,
    /// Position along the others.
    rest: Vec<Index>,
    height: usize,
    /// Taps along the first spatial axis.
    taps: usize,
}

impl Strip {
    fn new(scope: &mut Scope, sizes: &Sizes) -> Result<Strip> {
        let missing = || Error::internal("a convolution has no spatial axes");
        let (size, taps) = (sizes.space.first(), sizes.taps.first());
        let (size, taps) = (size.ok_or_else(missing)?, taps.ok_or_else(missing)?);
        let taps = example(scope.graph, taps).max(1);
        let height = height(scope.graph, size, taps);
        let mut shape = scope.graph.ty(sizes.result).shape.clone();
        shape[CHANNELS + 1] = pieces(size, height);
        let (mut quad, surplus, count) = quads::each(scope, &shape, CHANNELS);
        let rest = quad.split_off(CHANNELS + 2);
        let [item, channels, strip] = <[Index; 3]>::try_from(quad)
            .map_err(|_| Error::internal("an image has too few axes"))?;
        Ok(Strip {
            count,
            surplus,
            place: [item, channels],
            row: named(scope, &strip.scale(&Dim::from(height)), "row"),
            rest,
            height,
            taps,
        })
    }

    fn position(&self, i: usize) -> Vec<Index> {
        let row = self.row.add_size(&Dim::from(i));
        [&[row], self.rest.as_slice()].concat()
    }

    /// All taps along the first spatial axis, at one of the others.
    fn round(
        &self,
        scope: &mut Scope,
        sizes: &Sizes,
        filter: usize,
        (across, sums): (&[Index], &[Expr]),
    ) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        for (i, sum) in sums.iter().enumerate() {
            let mut total = *sum;
            for tap in 0..self.taps {
                let down = Index::zero().add_size(&Dim::from(tap));
                let taps = [&[down], across].concat();
                let row = index::linear(&taps, &sizes.taps);
                let at = [&self.place[1], &row, &Index::zero()].map(|at| at.emit(&mut scope.pool));
                let weight = scope.pool.texel(filter, at);
                let place = (self.place.clone(), None);
                let seen = image::input(scope, sizes, place, (&self.position(i), &taps))?;
                let product = scope.pool.call("x * y", Type::F32x4, &[weight, seen]);
                total = scope.pool.call("x + y", Type::F32x4, &[total, product]);
            }
            statements.push(Statement::Assign(*sum, total));
        }
        Ok(statements)
    }

    fn write(
        &self,
        scope: &mut Scope,
        group: &Group,
        sizes: &Sizes,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let mut lines = Vec::new();
        for (i, sum) in sums.iter().enumerate() {
            let quad = [self.place.as_slice(), &self.position(i)].concat();
            lines.push(image::write(scope, group, sizes, &quad, *sum)?);
        }
        let shared = shared(&scope.pool, &lines);
        let mut statements: Vec<Statement> = shared.into_iter().map(Statement::Let).collect();
        for (i, line) in lines.into_iter().enumerate() {
            statements.extend(guarded(scope, &self.row, i, &sizes.space[0], line));
        }
        Ok(statements)
    }
}

/// Positions of an invocation: strips of equal heights, as far as they can be.
fn height(graph: &Graph, size: &Dim, taps: usize) -> usize {
    let size = example(graph, size).max(1);
    let tallest = (LONGEST / taps).clamp(1, TALLEST);
    size.div_ceil(size.div_ceil(tallest))
}
