//! Convolutions as implicit matrix products, for devices whose subgroups are the lanes of a CPU vector. Rows are
//! positions, columns are output channels, and the input lies as vec4s of channels.

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
    Extent, LeftLayout, PackedWeight, RightFactor, TiledProduct, WeightProduct, lower_tiles,
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
    extent: Extent,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let packed = required_panels(&scope, node, conv, extent)?;
    lower_panels(scope, group, &sizes, packed)
}

/// Lowers a convolution whose filter lies in given panels.
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
        left: &|scope, [outer, position], (taps, steps)| {
            let (first, guard) = steps
                .first()
                .cloned()
                .unwrap_or_else(|| (Index::zero(), None));
            let channel = outer[1].scale(&sizes.channels).add(&first);
            let place = [outer[0].clone(), channel.div(&Dim::from(VEC4_LEN))];
            load_input(scope, sizes, place, guard, position, taps)
        },
        right: RightFactor::Panels(sizes.filter, packed, &|outer| outer[1].clone()),
        write: &|scope, [outer, position], first, vector| {
            let channel = outer[1].scale(&sizes.outputs).add(first);
            let quad = [
                &[outer[0].clone(), channel.div(&Dim::from(VEC4_LEN))],
                position,
            ];
            write_vec4(scope, group, sizes, &quad.concat(), vector)
        },
        epilogue_cost: group.epilogue_cost(scope.graph),
        writes_whole_vec4: true,
    };
    lower_tiles(scope, &tiling)
}

/// Loads four input channels under a tap of a position, by image and vec4 of channels. Gives zeros outside of the input,
/// and where a guard is false.
pub fn load_input(
    scope: &mut KernelScope,
    sizes: &ConvSizes,
    place: [Index; 2],
    guard: Option<Expr>,
    position: &[Index],
    taps: &[Index],
) -> Result<Expr> {
    let (quad, inside) = sizes.input_position(scope, place, taps, position);
    let quad = quad.coordinates(&[]);
    let inside = match (inside, guard) {
        (Some(inside), guard) => Some(scope.pool.and(guard, inside)),
        (None, guard) => guard,
    };
    let vector = match scope.stored[sizes.x.index()] {
        true => scope.load_vec4(sizes.x, CHANNEL_AXIS, &quad, inside)?,
        false => compute_input(scope, sizes.x, &quad, inside)?,
    };
    Ok(match inside {
        Some(inside) => {
            let zero = scope.pool.call("vec4<f32>()", WgslType::F32x4, &[]);
            scope.pool.select(inside, vector, zero)
        }
        None => vector,
    })
}

/// Computes four channels of an image that the kernel does not read from memory.
fn compute_input(
    scope: &mut KernelScope,
    image: ValueId,
    quad: &[Index],
    inside: Option<Expr>,
) -> Result<Expr> {
    let neighbours = vec4::neighbours(quad, CHANNEL_AXIS);
    let parts = vec4::for_each_neighbour(scope, neighbours, |scope, _, at| {
        scope.element(image, &Position::from_coordinates(at), inside)
    })?;
    Ok(vec4::build_vec4(&mut scope.pool, &parts, WgslType::F32x4))
}

/// Writes four channels of a position with the epilogue.
pub fn write_vec4(
    scope: &mut KernelScope,
    group: &Group,
    sizes: &ConvSizes,
    quad: &[Index],
    vector: Expr,
) -> Result<Vec<Statement>> {
    let neighbours = vec4::neighbours(quad, CHANNEL_AXIS);
    let parts = vec4::for_each_neighbour(scope, neighbours, |scope, part, at| {
        let number = vec4::component(&mut scope.pool, vector, part, WgslType::F32);
        epilogue(
            scope,
            group,
            sizes.result,
            number,
            &Position::from_coordinates(at),
        )
    })?;
    if let Some(store) = vec4::store_vec4(scope, group.root, &parts)? {
        return Ok(vec![store]);
    }
    let channels = &sizes.groups * &sizes.outputs;
    let mut statements = Vec::new();
    for ((number, at), place) in parts.iter().zip(vec4::neighbours(quad, CHANNEL_AXIS)) {
        let store = element::write(scope, group.root, *number, at)?;
        statements.extend(bounds_guard(
            scope,
            &place[CHANNEL_AXIS],
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
    extent: Extent,
) -> Result<PackedWeight> {
    filter_panels(scope.graph, scope.capabilities, node, conv, extent)
        .ok_or_else(|| Error::internal("the filter of a convolution has no panels"))
}

/// Returns the panels of a filter for tiles of a shape. `None` if the filter is not a weight, or subgroups are not
/// vector lanes. Groups of few channels get panels for the kernel of `grouped`, which has no tiles.
pub fn filter_panels(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    conv: &Conv,
    extent: Extent,
) -> Option<PackedWeight> {
    let lanes = capabilities.simd_lanes()?;
    let sizes = ConvSizes::new(graph, node, conv).ok()?;
    let is_weight = matches!(graph.value(sizes.filter).definition, Definition::Weight(_));
    let known = |size: &Dim| size.as_const().and_then(|size| usize::try_from(size).ok());
    let taps: Option<Vec<usize>> = sizes.taps.iter().map(known).collect();
    let (taps, [Some(groups), Some(channels), Some(outputs)]) = (
        taps?,
        [&sizes.groups, &sizes.channels, &sizes.outputs].map(known),
    ) else {
        return None;
    };
    let run = |count, stride| StridedRange { count, stride };
    let tap_count: usize = taps.iter().product();
    let mut depth = vec![run(channels, tap_count)];
    let mut stride = 1;
    for tap in taps.iter().rev() {
        depth.insert(0, run(*tap, stride));
        stride *= tap;
    }
    let filter_elements = channels * tap_count;
    if has_grouped_kernel(graph, node, conv) {
        let panels = tap_row_panels(depth, run(groups * outputs, filter_elements));
        return is_weight.then_some(PackedWeight {
            panels,
            bands: 1,
            rows: 1,
        });
    }
    let outer = run(groups, outputs * filter_elements);
    let columns = run(outputs, filter_elements);
    is_weight.then(|| extent.pack(lanes, outer, depth, columns))
}

/// Describes the convolution as a product with a weight, for the choice of tile shapes. `text` is the part of the
/// kernel's key that the caller knows.
pub fn weight_product(
    scope: &KernelScope,
    node: &Node,
    conv: &Conv,
    text: String,
) -> Option<WeightProduct> {
    let graph = scope.graph;
    let sizes = ConvSizes::new(graph, node, conv).ok()?;
    let packed = filter_panels(graph, scope.capabilities, node, conv, Extent::DEFAULT)?;
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
        .map_or(0, |run| run.count.min(VEC4_LEN));
    Some(WeightProduct {
        kernel_key: format!("{text} {left:?} {steps}"),
        left_layout: left,
        sizes: [&matrices, &sizes.positions].map(|size| example_size(graph, size)),
        panels: packed.panels,
        enclosing: None,
    })
}

/// Returns whether the convolution gets the kernel for windows of any size. Convolutions of a single tap get it too where
/// a graph has several window convolutions: the driver compiles one kernel less, and they take a few per cent longer. A
/// convolution that computes its own input has a separate kernel in any case.
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
        let is_read = scope.stored[sizes.x.index()];
        is_read && graph.nodes.iter().filter(is_window_conv).nth(1).is_some()
    };
    sizes.is_undilated() && (!sizes.is_pointwise() || has_other_windows())
}

/// Builds the panels of a filter with few input channels: a row of texels for each tap of each channel, padded so that
/// the width is not a power of two.
fn tap_row_panels(depth: Vec<StridedRange>, columns: StridedRange) -> Panels {
    let width = non_power_of_two(columns.count.div_ceil(VEC4_LEN)) * VEC4_LEN;
    Panels {
        batch: StridedRange {
            count: 1,
            stride: 0,
        },
        k_ranges: depth,
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
