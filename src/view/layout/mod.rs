//! Layered layout of a graph, from top to bottom.
//!
//! The layout follows Sugiyama: items get ranks ([`rank`]), lines that pass ranks become nodes of a layered graph
//! ([`layered`]), the nodes of each rank are sorted so that few lines cross ([`order`]), nodes above each other form vertical blocks
//! ([`align`]), and the blocks get horizontal positions ([`position`]). Each step takes near-linear time and is deterministic.

mod align;
mod layered;
mod order;
mod position;
mod rank;
#[cfg(test)]
mod tests;

use layered::{LayeredGraph, Trunk};

/// Farthest distance in ranks between an item and a target that its line leads to. Farther targets are stubs.
pub(super) const MAX_ROUTED_RANKS: usize = 24;
/// Largest size and distance, in CSS pixels: sums of them stay finite.
const MAX_LENGTH: f32 = 1e6;

/// A box to place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayoutItem {
    /// Width in CSS pixels.
    pub(super) width: f32,
    /// Height in CSS pixels.
    pub(super) height: f32,
    /// The rank that the item is bound to, if any.
    pub(super) pin: Option<Pin>,
}

/// A rank that holds pinned items alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pin {
    /// The first rank.
    First,
    /// The last rank.
    Last,
}

/// A value: leads from the item that makes it to the items that read it.
#[derive(Clone, Debug)]
pub(super) struct Net {
    /// Index of the item that makes the value.
    pub(super) source: usize,
    /// Indices of the items that read the value.
    pub(super) targets: Vec<usize>,
}

/// Least distances, in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    /// Distance between neighbouring boxes of a rank.
    pub(super) item: f32,
    /// Distance between neighbouring ranks.
    pub(super) rank: f32,
    /// Distance of a line from neighbouring lines and boxes.
    pub(super) line: f32,
}

/// Places of all items and lines, in CSS pixels. The left and the upper edge are 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LevelLayout {
    /// Width of the whole.
    pub(super) width: f32,
    /// Height of the whole.
    pub(super) height: f32,
    /// Ranks from top to bottom.
    pub(super) ranks: Vec<RankBand>,
    /// Places of the items, in their order.
    pub(super) items: Vec<Placement>,
    /// Routes of the nets, in their order.
    pub(super) routes: Vec<Route>,
}

/// Vertical extent of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankBand {
    /// Distance of the upper edge from the top of the layout.
    pub(super) top: f32,
    /// Height of the highest item.
    pub(super) height: f32,
}

/// Place of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placement {
    /// Index of the rank.
    pub(super) rank: usize,
    /// Centre of the item.
    pub(super) x: f32,
}

/// Course of a net: one trunk that all routed targets share.
///
/// A target hangs on the bend in the rank next to it, on the side of the source, or on the source itself where that is
/// in the next rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    /// Trunk in consecutive ranks: downwards from the rank below the source, or upwards from the rank above it where
    /// all routed targets are above.
    pub(super) bends: Vec<Bend>,
    /// Targets without a line, in ascending order: those too far away, those in the rank of the source, and those above
    /// the source where others are below.
    pub(super) stubs: Vec<usize>,
}

/// Point at which a trunk passes a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bend {
    /// Index of the rank.
    pub(super) rank: usize,
    /// Horizontal position.
    pub(super) x: f32,
}

/// Returns the layout of items, which come in execution order, and of the nets between them.
///
/// Any input has a finite layout: an item that reads its own value, a target given twice and an index without an item
/// draw nothing, and a size that is negative or not finite counts as 0.
pub(super) fn layout(items: &[LayoutItem], nets: &[Net], spacing: Spacing) -> LevelLayout {
    let items: Vec<LayoutItem> = items.iter().map(LayoutItem::cleaned).collect();
    let nets: Vec<Net> = nets.iter().map(|net| net.cleaned(items.len())).collect();
    let spacing = spacing.cleaned();
    let mut graph = LayeredGraph::new(rank::ranks(&items, &nets), &nets);
    order::sort_ranks(&mut graph);
    let centres = position::centres(&graph, &items, spacing);
    LevelLayout::new(&graph, &items, spacing, &centres)
}

impl LayoutItem {
    fn cleaned(&self) -> LayoutItem {
        LayoutItem {
            width: cleaned(self.width),
            height: cleaned(self.height),
            pin: self.pin,
        }
    }
}

impl Net {
    /// Returns the net with each target once, in ascending order, without its source.
    fn cleaned(&self, items: usize) -> Net {
        let is_target =
            |target: &usize| self.source < items && *target < items && *target != self.source;
        let mut targets: Vec<usize> = self.targets.iter().copied().filter(is_target).collect();
        targets.sort_unstable();
        targets.dedup();
        Net {
            source: self.source,
            targets,
        }
    }
}

impl Spacing {
    fn cleaned(self) -> Spacing {
        Spacing {
            item: cleaned(self.item),
            rank: cleaned(self.rank),
            line: cleaned(self.line),
        }
    }
}

/// Returns a length that is finite and not negative.
fn cleaned(length: f32) -> f32 {
    if length.is_finite() {
        length.clamp(0.0, MAX_LENGTH)
    } else {
        0.0
    }
}

impl LevelLayout {
    fn new(
        graph: &LayeredGraph,
        items: &[LayoutItem],
        spacing: Spacing,
        centres: &[f64],
    ) -> LevelLayout {
        let ranks = bands(graph, items, spacing.rank);
        let placements = (0..items.len()).map(|item| Placement {
            rank: graph.rank_of[item],
            x: centres[item] as f32,
        });
        let right_edge = |node: usize| centres[node] + position::half_width(items, node);
        LevelLayout {
            width: (0..centres.len()).map(right_edge).fold(0.0, f64::max) as f32,
            height: ranks.last().map_or(0.0, |band| band.top + band.height),
            ranks,
            items: placements.collect(),
            routes: graph
                .trunks
                .iter()
                .map(|trunk| route(graph, trunk, centres))
                .collect(),
        }
    }
}

fn bands(graph: &LayeredGraph, items: &[LayoutItem], distance: f32) -> Vec<RankBand> {
    let mut top = 0.0;
    let bands = graph.ranks.iter().map(|nodes| {
        let heights = nodes
            .iter()
            .filter_map(|node| items.get(*node))
            .map(|item| item.height);
        let band = RankBand {
            top,
            height: heights.fold(0.0, f32::max),
        };
        top += band.height + distance;
        band
    });
    bands.collect()
}

fn route(graph: &LayeredGraph, trunk: &Trunk, centres: &[f64]) -> Route {
    let bends = trunk.nodes.clone().map(|node| Bend {
        rank: graph.rank_of[node],
        x: centres[node] as f32,
    });
    Route {
        bends: bends.collect(),
        stubs: trunk.stubs.clone(),
    }
}
