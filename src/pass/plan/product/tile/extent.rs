//! How many rows and columns a tile has and how many steps a round, by what these cost a graph: products take least time by
//! shapes of their own, each of which is a text that the driver has to compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{NARROWEST, holds, span};
use crate::kernel::layout::{Panels, Run, TextureLimits};
use crate::pass::plan::element::quad::QUAD;

/// Quads of columns that are summed up at most, of all rows: with more the driver runs out of registers and the loop grows
/// too long for the cache of instructions.
const MOST: usize = 32;
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

// What four steps of a tile take, in cycles: to multiply those of a row by a quad of columns, to hand them to all, and to
// each further band its own, and to read a texel, and more if invocations read lines apart. For each round, what sums take
// that loops carry, and what it takes to find out where positions see something through a tap.
const MULTIPLY: usize = 11;
const HAND: usize = 1;
const HAND_APART: usize = 3;
const READ: usize = 25;
const APART: usize = 40;
const CARRY: usize = 4;
const FIND: usize = 40;

/// The shape of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bands of rows, each of which is computed by as many of the invocations: where columns are few, one band would leave
    /// most of them idle.
    pub bands: usize,
    /// Rows of a band.
    pub rows: usize,
    /// Quads of columns of an invocation.
    pub quads: usize,
    /// Steps of a round.
    pub round: usize,
}

/// A weight in panels, and the rows of tiles that read them.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// How the weight lies.
    pub panels: Panels,
    /// Rows of a band of a tile.
    pub rows: usize,
}

impl Packed {
    /// The extent of the tiles that read it: panels are as wide as tiles.
    pub fn extent(&self, lanes: usize) -> Extent {
        let Panels { width, round, .. } = self.panels;
        let bands = (span(lanes) / width).max(1);
        Extent {
            bands,
            rows: self.rows,
            quads: bands * width / span(lanes),
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
}

/// `tiles of 28 rows, 4 columns for each invocation, rounds of 8 steps`
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.quads * QUAD;
        write!(f, "tiles of {} rows", self.height())?;
        if self.bands > 1 {
            write!(f, " in {} bands", self.bands)?;
        }
        write!(
            f,
            ", {columns} columns for each invocation, rounds of {} steps",
            self.round
        )
    }
}

impl Extent {
    /// For what nothing is known of: the one of fewest layers of panels.
    pub const ANY: Extent = Extent {
        bands: 1,
        rows: MOST / 2,
        quads: 2,
        round: QUAD,
    };

    /// The panels of a weight by it, with so many matrices, steps and columns.
    pub fn packed(self, lanes: usize, outer: Run, (depth, columns): (Vec<Run>, Run)) -> Packed {
        let panels = Panels {
            outer,
            depth,
            columns,
            round: self.round,
            width: self.width(lanes),
            transformed: None,
        };
        let rows = self.rows;
        Packed { panels, rows }
    }

    /// Rows of a tile.
    pub fn height(self) -> usize {
        self.bands * self.rows
    }

    /// Columns of a tile.
    pub fn width(self, lanes: usize) -> usize {
        self.quads * span(lanes) / self.bands
    }

    /// All that a driver of so many lanes should see.
    fn all(lanes: usize) -> impl Iterator<Item = Extent> {
        let shapes = [(1, 1), (2, 1), (4, 1), (1, 2)].into_iter();
        let shapes = shapes.filter(move |(bands, _)| span(lanes) / bands >= NARROWEST);
        let shapes = shapes.flat_map(|shape| [QUAD, 2 * QUAD].map(|round| (round, shape)));
        shapes.flat_map(|(round, (bands, quads))| {
            (1..=MOST / quads).map(move |rows| Extent {
                bands,
                rows,
                quads,
                round,
            })
        })
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

    /// What a run takes by an extent, in cycles; none where panels do not fit a texture, or rounds would be filled up.
    fn time(&self, (lanes, limits): (usize, TextureLimits), extent: Extent) -> Option<u64> {
        let Extent {
            bands,
            rows,
            quads,
            round,
        } = extent;
        let is_even = self.steps().div_ceil(QUAD).is_multiple_of(round / QUAD);
        if !is_even || !holds(limits, &self.by(lanes, extent)) {
            return None;
        }
        let (lines, find) = match self.left {
            Rows::Together => (READ, 0),
            Rows::Seen => (READ, FIND),
            Rows::Apart => (READ + APART, 0),
        };
        let mine = rows.div_ceil(lanes / bands);
        let hand = HAND + HAND_APART * (bands - 1);
        let steps = rows * (MULTIPLY * quads + hand) + READ * QUAD * quads + lines * mine;
        let carried = CARRY * rows * quads + find * mine;
        let around: usize = self
            .panels
            .depth
            .iter()
            .rev()
            .skip(1)
            .map(|run| run.count)
            .product();
        let rounds = around * self.steps().div_ceil(round);
        let [matrices, lines] = self.sizes;
        let columns = self.panels.columns.count.div_ceil(extent.width(lanes));
        let tiles = (matrices * columns * lines.div_ceil(extent.height())).max(ENOUGH);
        Some((tiles * rounds) as u64 * (steps * round / QUAD + carried) as u64)
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
        let offers = Offers::of(lanes, &places, time);
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
    /// By extent, for each product.
    times: Vec<(Extent, Vec<Option<u64>>)>,
}

impl Offers {
    fn of(lanes: usize, products: &[usize], time: impl Fn(usize, Extent) -> Option<u64>) -> Offers {
        let times = |extent| products.iter().map(|at| time(*at, extent)).collect();
        Offers {
            products: products.len(),
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
            .map(|offer| self.times[*offer].0.compiled())
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
        }
    }

    #[test]
    fn small_networks_share_a_short_text() {
        let found = extents((8, LIMITS), &[sums(196, 32), sums(49, 32), sums(100, 16)]);
        assert!(found.iter().all(|extent| *extent == found[0]), "{found:?}");
        assert!(found[0].rows * found[0].quads < MOST / 2, "{found:?}");
    }

    #[test]
    fn large_networks_take_what_suits_each_of_their_products() {
        let found = extents((8, LIMITS), &[sums(200 * 200, 256), sums(49, 2048)]);
        assert_eq!(found[0].rows * found[0].quads, MOST, "{found:?}");
        assert_eq!(found[0].round, 2 * QUAD, "{found:?}");
        assert_ne!(found[0], found[1]);
        // No tile of 49 rows has more than four beyond the edge.
        let rows = found[1].rows;
        assert!(49_usize.next_multiple_of(rows) <= 53, "{found:?}");
    }

    #[test]
    fn few_columns_take_bands() {
        let bands = |lanes, channels| extents((lanes, LIMITS), &[sums(400, channels)])[0].bands;
        assert_eq!([16, 32, 64].map(|channels| bands(8, channels)), [2, 1, 1]);
        assert_eq!([16, 32, 64].map(|channels| bands(16, channels)), [4, 2, 1]);
    }

    #[test]
    fn few_rows_take_wide_rounds() {
        let found = extents((8, LIMITS), &[sums(4, 64), sums(4, 40)]);
        assert_eq!(found[0].round, 32);
        assert_eq!(
            found[1].round,
            2 * QUAD,
            "48 steps would be filled up with zeros"
        );
    }
}
