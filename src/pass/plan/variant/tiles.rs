//! Convolutions by tiles in the table: of which size, and where fewer multiplications are worth it; see [`winograd`].

use super::Problem;
use crate::ir::{Graph, Node};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::Variant;
use crate::kernel::winograd::Places;
use crate::op::Conv;
use crate::pass::plan::conv::winograd;
use crate::pass::plan::cost::example;
use crate::pass::plan::product::tile::{Extent, holds};

// What kernels of convolutions cost a rasteriser, in multiplications of a product of matrices: as measured for 64 to 512
// channels of 7² to 56² positions. A channel of a tile is transformed for 250 of these where it has 2×2 positions, for 800
// where it has 4×4.
/// The sums of 2×2 positions, which are of 36 products and read less for each than those of matrices.
const DIRECT: usize = 27;
/// So many tiles take as long as fewer do, for which as many filters are read.
const FEW_TILES: usize = 10;
/// Two kernels more.
const KERNELS: usize = 1_400_000;

impl Problem<'_> {
    /// A convolution by tiles of the size that costs least, where fewer multiplications are worth three kernels.
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
        let products = self.outer * self.tiles.get(&Places::Two)? * channels * self.rows;
        let direct = DIRECT * products;
        let size = places.count();
        let mut reason = format!(
            "{channels} by {} channels of {tiles} tiles of {size}x{size} positions are worth two kernels more: about {:.1} times as fast",
            self.rows,
            direct as f64 / cost as f64
        );
        if self.in_half {
            reason += match places {
                Places::Two => "; filters of larger tiles would have to be of single precision",
                Places::Four => ", with filters of single precision",
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
    let transforms = match places {
        Places::Two => 250,
        Places::Four => 800,
    };
    products + transforms * tiles * (channels + outputs) + KERNELS
}

/// How many tiles of a size a convolution on quads of channels is cut into, if it can be.
pub(super) fn count(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    (conv, places): (&Conv, Places),
) -> Option<usize> {
    let packed = winograd::panels(graph, capabilities, node, (conv, places, Extent::ANY))?;
    let result = &graph.ty(*node.results.first()?).shape;
    let [_, tiles] = winograd::counts(result, places)?;
    holds(capabilities.textures, &packed.panels).then(|| example(graph, &tiles))
}
