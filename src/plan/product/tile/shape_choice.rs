//! Choice of tile shapes for a whole graph: with more shapes it runs faster, but the driver compiles longer.
//!
//! The choice minimises an estimate in cycles of one thread: those of compilation, and those of [`RUNS_PER_START`] runs.

use std::collections::{BTreeMap, BTreeSet};

use super::tile_shape::{CYCLES_PER_MS, LeftLayout, TileShape};
use super::{columns_per_vec4, fits_texture};
use crate::kernel::layout::{Panels, TextureLimits};
use crate::plan::element::vec4::VEC4_LEN;

/// Bound on the K elements of a wide iteration times rows: beyond it the source of the loop grows too long. In a wide
/// iteration, each invocation loads four K elements of every row.
const MAX_WIDE_K_BLOCK_SIZE: usize = 256;
/// Number of runs that a start pays for: the driver may compile a source as long as the source saves in this many runs.
/// They correspond to some seconds of video or a test set; users who run a network a few times wait longer for its
/// start.
pub const RUNS_PER_START: u64 = 500;

/// A matrix product with a weight, in the example's sizes.
pub struct WeightProduct {
    /// Key of everything that the kernel's source depends on, except the tile shape.
    pub kernel_key: String,
    /// Layout of the left factor.
    pub left_layout: LeftLayout,
    /// Number of products that share the weight's columns, and rows of each.
    pub sizes: [usize; 2],
    /// Panels of the weight; their tile shape is arbitrary.
    pub panels: Panels,
    /// The kernel around the product, if it contains more than a tile and its epilogue.
    pub enclosing: Option<EnclosingKernel>,
}

/// A kernel that contains products besides other work.
pub struct EnclosingKernel {
    /// Returns the cycles of a run with a tile shape, given the cycles of an iteration. `None` where a device cannot
    /// run it with that shape.
    pub run_cycles: Box<dyn Fn(TileShape, usize) -> Option<u64>>,
    /// Milliseconds that the driver takes to compile the other parts.
    pub compile_ms: u64,
}

impl WeightProduct {
    /// Returns the panels of the weight for a tile shape.
    fn panels_for(&self, lanes: usize, tile_shape: TileShape) -> Panels {
        Panels {
            k_block: tile_shape.k_block,
            width: tile_shape.width(lanes),
            strip: tile_shape.strip(lanes),
            ..self.panels.clone()
        }
    }

    /// Returns the length of the innermost reduction.
    fn k_size(&self) -> usize {
        self.panels.k_ranges.last().map_or(1, |run| run.count)
    }

    /// Returns the shape with wide iterations for few rows. `None` for more rows, and if iterations would be padded
    /// with many zeros.
    fn wide_k_block_shape(&self, lanes: usize) -> Option<TileShape> {
        let (k_elements, rows) = (columns_per_vec4(lanes), self.sizes[1]);
        let is_filled =
            self.k_size().next_multiple_of(k_elements) <= self.k_size() + self.k_size() / 4;
        (rows * k_elements < MAX_WIDE_K_BLOCK_SIZE && is_filled).then_some(TileShape {
            bands: 1,
            rows: rows.max(1),
            column_vec4s: 1,
            k_block: k_elements,
        })
    }

    /// Returns whether tiles of some shape can compute the product.
    pub fn is_possible(&self, lanes: usize, limits: TextureLimits) -> bool {
        let mut candidates = TileShape::candidates(lanes);
        candidates.any(|tile_shape| self.run_cycles(lanes, limits, tile_shape).is_some())
    }

    /// Returns the cycles of a run with a tile shape. `None` if the panels do not fit a texture.
    fn run_cycles(
        &self,
        lanes: usize,
        limits: TextureLimits,
        tile_shape: TileShape,
    ) -> Option<u64> {
        if !fits_texture(limits, &self.panels_for(lanes, tile_shape)) {
            return None;
        }
        if let Some(enclosing) = &self.enclosing {
            return (enclosing.run_cycles)(
                tile_shape,
                tile_shape.k_cycles(lanes, self.left_layout),
            );
        }
        let outer_ranges = self.panels.k_ranges.iter().rev().skip(1);
        let outer_k: usize = outer_ranges.map(|range| range.count).product();
        let k_vec4s = outer_k * self.k_size().div_ceil(VEC4_LEN);
        let [matrices, rows] = self.sizes;
        let sizes = [matrices, rows, self.panels.columns.count, k_vec4s];
        Some(tile_shape.product_cycles(lanes, self.left_layout, sizes))
    }
}

/// Returns the tile shape of each product of a graph, for a device with `lanes` lanes and these texture limits.
pub fn choose_shapes(
    lanes: usize,
    limits: TextureLimits,
    products: &[WeightProduct],
) -> Vec<TileShape> {
    let mut chosen: Vec<Option<TileShape>> = products
        .iter()
        .map(|product| product.wide_k_block_shape(lanes))
        .collect();
    let mut by_kernel: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, product) in products.iter().enumerate() {
        if chosen[index]
            .is_none_or(|wide_shape| !fits_texture(limits, &product.panels_for(lanes, wide_shape)))
        {
            by_kernel
                .entry(&product.kernel_key)
                .or_default()
                .push(index);
        }
    }
    for indices in by_kernel.into_values() {
        let run_cycles =
            |index: usize, tile_shape| products[index].run_cycles(lanes, limits, tile_shape);
        let enclosing = indices
            .first()
            .and_then(|index| products[*index].enclosing.as_ref());
        let other_compile_cycles =
            enclosing.map_or(0, |enclosing| enclosing.compile_ms * CYCLES_PER_MS);
        let candidates = ShapeCandidates::of(lanes, other_compile_cycles, &indices, run_cycles);
        for (index, tile_shape) in indices.iter().zip(candidates.choose()) {
            chosen[*index] = tile_shape;
        }
    }
    chosen
        .into_iter()
        .map(|tile_shape| tile_shape.unwrap_or(TileShape::DEFAULT))
        .collect()
}

/// Candidate shapes for products that differ in sizes only, so that those of equal shape share a kernel.
struct ShapeCandidates {
    product_count: usize,
    /// Cycles that the driver takes to compile the rest of a kernel's source.
    other_compile_cycles: u64,
    /// Candidate shapes, with the run cycles of each product.
    shapes: Vec<(TileShape, Vec<Option<u64>>)>,
}

impl ShapeCandidates {
    fn of(
        lanes: usize,
        other_compile_cycles: u64,
        products: &[usize],
        cycles: impl Fn(usize, TileShape) -> Option<u64>,
    ) -> ShapeCandidates {
        let product_cycles = |tile_shape| {
            products
                .iter()
                .map(|product| cycles(*product, tile_shape))
                .collect()
        };
        ShapeCandidates {
            product_count: products.len(),
            other_compile_cycles,
            shapes: TileShape::candidates(lanes)
                .map(|tile_shape| (tile_shape, product_cycles(tile_shape)))
                .collect(),
        }
    }

    /// Chooses the shape of each product. Starts with one shape for all, and adds or removes shapes as long as that
    /// lowers the cost.
    fn choose(&self) -> Vec<Option<TileShape>> {
        let mut chosen = BTreeSet::new();
        loop {
            let more = (0..self.shapes.len()).map(|shape| {
                let mut chosen = chosen.clone();
                chosen.insert(shape);
                chosen
            });
            let fewer = chosen.iter().map(|shape| {
                let mut chosen = chosen.clone();
                chosen.remove(shape);
                chosen
            });
            let next = more.chain(fewer).min_by_key(|chosen| self.cost(chosen));
            match next {
                Some(next) if self.cost(&next) < self.cost(&chosen) => chosen = next,
                _ => break,
            }
        }
        let shape_of = |product| {
            self.fastest(&chosen, product)
                .map(|(_, shape)| self.shapes[shape].0)
        };
        (0..self.product_count).map(shape_of).collect()
    }

    /// Returns the number of products without a possible shape, and the cycles of compilation and [`RUNS_PER_START`]
    /// runs.
    fn cost(&self, chosen: &BTreeSet<usize>) -> (usize, u64) {
        let cycles_by_product =
            (0..self.product_count).filter_map(|product| self.fastest(chosen, product));
        let cycles_by_product: Vec<u64> = cycles_by_product.map(|(cycles, _)| cycles).collect();
        let compile_cycles: u64 = chosen
            .iter()
            .map(|shape| self.shapes[*shape].0.compile_cycles() + self.other_compile_cycles)
            .sum();
        (
            self.product_count - cycles_by_product.len(),
            compile_cycles + RUNS_PER_START * cycles_by_product.iter().sum::<u64>(),
        )
    }

    /// Returns the cycles and the index of the fastest chosen shape for a product.
    fn fastest(&self, chosen: &BTreeSet<usize>, product: usize) -> Option<(u64, usize)> {
        let candidates = chosen
            .iter()
            .filter_map(|shape| Some((self.shapes[*shape].1[product]?, *shape)));
        candidates.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::layout::StridedRange;

    const LIMITS: TextureLimits = TextureLimits {
        size: 8192,
        layers: 256,
        bindings: 8,
    };

    fn sums(rows: usize, channels: usize) -> WeightProduct {
        let run = |count, stride| StridedRange { count, stride };
        let depth = vec![run(3, 3), run(3, 1), run(channels, 9)];
        let packed = TileShape::DEFAULT.pack(8, run(1, 0), depth, run(channels, 9 * channels));
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
        assert!(
            found.iter().all(|tile_shape| *tile_shape == found[0]),
            "{found:?}"
        );
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
    fn few_rows_take_wide_k_blocks() {
        let found = choose_shapes(8, LIMITS, &[sums(4, 64), sums(4, 40)]);
        assert_eq!(found[0].k_block, 32);
        assert_eq!(
            found[1].k_block, VEC4_LEN,
            "40 K elements would be padded with many zeros"
        );
    }
}
