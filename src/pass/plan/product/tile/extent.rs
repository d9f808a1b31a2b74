//! How many rows and columns a tile has, by what these cost a graph: products take least time by shapes of their own, each of
//! which is a text that the driver has to compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{holds, span};
use crate::kernel::layout::{Panels, Run, TextureLimits};
use crate::pass::plan::element::quad::QUAD;

/// Rows of a band at most: with more there is nothing left to gain.
const TALLEST: usize = 32;
/// Tiles that keep all threads busy: fewer take as long.
const ENOUGH: usize = 8;
/// Steps of a wide round times rows: with more the text of a round grows too long.
const WIDEST: usize = 256;

/// Runs that a start is worth: the driver may take as long to compile a text as it saves in so many. They are some seconds
/// of video or a test set; who runs a network a few times waits for its start more than for them.
pub const RUNS: u64 = 500;
/// Cycles of a millisecond of a thread.
const MILLISECOND: u64 = 2_900_000;

// What the driver takes for a quad of columns of a row, in milliseconds: to write it with an epilogue, and for four steps.
const WRITE: usize = 5;
const STEPS: usize = 2;

// What four steps of a tile take, in cycles of vectors of sixteen numbers: to multiply those of a row of each band by a quad of
// columns, to hand those of a row to its band, to hand those of a quad of columns to all bands, and to read a texel, and more if
// invocations read lines apart. For each round, what it takes by itself, and to find out where positions see something through
// a tap.
const MULTIPLY: usize = 23;
const HAND_ROW: usize = 8;
const HAND_COLUMNS: usize = 12;
const READ: usize = 20;
const APART: usize = 10;
const ROUND: usize = 50;
const FIND: usize = 40;

/// The shape of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bands of rows, each of which is computed by as many of the invocations.
    ///
    /// An invocation reads four steps of a row for its band, and four columns of a step for its place in all bands: there is
    /// as little to hand over as can be where a band has four invocations. A single band is for few rows.
    pub bands: usize,
    /// Rows of a band.
    pub rows: usize,
    /// Quads of columns of an invocation.
    pub quads: usize,
    /// Steps of a round.
    pub round: usize,
}

/// A weight in panels, and the bands and rows of tiles that read them.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// How the weight lies.
    pub panels: Panels,
    /// Bands of a tile.
    pub bands: usize,
    /// Rows of a band.
    pub rows: usize,
}

impl Packed {
    /// The extent of the tiles that read it: panels are as wide as tiles.
    pub fn extent(&self, lanes: usize) -> Extent {
        let Panels { width, round, .. } = self.panels;
        Extent {
            bands: self.bands,
            rows: self.rows,
            quads: self.bands * width / span(lanes),
            round,
        }
    }
}

/// How rows of the left factor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Next to each other: positions of an image in quads of channels.
    Together,
    /// The same, seen through taps.
    Seen,
    /// Each by itself.
    Apart,
}

/// A product of matrices with a weight, in the example's sizes.
pub struct Sums {
    /// What its kernel's text depends on beside the extent of tiles.
    pub text: String,
    /// How the left factor lies.
    pub left: Rows,
    /// Products that share the weight's columns, and rows of each.
    pub sizes: [usize; 2],
    /// The weight by any extent.
    pub panels: Panels,
    /// The rest of its kernel, if that is more than a tile and its epilogue.
    pub whole: Option<Whole>,
}

/// A kernel of which products are a part.
pub struct Whole {
    /// What a run takes by an extent of which a round takes so many cycles, in cycles; none where a device cannot run it so.
    pub time: Box<dyn Fn(Extent, usize) -> Option<u64>>,
    /// What the driver takes to compile the other parts, in milliseconds.
    pub compiled: u64,
}

/// `tiles of 32 rows in 4 bands, 32 columns an invocation, K in rounds of 4`
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.quads * QUAD;
        write!(f, "tiles of {} rows", self.height())?;
        if self.bands > 1 {
            write!(f, " in {} bands", self.bands)?;
        }
        write!(
            f,
            ", {columns} columns an invocation, K in rounds of {}",
            self.round
        )
    }
}

impl Extent {
    /// For what nothing is known of: the one of fewest layers of panels.
    pub const ANY: Extent = Extent {
        bands: 1,
        rows: 16,
        quads: 2,
        round: QUAD,
    };

    /// The panels of a weight by it, with so many matrices, steps and columns.
    pub fn packed(self, lanes: usize, outer: Run, (depth, columns): (Vec<Run>, Run)) -> Packed {
        let Extent {
            bands, rows, round, ..
        } = self;
        let panels = Panels {
            outer,
            depth,
            columns,
            round,
            width: self.width(lanes),
            strip: self.strip(lanes),
            transformed: None,
        };
        Packed {
            panels,
            bands,
            rows,
        }
    }

    /// Rows of a tile.
    pub fn height(self) -> usize {
        self.bands * self.rows
    }

    /// Columns of a tile.
    pub fn width(self, lanes: usize) -> usize {
        self.quads * self.strip(lanes)
    }

    /// Columns of a band for each quad of an invocation.
    fn strip(self, lanes: usize) -> usize {
        span(lanes / self.bands)
    }

    /// All that a driver of so many lanes should see. With more sums it runs out of registers, and the loop grows too long for
    /// the cache of decoded instructions: by 48 quads of eight lanes a Zen 3 takes a third longer than by 32.
    fn all(lanes: usize) -> impl Iterator<Item = Extent> {
        let most = 4 * lanes;
        [1, 2, 3, 4, 6, 8].into_iter().flat_map(move |quads| {
            (1..=TALLEST.min(most / quads)).map(move |rows| Extent {
                bands: lanes / QUAD,
                rows,
                quads,
                round: QUAD,
            })
        })
    }

    /// What four steps take of a left factor that lies so, in cycles of vectors of sixteen numbers.
    fn steps(self, lanes: usize, left: Rows) -> usize {
        let Extent {
            bands, rows, quads, ..
        } = self;
        let line = match left {
            Rows::Together => READ,
            Rows::Seen => READ + FIND,
            Rows::Apart => READ + APART,
        };
        let lines = rows.div_ceil(lanes / bands) * line;
        let columns = quads * (HAND_COLUMNS + READ * QUAD.div_ceil(bands));
        rows * (MULTIPLY * quads + HAND_ROW) + columns + lines + ROUND
    }

    /// What all tiles of a product take, in cycles: of so many matrices, rows, columns, and times four steps.
    fn time(self, lanes: usize, left: Rows, [matrices, rows, columns, steps]: [usize; 4]) -> u64 {
        let columns = columns.div_ceil(self.width(lanes));
        let tiles = (matrices * columns * rows.div_ceil(self.height())).max(ENOUGH);
        (tiles * steps * self.steps(lanes, left) * lanes / 16) as u64
    }

    /// What the driver takes to compile the text, in cycles.
    fn compiled(self) -> u64 {
        let each = WRITE + STEPS * self.round / QUAD;
        (self.rows * self.quads * each) as u64 * MILLISECOND
    }
}

impl Sums {
    fn by(&self, lanes: usize, extent: Extent) -> Panels {
        Panels {
            round: extent.round,
            width: extent.width(lanes),
            strip: extent.strip(lanes),
            ..self.panels.clone()
        }
    }

    /// Steps of the innermost sum.
    fn steps(&self) -> usize {
        self.panels.depth.last().map_or(1, |run| run.count)
    }

    /// The extent by which few rows take wide rounds, unless these would be filled up with many zeros.
    fn wide(&self, lanes: usize) -> Option<Extent> {
        let (round, rows) = (span(lanes), self.sizes[1]);
        let is_filled = self.steps().next_multiple_of(round) <= self.steps() + self.steps() / 4;
        (rows * round < WIDEST && is_filled).then_some(Extent {
            bands: 1,
            rows: rows.max(1),
            quads: 1,
            round,
        })
    }

    /// True if tiles of some extent can compute them.
    pub fn are_possible(&self, on: (usize, TextureLimits)) -> bool {
        Extent::all(on.0).any(|extent| self.time(on, extent).is_some())
    }

    /// What a run takes by an extent, in cycles; none where panels do not fit a texture.
    fn time(&self, (lanes, limits): (usize, TextureLimits), extent: Extent) -> Option<u64> {
        if !holds(limits, &self.by(lanes, extent)) {
            return None;
        }
        if let Some(whole) = &self.whole {
            return (whole.time)(extent, extent.steps(lanes, self.left));
        }
        let around = self.panels.depth.iter().rev().skip(1);
        let around: usize = around.map(|run| run.count).product();
        let steps = around * self.steps().div_ceil(QUAD);
        let [matrices, rows] = self.sizes;
        let sizes = [matrices, rows, self.panels.columns.count, steps];
        Some(extent.time(lanes, self.left, sizes))
    }
}

/// The extent of the tiles of a product of values: the same for about the same sizes, so that such products share a kernel.
pub fn of_values(lanes: usize, [outer, rows, columns]: [usize; 3]) -> Extent {
    let sizes = [rows, columns].map(usize::next_power_of_two);
    let time = |extent: &Extent| extent.time(lanes, Rows::Apart, [outer, sizes[0], sizes[1], 1]);
    let is_plain = |extent: &Extent| {
        [extent.rows, extent.quads]
            .iter()
            .all(|x| x.is_power_of_two())
    };
    let extents = Extent::all(lanes).filter(is_plain);
    let extent = extents.min_by_key(time).unwrap_or(Extent::ANY);
    // Tiles of equal heights, as far as they can be: rows beyond the edge cost as much as others.
    let tiles = rows.div_ceil(extent.height()).max(1);
    Extent {
        rows: rows.div_ceil(tiles * extent.bands).max(1),
        ..extent
    }
}

/// The extent of the tiles of each product of a graph, on a device of so many lanes, by the limits of its textures.
pub fn extents((lanes, limits): (usize, TextureLimits), sums: &[Sums]) -> Vec<Extent> {
    let mut found: Vec<Option<Extent>> = sums.iter().map(|sums| sums.wide(lanes)).collect();
    let mut texts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, sums) in sums.iter().enumerate() {
        if found[at].is_none_or(|wide| !holds(limits, &sums.by(lanes, wide))) {
            texts.entry(&sums.text).or_default().push(at);
        }
    }
    for places in texts.into_values() {
        let time = |at: usize, extent| sums[at].time((lanes, limits), extent);
        let whole = places.first().and_then(|at| sums[*at].whole.as_ref());
        let beside = whole.map_or(0, |whole| whole.compiled * MILLISECOND);
        let offers = Offers::of((lanes, beside), &places, time);
        for (at, extent) in places.iter().zip(offers.best()) {
            found[*at] = extent;
        }
    }
    found
        .into_iter()
        .map(|extent| extent.unwrap_or(Extent::ANY))
        .collect()
}

/// What products that differ in sizes only take by each extent.
struct Offers {
    products: usize,
    /// What the driver takes to compile what a text has beside tiles, in cycles.
    beside: u64,
    /// By extent, for each product.
    times: Vec<(Extent, Vec<Option<u64>>)>,
}

impl Offers {
    fn of(
        (lanes, beside): (usize, u64),
        products: &[usize],
        time: impl Fn(usize, Extent) -> Option<u64>,
    ) -> Offers {
        let times = |extent| products.iter().map(|at| time(*at, extent)).collect();
        Offers {
            products: products.len(),
            beside,
            times: Extent::all(lanes)
                .map(|extent| (extent, times(extent)))
                .collect(),
        }
    }

    /// The extent of each product: one for all at first, then others as long as these are worth a text.
    fn best(&self) -> Vec<Option<Extent>> {
        let mut taken = BTreeSet::new();
        loop {
            let more = (0..self.times.len()).map(|offer| {
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
        let extent = |at| self.least(&taken, at).map(|(_, offer)| self.times[offer].0);
        (0..self.products).map(extent).collect()
    }

    /// How many products no extent suits, and what a start and the runs behind it take, in cycles.
    fn cost(&self, taken: &BTreeSet<usize>) -> (usize, u64) {
        let times = (0..self.products).filter_map(|at| self.least(taken, at));
        let times: Vec<u64> = times.map(|(time, _)| time).collect();
        let texts: u64 = taken
            .iter()
            .map(|offer| self.times[*offer].0.compiled() + self.beside)
            .sum();
        (
            self.products - times.len(),
            texts + RUNS * times.iter().sum::<u64>(),
        )
    }

    /// The extent of these that is best for a product.
    fn least(&self, taken: &BTreeSet<usize>, at: usize) -> Option<(u64, usize)> {
        let times = taken
            .iter()
            .filter_map(|offer| Some((self.times[*offer].1[at]?, *offer)));
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

    fn sums(rows: usize, channels: usize) -> Sums {
        let run = |count, stride| Run { count, stride };
        let depth = vec![run(3, 3), run(3, 1), run(channels, 9)];
        let packed = Extent::ANY.packed(8, run(1, 0), (depth, run(channels, 9 * channels)));
        Sums {
            text: String::new(),
            left: Rows::Seen,
            sizes: [1, rows],
            panels: packed.panels,
            whole: None,
        }
    }

    #[test]
    fn small_networks_share_a_short_text() {
        let found = extents((8, LIMITS), &[sums(196, 32), sums(49, 32), sums(100, 16)]);
        assert!(found.iter().all(|extent| *extent == found[0]), "{found:?}");
        assert!(found[0].rows * found[0].quads < 16, "{found:?}");
    }

    #[test]
    fn large_networks_take_what_suits_each_of_their_products() {
        let found = extents((16, LIMITS), &[sums(200 * 200, 256), sums(49, 2048)]);
        assert_eq!(found[0].rows * found[0].quads, 64, "{found:?}");
        assert_ne!(found[0], found[1]);
        // No tile of 49 rows has more than four beyond the edge.
        let height = found[1].height();
        assert!(49_usize.next_multiple_of(height) <= 53, "{found:?}");
    }

    #[test]
    fn few_columns_take_few_quads() {
        let columns = |channels| {
            let found = extents((16, LIMITS), &[sums(400, channels)])[0];
            found.width(16)
        };
        assert_eq!([16, 32, 64].map(columns), [16, 32, 64]);
    }

    #[test]
    fn few_rows_take_wide_rounds() {
        let found = extents((8, LIMITS), &[sums(4, 64), sums(4, 40)]);
        assert_eq!(found[0].round, 32);
        assert_eq!(
            found[1].round, QUAD,
            "40 steps would be filled up with zeros"
        );
    }
}
