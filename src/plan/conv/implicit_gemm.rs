//! Convolutions as implicit matrix products, for devices whose subgroups are the lanes of a CPU vector. Rows are
//! positions, columns are output channels, and the input is stored in a vec4 layout of channels.

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, StridedRange, non_power_of_two};
use crate::op::Conv;
use crate::plan::conv::ConvSizes;
use crate::plan::cost::example_size;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, VEC4_LEN, is_multiple_of_4};
use crate::plan::element::{self, KernelScope};
use crate::plan::group::Group;
use crate::plan::kernel::{LoweredKernel, bounds_guard, epilogue};
use crate::plan::product::tile::{
    LeftFactor, LeftLayout, PackedWeight, RightFactor, TileShape, TiledProduct, WeightProduct,
    lower_tiles,
};
use crate::plan::vec4_layout::CHANNEL_AXIS;

/// Most channels of a group for which tiles of the matrix product would be too wide.
const MAX_GROUP_CHANNELS: i64 = 16;

/// Lowers a convolution with its epilogue. The channel count of its groups is a multiple of 4.
pub fn lower<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
    tile_shape: TileShape,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let packed = required_panels(&scope, node, conv, tile_shape)?;
    lower_panels(scope, group, &sizes, packed)
}

/// Lowers a convolution whose filter is stored in these panels.
pub fn lower_panels<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    sizes: &ConvSizes,
    packed: PackedWeight,
) -> Result<LoweredKernel<'a>> {
    let tiling = TiledProduct {
        batch: vec![sizes.batch.clone(), sizes.groups.clone()],
        rows: sizes.positions.clone(),
        row_shape: sizes.space.clone(),
        columns: sizes.outputs.clone(),
        taps: sizes.taps.clone(),
        k_size: sizes.channels.clone(),
        left: LeftFactor::KElements(&|scope, [batch_indices, position], (taps, steps)| {
            let (first, guard) = steps
                .first()
                .cloned()
                .unwrap_or_else(|| (Index::zero(), None));
            let channel = batch_indices[1].scale(&sizes.channels).add(&first);
            let image_and_vec4 = [batch_indices[0].clone(), channel.div(&Dim::from(VEC4_LEN))];
            load_input(scope, sizes, image_and_vec4, guard, position, taps)
        }),
        right: RightFactor::Panels(sizes.filter, packed, &|batch_indices| {
            batch_indices[1].clone()
        }),
        write: &|scope, [batch_indices, position], first, vector| {
            let channel = batch_indices[1].scale(&sizes.outputs).add(first);
            let vec4_coordinates = [
                &[batch_indices[0].clone(), channel.div(&Dim::from(VEC4_LEN))],
                position,
            ];
            write_vec4(scope, group, sizes, &vec4_coordinates.concat(), vector)
        },
        epilogue_cost: group.epilogue_cost(scope.graph),
        writes_whole_vec4: true,
    };
    lower_tiles(scope, &tiling)
}

/// Loads four input channels under a tap of a position. `image_and_vec4` is the image and the vec4 of channels. Gives
/// zeros outside of the input, and where a guard is false.
pub fn load_input(
    scope: &mut KernelScope,
    sizes: &ConvSizes,
    image_and_vec4: [Index; 2],
    guard: Option<Expr>,
    position: &[Index],
    taps: &[Index],
) -> Result<Expr> {
    let (vec4_coordinates, inside) = sizes.input_position(scope, image_and_vec4, taps, position);
    let vec4_coordinates = vec4_coordinates.coordinates(&[]);
    let inside = match (inside, guard) {
        (Some(inside), guard) => Some(scope.pool.and(guard, inside)),
        (None, guard) => guard,
    };
    load_channels(scope, sizes.x, &vec4_coordinates, inside)
}

/// Loads or computes four channels of an image. Gives zeros where `inside` is false. The channel coordinate counts vec4s.
pub fn load_channels(
    scope: &mut KernelScope,
    image: ValueId,
    vec4_coordinates: &[Index],
    inside: Option<Expr>,
) -> Result<Expr> {
    let vector = match scope.materialized[image.index()] {
        true => scope.load_vec4(image, CHANNEL_AXIS, vec4_coordinates, inside)?,
        false => compute_input(scope, image, vec4_coordinates, inside)?,
    };
    Ok(match inside {
        Some(inside) => {
            let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
            scope.pool.select(inside, vector, zero)
        }
        None => vector,
    })
}

/// Computes four channels of an image that is not materialised.
fn compute_input(
    scope: &mut KernelScope,
    image: ValueId,
    vec4_coordinates: &[Index],
    inside: Option<Expr>,
) -> Result<Expr> {
    let neighbours = vec4::neighbours(vec4_coordinates, CHANNEL_AXIS);
    let components = vec4::for_each_neighbour(scope, neighbours, |scope, _, coordinates| {
        scope.element(image, &Position::from_coordinates(coordinates), inside)
    })?;
    Ok(vec4::build_vec4(
        &mut scope.pool,
        &components,
        WgslType::F32x4,
    ))
}

/// Writes four channels of a position with the epilogue. The channel coordinate of `vec4_coordinates` counts vec4s.
pub fn write_vec4(
    scope: &mut KernelScope,
    group: &Group,
    sizes: &ConvSizes,
    vec4_coordinates: &[Index],
    vector: Expr,
) -> Result<Vec<Statement>> {
    let neighbours = vec4::neighbours(vec4_coordinates, CHANNEL_AXIS);
    let parts = vec4::for_each_neighbour(scope, neighbours, |scope, component, position| {
        let number = vec4::component(&mut scope.pool, vector, component, WgslType::F32);
        epilogue(
            scope,
            group.root,
            sizes.result,
            number,
            &Position::from_coordinates(position),
        )
    })?;
    if let Some(store) = vec4::store_vec4(scope, group.root, &parts)? {
        return Ok(vec![store]);
    }
    let channels = &sizes.groups * &sizes.outputs;
    let mut statements = Vec::new();
    for ((number, position), coordinates) in parts
        .iter()
        .zip(vec4::neighbours(vec4_coordinates, CHANNEL_AXIS))
    {
        let store = element::write(scope, group.root, *number, position)?;
        statements.extend(bounds_guard(
            scope,
            &coordinates[CHANNEL_AXIS],
            &channels,
            vec![store],
        ));
    }
    Ok(statements)
}

/// Returns the panels of a filter; an error if it has none.
pub fn required_panels(
    scope: &KernelScope,
    node: &Node,
    conv: &Conv,
    tile_shape: TileShape,
) -> Result<PackedWeight> {
    filter_panels(scope.graph, scope.capabilities, node, conv, tile_shape)
        .ok_or_else(|| Error::internal("the filter of a convolution has no panels"))
}

/// Returns the panels of a filter for tiles of a shape. `None` if the filter is not a weight, or subgroups are not
/// vector lanes. Groups of few channels get panels for the kernel of `grouped`, which has no tiles.
pub fn filter_panels(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    conv: &Conv,
    tile_shape: TileShape,
) -> Option<PackedWeight> {
    let lanes = capabilities.simd_lanes()?;
    let sizes = ConvSizes::new(graph, node, conv).ok()?;
    let is_weight = matches!(graph.value(sizes.filter).definition, Definition::Weight(_));
    let constant = |size: &Dim| size.as_const().and_then(|size| usize::try_from(size).ok());
    let taps: Option<Vec<usize>> = sizes.taps.iter().map(constant).collect();
    let (taps, [Some(groups), Some(channels), Some(outputs)]) = (
        taps?,
        [&sizes.groups, &sizes.channels, &sizes.outputs].map(constant),
    ) else {
        return None;
    };
    let range = |count, stride| StridedRange { count, stride };
    let tap_count: usize = taps.iter().product();
    let mut k_ranges = vec![range(channels, tap_count)];
    let mut stride = 1;
    for tap in taps.iter().rev() {
        k_ranges.insert(0, range(*tap, stride));
        stride *= tap;
    }
    let filter_elements = channels * tap_count;
    if has_grouped_kernel(graph, node, conv) {
        let panels = tap_row_panels(k_ranges, range(groups * outputs, filter_elements));
        return is_weight.then_some(PackedWeight {
            panels,
            bands: 1,
            rows: 1,
        });
    }
    let group_range = range(groups, outputs * filter_elements);
    let columns = range(outputs, filter_elements);
    is_weight.then(|| tile_shape.pack(lanes, group_range, k_ranges, columns))
}

/// Describes the convolution as a product with a weight, for the choice of tile shapes. `text` is the first part of the
/// kernel's key.
pub fn weight_product(
    scope: &KernelScope,
    node: &Node,
    conv: &Conv,
    text: String,
) -> Option<WeightProduct> {
    let graph = scope.graph;
    let sizes = ConvSizes::new(graph, node, conv).ok()?;
    let packed = filter_panels(graph, scope.capabilities, node, conv, TileShape::DEFAULT)?;
    let matrices = &sizes.batch * &sizes.groups;
    let left = match uses_window_kernel(scope, &sizes) {
        true => LeftLayout::ContiguousTaps,
        false => LeftLayout::Contiguous,
    };
    // A vec4 of channels that is not full has fewer K elements.
    let steps = packed
        .panels
        .k_ranges
        .last()
        .map_or(0, |range| range.count.min(VEC4_LEN));
    Some(WeightProduct {
        kernel_key: format!("{text} {left:?} {steps}"),
        left_layout: left,
        sizes: [&matrices, &sizes.positions].map(|size| example_size(graph, size)),
        panels: packed.panels,
        enclosing: None,
    })
}

/// Returns whether the convolution gets the kernel for windows of any size. Pointwise convolutions get it too in graphs
/// with several window convolutions: the driver compiles one kernel less, but they run longer. A convolution whose
/// input is not materialised has a separate kernel in any case.
pub fn uses_window_kernel(scope: &KernelScope, sizes: &ConvSizes) -> bool {
    let graph = scope.graph;
    let is_window_conv = |node: &&Node| match &node.op {
        Op::Primitive(Primitive::Conv(conv)) if conv.groups == 1 => {
            let sizes = ConvSizes::new(graph, node, conv);
            sizes.is_ok_and(|sizes| sizes.is_undilated() && !sizes.is_pointwise())
        }
        _ => false,
    };
    let has_other_windows = || {
        let is_materialized = scope.materialized[sizes.x.index()];
        is_materialized && graph.nodes.iter().filter(is_window_conv).nth(1).is_some()
    };
    sizes.is_undilated() && (!sizes.is_pointwise() || has_other_windows())
}

/// Builds the panels of a filter with few input channels: a row of texels for each tap of each channel, padded so that
/// the width is not a power of two.
fn tap_row_panels(k_ranges: Vec<StridedRange>, columns: StridedRange) -> Panels {
    let width = non_power_of_two(columns.count.div_ceil(VEC4_LEN)) * VEC4_LEN;
    Panels {
        batch: StridedRange {
            count: 1,
            stride: 0,
        },
        k_ranges,
        columns,
        k_block: 1,
        width,
        strip: width,
        winograd_tile: None,
    }
}

/// Returns whether the convolution is depthwise with a channel count that is a multiple of 4, or has groups of so few
/// channels that tiles would be mostly padding.
pub fn has_grouped_kernel(graph: &Graph, node: &Node, conv: &Conv) -> bool {
    ConvSizes::new(graph, node, conv).is_ok_and(|sizes| {
        let (channels, outputs) = (&sizes.channels, &sizes.outputs);
        let is_few = |size: i64| conv.groups > 1 && size <= MAX_GROUP_CHANNELS;
        let are_few = is_multiple_of_4(channels) && channels.as_const().is_some_and(is_few);
        channels == outputs && (are_few || channels.is(1) && is_multiple_of_4(&sizes.groups))
    })
}
