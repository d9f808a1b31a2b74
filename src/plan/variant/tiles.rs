//! Winograd convolutions and gradients of filters in the variant table: the tile size, and whether fewer multiplications
//! pay off; see [`winograd`].

use super::MatmulProblem;
use crate::ir::{Graph, Node};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::KernelVariant;
use crate::kernel::winograd::OutputTile;
use crate::op::Conv;
use crate::plan::conv::winograd;
use crate::plan::conv::winograd::filter_gradient::partition::{GradientPartition, PartCount};
use crate::plan::product::tile;

// Costs of convolution kernels on a rasteriser, in multiplications: a direct convolution costs one for each product of
// its sums. Measured for 16 to 512 channels of 7² to 56² positions, in vectors of sixteen numbers.
/// Smallest number of tiles that determines the time: kernels of fewer tiles read as many filters and take as long.
const MIN_COSTED_TILES: usize = 10;
/// Cost of transforming a channel of a tile. A result channel of a large tile, with the epilogue, costs twice as much.
const TRANSFORM_TWO_COST: usize = 460;
const TRANSFORM_FOUR_COST: usize = 1250;
/// Cost of the longer source, as the time of a start is worth some runs.
const SOURCE_COST: usize = 8_000_000;

impl MatmulProblem<'_> {
    /// The Winograd variant with the cheapest tile size, if fewer multiplications outweigh the longer source.
    pub(super) fn winograd_variant(&self) -> Option<(KernelVariant, String)> {
        let channels = usize::try_from(self.summed.first()?.as_const()?).ok()?;
        let sizes = self.tiles.iter();
        let sizes = sizes
            .filter(|(output_tile, tiles)| self.affords_filters(**output_tile, **tiles, channels));
        let costs = sizes.map(|(output_tile, tiles)| {
            let tiles = self.batch * tiles;
            let cost = winograd_cost(*output_tile, tiles, [channels, self.rows]);
            (cost, *output_tile, tiles)
        });
        let (cost, output_tile, tiles) = costs.min()?;
        let direct = self.batch * self.rows * self.columns * self.k_size;
        let size = output_tile.size();
        let mut reason = format!(
            "Winograd saves more multiplications than its transforms cost: {channels} to {} channels, {tiles} tiles of {size}x{size}, estimated {:.1} times as fast",
            self.rows,
            direct as f64 / cost as f64
        );
        if self.is_right_half {
            reason += match output_tile {
                OutputTile::Two => "; larger tiles would need filters of f32",
                OutputTile::Four => ", with filters of f32",
            };
        }
        (10 * direct >= 11 * cost)
            .then_some((KernelVariant::Winograd { tile: output_tile }, reason))
    }

    /// True if the filters of a tile size are worth their bytes. Filters of large tiles are stored in single precision,
    /// since half precision would lose too much. If other weights are stored in half precision, such filters must be
    /// small compared with the tiles.
    fn affords_filters(&self, output_tile: OutputTile, tiles: usize, channels: usize) -> bool {
        let filters = channels * self.rows;
        let tile_elements = self.batch * tiles * (channels + self.rows);
        output_tile == OutputTile::Two || !self.is_right_half || filters <= 2 * tile_elements
    }
}

/// Cost of a Winograd convolution.
fn winograd_cost(output_tile: OutputTile, tiles: usize, [channels, outputs]: [usize; 2]) -> usize {
    let products = output_tile.matrices() * tiles.max(MIN_COSTED_TILES) * channels * outputs;
    let (transform, transformed) = match output_tile {
        OutputTile::Two => (TRANSFORM_TWO_COST, channels + outputs),
        OutputTile::Four => (TRANSFORM_FOUR_COST, channels + 2 * outputs),
    };
    products + transform * tiles * transformed + SOURCE_COST
}

/// Number of tiles that a convolution in the vec4 channel layout has; `None` if it cannot be tiled or the device cannot
/// bind the scratch memory.
pub(super) fn tile_count(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    conv: &Conv,
    output_tile: OutputTile,
) -> Option<usize> {
    let product = winograd::weight_product(graph, capabilities, node, conv, output_tile, "")?;
    let lanes = capabilities.simd_lanes()?;
    let is_possible = product.is_possible(lanes, capabilities.textures);
    is_possible.then_some(product.sizes[1])
}

/// Size of the tiles of filter gradients: smaller ones save too little.
const GRADIENT_TILE: OutputTile = OutputTile::Four;

impl MatmulProblem<'_> {
    /// The division of a filter's gradient into tiles; `None` if tiles cannot compute the node.
    fn gradient_partition(&self, parts: PartCount) -> Option<GradientPartition> {
        let gradient = self.filter_gradient.as_ref()?;
        let sizes = [self.rows, self.columns, self.k_size];
        let is_tiled = tile::is_preferred(self.capabilities, self.dtype, sizes);
        let best = || GradientPartition::best(self.capabilities, gradient, GRADIENT_TILE, parts);
        is_tiled.then(best)?
    }

    /// Like `gradient_partition`, with how much faster it is than a product of windows; `None` if it is not.
    fn faster_partition(&self, parts: PartCount) -> Option<(GradientPartition, f64)> {
        let partition = self.gradient_partition(parts)?;
        let sizes = [self.batch, self.rows, self.columns, self.k_size];
        let direct = tile::cycles_of_values(self.capabilities.simd_lanes()?, sizes);
        let speedup = direct as f64 / partition.cycles as f64;
        (speedup >= 1.1).then_some((partition, speedup))
    }

    /// The Winograd variant of a filter's gradient, if fewer multiplications outweigh the transforms.
    pub(super) fn filter_gradient_variant(&self) -> Option<(KernelVariant, String)> {
        let (_, speedup) = self.faster_partition(PartCount::Given)?;
        let (tile, size) = (GRADIENT_TILE, GRADIENT_TILE.size());
        let reason = format!(
            "Winograd saves more multiplications than its transforms cost: gradients by tiles of {size}x{size}, estimated {speedup:.1} times as fast"
        );
        Some((KernelVariant::Winograd { tile }, reason))
    }

    /// Number of parts into which the gradient of a filter should be divided.
    pub(super) fn filter_gradient_parts(&self) -> Option<u32> {
        let (partition, _) = self.faster_partition(PartCount::Any)?;
        let parts = u32::try_from(partition.parts).ok();
        parts.filter(|parts| *parts > 1)
    }

    /// True if the node is the gradient of a filter that tiles of this size compute.
    pub(super) fn has_gradient_tiles(&self, output_tile: OutputTile) -> bool {
        output_tile == GRADIENT_TILE && self.gradient_partition(PartCount::Given).is_some()
    }
}
