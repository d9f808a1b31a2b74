//! How workgroups divide a Winograd convolution: each computes some output channels of some tiles. It transforms the
//! input of its tiles itself, so that it waits for no other workgroup.

use crate::dim::Dim;
use crate::kernel::winograd::OutputTile;
use crate::pass::plan::element::quad::QUAD;
use crate::pass::plan::kernel::pieces;
use crate::pass::plan::product::tile::{Extent, Whole};

/// Workgroups that keep a rasteriser's threads busy. With more, input tiles would be transformed more often.
const ENOUGH: usize = 2;
/// Most iterations of all loops of an invocation around a product. Mesa's rasteriser silently ends loops once an
/// invocation has gone through 65,535 iterations; the rest is left for other loops.
const ITERATIONS: usize = 50_000;
/// Iterations of one product beside its rounds.
const BESIDE: usize = 8;

/// The share of the work that each workgroup gets.
pub(super) struct Share {
    /// Parts of the tiles.
    pub(super) tile_parts: Dim,
    /// Blocks of the output channels.
    pub(super) channel_blocks: Dim,
    /// Filter panels of a block.
    pub(super) block_panels: Dim,
    /// Output channels of a block, including padding.
    pub(super) block_columns: Dim,
    /// Filter panels of all output channels of a group.
    pub(super) group_panels: Dim,
}

impl Share {
    /// Divides the work by tiles of a shape. The sizes are groups, tiles, channels and output channels.
    pub(super) fn new(
        places: OutputTile,
        (extent, lanes): (Extent, usize),
        [groups, tiles, channels, outputs]: [&Dim; 4],
    ) -> Share {
        let tile_parts = pieces(tiles, extent.height());
        let group_panels = pieces(outputs, extent.width(lanes));
        let workgroups = (groups * &tile_parts).maximum(&Dim::ONE);
        let wanted = Dim::from(ENOUGH).ceil_div(&workgroups);
        let rounds = pieces(channels, extent.round) + BESIDE as i64;
        let most = Dim::from(ITERATIONS).floor_div(&(rounds * Dim::from(places.matrices())));
        let block_panels = group_panels.ceil_div(&wanted).minimum(&most);
        Share {
            channel_blocks: group_panels.ceil_div(&block_panels),
            block_columns: &block_panels * extent.width(lanes) as i64,
            tile_parts,
            block_panels,
            group_panels,
        }
    }
}

/// Returns whether a workgroup stays within `ITERATIONS` with so many channels.
pub(super) fn is_within_iterations(output_tile: OutputTile, channels: usize) -> bool {
    output_tile.matrices() * (channels.div_ceil(QUAD) + BESIDE) <= ITERATIONS
}

/// Costs of the transform stages.
struct Transforms {
    /// Cycles to transform four input channels of as many tiles as there are invocations, in vectors of sixteen numbers.
    input_cycles: usize,
    /// Cycles to transform their output, in the same unit.
    output_cycles: usize,
    /// Compile time of both transforms in the driver, in milliseconds.
    compile_ms: u64,
}

/// Cycles to store four channels of a sum, in vectors of sixteen numbers.
const KEEP: usize = 300;

impl Transforms {
    fn of(places: OutputTile) -> Transforms {
        match places {
            OutputTile::Two => Transforms {
                input_cycles: 4_500,
                output_cycles: 3_500,
                compile_ms: 250,
            },
            OutputTile::Four => Transforms {
                input_cycles: 10_500,
                output_cycles: 7_500,
                compile_ms: 600,
            },
        }
    }
}

/// Describes the kernel around the products, for a number of lanes. The sizes are groups, tiles, channels and output
/// channels. `bound` is the largest binding of the device in bytes.
pub(super) fn enclosing_kernel(
    (output_tile, lanes): (OutputTile, usize),
    sizes: [usize; 4],
    bound: u64,
) -> Whole {
    Whole {
        run_cycles: Box::new(move |extent, round| {
            let fits = scratch_bytes(output_tile, (extent, lanes), sizes) <= bound;
            fits.then(|| run_cycles(output_tile, (extent, lanes), sizes, round))
        }),
        compile_ms: Transforms::of(output_tile).compile_ms,
    }
}

/// Returns the bytes of the larger one of the two intermediate results of all workgroups, for tiles of a shape.
fn scratch_bytes(output_tile: OutputTile, (extent, lanes): (Extent, usize), sizes: [usize; 4]) -> u64 {
    let dims = sizes.map(Dim::from);
    let share = Share::new(output_tile, (extent, lanes), dims.each_ref());
    let [groups, _, channels, _] = sizes;
    let [parts, blocks, columns] = [&share.tile_parts, &share.channel_blocks, &share.block_columns].map(constant_or_one);
    let channels = channels.next_multiple_of(QUAD).max(columns);
    let numbers = groups * parts * blocks * output_tile.matrices() * extent.height() * channels;
    (numbers * size_of::<f32>()) as u64
}

/// Returns the cycles of a run with tiles of a shape. `round` is the cycles of one round of a product.
fn run_cycles(
    output_tile: OutputTile,
    (extent, lanes): (Extent, usize),
    sizes: [usize; 4],
    round: usize,
) -> u64 {
    let dims = sizes.map(Dim::from);
    let share = Share::new(output_tile, (extent, lanes), dims.each_ref());
    let [parts, blocks, panels] = [&share.tile_parts, &share.channel_blocks, &share.block_panels].map(constant_or_one);
    let [groups, _, channels, _] = sizes;
    let trips = |channels: usize| (extent.height() * channels.div_ceil(QUAD)).div_ceil(lanes);
    let product = channels.div_ceil(extent.round) * round + extent.rows * extent.column_vec4s * KEEP;
    let Transforms { input_cycles: seen, output_cycles: output, .. } = Transforms::of(output_tile);
    let transforms = trips(channels) * seen + trips(panels * extent.width(lanes)) * output;
    let cycles = (output_tile.matrices() * panels * product + transforms) * lanes / 16;
    // Each thread runs as many of the workgroups as the others, as far as they can be divided.
    ((groups * parts * blocks).next_multiple_of(ENOUGH) * cycles) as u64
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
        let extent = Extent {
            bands: 4,
            rows: 13,
            ..Extent::ANY
        };
        for channels in [4, 64, 1024, 1280, 2560, 5000] {
            for (places, tiles) in [(OutputTile::Four, 16), (OutputTile::Two, 4096)] {
                let sizes = [1, tiles, channels, channels].map(Dim::from);
                let share = Share::new(places, (extent, 16), sizes.each_ref());
                let [parts, blocks, panels, all] = [
                    &share.tile_parts,
                    &share.channel_blocks,
                    &share.block_panels,
                    &share.group_panels,
                ]
                .map(constant_or_one);
                let rounds = channels / extent.round;
                assert!(is_within_iterations(places, channels));
                assert!(places.matrices() * panels * (rounds + BESIDE) <= ITERATIONS);
                assert!(blocks * panels >= all && (blocks - 1) * panels < all);
                assert!(
                    parts * blocks >= ENOUGH.min(all),
                    "{channels} {parts} {blocks}"
                );
            }
        }
    }
}
