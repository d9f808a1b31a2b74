//! Grouped convolutions with one channel or few channels per group, for devices whose subgroups are the lanes of a CPU
//! vector. An invocation computes four channels of a block of positions. Neighbouring positions read some of the same
//! inputs, which are loaded once.
//!
//! A block has one position along the second spatial axis, or two: a wide block.

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
use crate::plan::product::tile::TileShape;
use crate::plan::vec4_layout::{self, CHANNEL_AXIS};

const TEMPLATE: &str = include_str!("../../../shaders/grouped.wgsl");

/// Most positions of a depthwise block along the first spatial axis.
const MAX_BLOCK_HEIGHT: usize = 7;
/// Positions of a wide block along the second spatial axis.
const WIDE_BLOCK_WIDTH: usize = 2;
/// Fewest rows of a wide block.
const MIN_WIDE_BLOCK_HEIGHT: usize = 2;
/// Most input vec4s that the positions of a depthwise block read along the first axis for one tap of the other axes:
/// the driver handles longer loops badly.
const MAX_INPUTS_PER_TAP: usize = 64;
/// [`MAX_BLOCK_HEIGHT`] for groups of several channels. A tap loads four weights there, so that larger blocks pay off.
const MAX_GROUP_BLOCK_HEIGHT: usize = 14;
/// [`MAX_INPUTS_PER_TAP`] for groups of several channels.
const MAX_GROUP_INPUTS_PER_TAP: usize = 42;
/// Most input vectors that an invocation loads in a wide block: all taps are unrolled there.
const MAX_WIDE_BLOCK_LOADS: usize = 48;
/// Most products of a wide block.
const MAX_WIDE_BLOCK_PRODUCTS: usize = 128;

/// Lowers a grouped convolution with its epilogue. The channel count is a multiple of 4.
pub fn lower<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let packed = implicit_gemm::required_panels(&scope, node, conv, TileShape::DEFAULT)?;
    lower_panels(scope, group, &sizes, &packed.panels)
}

/// Lowers a grouped convolution whose filter is stored in these panels.
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
    /// Texel format.
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
            InputChannels::Group(vec4s) => vec4s,
        }
    }

    /// Returns how many channels of an input vec4 each output channel reads.
    fn channels_per_vec4(self) -> usize {
        match self {
            InputChannels::Depthwise => 1,
            InputChannels::Group(_) => VEC4_LEN,
        }
    }

    /// Returns the index of the input vec4 that iteration `step` over a group's vec4s reads, for a vec4 of the result.
    fn input_vec4(self, output_vec4: &Index, step: &Index) -> Index {
        let group_vec4s = Dim::from(self.vec4_count());
        output_vec4.div(&group_vec4s).scale(&group_vec4s).add(step)
    }

    /// Multiplies an input vec4 by the weights, one vector for each input channel that is read, and sums the products.
    /// `None` if there are no weights.
    fn product(self, pool: &mut ExprPool, weights: &[Expr], input: Expr) -> Option<Expr> {
        let terms = weights.iter().enumerate().map(|(channel, weight)| {
            let input = match self {
                InputChannels::Depthwise => input,
                InputChannels::Group(_) => vec4::component(pool, input, channel, WgslType::F32),
            };
            pool.call("x * y", WgslType::F32x4, &[*weight, input])
        });
        let terms: Vec<Expr> = terms.collect();
        let sum = |x, y| pool.call("x + y", WgslType::F32x4, &[x, y]);
        terms.into_iter().reduce(sum)
    }

    /// Returns the most positions along the first spatial axis in a narrow block, for `taps` taps along it.
    fn max_height(self, taps: usize) -> usize {
        let [max_inputs, height_limit] = match self {
            InputChannels::Depthwise => [MAX_INPUTS_PER_TAP, MAX_BLOCK_HEIGHT],
            InputChannels::Group(_) => [MAX_GROUP_INPUTS_PER_TAP, MAX_GROUP_BLOCK_HEIGHT],
        };
        (max_inputs / taps.max(1)).clamp(1, height_limit)
    }
}

/// A block of positions of four channels, which one invocation computes.
struct PositionBlock {
    /// Number of invocations.
    count: Dim,
    /// Statement that ends surplus invocations.
    surplus: Statement,
    /// Indices of the image and of the vec4 of output channels.
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
        let [max_height, width] = max_block(channels, &strides, &taps);
        let decision_sizes = [
            sizes.space[0].clone(),
            max_height.into(),
            Dim::ONE,
            Dim::ONE,
        ];
        let height = scope.decide(decision_sizes, |[size, max_height, ..]| {
            even_height(size, max_height)
        });
        let mut shape = scope.graph.ty(sizes.result).shape.clone();
        for (size, block_size) in shape.iter_mut().skip(CHANNEL_AXIS + 1).zip([height, width]) {
            *size = ceil_div(size, block_size);
        }
        let (mut vec4_coordinates, surplus, count) =
            vec4_layout::invocation_vec4(scope, &shape, CHANNEL_AXIS);
        let space = vec4_coordinates.split_off(CHANNEL_AXIS + 1);
        let place = <[Index; 2]>::try_from(vec4_coordinates)
            .map_err(|_| Error::internal("an image has too few axes"))?;
        let blocks = [(height, "row"), (width, "column")].into_iter();
        let axes = space.iter().zip(blocks.chain(iter::repeat((1, ""))));
        let first = axes.map(|(block, (block_size, name))| match block_size {
            1 => block.clone(),
            _ => with_label(scope, &block.scale(&Dim::from(block_size)), name),
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

    /// Yields the offset of each position from the first position of the block, along the first two spatial axes.
    fn offsets(&self) -> impl Iterator<Item = [usize; 2]> {
        let width = self.width;
        (0..self.height).flat_map(move |i| (0..width).map(move |j| [i, j]))
    }

    /// Returns the name of the sum of the position at an offset.
    fn sum_name(&self, i: usize, j: usize) -> String {
        match self.width {
            1 => format!("sum{i}"),
            _ => format!("sum{i}_{j}"),
        }
    }

    /// Returns the coordinates of the position at an offset along the first two spatial axes.
    fn position(&self, block_offset: [Index; 2]) -> Vec<Index> {
        let offsets = block_offset
            .into_iter()
            .chain(iter::repeat_with(Index::zero));
        let along = self.first.iter().zip(offsets);
        along.map(|(first, offset)| first.add(&offset)).collect()
    }

    /// Adds the products of all channels and taps to the sums. In wide blocks the taps of the second axis are unrolled,
    /// so that neighbouring positions share loads.
    fn sum_all_taps(
        &self,
        scope: &mut KernelScope,
        sizes: &ConvSizes,
        filter: FilterTexture,
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let other_taps = sizes.taps.get(1..).unwrap_or_default();
        let (looped, unrolled): (&[Dim], usize) = match self.width {
            1 => (other_taps, 1),
            _ => (&[], self.taps[1]),
        };
        let names = (0..looped.len()).map(|axis| format!("tap{axis}"));
        let names: Vec<String> = iter::once(String::from("quad")).chain(names).collect();
        let shape = [&[Dim::from(self.channels.vec4_count())], looped].concat();
        repeat_flattened(scope, "trip", &names, &shape, |scope, _, indices| {
            let (step, looped_taps) = (&indices[0], &indices[1..]);
            let other_taps = (0..unrolled).map(|tap| match self.width {
                1 => looped_taps.to_vec(),
                _ => vec![Dim::from(tap).into()],
            });
            let other_taps: Vec<Vec<Index>> = other_taps.collect();
            self.sum_column_taps(scope, sizes, filter, step, &other_taps, sums)
        })
    }

    /// Adds the products of the input vec4 `step` of the group to the sums: those of all taps along the first spatial
    /// axis, at each of `other_taps` along the other axes.
    fn sum_column_taps(
        &self,
        scope: &mut KernelScope,
        sizes: &ConvSizes,
        filter: FilterTexture,
        step: &Index,
        other_taps: &[Vec<Index>],
        sums: &[Expr],
    ) -> Result<Vec<Statement>> {
        let pairs = (0..self.taps[0]).flat_map(|first_tap| {
            (0..other_taps.len()).map(move |other_tap| [first_tap, other_tap])
        });
        let mut taps = Vec::new();
        for pair in pairs {
            let tap = [&[Dim::from(pair[0]).into()], other_taps[pair[1]].as_slice()].concat();
            taps.push((
                pair,
                self.load_weights(scope, sizes, filter, &tap, step),
                tap,
            ));
        }
        let mut loaded = BTreeMap::new();
        let mut statements = Vec::new();
        for (offset, sum) in self.offsets().zip(sums) {
            let mut total = *sum;
            for (pair, weights, tap) in &taps {
                let input = match loaded.entry(self.input_offset(sizes, offset, *pair)) {
                    Entry::Occupied(input) => *input.get(),
                    Entry::Vacant(entry) => {
                        let [image, output_vec4] = &self.place;
                        let image_and_vec4 =
                            [image.clone(), self.channels.input_vec4(output_vec4, step)];
                        let position = self.position(offset.map(Index::from));
                        *entry.insert(implicit_gemm::load_input(
                            scope,
                            sizes,
                            image_and_vec4,
                            None,
                            &position,
                            tap,
                        )?)
                    }
                };
                if let Some(product) = self.channels.product(&mut scope.pool, weights, input) {
                    total = scope.pool.call("x + y", WgslType::F32x4, &[total, product]);
                }
            }
            statements.push(Statement::Assign(*sum, total));
        }
        Ok(statements)
    }

    /// Loads the weights of a tap for the input vec4 `step` of the group: one vector for each of its channels that is
    /// read.
    fn load_weights(
        &self,
        scope: &mut KernelScope,
        sizes: &ConvSizes,
        filter: FilterTexture,
        tap: &[Index],
        step: &Index,
    ) -> Vec<Expr> {
        let channels_per_vec4 = self.channels.channels_per_vec4();
        let rows_per_tap = Dim::from(channels_per_vec4 * self.channels.vec4_count());
        let first = index::linearize(tap, &sizes.taps).scale(&rows_per_tap);
        let first = first.add(&step.scale(&Dim::from(channels_per_vec4)));
        let weight = |channel: usize| {
            let row = first.add_size(&Dim::from(channel));
            let texel_position =
                [&self.place[1], &row, &Index::zero()].map(|index| index.emit(&mut scope.pool));
            load_columns(
                &mut scope.pool,
                filter.binding,
                filter.texel,
                texel_position,
                0,
            )
        };
        (0..channels_per_vec4).map(weight).collect()
    }

    /// Returns the offset of the input position under a tap of the position at `offset`, relative to the one under the
    /// first tap of the block's first position.
    fn input_offset(&self, sizes: &ConvSizes, offset: [usize; 2], tap: [usize; 2]) -> Vec<i64> {
        let axes = sizes.axes.iter().zip(&self.strides).zip(offset).zip(tap);
        axes.map(|(((axis, stride), offset), tap)| {
            (offset * stride) as i64 + tap as i64 * axis.dilation
        })
        .collect()
    }

    /// Writes the sums with the epilogue.
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
            &mut |scope, row_offset, sums| {
                let mut row = Vec::new();
                for (j, sum) in sums.iter().enumerate() {
                    let position = self.position([row_offset.clone(), j.into()]);
                    let position = scope.separate_all(&position, &sizes.space);
                    let vec4_coordinates = [self.place.as_slice(), &position].concat();
                    let mut stores =
                        implicit_gemm::write_vec4(scope, group, sizes, &vec4_coordinates, *sum)?;
                    if let Some((first, size)) = self.first.get(1).zip(sizes.space.get(1)) {
                        stores = offset_bounds_guard(scope, first, j, size, stores);
                    }
                    row.extend(stores);
                }
                let (first, size) = (&self.first[0], &sizes.space[0]);
                Ok(offset_bounds_guard(
                    scope,
                    first,
                    row_offset.clone(),
                    size,
                    row,
                ))
            },
        )
    }
}

/// Returns the block height of at most `max_height` that divides an axis of `size` positions as evenly as possible.
fn even_height(size: usize, max_height: usize) -> usize {
    let size = size.max(1);
    size.div_ceil(size.div_ceil(max_height))
}

/// Returns the most positions of a block along the first two spatial axes: those of a wide block, if one with enough
/// rows stays within the limits of its source.
fn max_block(channels: InputChannels, strides: &[usize], taps: &[usize]) -> [usize; 2] {
    let inputs = |axis: usize, positions: usize| (positions - 1) * strides[axis] + taps[axis];
    let fits = |height: &usize| {
        let products = height * WIDE_BLOCK_WIDTH * taps[0] * taps[1];
        inputs(0, *height) * inputs(1, WIDE_BLOCK_WIDTH) <= MAX_WIDE_BLOCK_LOADS
            && products <= MAX_WIDE_BLOCK_PRODUCTS
    };
    let wide = match (channels, strides.len()) {
        (InputChannels::Depthwise, 2) => {
            (MIN_WIDE_BLOCK_HEIGHT..=MAX_BLOCK_HEIGHT).rev().find(fits)
        }
        _ => None,
    };
    let first_axis_taps = taps.first().copied().unwrap_or(1);
    match wide {
        Some(height) => [height, WIDE_BLOCK_WIDTH],
        None => [channels.max_height(first_axis_taps), 1],
    }
}

/// Returns a size that the source is specialised for. Layers that share a kernel have equal taps and strides.
fn constant_size(size: &Dim) -> Result<usize> {
    let size = size.as_const().and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| {
        Error::internal("taps, strides and channels of a grouped convolution must be constants")
    })
}
