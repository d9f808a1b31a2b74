//! Convolutions by tiles in the table: of which size, and where fewer multiplications are worth it; see [`winograd`].

use super::Problem;
use crate::ir::{Graph, Node};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::Variant;
use crate::kernel::winograd::Places;
use crate::op::Conv;
use crate::pass::plan::conv::winograd;

// What kernels of convolutions cost a rasteriser, in multiplications, of which sums over taps are as many as they have: as
// measured for 16 to 512 channels of 7² to 56² positions, in vectors of sixteen numbers.
/// So many tiles take as long as fewer do, for which as many filters are read.
const FEW_TILES: usize = 10;
/// To transform a channel of a tile. A channel of the result of a large tile, with the epilogue, costs twice as much.
const TRANSFORM_TWO: usize = 460;
const TRANSFORM_FOUR: usize = 1250;
/// A longer text, which a start is worth as much as some runs.
const TEXT: usize = 8_000_000;

impl Problem<'_> {
    /// A convolution by tiles of the size that costs least, where fewer multiplications are worth a longer text.
    pub(super) fn by_tiles(&self) -> Option<(Variant, String)> {
        let channels = usize::try_from(self.summed.first()?.as_const()?).ok()?;
        let sizes = self.tiles.iter();
        let sizes = sizes.filter(|(places, tiles)| self.affords(**places, **tiles, channels));
        let costs = sizes.map(|(places, tiles)| {
            let tiles = self.outer * tiles;
            let cost = cost(*places, tiles, [channels, self.rows]);
            (cost, *places, tiles)
        });
        let (cost, places, tiles) = costs.min()?;
        let direct = self.outer * self.rows * self.columns * self.depth;
        let size = places.count();
        let mut reason = format!(
            "fewer multiplications outweigh the transforms: {channels} to {} channels, {tiles} tiles of {size}x{size}, about {:.1} times as fast",
            self.rows,
            direct as f64 / cost as f64
        );
        if self.in_half {
            reason += match places {
                Places::Two => "; larger tiles would need filters of f32",
                Places::Four => ", with filters of f32",
            };
        }
        (10 * direct >= 11 * cost).then_some((Variant::Winograd { places }, reason))
    }

    /// True if filters of tiles of a size are worth their bytes. Those of large tiles lie in single precision, since half
    /// precision would lose too much: where that is what other weights lie in, only small ones do, beside what the tiles take.
    fn affords(&self, places: Places, tiles: usize, channels: usize) -> bool {
        let filters = channels * self.rows;
        let of_tiles = self.outer * tiles * (channels + self.rows);
        places == Places::Two || !self.in_half || filters <= 2 * of_tiles
    }
}

/// What a convolution by tiles costs.
fn cost(places: Places, tiles: usize, [channels, outputs]: [usize; 2]) -> usize {
    let products = places.matrices() * tiles.max(FEW_TILES) * channels * outputs;
    let (transform, transformed) = match places {
        Places::Two => (TRANSFORM_TWO, channels + outputs),
        Places::Four => (TRANSFORM_FOUR, channels + 2 * outputs),
    };
    products + transform * tiles * transformed + TEXT
}

/// How many tiles of a size a convolution on quads of channels is cut into, if it can be and a device binds what workgroups keep
/// of them.
pub(super) fn count(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    (conv, places): (&Conv, Places),
) -> Option<usize> {
    let sums = winograd::sums(graph, capabilities, node, (conv, places, ""))?;
    let on = (capabilities.lanes()?, capabilities.textures);
    sums.are_possible(on).then_some(sums.sizes[1])
}
