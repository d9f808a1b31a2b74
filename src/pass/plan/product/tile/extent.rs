//! How many rows and columns a tile has.

use super::span;
use crate::pass::plan::element::quad::QUAD;

/// Rows of a tile: with more the loop grows too long for the driver, and for the cache of instructions.
pub(super) const TALLEST: usize = 32;
/// The tallest where rows are multiples of it, as those of images of 7·2ⁿ positions each way are: so one text serves all of
/// them, and no row lies beyond the edge.
const OF_SEVENS: usize = 28;
/// Tiles that keep all threads busy: fewer take as long.
const ENOUGH: usize = 8;

/// One of so many rows.
const FEW: usize = 16;

// What four steps of a tile take, in cycles: to multiply those of a row by a quad of columns, to hand them to all, and to
// read a texel, and more if invocations read lines apart; and what it takes for a round to find out where positions see
// something through a tap.
const MULTIPLY: usize = 13;
const HAND: usize = 1;
const READ: usize = 25;
const APART: usize = 40;
const FIND: usize = 40;

/// Rows that a tile has at most where the right factor lies in panels, by quads of columns of an invocation: for twice as
/// many steps in a round the loop is as long.
pub(super) fn rows_by_panels(quads: usize) -> usize {
    TALLEST / quads
}

/// How rows of the left factor lie in memory.
#[derive(Clone, Copy)]
pub enum Rows {
    /// Next to each other: those of an image in quads of channels.
    Together,
    /// Each by itself.
    Apart,
}

/// What four steps of rows of the left factor take to read, one for each invocation; around taps by the steps of a round.
pub(super) fn read(rows: Rows, steps_around_taps: Option<usize>) -> usize {
    let lines = match rows {
        Rows::Together => 0,
        Rows::Apart => APART,
    };
    READ + lines + steps_around_taps.map_or(0, |steps| FIND * QUAD / steps)
}

/// Quads of columns of an invocation: as many as take the least time of a product of so many matrices, rows and columns. The
/// tallest tile is by quads of columns.
pub(super) fn quads(
    lanes: usize,
    left: usize,
    tallest: impl Fn(usize) -> usize,
    [outer, rows, columns]: [usize; 3],
) -> usize {
    let time = |quads: usize| {
        let strips = outer * columns.div_ceil(quads * span(lanes));
        let height = height(lanes, tallest(quads), [strips, rows]);
        let count = strips * rows.div_ceil(height);
        let reads = READ * QUAD * quads + left * height.div_ceil(lanes);
        count.max(ENOUGH) * (height * (MULTIPLY * quads + HAND) + reads)
    };
    if time(2) < time(1) { 2 } else { 1 }
}

/// Rows of a tile where columns lie in so many strips: as many as the driver's vectors can hold, but such that every thread
/// has some tiles.
pub(super) fn height(lanes: usize, tallest: usize, [strips, rows]: [usize; 2]) -> usize {
    let mut height = if tallest == TALLEST && rows > 0 && rows.is_multiple_of(OF_SEVENS) {
        OF_SEVENS
    } else {
        rows.clamp(1, tallest)
    };
    while strips * rows.div_ceil(height) < ENOUGH && height >= 2 * lanes {
        height = height.div_ceil(2);
    }
    // Tiles of equal heights, as far as they can be: the rows beyond the edge cost as much as others. Where they are few a
    // height of their own is not worth a text.
    let count = rows.div_ceil(height).max(1);
    let are_few = count * height - rows <= rows / FEW;
    if are_few {
        height
    } else {
        rows.div_ceil(count).max(1)
    }
}
