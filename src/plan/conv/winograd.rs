//! Winograd convolutions of 3×3 taps, for devices whose subgroups are the lanes of a CPU vector: see
//! [`winograd`](crate::kernel::winograd).
//!
//! One kernel with three stages: input transform, matrix products, output transform. A workgroup computes all stages of
//! its own tiles, so that it waits for no other workgroup. Between the stages it stores intermediate results in memory,
//! which no other workgroup reads. It takes several parts of the tiles, one after the other, and reuses that memory.

pub mod filter_gradient;
mod partition;
mod scratch;
mod transform;
mod workgroup;

use self::scratch::barrier;
use self::workgroup::WinogradWorkgroup;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::layout::StridedRange;
use crate::kernel::winograd::{OutputTile, TAPS};
use crate::kernel::work::Work;
use crate::op::Conv;
use crate::plan::conv::ConvSizes;
use crate::plan::cost::example_size;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::is_multiple_of_4;
use crate::plan::group::Group;
use crate::plan::kernel::LoweredKernel;
use crate::plan::kernel::work::epilogue_work;
use crate::plan::product::tile::{self, LeftLayout, PackedWeight, TileShape, WeightProduct};

const TEMPLATE: &str = include_str!("../../../shaders/winograd.wgsl");

/// Bytes of an `f32`.
const F32_BYTES: i64 = size_of::<f32>() as i64;

/// Returns the panels of a transformed filter for products in tiles of shape `tile_shape`. `None` where Winograd does not
/// apply: other taps, strides or dilation, channel counts that are not multiples of 4, or more channels than a
/// workgroup can sum over.
pub fn filter_panels(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    conv: &Conv,
    output_tile: OutputTile,
    tile_shape: TileShape,
) -> Option<PackedWeight> {
    let lanes = capabilities
        .simd_lanes()
        .filter(|_| capabilities.subgroup_barriers)?;
    let sizes = ConvSizes::new(graph, node, conv).ok()?;
    let is_dense_2d = conv.axes.len() == 2
        && conv
            .axes
            .iter()
            .all(|axis| [axis.stride, axis.dilation, axis.base_dilation] == [1; 3]);
    let has_taps = sizes.taps.iter().all(|size| size.is(TAPS as i64));
    let are_multiples_of_4 = [&sizes.channels, &sizes.outputs]
        .into_iter()
        .all(is_multiple_of_4);
    if !is_dense_2d || !has_taps || !are_multiples_of_4 {
        return None;
    }
    let constant = |size: &Dim| usize::try_from(size.as_const()?).ok();
    let (groups, channels) = (constant(&sizes.groups)?, constant(&sizes.channels)?);
    let outputs = constant(&sizes.outputs)?;
    if !partition::is_within_iterations(output_tile, channels) {
        return None;
    }
    let range = |count, stride| StridedRange { count, stride };
    let matrices = range(output_tile.matrices() * groups, outputs * channels);
    let (k_ranges, columns) = (vec![range(channels, 1)], range(outputs, channels));
    let mut packed = tile_shape.pack(lanes, matrices, k_ranges, columns);
    packed.panels.winograd_tile = Some(output_tile);
    Some(packed)
}

/// Describes the products of the second stage, for the choice of tile shapes. `text` is the first part of the kernel's
/// key.
pub fn weight_product(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    conv: &Conv,
    output_tile: OutputTile,
    text: &str,
) -> Option<WeightProduct> {
    let lanes = capabilities.simd_lanes()?;
    let packed = filter_panels(
        graph,
        capabilities,
        node,
        conv,
        output_tile,
        TileShape::DEFAULT,
    )?;
    let sizes = ConvSizes::new(graph, node, conv).ok()?;
    let tiles = Dim::product(&tile_grid(
        &graph.ty(*node.results.first()?).shape,
        output_tile,
    )?);
    let sizes_of_work = [&sizes.groups, &tiles, &sizes.channels, &sizes.outputs];
    let sizes_of_work = sizes_of_work.map(|size| example_size(graph, size));
    Some(WeightProduct {
        kernel_key: format!("{text} by tiles of {}", output_tile.size()),
        left_layout: LeftLayout::Contiguous,
        sizes: [packed.panels.batch.count, sizes_of_work[1]],
        panels: packed.panels,
        enclosing: Some(partition::enclosing_kernel(
            output_tile,
            lanes,
            sizes_of_work,
            capabilities.max_binding_size,
        )),
    })
}

/// Returns the number of images, and of tiles along both axes, for a convolution with a result of this shape. `None` if
/// the result is not two-dimensional.
pub fn tile_grid(result: &[Dim], output_tile: OutputTile) -> Option<[Dim; 3]> {
    let [batch, _, height, width] = result else {
        return None;
    };
    let tiles_along = |size: &Dim| size.ceil_div(&Dim::from(output_tile.size()));
    Some([batch.clone(), tiles_along(height), tiles_along(width)])
}

/// Lowers a convolution with its epilogue.
pub fn lower<'a>(
    scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
    output_tile: OutputTile,
    tile_shape: TileShape,
) -> Result<LoweredKernel<'a>> {
    let packed = filter_panels(
        scope.graph,
        scope.capabilities,
        node,
        conv,
        output_tile,
        tile_shape,
    );
    let missing = || Error::internal("the filter of a Winograd convolution has no panels");
    let packed = packed.ok_or_else(missing)?;
    lower_panels(scope, group, node, conv, output_tile, packed)
}

/// Lowers a convolution whose transformed filter is stored in these panels.
pub fn lower_panels<'a>(
    mut scope: KernelScope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
    output_tile: OutputTile,
    packed: PackedWeight,
) -> Result<LoweredKernel<'a>> {
    let sizes = ConvSizes::new(scope.graph, node, conv)?;
    let bands = packed.bands;
    let workgroup = WinogradWorkgroup::new(&mut scope, &sizes, output_tile, packed)?;
    let work = work(&scope, group, &sizes, output_tile, &workgroup)?;
    let (count, template_values) = (workgroup.count.clone(), tile::holes(workgroup.lanes, bands));
    let mut statements = vec![workgroup.surplus.clone()];
    statements.extend(workgroup.for_each_part(&mut scope, |scope, workgroup| {
        // The input of tiles is read as 64-bit words where that is faster. The factors of products are not.
        scope.reads_u64 = true;
        let mut statements = workgroup.transform_input(scope)?;
        scope.reads_u64 = false;
        statements.push(barrier());
        statements.extend(workgroup.multiply(scope)?);
        statements.push(barrier());
        statements.extend(workgroup.transform_output(scope, group)?);
        Ok(statements)
    })?);
    let mut lowered = LoweredKernel::of_workgroups(scope, TEMPLATE, statements, count);
    lowered.template_values = template_values;
    lowered.has_dynamic_schedule = true;
    Ok(LoweredKernel {
        title: Some("winograd"),
        work: Some(work),
        ..lowered
    })
}

/// Counts the operations and bytes of the kernel: transforms, products and epilogue, and the memory that it shares with
/// other kernels.
fn work(
    scope: &KernelScope,
    group: &Group,
    sizes: &ConvSizes,
    output_tile: OutputTile,
    workgroup: &WinogradWorkgroup,
) -> Result<Work> {
    let epilogue = epilogue_work(scope, group)?;
    let filters = &sizes.groups * &sizes.channels * &sizes.outputs * output_tile.matrices() as i64;
    let products = &filters * workgroup.tile_count() * 2;
    Ok(Work {
        operations: workgroup.transform_operations() + products + epilogue.operations,
        bytes: (scope.graph.ty(sizes.x).numel() + filters) * F32_BYTES + epilogue.bytes,
        ..Work::default()
    })
}
