//! How workgroups share a convolution by tiles: each computes some output channels of some tiles, and makes what these see for
//! itself, so that it waits for no other.

use crate::dim::Dim;
use crate::kernel::winograd::Places;
use crate::pass::plan::element::quad::QUAD;
use crate::pass::plan::kernel::pieces;
use crate::pass::plan::product::tile::{Extent, Whole};

/// Workgroups that keep a rasteriser's threads busy: with more, what tiles see would be made more often.
const ENOUGH: usize = 2;
/// Iterations of all loops of an invocation around a product. Mesa's rasteriser ends loops, without a word, where an invocation
/// has been through 65,535 of them; some are left for other loops.
const ITERATIONS: usize = 50_000;
/// Of these, what a product has beside its rounds.
const BESIDE: usize = 8;

/// The parts that workgroups have.
pub(super) struct Share {
    /// Parts of the tiles.
    pub(super) parts: Dim,
    /// Parts of the output channels.
    pub(super) blocks: Dim,
    /// Panels of filters of each of these.
    pub(super) panels: Dim,
    /// Output channels of these, with those beyond the last one.
    pub(super) columns: Dim,
    /// Panels of all output channels of a group.
    pub(super) all_panels: Dim,
}

impl Share {
    /// By the tiles of an extent, of so many groups, tiles, channels and output channels.
    pub(super) fn new(
        places: Places,
        (extent, lanes): (Extent, usize),
        [groups, tiles, channels, outputs]: [&Dim; 4],
    ) -> Share {
        let parts = pieces(tiles, extent.height());
        let all_panels = pieces(outputs, extent.width(lanes));
        let workgroups = (groups * &parts).maximum(&Dim::ONE);
        let wanted = Dim::from(ENOUGH).ceil_div(&workgroups);
        let rounds = pieces(channels, extent.round) + BESIDE as i64;
        let most = Dim::from(ITERATIONS).floor_div(&(rounds * Dim::from(places.matrices())));
        let panels = all_panels.ceil_div(&wanted).minimum(&most);
        Share {
            blocks: all_panels.ceil_div(&panels),
            columns: &panels * extent.width(lanes) as i64,
            parts,
            panels,
            all_panels,
        }
    }
}

/// True if a workgroup can go through the products of so many channels.
pub(super) fn is_within_iterations(places: Places, channels: usize) -> bool {
    places.matrices() * (channels.div_ceil(QUAD) + BESIDE) <= ITERATIONS
}

/// What the stages around products take.
struct Transforms {
    /// Cycles of vectors of sixteen numbers to find what as many tiles see as there are invocations, four channels of each.
    seen: usize,
    /// The same to make their positions.
    output: usize,
    /// Milliseconds of the driver to compile them.
    compiled: u64,
}

/// Cycles of the same vectors to keep four channels of a sum.
const KEEP: usize = 300;

impl Transforms {
    fn of(places: Places) -> Transforms {
        match places {
            Places::Two => Transforms {
                seen: 4_500,
                output: 3_500,
                compiled: 250,
            },
            Places::Four => Transforms {
                seen: 10_500,
                output: 7_500,
                compiled: 600,
            },
        }
    }
}

/// The rest of a kernel of which products are a part, on so many lanes, of so many groups, tiles, channels and output channels,
/// where a device binds so many bytes.
pub(super) fn whole((places, lanes): (Places, usize), sizes: [usize; 4], bound: u64) -> Whole {
    Whole {
        time: Box::new(move |extent, round| {
            let fits = scratch(places, (extent, lanes), sizes) <= bound;
            fits.then(|| time(places, (extent, lanes), sizes, round))
        }),
        compiled: Transforms::of(places).compiled,
    }
}

/// Bytes of the larger of what all workgroups keep from one stage to the next, by tiles of an extent.
fn scratch(places: Places, (extent, lanes): (Extent, usize), sizes: [usize; 4]) -> u64 {
    let dims = sizes.map(Dim::from);
    let share = Share::new(places, (extent, lanes), dims.each_ref());
    let [groups, _, channels, _] = sizes;
    let [parts, blocks, columns] = [&share.parts, &share.blocks, &share.columns].map(known);
    let channels = channels.next_multiple_of(QUAD).max(columns);
    let numbers = groups * parts * blocks * places.matrices() * extent.height() * channels;
    (numbers * size_of::<f32>()) as u64
}

/// What a run takes by tiles of an extent of which a round of products takes so many cycles.
fn time(places: Places, (extent, lanes): (Extent, usize), sizes: [usize; 4], round: usize) -> u64 {
    let dims = sizes.map(Dim::from);
    let share = Share::new(places, (extent, lanes), dims.each_ref());
    let [parts, blocks, panels] = [&share.parts, &share.blocks, &share.panels].map(known);
    let [groups, _, channels, _] = sizes;
    let trips = |channels: usize| (extent.height() * channels.div_ceil(QUAD)).div_ceil(lanes);
    let product = channels.div_ceil(extent.round) * round + extent.rows * extent.quads * KEEP;
    let Transforms { seen, output, .. } = Transforms::of(places);
    let transforms = trips(channels) * seen + trips(panels * extent.width(lanes)) * output;
    let cycles = (places.matrices() * panels * product + transforms) * lanes / 16;
    // Each thread has as many of the workgroups, as far as they can be shared.
    ((groups * parts * blocks).next_multiple_of(ENOUGH) * cycles) as u64
}

/// A size that is a number.
fn known(size: &Dim) -> usize {
    let number = size.as_const().and_then(|size| usize::try_from(size).ok());
    number.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_end_before_the_driver_ends_them() {
        let extent = Extent {
            bands: 4,
            rows: 13,
            ..Extent::ANY
        };
        for channels in [4, 64, 1024, 1280, 2560, 5000] {
            for (places, tiles) in [(Places::Four, 16), (Places::Two, 4096)] {
                let sizes = [1, tiles, channels, channels].map(Dim::from);
                let share = Share::new(places, (extent, 16), sizes.each_ref());
                let [parts, blocks, panels, all] = [
                    &share.parts,
                    &share.blocks,
                    &share.panels,
                    &share.all_panels,
                ]
                .map(known);
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
