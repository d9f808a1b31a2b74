//! Horizontal positions: vertical blocks of nodes, moved towards their neighbours as far as distances allow.

use super::align::{Blocks, blocks};
use super::layered::LayeredGraph;
use super::{LayoutItem, Spacing};

/// Times that each block moves towards its neighbours, in each direction.
const MAX_ROUNDS: usize = 16;
/// Movement of the whole layout, in CSS pixels, below which blocks rest.
const RESTING: f64 = 0.01;
/// Ranks after which blocks end, in the order of the attempts.
const BLOCK_HEIGHTS: [usize; 4] = [usize::MAX, 32, 8, 1];
/// Largest width of a layout as a multiple of its widest rank: shorter blocks need less width.
const MAX_STRETCH: f64 = 2.0;

/// Returns the centre of each node of a sorted graph. The leftmost edge is 0.
pub(super) fn centres(graph: &LayeredGraph, items: &[LayoutItem], spacing: Spacing) -> Vec<f64> {
    let (blocks, row) = narrow_row(graph, items, spacing);
    let mut centres = row.balanced();
    for _ in 0..MAX_ROUNDS {
        let moved = row.attract(&mut centres);
        if moved < RESTING {
            break;
        }
    }
    let edges = centres
        .iter()
        .zip(&row.half_widths)
        .map(|(centre, half)| centre - half);
    let left = edges.fold(f64::INFINITY, f64::min);
    blocks
        .of
        .iter()
        .map(|block| centres[*block] - left)
        .collect()
}

/// Returns the highest blocks that do not stretch the layout too much.
fn narrow_row(graph: &LayeredGraph, items: &[LayoutItem], spacing: Spacing) -> (Blocks, BlockRow) {
    let row = |height: usize| {
        let blocks = blocks(graph, height);
        let row = BlockRow::new(graph, &blocks, items, spacing);
        (blocks, row)
    };
    let limit = MAX_STRETCH * widest_rank(graph, items, spacing);
    let [highest, shorter @ ..] = BLOCK_HEIGHTS;
    let mut narrowest = row(highest);
    for height in shorter {
        if narrowest.1.width() <= limit {
            break;
        }
        narrowest = row(height);
    }
    narrowest
}

/// Returns the width of the widest rank.
fn widest_rank(graph: &LayeredGraph, items: &[LayoutItem], spacing: Spacing) -> f64 {
    let width = |nodes: &Vec<usize>| {
        let ends = [nodes.first(), nodes.last()].into_iter().flatten();
        let margins: f64 = ends.map(|node| half_width(items, *node)).sum();
        let pairs = nodes.windows(2);
        let distances: f64 = pairs
            .map(|pair| distance(items, spacing, pair[0], pair[1]))
            .sum();
        margins + distances
    };
    graph.ranks.iter().map(width).fold(0.0, f64::max)
}

/// Returns half of the width of a node. Bends have none.
pub(super) fn half_width(items: &[LayoutItem], node: usize) -> f64 {
    items
        .get(node)
        .map_or(0.0, |item| f64::from(item.width) / 2.0)
}

/// Returns the least distance between the centres of neighbours in a rank.
fn distance(items: &[LayoutItem], spacing: Spacing, left: usize, right: usize) -> f64 {
    let are_boxes = left < items.len() && right < items.len();
    let gap = if are_boxes {
        spacing.item
    } else {
        spacing.line
    };
    half_width(items, left) + f64::from(gap) + half_width(items, right)
}

/// Distance of a block from one beside it.
#[derive(Clone, Copy)]
struct Beside {
    block: usize,
    distance: f64,
}

/// Blocks and least distances between them.
struct BlockRow {
    half_widths: Vec<f64>,
    /// Blocks to the left of each block.
    lefts: Vec<Vec<Beside>>,
    /// Blocks to the right of each block.
    rights: Vec<Vec<Beside>>,
    /// Blocks that each block has lines to, once for each line.
    attractions: Vec<Vec<usize>>,
    /// All blocks, each after those to its left.
    from_left: Vec<usize>,
}

impl BlockRow {
    fn new(
        graph: &LayeredGraph,
        blocks: &Blocks,
        items: &[LayoutItem],
        spacing: Spacing,
    ) -> BlockRow {
        let mut row = BlockRow {
            half_widths: vec![0.0; blocks.count],
            lefts: vec![Vec::new(); blocks.count],
            rights: vec![Vec::new(); blocks.count],
            attractions: vec![Vec::new(); blocks.count],
            from_left: Vec::new(),
        };
        for (node, block) in blocks.of.iter().enumerate() {
            row.half_widths[*block] = row.half_widths[*block].max(half_width(items, node));
        }
        for pair in graph.ranks.iter().flat_map(|nodes| nodes.windows(2)) {
            let distance = distance(items, spacing, pair[0], pair[1]);
            row.separate(blocks.of[pair[0]], blocks.of[pair[1]], distance);
        }
        for (upper, lowers) in graph.lowers.iter().enumerate() {
            for lower in lowers {
                row.connect(blocks.of[upper], blocks.of[*lower]);
            }
        }
        row.sort_from_left();
        row
    }

    fn separate(&mut self, left: usize, right: usize, distance: f64) {
        self.rights[left].push(Beside {
            block: right,
            distance,
        });
        self.lefts[right].push(Beside {
            block: left,
            distance,
        });
    }

    fn connect(&mut self, a: usize, b: usize) {
        if a != b {
            self.attractions[a].push(b);
            self.attractions[b].push(a);
        }
    }

    fn sort_from_left(&mut self) {
        let mut waiting: Vec<usize> = self.lefts.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..waiting.len())
            .filter(|block| waiting[*block] == 0)
            .collect();
        while let Some(block) = ready.pop() {
            self.from_left.push(block);
            for beside in &self.rights[block] {
                waiting[beside.block] -= 1;
                if waiting[beside.block] == 0 {
                    ready.push(beside.block);
                }
            }
        }
    }

    /// Returns the leftmost possible centres.
    fn leftmost(&self) -> Vec<f64> {
        let mut centres = vec![0.0; self.half_widths.len()];
        for block in self.from_left.iter().copied() {
            centres[block] = self.least(block, &centres).max(self.half_widths[block]);
        }
        centres
    }

    /// Returns the rightmost possible centres within a width.
    fn rightmost(&self, width: f64) -> Vec<f64> {
        let mut centres = vec![0.0; self.half_widths.len()];
        for block in self.from_left.iter().copied().rev() {
            centres[block] = self
                .greatest(block, &centres)
                .min(width - self.half_widths[block]);
        }
        centres
    }

    /// Returns the least width of all blocks together.
    fn width(&self) -> f64 {
        let centres = self.leftmost();
        let edges = centres
            .iter()
            .zip(&self.half_widths)
            .map(|(centre, half)| centre + half);
        edges.fold(0.0, f64::max)
    }

    /// Returns the means of the leftmost and the rightmost possible centres.
    fn balanced(&self) -> Vec<f64> {
        let (leftmost, rightmost) = (self.leftmost(), self.rightmost(self.width()));
        let both = leftmost.iter().zip(rightmost);
        both.map(|(left, right)| (left + right) / 2.0).collect()
    }

    /// Returns the leftmost centre that the blocks to the left of a block allow.
    fn least(&self, block: usize, centres: &[f64]) -> f64 {
        let ends = self.lefts[block]
            .iter()
            .map(|beside| centres[beside.block] + beside.distance);
        ends.fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the rightmost centre that the blocks to the right of a block allow.
    fn greatest(&self, block: usize, centres: &[f64]) -> f64 {
        let ends = self.rights[block]
            .iter()
            .map(|beside| centres[beside.block] - beside.distance);
        ends.fold(f64::INFINITY, f64::min)
    }

    /// Moves each block towards its neighbours, from left to right and back. Returns the sum of the movements.
    fn attract(&self, centres: &mut [f64]) -> f64 {
        let mut moved = 0.0;
        let from_left = self.from_left.iter().copied();
        for block in from_left.clone().chain(from_left.rev()) {
            let wanted = self.wanted(block, centres);
            let centre = wanted
                .min(self.greatest(block, centres))
                .max(self.least(block, centres));
            moved += (centre - centres[block]).abs();
            centres[block] = centre;
        }
        moved
    }

    /// Returns the median of the blocks that a block has lines to; without any, the leftmost place.
    fn wanted(&self, block: usize, centres: &[f64]) -> f64 {
        let neighbours = self.attractions[block].iter();
        let mut neighbours: Vec<f64> = neighbours.map(|other| centres[*other]).collect();
        neighbours.sort_unstable_by(f64::total_cmp);
        let upper_median = neighbours.len() / 2;
        match neighbours.get(upper_median) {
            None => self.half_widths[block].max(self.least(block, centres)),
            Some(median) if neighbours.len() % 2 == 1 => *median,
            Some(median) => (median + neighbours[upper_median - 1]) / 2.0,
        }
    }
}
