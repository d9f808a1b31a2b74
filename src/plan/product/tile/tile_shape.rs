//! Shapes of tiles, and estimates of their cost in cycles of one thread. The costs of a run are given for vectors of sixteen
//! numbers, and scaled to the device's lanes.

use std::fmt;

use super::columns_per_vec4;
use crate::kernel::layout::{Panels, StridedRange};
use crate::plan::element::vec4::VEC4_LEN;

/// Most rows of a band: more rows gain nothing.
const MAX_BAND_ROWS: usize = 32;
/// Tiles that keep all threads busy: fewer take as long.
const MIN_TILES: usize = 8;

/// Cycles of one thread in a millisecond.
pub(super) const CYCLES_PER_MS: u64 = 2_900_000;

/// Milliseconds that the driver takes to compile the write of a vec4 of columns of a row, with an epilogue.
const COMPILE_WRITE_MS: usize = 5;
/// Milliseconds that the driver takes to compile four K elements of a vec4 of columns of a row.
const COMPILE_K_MS: usize = 2;

// Cycles for four K elements of a tile, on vectors of sixteen numbers.
/// Cycles to multiply a row of each band by a vec4 of columns.
const MULTIPLY_CYCLES: usize = 23;
/// Cycles to shuffle a row to its band.
const SHUFFLE_ROW_CYCLES: usize = 8;
/// Cycles to shuffle a vec4 of columns to all bands.
const SHUFFLE_COLUMNS_CYCLES: usize = 12;
/// Cycles to read a texel.
const READ_TEXEL_CYCLES: usize = 20;
/// Additional cycles of a read if invocations read distant addresses.
const SCATTERED_READ_CYCLES: usize = 10;
/// Overhead of an iteration over K, in cycles.
const K_ITERATION_CYCLES: usize = 50;
/// Cycles to test which positions under a tap lie within the input.
const TAP_BOUNDS_CYCLES: usize = 40;

/// Shape of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Number of bands of rows. Each band is computed by an equal share of the invocations.
    ///
    /// An invocation loads four K elements of a row for its band, and four columns of a K element for its lane in all
    /// bands. Bands of four invocations need the fewest shuffles. Small row counts take a single band.
    pub bands: usize,
    /// Number of rows of a band.
    pub rows: usize,
    /// Number of vec4s of columns of an invocation.
    pub column_vec4s: usize,
    /// K elements per iteration of the loop over K.
    pub k_block: usize,
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
    pub fn tile_shape(&self, lanes: usize) -> TileShape {
        let Panels { width, k_block, .. } = self.panels;
        TileShape {
            bands: self.bands,
            rows: self.rows,
            column_vec4s: self.bands * width / columns_per_vec4(lanes),
            k_block,
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

/// `tiles of 32 rows in 4 bands, 32 columns per invocation, 4 K elements per iteration`
impl fmt::Display for TileShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.column_vec4s * VEC4_LEN;
        write!(f, "tiles of {} rows", self.height())?;
        if self.bands > 1 {
            write!(f, " in {} bands", self.bands)?;
        }
        write!(
            f,
            ", {columns} columns per invocation, {} K elements per iteration",
            self.k_block
        )
    }
}

impl TileShape {
    /// Default shape, with the fewest layers of panels.
    pub const DEFAULT: TileShape = TileShape {
        bands: 1,
        rows: 16,
        column_vec4s: 2,
        k_block: VEC4_LEN,
    };

    /// Returns the panels of a weight for this tile shape. `batch` are the matrices of the weight, and `k_ranges` their
    /// K indices, outermost first.
    pub fn pack(
        self,
        lanes: usize,
        batch: StridedRange,
        k_ranges: Vec<StridedRange>,
        columns: StridedRange,
    ) -> PackedWeight {
        let TileShape {
            bands,
            rows,
            k_block,
            ..
        } = self;
        let panels = Panels {
            batch,
            k_ranges,
            columns,
            k_block,
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

    /// Returns the number of rows of a tile.
    pub fn height(self) -> usize {
        self.bands * self.rows
    }

    /// Returns the number of columns of a tile.
    pub fn width(self, lanes: usize) -> usize {
        self.column_vec4s * self.strip(lanes)
    }

    /// Returns the number of columns that one vec4 of each invocation of a band covers.
    pub(super) fn strip(self, lanes: usize) -> usize {
        columns_per_vec4(lanes / self.bands)
    }

    /// Yields all shapes that suit a driver with `lanes` lanes. With more sums per invocation the driver runs out of
    /// registers, and the loop grows too long for the processor's cache of decoded instructions.
    pub fn candidates(lanes: usize) -> impl Iterator<Item = TileShape> {
        let max_sums = 4 * lanes;
        [1, 2, 3, 4, 6, 8].into_iter().flat_map(move |vec4s| {
            (1..=MAX_BAND_ROWS.min(max_sums / vec4s)).map(move |rows| TileShape {
                bands: lanes / VEC4_LEN,
                rows,
                column_vec4s: vec4s,
                k_block: VEC4_LEN,
            })
        })
    }

    /// Returns the cycles of four K elements of a tile with this layout of the left factor, on vectors of sixteen
    /// numbers.
    pub fn k_cycles(self, lanes: usize, layout: LeftLayout) -> usize {
        let TileShape {
            bands,
            rows,
            column_vec4s: vec4s,
            ..
        } = self;
        let read_cycles = match layout {
            LeftLayout::Contiguous => READ_TEXEL_CYCLES,
            LeftLayout::ContiguousTaps => READ_TEXEL_CYCLES + TAP_BOUNDS_CYCLES,
            LeftLayout::Scattered => READ_TEXEL_CYCLES + SCATTERED_READ_CYCLES,
        };
        let row_cycles = rows.div_ceil(lanes / bands) * read_cycles;
        let column_cycles =
            vec4s * (SHUFFLE_COLUMNS_CYCLES + READ_TEXEL_CYCLES * VEC4_LEN.div_ceil(bands));
        rows * (MULTIPLY_CYCLES * vec4s + SHUFFLE_ROW_CYCLES)
            + column_cycles
            + row_cycles
            + K_ITERATION_CYCLES
    }

    /// Returns the cycles of all tiles of a product, given its matrices, rows, columns, and K in units of four.
    pub(super) fn product_cycles(
        self,
        lanes: usize,
        layout: LeftLayout,
        [matrices, rows, columns, k_vec4s]: [usize; 4],
    ) -> u64 {
        let columns = columns.div_ceil(self.width(lanes));
        let tiles = (matrices * columns * rows.div_ceil(self.height())).max(MIN_TILES);
        self.k_loop_cycles(lanes, layout, tiles * k_vec4s)
    }

    /// Returns the cycles of loops over K, given their length in units of four.
    pub(super) fn k_loop_cycles(self, lanes: usize, layout: LeftLayout, k_vec4s: usize) -> u64 {
        (k_vec4s * self.k_cycles(lanes, layout) * lanes / 16) as u64
    }

    /// Returns the cycles that the driver takes to compile the source.
    pub(super) fn compile_cycles(self) -> u64 {
        let ms_per_vec4 = COMPILE_WRITE_MS + COMPILE_K_MS * self.k_block / VEC4_LEN;
        (self.rows * self.column_vec4s * ms_per_vec4) as u64 * CYCLES_PER_MS
    }
}

/// Returns the tile shape for a product whose right factor is no packed weight, for a number of matrices, rows and
/// columns. Similar sizes get equal shapes, so that such products share a kernel. The rows of a band are a multiple of
/// `row_multiple`.
pub fn shape_for_values(
    lanes: usize,
    [batch, rows, columns]: [usize; 3],
    row_multiple: usize,
) -> TileShape {
    let sizes = [rows, columns].map(usize::next_power_of_two);
    let cycles = |tile_shape: &TileShape| {
        tile_shape.product_cycles(lanes, LeftLayout::Scattered, [batch, sizes[0], sizes[1], 1])
    };
    let has_powers_of_two = |tile_shape: &TileShape| {
        [tile_shape.rows, tile_shape.column_vec4s]
            .iter()
            .all(|x| x.is_power_of_two())
    };
    let shapes = TileShape::candidates(lanes)
        .filter(has_powers_of_two)
        .filter(|tile_shape| tile_shape.rows.is_multiple_of(row_multiple));
    let tile_shape = shapes.min_by_key(cycles).unwrap_or(TileShape::DEFAULT);
    // Make tiles as equal in height as possible: rows beyond the edge cost as much as others.
    let tiles = rows.div_ceil(tile_shape.height()).max(1);
    TileShape {
        rows: rows
            .div_ceil(tiles * tile_shape.bands)
            .max(1)
            .next_multiple_of(row_multiple),
        ..tile_shape
    }
}

/// Returns the cycles of a product whose right factor is no packed weight, for a number of matrices, rows and columns, and
/// K.
pub fn cycles_of_values(lanes: usize, [batch, rows, columns, k_size]: [usize; 4]) -> u64 {
    let tile_shape = shape_for_values(lanes, [batch, rows, columns], VEC4_LEN);
    let sizes = [batch, rows, columns, k_size.div_ceil(VEC4_LEN)];
    tile_shape.product_cycles(lanes, LeftLayout::Scattered, sizes)
}
