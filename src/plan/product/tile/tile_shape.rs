//! Chooses tile shapes for a whole graph: more shapes run faster but compile slower.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{columns_per_vec4, fits_texture};
use crate::kernel::layout::{Panels, StridedRange, TextureLimits};
use crate::plan::element::vec4::VEC4_LEN;

/// Most rows of a band: more rows gain nothing.
const MAX_BAND_ROWS: usize = 32;
/// Tiles that keep all threads busy: fewer take as long.
const MIN_TILES: usize = 8;
/// Bound on the K elements of a wide iteration times rows: beyond it the source of the loop grows too long.
const MAX_WIDE_ROUND: usize = 256;

/// Runs that a start is worth: the driver may take as long to compile a source as it saves in this many runs. They
/// correspond to some seconds of video or a test set; users who run a network a few times wait longer for its start.
pub const RUNS_PER_START: u64 = 500;
/// Cycles of one thread in a millisecond.
const CYCLES_PER_MS: u64 = 2_900_000;

// Milliseconds that the driver takes for a vec4 of columns of a row: to compile its write with an epilogue, and to
// compile four K elements.
const COMPILE_WRITE_MS: usize = 5;
const COMPILE_K_MS: usize = 2;

// Cycles of vectors of sixteen numbers for four K elements of a tile: to multiply a row of each band by a vec4 of
// columns, to shuffle a row to its band, to shuffle a vec4 of columns to all bands, to read a texel, and the surcharge
// where invocations read distant lines. Then the overhead of an iteration in cycles, and the cycles to test which
// positions under a tap lie within the input.
const MULTIPLY_CYCLES: usize = 23;
const SHUFFLE_ROW_CYCLES: usize = 8;
const SHUFFLE_COLUMNS_CYCLES: usize = 12;
const READ_TEXEL_CYCLES: usize = 20;
const SCATTERED_READ_CYCLES: usize = 10;
const ROUND_CYCLES: usize = 50;
const TAP_BOUNDS_CYCLES: usize = 40;

/// Shape of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bands of rows. Each band is computed by an equal share of the invocations.
    ///
    /// An invocation loads four K elements of a row for its band, and four columns of a K element for its lane in all
    /// bands. Bands of four invocations need the fewest shuffles. Small row counts take a single band.
    pub bands: usize,
    /// Rows of a band.
    pub rows: usize,
    /// Vec4s of columns of an invocation.
    pub column_vec4s: usize,
    /// K elements per iteration of the loop over K.
    pub round: usize,
}

/// A weight in panels, and the bands and rows of the tiles that read it.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedWeight {
    /// Layout of the weight.
    pub panels: Panels,
    /// Bands of a tile.
    pub bands: usize,
    /// Rows of a band.
    pub rows: usize,
}

impl PackedWeight {
    /// Returns the shape of the tiles that read the panels: panels are as wide as tiles.
    pub fn tile_shape(&self, lanes: usize) -> Extent {
        let Panels {
            width,
            k_block: round,
            ..
        } = self.panels;
        Extent {
            bands: self.bands,
            rows: self.rows,
            column_vec4s: self.bands * width / columns_per_vec4(lanes),
            round,
        }
    }
}

/// Memory layout of the rows of the left factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftLayout {
    /// Contiguous: positions of an image in a vec4 layout of channels.
    Contiguous,
    /// Contiguous, but read under taps.
    ContiguousTaps,
    /// Each row at a separate address.
    Scattered,
}

/// A matrix product with a weight, in the example's sizes.
pub struct WeightProduct {
    /// Key of everything that the kernel's source depends on, besides the tile shape.
    pub kernel_key: String,
    /// Layout of the left factor.
    pub left_layout: LeftLayout,
    /// Number of products that share the weight's columns, and rows of each.
    pub sizes: [usize; 2],
    /// Panels of the weight; their tile shape is arbitrary.
    pub panels: Panels,
    /// Rest of the kernel, if it contains more than a tile and its epilogue.
    pub enclosing: Option<EnclosingKernel>,
}

/// A kernel that contains products besides other work.
pub struct EnclosingKernel {
    /// Returns the cycles of a run with a tile shape, given the cycles of an iteration. `None` where a device cannot run
    /// it with that shape.
    pub run_cycles: Box<dyn Fn(Extent, usize) -> Option<u64>>,
    /// Milliseconds that the driver takes to compile the other parts.
    pub compile_ms: u64,
}

/// `tiles of 32 rows in 4 bands, 32 columns per invocation, 4 K elements per iteration`
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.column_vec4s * VEC4_LEN;
        write!(f, "tiles of {} rows", self.height())?;
        if self.bands > 1 {
            write!(f, " in {} bands", self.bands)?;
        }
        write!(
            f,
            ", {columns} columns per invocation, {} K elements per iteration",
            self.round
        )
    }
}

impl Extent {
    /// Default shape, with the fewest layers of panels.
    pub const DEFAULT: Extent = Extent {
        bands: 1,
        rows: 16,
        column_vec4s: 2,
        round: VEC4_LEN,
    };

    /// Returns the panels of a weight for this tile shape. `outer` is the matrices of the weight.
    pub fn pack(
        self,
        lanes: usize,
        outer: StridedRange,
        depth: Vec<StridedRange>,
        columns: StridedRange,
    ) -> PackedWeight {
        let Extent {
            bands, rows, round, ..
        } = self;
        let panels = Panels {
            batch: outer,
            k_ranges: depth,
            columns,
            k_block: round,
            width: self.width(lanes),
            strip: self.strip(lanes),
            winograd_tile: None,
        };
        PackedWeight {
            panels,
            bands,
            rows,
        }
    }

    /// Returns the rows of a tile.
    pub fn height(self) -> usize {
        self.bands * self.rows
    }

    /// Returns the columns of a tile.
    pub fn width(self, lanes: usize) -> usize {
        self.column_vec4s * self.strip(lanes)
    }

    /// Returns the columns of a band for one vec4 of each invocation.
    fn strip(self, lanes: usize) -> usize {
        columns_per_vec4(lanes / self.bands)
    }

    /// Yields all shapes that suit a driver with `lanes` lanes. With more sums the driver runs out of registers, and the
    /// loop grows too long for the cache of decoded instructions: with 48 vec4s of eight lanes a Zen 3 takes a third
    /// longer than with 32.
    fn candidates(lanes: usize) -> impl Iterator<Item = Extent> {
        let most = 4 * lanes;
        [1, 2, 3, 4, 6, 8].into_iter().flat_map(move |quads| {
            (1..=MAX_BAND_ROWS.min(most / quads)).map(move |rows| Extent {
                bands: lanes / VEC4_LEN,
                rows,
                column_vec4s: quads,
                round: VEC4_LEN,
            })
        })
    }

    /// Returns the cycles of four K elements with this layout of the left factor, in vectors of sixteen numbers.
    fn k_cycles(self, lanes: usize, left: LeftLayout) -> usize {
        let Extent {
            bands,
            rows,
            column_vec4s: quads,
            ..
        } = self;
        let line = match left {
            LeftLayout::Contiguous => READ_TEXEL_CYCLES,
            LeftLayout::ContiguousTaps => READ_TEXEL_CYCLES + TAP_BOUNDS_CYCLES,
            LeftLayout::Scattered => READ_TEXEL_CYCLES + SCATTERED_READ_CYCLES,
        };
        let lines = rows.div_ceil(lanes / bands) * line;
        let columns =
            quads * (SHUFFLE_COLUMNS_CYCLES + READ_TEXEL_CYCLES * VEC4_LEN.div_ceil(bands));
        rows * (MULTIPLY_CYCLES * quads + SHUFFLE_ROW_CYCLES) + columns + lines + ROUND_CYCLES
    }

    /// Returns the cycles of all tiles of a product, given its matrices, rows, columns, and K in units of four.
    fn product_cycles(
        self,
        lanes: usize,
        left: LeftLayout,
        [matrices, rows, columns, steps]: [usize; 4],
    ) -> u64 {
        let columns = columns.div_ceil(self.width(lanes));
        let tiles = (matrices * columns * rows.div_ceil(self.height())).max(MIN_TILES);
        (tiles * steps * self.k_cycles(lanes, left) * lanes / 16) as u64
    }

    /// Returns the cycles that the driver takes to compile the source.
    fn compile_cycles(self) -> u64 {
        let each = COMPILE_WRITE_MS + COMPILE_K_MS * self.round / VEC4_LEN;
        (self.rows * self.column_vec4s * each) as u64 * CYCLES_PER_MS
    }
}

impl WeightProduct {
    fn panels_for(&self, lanes: usize, extent: Extent) -> Panels {
        Panels {
            k_block: extent.round,
            width: extent.width(lanes),
            strip: extent.strip(lanes),
            ..self.panels.clone()
        }
    }

    /// Returns the length of the innermost reduction.
    fn k_size(&self) -> usize {
        self.panels.k_ranges.last().map_or(1, |run| run.count)
    }

    /// Returns the shape with wide iterations for few rows, unless they would be padded with many zeros.
    fn wide_round_shape(&self, lanes: usize) -> Option<Extent> {
        let (round, rows) = (columns_per_vec4(lanes), self.sizes[1]);
        let is_filled = self.k_size().next_multiple_of(round) <= self.k_size() + self.k_size() / 4;
        (rows * round < MAX_WIDE_ROUND && is_filled).then_some(Extent {
            bands: 1,
            rows: rows.max(1),
            column_vec4s: 1,
            round,
        })
    }

    /// Returns whether tiles of some shape can compute the product.
    pub fn is_possible(&self, lanes: usize, limits: TextureLimits) -> bool {
        let mut candidates = Extent::candidates(lanes);
        candidates.any(|extent| self.run_cycles(lanes, limits, extent).is_some())
    }

    /// Returns the cycles of a run with a tile shape. `None` if the panels do not fit a texture.
    fn run_cycles(&self, lanes: usize, limits: TextureLimits, extent: Extent) -> Option<u64> {
        if !fits_texture(limits, &self.panels_for(lanes, extent)) {
            return None;
        }
        if let Some(whole) = &self.enclosing {
            return (whole.run_cycles)(extent, extent.k_cycles(lanes, self.left_layout));
        }
        let around = self.panels.k_ranges.iter().rev().skip(1);
        let around: usize = around.map(|run| run.count).product();
        let steps = around * self.k_size().div_ceil(VEC4_LEN);
        let [matrices, rows] = self.sizes;
        let sizes = [matrices, rows, self.panels.columns.count, steps];
        Some(extent.product_cycles(lanes, self.left_layout, sizes))
    }
}

/// Returns the tile shape for a product of values. Similar sizes get equal shapes, so that such products share a kernel.
pub fn shape_for_values(lanes: usize, [outer, rows, columns]: [usize; 3]) -> Extent {
    let sizes = [rows, columns].map(usize::next_power_of_two);
    let time = |extent: &Extent| {
        extent.product_cycles(lanes, LeftLayout::Scattered, [outer, sizes[0], sizes[1], 1])
    };
    let is_plain = |extent: &Extent| {
        [extent.rows, extent.column_vec4s]
            .iter()
            .all(|x| x.is_power_of_two())
    };
    let extents = Extent::candidates(lanes).filter(is_plain);
    let extent = extents.min_by_key(time).unwrap_or(Extent::DEFAULT);
    // Make tiles as equal in height as possible: rows beyond the edge cost as much as others.
    let tiles = rows.div_ceil(extent.height()).max(1);
    Extent {
        rows: rows.div_ceil(tiles * extent.bands).max(1),
        ..extent
    }
}

/// Returns the tile shape of each product of a graph, for a device with `lanes` lanes and these texture limits.
pub fn choose_shapes(lanes: usize, limits: TextureLimits, sums: &[WeightProduct]) -> Vec<Extent> {
    let mut chosen: Vec<Option<Extent>> = sums
        .iter()
        .map(|sums| sums.wide_round_shape(lanes))
        .collect();
    let mut by_kernel: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, sums) in sums.iter().enumerate() {
        if chosen[at].is_none_or(|wide| !fits_texture(limits, &sums.panels_for(lanes, wide))) {
            by_kernel.entry(&sums.kernel_key).or_default().push(at);
        }
    }
    for indices in by_kernel.into_values() {
        let time = |at: usize, extent| sums[at].run_cycles(lanes, limits, extent);
        let whole = indices.first().and_then(|at| sums[*at].enclosing.as_ref());
        let other_cycles = whole.map_or(0, |whole| whole.compile_ms * CYCLES_PER_MS);
        let candidates = ShapeCandidates::of(lanes, other_cycles, &indices, time);
        for (at, extent) in indices.iter().zip(candidates.choose()) {
            chosen[*at] = extent;
        }
    }
    chosen
        .into_iter()
        .map(|extent| extent.unwrap_or(Extent::DEFAULT))
        .collect()
}

/// Candidate shapes for products that differ in sizes only.
struct ShapeCandidates {
    product_count: usize,
    /// Cycles that the driver takes to compile the rest of a kernel's source.
    other_compile_cycles: u64,
    /// Candidate shapes, with the run cycles of each product.
    shapes: Vec<(Extent, Vec<Option<u64>>)>,
}

impl ShapeCandidates {
    fn of(
        lanes: usize,
        other_compile_cycles: u64,
        products: &[usize],
        time: impl Fn(usize, Extent) -> Option<u64>,
    ) -> ShapeCandidates {
        let times = |extent| products.iter().map(|at| time(*at, extent)).collect();
        ShapeCandidates {
            product_count: products.len(),
            other_compile_cycles,
            shapes: Extent::candidates(lanes)
                .map(|extent| (extent, times(extent)))
                .collect(),
        }
    }

    /// Chooses the shape of each product. Starts with one shape for all, and adds or removes shapes as long as that
    /// lowers the cost.
    fn choose(&self) -> Vec<Option<Extent>> {
        let mut taken = BTreeSet::new();
        loop {
            let more = (0..self.shapes.len()).map(|offer| {
                let mut taken = taken.clone();
                taken.insert(offer);
                taken
            });
            let fewer = taken.iter().map(|offer| {
                let mut taken = taken.clone();
                taken.remove(offer);
                taken
            });
            let next = more.chain(fewer).min_by_key(|taken| self.cost(taken));
            match next {
                Some(next) if self.cost(&next) < self.cost(&taken) => taken = next,
                _ => break,
            }
        }
        let extent = |at| {
            self.fastest(&taken, at)
                .map(|(_, offer)| self.shapes[offer].0)
        };
        (0..self.product_count).map(extent).collect()
    }

    /// Returns the number of products without a possible shape, and the cycles of a start and of the runs that it is
    /// worth.
    fn cost(&self, chosen: &BTreeSet<usize>) -> (usize, u64) {
        let times = (0..self.product_count).filter_map(|at| self.fastest(chosen, at));
        let times: Vec<u64> = times.map(|(time, _)| time).collect();
        let compile_cycles: u64 = chosen
            .iter()
            .map(|offer| self.shapes[*offer].0.compile_cycles() + self.other_compile_cycles)
            .sum();
        (
            self.product_count - times.len(),
            compile_cycles + RUNS_PER_START * times.iter().sum::<u64>(),
        )
    }

    /// Returns the fastest chosen shape for a product.
    fn fastest(&self, chosen: &BTreeSet<usize>, at: usize) -> Option<(u64, usize)> {
        let times = chosen
            .iter()
            .filter_map(|offer| Some((self.shapes[*offer].1[at]?, *offer)));
        times.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TextureLimits = TextureLimits {
        size: 8192,
        layers: 256,
        bindings: 8,
    };

    fn sums(rows: usize, channels: usize) -> WeightProduct {
        let run = |count, stride| StridedRange { count, stride };
        let depth = vec![run(3, 3), run(3, 1), run(channels, 9)];
        let packed = Extent::DEFAULT.pack(8, run(1, 0), depth, run(channels, 9 * channels));
        WeightProduct {
            kernel_key: String::new(),
            left_layout: LeftLayout::ContiguousTaps,
            sizes: [1, rows],
            panels: packed.panels,
            enclosing: None,
        }
    }

    #[test]
    fn small_networks_share_a_short_kernel() {
        let found = choose_shapes(8, LIMITS, &[sums(196, 32), sums(49, 32), sums(100, 16)]);
        assert!(found.iter().all(|extent| *extent == found[0]), "{found:?}");
        assert!(found[0].rows * found[0].column_vec4s < 16, "{found:?}");
    }

    #[test]
    fn large_networks_get_a_shape_for_each_product() {
        let found = choose_shapes(16, LIMITS, &[sums(200 * 200, 256), sums(49, 2048)]);
        assert_eq!(found[0].rows * found[0].column_vec4s, 64, "{found:?}");
        assert_ne!(found[0], found[1]);
        // No tile of 49 rows has more than four beyond the edge.
        let height = found[1].height();
        assert!(49_usize.next_multiple_of(height) <= 53, "{found:?}");
    }

    #[test]
    fn few_columns_take_few_vec4s() {
        let columns = |channels| {
            let found = choose_shapes(16, LIMITS, &[sums(400, channels)])[0];
            found.width(16)
        };
        assert_eq!([16, 32, 64].map(columns), [16, 32, 64]);
    }

    #[test]
    fn few_rows_take_wide_rounds() {
        let found = choose_shapes(8, LIMITS, &[sums(4, 64), sums(4, 40)]);
        assert_eq!(found[0].round, 32);
        assert_eq!(
            found[1].round, VEC4_LEN,
            "40 K elements would be padded with many zeros"
        );
    }
}
