//! Convolutions that see each channel by itself, where subgroups are the lanes of a vector: an invocation computes four channels
//! of a block of positions, which see much of the same.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Node;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Panels, Texel};
use crate::op::Conv;
use crate::pass::plan::conv::{Sizes, image};
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::panels::columns;
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::turns::in_turns;
use crate::pass::plan::kernel::{Lowered, guarded, pieces, repeat_all};
use crate::pass::plan::product::dot::named;
use crate::pass::plan::product::tile::Extent;
use crate::pass::plan::quads::{self, CHANNELS};

const TEMPLATE: &str = include_str!("../../../../shaders/depthwise.wgsl");

/// Positions of an invocation along the first spatial axis at most, and along the second one.
const TALLEST: usize = 7;
const WIDEST: usize = 2;
/// Rows of a wide block at least.
const FEWEST: usize = 2;
/// Products of an invocation for a tap of the other axes at most: with more the loop grows too long for the driver.
const LONGEST: usize = 64;
/// Vectors that an invocation reads at most where blocks are wide, and products: all taps are written out for these.
const MOST_READ: usize = 48;
const MOST_PRODUCTS: usize = 128;

/// A convolution with its epilogue, channels in whole quads.
pub fn lower<'a>(scope: Scope<'a>, group: &Group, node: &Node, conv: &Conv) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let packed = image::known_panels(&scope, node, (conv, Extent::ANY))?;
    by_panels(scope, group, &sizes, &packed.panels)
}

/// The same with the filter in given panels.
pub fn by_panels<'a>(
    scope: Scope<'a>,
    group: &Group,
    sizes: &Sizes,
    panels: &Panels,
) -> Result<Lowered<'a>> {
    let mut scope = scope.by_words();
    let block = Block::new(&mut scope, sizes)?;
    let filter = scope.in_panels(sizes.filter, panels)?;
    let sum = |[i, j]: [usize; 2]| scope.pool.variable(&block.name(i, j), Type::F32x4);
    let sums: Vec<Expr> = block.places().map(sum).collect();
    let zero = scope.pool.call("vec4<f32>()", Type::F32x4, &[]);
    let mut statements = vec![block.surplus.clone()];
    statements.extend(sums.iter().map(|sum| Statement::Declare(*sum, zero)));
    statements.extend(block.sum(&mut scope, sizes, filter, &sums)?);
    statements.extend(block.write(&mut scope, group, sizes, &sums)?);
    Ok(Lowered::new(scope, TEMPLATE, statements, &block.count))
}

/// What an invocation computes.
struct Block {
    count: Dim,
    surplus: Statement,
    /// Image and quad of channels.
    place: [Index; 2],
    /// First position along each spatial axis.
    first: Vec<Index>,
    /// Positions along the first spatial axis.
    height: usize,
    /// Positions along the second one.
    width: usize,
    /// Taps along the spatial axes.
    taps: Vec<usize>,
    /// Positions of the input from one of the result to the next.
    strides: Vec<usize>,
}

impl Block {
    fn new(scope: &mut Scope, sizes: &Sizes) -> Result<Block> {
        let taps: Vec<usize> = sizes.taps.iter().map(known).collect::<Result<_>>()?;
        let strides = sizes.axes.iter().map(|axis| known(&axis.stride));
        let strides: Vec<usize> = strides.collect::<Result<_>>()?;
        let [tallest, width] = largest(&strides, &taps);
        let by = [sizes.space[0].clone(), tallest.into(), Dim::ONE, Dim::ONE];
        let height = scope.decide(by, |[size, tallest, ..]| height(size, tallest));
        let mut shape = scope.graph.ty(sizes.result).shape.clone();
        for (size, along) in shape.iter_mut().skip(CHANNELS + 1).zip([height, width]) {
            *size = pieces(size, along);
        }
        let (mut quad, surplus, count) = quads::each(scope, &shape, CHANNELS);
        let space = quad.split_off(CHANNELS + 1);
        let place = <[Index; 2]>::try_from(quad)
            .map_err(|_| Error::internal("an image has too few axes"))?;
        let blocks = [(height, "row"), (width, "column")].into_iter();
        let along = space.iter().zip(blocks.chain(iter::repeat((1, ""))));
        let first = along.map(|(block, (along, name))| match along {
            1 => block.clone(),
            _ => named(scope, &block.scale(&Dim::from(along)), name),
        });
        Ok(Block {
            count,
            surplus,
            place,
            first: first.collect(),
            height,
            width,
            taps,
            strides,
        })
    }

    /// The positions of the block.
    fn places(&self) -> impl Iterator<Item = [usize; 2]> {
        let width = self.width;
        (0..self.height).flat_map(move |i| (0..width).map(move |j| [i, j]))
    }

    fn name(&self, i: usize, j: usize) -> String {
        match self.width {
            1 => format!("sum{i}"),
            _ => format!("sum{i}_{j}"),
        }
    }

    fn position(&self, place: [Index; 2]) -> Vec<Index> {
        let offsets = place.into_iter().chain(iter::repeat_with(Index::zero));
        let along = self.first.iter().zip(offsets);
        along.map(|(first, offset)| first.add(&offset)).collect()
    }

    /// All taps of all positions; where blocks are wide those across are written out, so that neighbours share what they
    /// read.
    fn sum(
        &self,
        scope: &mut Scope,
        sizes: &Sizes,
        filter: (usize, Texel),
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let across = sizes.taps.get(1..).unwrap_or_default();
        if self.width == 1 {
            return repeat_all(scope, "tap", across, |scope, across| {
                self.round(scope, sizes, filter, (&[across], sums))
            });
        }
        let across = (0..self.taps[1]).map(|tap| vec![Dim::from(tap).into()]);
        let across: Vec<Vec<Index>> = across.collect();
        self.round(scope, sizes, filter, (&across, sums))
    }

    /// All taps along the first spatial axis, at some of the others.
    fn round(
        &self,
        scope: &mut Scope,
        sizes: &Sizes,
        filter: (usize, Texel),
        (across, sums): (&[Vec<Index>], &[Expr]),
    ) -> Result<Vec<Statement>> {
        let pairs = (0..self.taps[0]).flat_map(|down| (0..across.len()).map(move |x| [down, x]));
        let mut taps = Vec::new();
        for pair in pairs {
            let tap = [&[Dim::from(pair[0]).into()], across[pair[1]].as_slice()].concat();
            let row = index::linear(&tap, &sizes.taps);
            let at = [&self.place[1], &row, &Index::zero()].map(|at| at.emit(&mut scope.pool));
            taps.push((pair, columns(&mut scope.pool, filter, at, 0), tap));
        }
        let mut known = BTreeMap::new();
        let mut statements = Vec::new();
        for (place, sum) in self.places().zip(sums) {
            let mut total = *sum;
            for (pair, weight, tap) in &taps {
                let seen = match known.entry(self.seen(sizes, place, *pair)) {
                    Entry::Occupied(seen) => *seen.get(),
                    Entry::Vacant(free) => {
                        let from = (self.place.clone(), None);
                        let position = self.position(place.map(Index::from));
                        *free.insert(image::input(scope, sizes, from, (&position, tap))?)
                    }
                };
                let product = scope.pool.call("x * y", Type::F32x4, &[*weight, seen]);
                total = scope.pool.call("x + y", Type::F32x4, &[total, product]);
            }
            statements.push(Statement::Assign(*sum, total));
        }
        Ok(statements)
    }

    /// What a position of the block sees through a tap, counted from what the first one sees through the first one.
    fn seen(&self, sizes: &Sizes, place: [usize; 2], tap: [usize; 2]) -> Vec<i64> {
        let axes = sizes.axes.iter().zip(&self.strides).zip(place).zip(tap);
        axes.map(|(((axis, stride), place), tap)| {
            (place * stride) as i64 + tap as i64 * axis.dilation
        })
        .collect()
    }

    fn write(
        &self,
        scope: &mut Scope,
        group: &Group,
        sizes: &Sizes,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let cost = group.epilogue_cost(scope.graph);
        let rows: Vec<Vec<Expr>> = sums.chunks(self.width).map(<[Expr]>::to_vec).collect();
        in_turns(scope, cost, &rows, &mut |scope, number, sums| {
            let mut row = Vec::new();
            for (j, sum) in sums.iter().enumerate() {
                let position = self.position([number.clone(), j.into()]);
                let position = scope.all_apart(&position, &sizes.space);
                let quad = [self.place.as_slice(), &position].concat();
                let mut line = image::write(scope, group, sizes, &quad, *sum)?;
                if let Some((first, size)) = self.first.get(1).zip(sizes.space.get(1)) {
                    line = guarded(scope, first, j, size, line);
                }
                row.extend(line);
            }
            let (first, size) = (&self.first[0], &sizes.space[0]);
            Ok(guarded(scope, first, number.clone(), size, row))
        })
    }
}

/// Positions along the first spatial axis: blocks of equal heights, as far as they can be.
fn height(size: usize, tallest: usize) -> usize {
    let size = size.max(1);
    size.div_ceil(size.div_ceil(tallest))
}

/// Positions along the spatial axes at most: wide blocks if the driver takes the text of some with a few rows.
fn largest(strides: &[usize], taps: &[usize]) -> [usize; 2] {
    let seen = |along: usize, positions: usize| (positions - 1) * strides[along] + taps[along];
    let fits = |height: &usize| {
        let products = height * WIDEST * taps[0] * taps[1];
        seen(0, *height) * seen(1, WIDEST) <= MOST_READ && products <= MOST_PRODUCTS
    };
    let wide = match strides.len() {
        2 => (FEWEST..=TALLEST).rev().find(fits),
        _ => None,
    };
    let down = taps.first().copied().unwrap_or(1);
    match wide {
        Some(height) => [height, WIDEST],
        None => [(LONGEST / down.max(1)).clamp(1, TALLEST), 1],
    }
}

/// A number that the text is written for. Layers that share a kernel have equal taps and steps.
fn known(size: &Dim) -> Result<usize> {
    let size = size.as_const().and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| Error::internal("a tap or a step of a depthwise convolution is a symbol"))
}
