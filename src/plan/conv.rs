//! Convolutions. This file has the portable kernel: one invocation computes some output channels at some neighbouring
//! positions. A tap is an element of the filter window.

pub mod direct;
pub mod filter_gradient;
pub mod grouped;
pub mod implicit_gemm;
pub mod winograd;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::{Conv, ConvAxis};
use crate::plan::element::position::Position;
use crate::plan::element::{KernelScope, operand};
use crate::plan::group::Group;
use crate::plan::kernel::{
    LoweredKernel, ceil_div, clamped_offset, invocation, offset_bounds_guard, repeat, repeat_all,
    store,
};
use crate::plan::product::dot::{accumulators, add_outer_product, tile_size, with_label, zero};
use crate::shape::Shape;

const TEMPLATE: &str = include_str!("../../shaders/conv.wgsl");

/// Most positions that an invocation computes if it computes a single channel.
const MAX_SINGLE_CHANNEL_POSITIONS: usize = 8;

/// Lowers a convolution with its epilogue.
pub fn lower<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let tile = ConvTile::new(&mut scope, &sizes);
    let dtype = scope.graph.ty(sizes.x).dtype;
    let sums = accumulators(&mut scope, dtype, tile.height, tile.width);
    let zero = zero(&mut scope, dtype);
    let mut statements = vec![tile.surplus.clone()];
    statements.extend(
        sums.iter()
            .flatten()
            .map(|sum| Statement::Declare(*sum, zero)),
    );
    statements.extend(repeat(
        &mut scope,
        "channel",
        &sizes.channels,
        |scope, channel| {
            repeat_all(scope, "tap", &sizes.taps, |scope, taps| {
                let mut left = Vec::new();
                for i in 0..tile.height {
                    let output = sizes.output_channel(&tile, scope, i);
                    let coordinates = [&[output, channel.clone()], taps.as_slice()].concat();
                    let weight = scope.element(
                        sizes.filter,
                        &Position::from_coordinates(coordinates),
                        None,
                    )?;
                    left.push(weight);
                }
                let mut right = Vec::new();
                for j in 0..tile.width {
                    let position = tile.position(scope, &sizes, j);
                    right.push(sizes.load_input(scope, &tile, &channel, &taps, &position, zero)?);
                }
                Ok(add_outer_product(scope, &sums, &left, &right))
            })
        },
    )?);
    statements.extend(sums.iter().flatten().map(|sum| Statement::Freeze(*sum)));
    for (i, sums) in sums.iter().enumerate() {
        let mut row = Vec::new();
        for (j, sum) in sums.iter().enumerate() {
            let channel = sizes.output_channel(&tile, &mut scope, i);
            let position = tile.position(&mut scope, &sizes, j);
            let coordinates = [&[tile.image.clone(), channel], position.as_slice()].concat();
            let writes = store(
                &mut scope,
                group,
                sizes.result,
                *sum,
                &Position::from_coordinates(coordinates),
            )?;
            row.extend(offset_bounds_guard(
                &mut scope,
                &tile.first,
                j,
                &sizes.positions,
                writes,
            ));
        }
        let inner = offset_bounds_guard(&mut scope, &tile.output, i, &sizes.outputs, row);
        statements.extend(inner);
    }
    Ok(LoweredKernel::new(scope, TEMPLATE, statements, &tile.count))
}

/// Sizes and operands of a convolution.
pub struct ConvSizes {
    /// Input.
    pub x: ValueId,
    /// Filter.
    pub filter: ValueId,
    /// Result, before the epilogue.
    pub result: ValueId,
    /// Number of images.
    pub batch: Dim,
    /// Number of channel groups.
    pub groups: Dim,
    /// Input channels of a group.
    pub channels: Dim,
    /// Output channels of a group.
    pub outputs: Dim,
    /// Sizes of the filter along the spatial axes.
    pub taps: Shape,
    /// Stride, padding and dilation along the spatial axes.
    pub axes: Vec<AxisGeometry>,
    /// Sizes of the input along the spatial axes.
    input_space: Shape,
    /// Sizes of the result along the spatial axes.
    pub space: Shape,
    /// Positions of the result in one image.
    pub positions: Dim,
}

/// Stride, padding and dilation along one spatial axis: [`ConvAxis`] with symbolic sizes.
#[derive(Clone, PartialEq)]
pub struct AxisGeometry {
    /// Input positions between neighbouring output positions.
    pub stride: Dim,
    /// Number of zeros in front of the input.
    pub low: Dim,
    /// Number of zeros after the input.
    pub high: Dim,
    /// Input positions between neighbouring taps.
    pub dilation: i64,
    /// Distance between input elements, as [`ConvAxis::base_dilation`]; 1 for an ordinary convolution.
    base_dilation: i64,
}

impl From<&ConvAxis> for AxisGeometry {
    fn from(axis: &ConvAxis) -> AxisGeometry {
        AxisGeometry {
            stride: Dim::from(axis.stride),
            low: Dim::from(axis.low),
            high: Dim::from(axis.high),
            dilation: axis.dilation,
            base_dilation: axis.base_dilation,
        }
    }
}

impl ConvSizes {
    /// Reads the sizes of a convolution node.
    pub fn new(graph: &Graph, node: &Node, conv: &Conv) -> Result<ConvSizes> {
        let (x, filter) = (operand(node, 0)?, operand(node, 1)?);
        let result = node.results.first().copied().unwrap_or(x);
        let (
            [batch, input_channels, input_space @ ..],
            [outputs, channels, taps @ ..],
            [_, _, output_space @ ..],
        ) = (
            graph.ty(x).shape.as_slice(),
            graph.ty(filter).shape.as_slice(),
            graph.ty(result).shape.as_slice(),
        )
        else {
            return Err(Error::internal("operands of conv have too few axes"));
        };
        // With a symbolic channel count, a depthwise convolution has as many groups as channels.
        let groups = match channels.is(0) {
            true => Dim::from(conv.groups),
            false => input_channels.floor_div(channels),
        };
        Ok(ConvSizes {
            x,
            filter,
            result,
            batch: batch.clone(),
            outputs: outputs.floor_div(&groups),
            groups,
            channels: channels.clone(),
            taps: taps.to_vec(),
            axes: conv.axes.iter().map(AxisGeometry::from).collect(),
            input_space: input_space.to_vec(),
            space: output_space.to_vec(),
            positions: Dim::product(output_space),
        })
    }

    /// Returns whether each output position reads exactly the input position at its own coordinates: a convolution of
    /// one tap without stride and padding.
    pub fn is_pointwise(&self) -> bool {
        let is_same = |axis: &AxisGeometry| axis.stride.is(1) && axis.low.is(0) && axis.high.is(0);
        self.axes.iter().all(is_same) && Dim::product(&self.taps).is(1)
    }

    /// Returns whether each output position reads a single input position that no other output position reads.
    pub fn reads_each_position_once(&self) -> bool {
        let is_inside =
            |axis: &AxisGeometry| axis.low.is(0) && axis.high.is(0) && axis.base_dilation == 1;
        self.axes.iter().all(is_inside) && Dim::product(&self.taps).is(1)
    }

    /// Returns whether the taps of an output position are neighbours: no dilation of filter or input.
    pub fn is_undilated(&self) -> bool {
        let mut axes = self.axes.iter();
        axes.all(|axis| axis.dilation == 1 && axis.base_dilation == 1)
    }

    /// Returns the output channel of row `i` of the tile.
    fn output_channel(&self, tile: &ConvTile, scope: &mut KernelScope, i: usize) -> Index {
        let channel = clamped_offset(scope, &tile.output, i, &self.outputs, &format!("output{i}"));
        tile.group.scale(&self.outputs).add(&channel)
    }

    /// Returns the reduction shape: input channels of a group, and taps.
    pub fn reduction_shape(&self) -> Shape {
        [std::slice::from_ref(&self.channels), &self.taps].concat()
    }

    /// Returns the shape of the columns: images, and positions in each.
    pub fn column_shape(&self) -> Shape {
        [std::slice::from_ref(&self.batch), &self.space].concat()
    }

    /// Loads the input element under a tap of an output position. Positions outside of the input give `zero`.
    fn load_input(
        &self,
        scope: &mut KernelScope,
        tile: &ConvTile,
        channel: &Index,
        taps: &[Index],
        position: &[Index],
        zero: Expr,
    ) -> Result<Expr> {
        let channel = tile.group.scale(&self.channels).add(channel);
        let image_and_channel = [tile.image.clone(), channel];
        let (input_position, inside) =
            self.input_position(scope, image_and_channel, taps, position);
        let element = scope.element(self.x, &input_position, inside)?;
        Ok(match inside {
            Some(inside) => scope.pool.select(inside, element, zero),
            None => element,
        })
    }

    /// Returns the input position under a tap of an output position, and the condition that it lies within the input;
    /// `None` if it always does. `image_and_channel` starts the returned coordinates: the image, then the input channel
    /// or vec4 of channels.
    pub fn input_position(
        &self,
        scope: &mut KernelScope,
        image_and_channel: [Index; 2],
        taps: &[Index],
        position: &[Index],
    ) -> (Position, Option<Expr>) {
        let mut coordinates = image_and_channel.to_vec();
        let mut inside = None;
        for (axis, geometry) in self.axes.iter().enumerate() {
            let (coordinate, guard) = input_coordinate(
                scope,
                geometry,
                &position[axis],
                &taps[axis],
                [&self.input_space[axis], &self.space[axis]],
            );
            coordinates.push(coordinate);
            if let Some(guard) = guard {
                inside = Some(scope.pool.and(inside, guard));
            }
        }
        (Position::from_coordinates(coordinates), inside)
    }
}

/// Returns the input coordinate under a tap of an output coordinate along an axis, and the condition that an input
/// element lies there; `None` if it always does. The sizes are those of input and output.
fn input_coordinate(
    scope: &mut KernelScope,
    axis: &AxisGeometry,
    position: &Index,
    tap: &Index,
    [input_size, output_size]: [&Dim; 2],
) -> (Index, Option<Expr>) {
    let dilated = position
        .scale(&axis.stride)
        .add(&tap.scale(&Dim::from(axis.dilation)))
        .add_size(&-&axis.low);
    let is_padded = [&axis.low, &axis.high]
        .into_iter()
        .any(|padding| !padding.is(0));
    let may_be_outside = is_padded || !position.is_less_than(output_size);
    if axis.base_dilation == 1 {
        let guard = may_be_outside.then(|| scope.is_below(&dilated, input_size));
        return (dilated, guard);
    }
    let base_dilation = Dim::from(axis.base_dilation);
    let (coordinate, remainder) = (dilated.div(&base_dilation), dilated.rem(&base_dilation));
    let is_inside = scope.is_below(&coordinate, input_size);
    let is_element = scope.is_below(&remainder, &Dim::ONE);
    let guard = scope
        .pool
        .call("x & y", WgslType::Bool, &[is_element, is_inside]);
    (coordinate, Some(guard))
}

/// Output channels × positions that one invocation computes.
struct ConvTile {
    /// Number of invocations.
    count: Dim,
    /// Statement that ends surplus invocations.
    surplus: Statement,
    image: Index,
    /// Channel group.
    group: Index,
    /// First output channel, within the group.
    output: Index,
    /// First position, as an index in the image.
    first: Index,
    /// Number of output channels.
    height: usize,
    /// Number of positions.
    width: usize,
}

impl ConvTile {
    fn new(scope: &mut KernelScope, sizes: &ConvSizes) -> ConvTile {
        let height = tile_size(&sizes.outputs);
        let width = if height == 1 {
            MAX_SINGLE_CHANNEL_POSITIONS.min(2 * tile_size(&sizes.positions))
        } else {
            tile_size(&sizes.positions)
        };
        let tiles = [
            sizes.batch.clone(),
            sizes.groups.clone(),
            ceil_div(&sizes.outputs, height),
            ceil_div(&sizes.positions, width),
        ];
        let count = Dim::product(&tiles);
        let (index, surplus) = invocation(scope, &count);
        let coordinates = index::delinearize(&index, &tiles);
        let [image, group, output, first] = [0, 1, 2, 3].map(|axis| coordinates[axis].clone());
        ConvTile {
            count,
            surplus,
            image: with_label(scope, &image, "item"),
            group: with_label(scope, &group, "group"),
            output: with_label(scope, &output.scale(&Dim::from(height)), "output"),
            first: with_label(scope, &first.scale(&Dim::from(width)), "position"),
            height,
            width,
        }
    }

    /// Returns the spatial coordinates of position `j` of the tile.
    fn position(&self, scope: &mut KernelScope, sizes: &ConvSizes, j: usize) -> Vec<Index> {
        let name = format!("position{j}");
        let linear_index = clamped_offset(scope, &self.first, j, &sizes.positions, &name);
        index::delinearize(&linear_index, &sizes.space)
    }
}
