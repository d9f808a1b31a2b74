//! Grouped convolutions with one channel or few channels per group, for devices whose subgroups are the lanes of a CPU
//! vector. An invocation computes four channels of a block of positions, whose inputs overlap.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::Node;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Panels, Texel};
use crate::op::Conv;
use crate::plan::conv::{ConvSizes, implicit_gemm};
use crate::plan::element::KernelScope;
use crate::plan::element::panels::load_columns;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::group::Group;
use crate::plan::kernel::epilogue_loop::{LineEpilogue, write_lines};
use crate::plan::kernel::{LoweredKernel, ceil_div, offset_bounds_guard, repeat_flattened};
use crate::plan::product::dot::with_label;
use crate::plan::product::tile::Extent;
use crate::plan::vec4_layout::{self, CHANNEL_AXIS};

const TEMPLATE: &str = include_str!("../../../shaders/grouped.wgsl");

/// Most positions of an invocation along the first spatial axis, and positions of a wide block along the second one.
const MAX_BLOCK_HEIGHT: usize = 7;
const WIDE_BLOCK_WIDTH: usize = 2;
/// Fewest rows of a wide block.
const MIN_WIDE_BLOCK_HEIGHT: usize = 2;
/// Most input vec4s that the positions of a depthwise block read along the first axis for one tap of the other axes: the
/// driver handles longer loops badly.
const MAX_INPUTS_PER_TAP: usize = 64;
/// The limits for groups of several channels. A tap loads four weights there, so that larger blocks pay off.
const MAX_GROUP_BLOCK_HEIGHT: usize = 14;
const MAX_GROUP_INPUTS_PER_TAP: usize = 42;
/// Most input vectors that an invocation loads in a wide block, and most products: all taps are unrolled there.
const MAX_WIDE_BLOCK_LOADS: usize = 48;
const MAX_WIDE_BLOCK_PRODUCTS: usize = 128;

/// Lowers a grouped convolution with its epilogue. The channel count is a multiple of 4.
pub fn lower<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let packed = implicit_gemm::required_panels(&scope, node, conv, Extent::DEFAULT)?;
    lower_panels(scope, group, &sizes, &packed.panels)
}

/// Lowers a grouped convolution whose filter lies in given panels.
pub fn lower_panels<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    sizes: &ConvSizes,
    panels: &Panels,
) -> Result<LoweredKernel<'a>> {
    let mut scope = scope.reading_u64();
    let block = PositionBlock::new(&mut scope, sizes)?;
    let (binding, texel) = scope.bind_panels(sizes.filter, panels)?;
    let filter = FilterTexture { binding, texel };
    let sum = |[i, j]: [usize; 2]| scope.pool.variable(&block.sum_name(i, j), WgslType::F32x4);
    let sums: Vec<Expr> = block.offsets().map(sum).collect();
    let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
    let mut statements = vec![block.surplus.clone()];
    statements.extend(sums.iter().map(|sum| Statement::Declare(*sum, zero)));
    statements.extend(block.sum_all_taps(&mut scope, sizes, filter, &sums)?);
    statements.extend(block.write(&mut scope, group, sizes, &sums)?);
    Ok(LoweredKernel::new(
        scope,
        TEMPLATE,
        statements,
        &block.count,
    ))
}

/// The texture of a filter in panels.
#[derive(Clone, Copy)]
struct FilterTexture {
    /// Index of the binding.
    binding: usize,
    texel: Texel,
}

/// Input channels that four channels of the result read at a position.
#[derive(Clone, Copy)]
enum InputChannels {
    /// Each reads the input channel with its own index.
    Depthwise,
    /// Each reads all channels of its group. The number counts the vec4s of a group, in input and result.
    Group(usize),
}

impl InputChannels {
    fn of(sizes: &ConvSizes) -> Result<InputChannels> {
        Ok(match constant_size(&sizes.channels)? {
            1 => InputChannels::Depthwise,
            channels => InputChannels::Group(channels / VEC4_LEN),
        })
    }

    /// Returns the number of input vec4s that are read one after the other.
    fn vec4_count(self) -> usize {
        match self {
            InputChannels::Depthwise => 1,
            InputChannels::Group(quads) => quads,
        }
    }

    /// Returns how many channels of an input vec4 each output channel reads.
    fn channels_per_vec4(self) -> usize {
        match self {
            InputChannels::Depthwise => 1,
            InputChannels::Group(_) => VEC4_LEN,
        }
    }

    /// Returns the input vec4 of a step, for a vec4 of the result.
    fn input_vec4(self, of: &Index, step: &Index) -> Index {
        let quads = Dim::from(self.vec4_count());
        of.div(&quads).scale(&quads).add(step)
    }

    /// Multiplies an input vec4 with the weights of each of its channels that are read.
    fn product(self, pool: &mut ExprPool, weights: &[Expr], seen: Expr) -> Option<Expr> {
        let terms = weights.iter().enumerate().map(|(channel, weight)| {
            let seen = match self {
                InputChannels::Depthwise => seen,
                InputChannels::Group(_) => vec4::component(pool, seen, channel, WgslType::F32),
            };
            pool.call("x * y", WgslType::F32x4, &[*weight, seen])
        });
        let terms: Vec<Expr> = terms.collect();
        let sum = |x, y| pool.call("x + y", WgslType::F32x4, &[x, y]);
        terms.into_iter().reduce(sum)
    }

    /// Returns the most positions along the first spatial axis in a narrow block, for `taps` taps along it.
    fn max_height(self, taps: usize) -> usize {
        let [longest, tallest] = match self {
            InputChannels::Depthwise => [MAX_INPUTS_PER_TAP, MAX_BLOCK_HEIGHT],
            InputChannels::Group(_) => [MAX_GROUP_INPUTS_PER_TAP, MAX_GROUP_BLOCK_HEIGHT],
        };
        (longest / taps.max(1)).clamp(1, tallest)
    }
}

/// A block of positions of four channels, which one invocation computes.
struct PositionBlock {
    count: Dim,
    surplus: Statement,
    /// Image and vec4 of channels.
    place: [Index; 2],
    /// Input channels of the block's four channels.
    channels: InputChannels,
    /// First position along each spatial axis.
    first: Vec<Index>,
    /// Positions along the first spatial axis.
    height: usize,
    /// Positions along the second spatial axis.
    width: usize,
    /// Taps along the spatial axes.
    taps: Vec<usize>,
    /// Input positions between neighbouring output positions.
    strides: Vec<usize>,
}

impl PositionBlock {
    fn new(scope: &mut KernelScope, sizes: &ConvSizes) -> Result<PositionBlock> {
        let taps: Vec<usize> = sizes
            .taps
            .iter()
            .map(constant_size)
            .collect::<Result<_>>()?;
        let strides = sizes.axes.iter().map(|axis| constant_size(&axis.stride));
        let strides: Vec<usize> = strides.collect::<Result<_>>()?;
        let channels = InputChannels::of(sizes)?;
        let [tallest, width] = max_block(channels, &strides, &taps);
        let by = [sizes.space[0].clone(), tallest.into(), Dim::ONE, Dim::ONE];
        let height = scope.decide(by, |[size, tallest, ..]| even_height(size, tallest));
        let mut shape = scope.graph.ty(sizes.result).shape.clone();
        for (size, along) in shape.iter_mut().skip(CHANNEL_AXIS + 1).zip([height, width]) {
            *size = ceil_div(size, along);
        }
        let (mut quad, surplus, count) = vec4_layout::invocation_vec4(scope, &shape, CHANNEL_AXIS);
        let space = quad.split_off(CHANNEL_AXIS + 1);
        let place = <[Index; 2]>::try_from(quad)
            .map_err(|_| Error::internal("an image has too few axes"))?;
        let blocks = [(height, "row"), (width, "column")].into_iter();
        let along = space.iter().zip(blocks.chain(iter::repeat((1, ""))));
        let first = along.map(|(block, (along, name))| match along {
            1 => block.clone(),
            _ => with_label(scope, &block.scale(&Dim::from(along)), name),
        });
        Ok(PositionBlock {
            count,
            surplus,
            place,
            channels,
            first: first.collect(),
            height,
            width,
            taps,
            strides,
        })
    }

    /// Iterates over the positions of the block.
    fn offsets(&self) -> impl Iterator<Item = [usize; 2]> {
        let width = self.width;
        (0..self.height).flat_map(move |i| (0..width).map(move |j| [i, j]))
    }

    fn sum_name(&self, i: usize, j: usize) -> String {
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

    /// Sums over all channels and taps. Wide blocks have the taps of the second axis unrolled, so that neighbours share
    /// loads.
    fn sum_all_taps(
        &self,
        scope: &mut KernelScope,
        sizes: &ConvSizes,
        filter: FilterTexture,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let across = sizes.taps.get(1..).unwrap_or_default();
        let (looped, written): (&[Dim], usize) = match self.width {
            1 => (across, 1),
            _ => (&[], self.taps[1]),
        };
        let names = (0..looped.len()).map(|axis| format!("tap{axis}"));
        let names: Vec<String> = iter::once(String::from("quad")).chain(names).collect();
        let shape = [&[Dim::from(self.channels.vec4_count())], looped].concat();
        repeat_flattened(scope, "trip", &names, &shape, |scope, _, at| {
            let (step, looped) = (&at[0], &at[1..]);
            let across = (0..written).map(|tap| match self.width {
                1 => looped.to_vec(),
                _ => vec![Dim::from(tap).into()],
            });
            let across: Vec<Vec<Index>> = across.collect();
            self.sum_column_taps(scope, sizes, filter, step, &across, sums)
        })
    }

    /// Sums over all taps along the first spatial axis, at some taps of the others, for one input vec4.
    fn sum_column_taps(
        &self,
        scope: &mut KernelScope,
        sizes: &ConvSizes,
        filter: FilterTexture,
        step: &Index,
        across: &[Vec<Index>],
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let pairs = (0..self.taps[0]).flat_map(|down| (0..across.len()).map(move |x| [down, x]));
        let mut taps = Vec::new();
        for pair in pairs {
            let tap = [&[Dim::from(pair[0]).into()], across[pair[1]].as_slice()].concat();
            taps.push((
                pair,
                self.load_weights(scope, sizes, filter, &tap, step),
                tap,
            ));
        }
        let mut loaded = BTreeMap::new();
        let mut statements = Vec::new();
        for (place, sum) in self.offsets().zip(sums) {
            let mut total = *sum;
            for (pair, weights, tap) in &taps {
                let seen = match loaded.entry(self.input_offset(sizes, place, *pair)) {
                    Entry::Occupied(seen) => *seen.get(),
                    Entry::Vacant(free) => {
                        let [image, quad] = &self.place;
                        let from = [image.clone(), self.channels.input_vec4(quad, step)];
                        let position = self.position(place.map(Index::from));
                        *free.insert(implicit_gemm::load_input(
                            scope, sizes, from, None, &position, tap,
                        )?)
                    }
                };
                if let Some(product) = self.channels.product(&mut scope.pool, weights, seen) {
                    total = scope.pool.call("x + y", WgslType::F32x4, &[total, product]);
                }
            }
            statements.push(Statement::Assign(*sum, total));
        }
        Ok(statements)
    }

    /// Loads the weights of a tap, one vector for each channel of an input vec4 that is read.
    fn load_weights(
        &self,
        scope: &mut KernelScope,
        sizes: &ConvSizes,
        filter: FilterTexture,
        tap: &[Index],
        step: &Index,
    ) -> Vec<Expr> {
        let seen = self.channels.channels_per_vec4();
        let steps = Dim::from(seen * self.channels.vec4_count());
        let first = index::linearize(tap, &sizes.taps).scale(&steps);
        let first = first.add(&step.scale(&Dim::from(seen)));
        let weight = |channel: usize| {
            let row = first.add_size(&Dim::from(channel));
            let at = [&self.place[1], &row, &Index::zero()].map(|at| at.emit(&mut scope.pool));
            load_columns(&mut scope.pool, filter.binding, filter.texel, at, 0)
        };
        (0..seen).map(weight).collect()
    }

    /// Returns the input offset under a tap of a position, relative to the first tap of the block's first position.
    fn input_offset(&self, sizes: &ConvSizes, place: [usize; 2], tap: [usize; 2]) -> Vec<i64> {
        let axes = sizes.axes.iter().zip(&self.strides).zip(place).zip(tap);
        axes.map(|(((axis, stride), place), tap)| {
            (place * stride) as i64 + tap as i64 * axis.dilation
        })
        .collect()
    }

    fn write(
        &self,
        scope: &mut KernelScope,
        group: &Group,
        sizes: &ConvSizes,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let cost = group.epilogue_cost(scope.graph);
        let rows: Vec<Vec<Expr>> = sums.chunks(self.width).map(<[Expr]>::to_vec).collect();
        write_lines(
            scope,
            LineEpilogue::Unrolled,
            cost,
            &rows,
            &mut |scope, number, sums| {
                let mut row = Vec::new();
                for (j, sum) in sums.iter().enumerate() {
                    let position = self.position([number.clone(), j.into()]);
                    let position = scope.separate_all(&position, &sizes.space);
                    let quad = [self.place.as_slice(), &position].concat();
                    let mut line = implicit_gemm::write_vec4(scope, group, sizes, &quad, *sum)?;
                    if let Some((first, size)) = self.first.get(1).zip(sizes.space.get(1)) {
                        line = offset_bounds_guard(scope, first, j, size, line);
                    }
                    row.extend(line);
                }
                let (first, size) = (&self.first[0], &sizes.space[0]);
                Ok(offset_bounds_guard(scope, first, number.clone(), size, row))
            },
        )
    }
}

/// Returns the block height that divides the first spatial axis as evenly as possible.
fn even_height(size: usize, tallest: usize) -> usize {
    let size = size.max(1);
    size.div_ceil(size.div_ceil(tallest))
}

/// Returns the largest block along the spatial axes: a wide block if the driver can handle the source of one with enough
/// rows.
fn max_block(channels: InputChannels, strides: &[usize], taps: &[usize]) -> [usize; 2] {
    let seen = |along: usize, positions: usize| (positions - 1) * strides[along] + taps[along];
    let fits = |height: &usize| {
        let products = height * WIDE_BLOCK_WIDTH * taps[0] * taps[1];
        seen(0, *height) * seen(1, WIDE_BLOCK_WIDTH) <= MAX_WIDE_BLOCK_LOADS
            && products <= MAX_WIDE_BLOCK_PRODUCTS
    };
    let wide = match (channels, strides.len()) {
        (InputChannels::Depthwise, 2) => {
            (MIN_WIDE_BLOCK_HEIGHT..=MAX_BLOCK_HEIGHT).rev().find(fits)
        }
        _ => None,
    };
    let down = taps.first().copied().unwrap_or(1);
    match wide {
        Some(height) => [height, WIDE_BLOCK_WIDTH],
        None => [channels.max_height(down), 1],
    }
}

/// Returns a size that the source is specialised for. Layers that share a kernel have equal taps and strides.
fn constant_size(size: &Dim) -> Result<usize> {
    let size = size.as_const().and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| {
        Error::internal("taps, strides and channels of a grouped convolution must be constants")
    })
}
