//! Division of a Winograd convolution among workgroups: each computes some output channels of some tiles. It transforms
//! the input of its tiles itself, so that it waits for no other workgroup. It takes several parts of the tiles, one after the
//! other, with the same memory for intermediate results, which then stays in the caches of a processor.

use crate::dim::Dim;
use crate::kernel::winograd::OutputTile;
use crate::plan::element::vec4::VEC4_LEN;
use crate::plan::kernel::ceil_div;
use crate::plan::product::tile::{EnclosingKernel, TileShape};

/// Workgroups that keep a rasteriser's threads busy. With more, more workgroups would transform the same input tiles.
const MIN_WORKGROUPS: usize = 2;
/// Most workgroups, unless their loops would grow too long: enough to occupy the threads evenly, and few enough that each
/// uses its memory several times.
const MAX_WORKGROUPS: usize = 16;
/// Most iterations of the loops over matrices, panels and K that an invocation runs. Mesa's rasteriser silently ends
/// loops once an invocation has run 65,535 iterations; the difference is left for other loops.
pub(super) const MAX_LOOP_ITERATIONS: usize = 50_000;
/// Iterations of one product besides those of its loop over K.
const EXTRA_ITERATIONS_PER_PRODUCT: usize = 8;

/// The share of the work that each workgroup gets.
pub(super) struct WorkPartition {
    /// Number of parts into which the tiles are divided.
    pub(super) tile_parts: Dim,
    /// Number of parts that a workgroup takes.
    pub(super) workgroup_parts: Dim,
    /// Number of workgroups that share the parts.
    pub(super) part_workgroups: Dim,
    /// Number of blocks into which the output channels of a group are divided.
    pub(super) channel_blocks: Dim,
    /// Filter panels of a block.
    pub(super) block_panels: Dim,
    /// Output channels of a block, including padding.
    pub(super) block_columns: Dim,
    /// Filter panels of all output channels of a group.
    pub(super) group_panels: Dim,
}

impl WorkPartition {
    /// Divides the work for products in tiles of shape `tile_shape`. The sizes are the number of groups, the Winograd tiles
    /// of all images, and the input and output channels of a group.
    pub(super) fn new(
        output_tile: OutputTile,
        tile_shape: TileShape,
        lanes: usize,
        [groups, tiles, channels, outputs]: [&Dim; 4],
    ) -> WorkPartition {
        let tile_parts = ceil_div(tiles, tile_shape.height());
        let group_panels = ceil_div(outputs, tile_shape.width(lanes));
        let workgroups = (groups * &tile_parts).maximum(&Dim::ONE);
        let wanted_blocks = Dim::from(MIN_WORKGROUPS).ceil_div(&workgroups);
        let iterations =
            ceil_div(channels, tile_shape.k_block) + EXTRA_ITERATIONS_PER_PRODUCT as i64;
        let max_panels = Dim::from(MAX_LOOP_ITERATIONS)
            .floor_div(&(iterations * Dim::from(output_tile.matrices())));
        let block_panels = group_panels.ceil_div(&wanted_blocks).minimum(&max_panels);
        let channel_blocks = group_panels.ceil_div(&block_panels);
        let max_workgroups = Dim::from(MAX_WORKGROUPS).floor_div(&(groups * &channel_blocks));
        let workgroup_parts = tile_parts
            .ceil_div(&max_workgroups.maximum(&Dim::ONE))
            .minimum(&max_panels.floor_div(&block_panels))
            .maximum(&Dim::ONE);
        WorkPartition {
            channel_blocks,
            block_columns: &block_panels * tile_shape.width(lanes) as i64,
            part_workgroups: tile_parts.ceil_div(&workgroup_parts),
            workgroup_parts,
            tile_parts,
            block_panels,
            group_panels,
        }
    }
}

/// Returns whether a workgroup stays within the iteration limit with `channels` channels.
pub(super) fn is_within_iterations(output_tile: OutputTile, channels: usize) -> bool {
    output_tile.matrices() * (channels.div_ceil(VEC4_LEN) + EXTRA_ITERATIONS_PER_PRODUCT)
        <= MAX_LOOP_ITERATIONS
}

/// Costs of the transform stages: input and output.
struct TransformCost {
    /// Cycles to transform four input channels of as many tiles as a workgroup has invocations, on vectors of sixteen
    /// numbers.
    input_cycles: usize,
    /// Cycles to transform four output channels of as many tiles, on the same vectors.
    output_cycles: usize,
    /// Compile time of both transforms in the driver, in milliseconds.
    compile_ms: u64,
}

/// Cycles to store four channels of a sum, on vectors of sixteen numbers.
const STORE_SUM_CYCLES: usize = 300;

impl TransformCost {
    fn of(output_tile: OutputTile) -> TransformCost {
        match output_tile {
            OutputTile::Two => TransformCost {
                input_cycles: 4_500,
                output_cycles: 3_500,
                compile_ms: 250,
            },
            OutputTile::Four => TransformCost {
                input_cycles: 10_500,
                output_cycles: 7_500,
                compile_ms: 600,
            },
        }
    }
}

/// Describes the kernel around the products, for a number of lanes. The sizes are those of [`WorkPartition::new`].
/// `max_binding_size` is the largest binding of the device in bytes.
pub(super) fn enclosing_kernel(
    output_tile: OutputTile,
    lanes: usize,
    sizes: [usize; 4],
    max_binding_size: u64,
) -> EnclosingKernel {
    EnclosingKernel {
        run_cycles: Box::new(move |tile_shape, iteration_cycles| {
            let fits = scratch_bytes(output_tile, tile_shape, lanes, sizes) <= max_binding_size;
            fits.then(|| run_cycles(output_tile, tile_shape, lanes, sizes, iteration_cycles))
        }),
        compile_ms: TransformCost::of(output_tile).compile_ms,
    }
}

/// Returns the bytes of the larger one of the two intermediate results of all workgroups, with products in tiles of a
/// shape.
fn scratch_bytes(
    output_tile: OutputTile,
    tile_shape: TileShape,
    lanes: usize,
    sizes: [usize; 4],
) -> u64 {
    let dims = sizes.map(Dim::from);
    let partition = WorkPartition::new(output_tile, tile_shape, lanes, dims.each_ref());
    let [groups, _, channels, _] = sizes;
    let [workgroups, blocks, columns] = [
        &partition.part_workgroups,
        &partition.channel_blocks,
        &partition.block_columns,
    ]
    .map(constant_or_one);
    let channels = channels.next_multiple_of(VEC4_LEN).max(columns);
    let numbers =
        groups * workgroups * blocks * output_tile.matrices() * tile_shape.height() * channels;
    (numbers * size_of::<f32>()) as u64
}

/// Returns the cycles of a run with products in tiles of a shape. `iteration_cycles` is the cost of one iteration over
/// K of a product.
fn run_cycles(
    output_tile: OutputTile,
    tile_shape: TileShape,
    lanes: usize,
    sizes: [usize; 4],
    iteration_cycles: usize,
) -> u64 {
    let dims = sizes.map(Dim::from);
    let partition = WorkPartition::new(output_tile, tile_shape, lanes, dims.each_ref());
    let [parts, blocks, panels] = [
        &partition.tile_parts,
        &partition.channel_blocks,
        &partition.block_panels,
    ]
    .map(constant_or_one);
    let [groups, _, channels, _] = sizes;
    let transform_trips =
        |channels: usize| (tile_shape.height() * channels.div_ceil(VEC4_LEN)).div_ceil(lanes);
    let product = channels.div_ceil(tile_shape.k_block) * iteration_cycles
        + tile_shape.rows * tile_shape.column_vec4s * STORE_SUM_CYCLES;
    let TransformCost {
        input_cycles,
        output_cycles,
        ..
    } = TransformCost::of(output_tile);
    let transforms = transform_trips(channels) * input_cycles
        + transform_trips(panels * tile_shape.width(lanes)) * output_cycles;
    let cycles = (output_tile.matrices() * panels * product + transforms) * lanes / 16;
    // A thread runs whole workgroups: an incomplete round of workgroups takes as long as a full one.
    ((groups * parts * blocks).next_multiple_of(MIN_WORKGROUPS) * cycles) as u64
}

/// Returns a constant size as a number; 1 if it is symbolic.
fn constant_or_one(size: &Dim) -> usize {
    let number = size.as_const().and_then(|size| usize::try_from(size).ok());
    number.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_stay_within_the_iteration_limit_of_the_driver() {
        let tile_shape = TileShape {
            bands: 4,
            rows: 13,
            ..TileShape::DEFAULT
        };
        for channels in [4, 64, 1024, 1280, 2560, 5000] {
            for (output_tile, tiles) in [(OutputTile::Four, 16), (OutputTile::Two, 4096)] {
                let sizes = [1, tiles, channels, channels].map(Dim::from);
                let partition = WorkPartition::new(output_tile, tile_shape, 16, sizes.each_ref());
                let [parts, workgroup_parts, blocks, panels, group_panels] = [
                    &partition.tile_parts,
                    &partition.workgroup_parts,
                    &partition.channel_blocks,
                    &partition.block_panels,
                    &partition.group_panels,
                ]
                .map(constant_or_one);
                let iterations = channels / tile_shape.k_block;
                assert!(is_within_iterations(output_tile, channels));
                assert!(
                    workgroup_parts
                        * output_tile.matrices()
                        * panels
                        * (iterations + EXTRA_ITERATIONS_PER_PRODUCT)
                        <= MAX_LOOP_ITERATIONS
                );
                assert!(blocks * panels >= group_panels && (blocks - 1) * panels < group_panels);
                assert!(
                    parts * blocks >= MIN_WORKGROUPS.min(group_panels),
                    "{channels} {parts} {blocks}"
                );
            }
        }
    }
}
