//! Division of the gradient of a filter among workgroups: parts of the images and blocks of input channels. More blocks
//! transform the tiles more often. More parts add up more sums.

use crate::dim::Dim;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::winograd::{OutputTile, TAPS};
use crate::plan::conv::filter_gradient::FilterGradient;
use crate::plan::conv::winograd::partition::MAX_LOOP_ITERATIONS;
use crate::plan::element::vec4::VEC4_LEN;
use crate::plan::product::tile::{LeftLayout, TileShape};

/// Workgroups that occupy all threads: fewer take as long.
const MIN_WORKGROUPS: usize = 4;
/// Fewest channels of a block, if there are several.
const MIN_BLOCK_SIZE: usize = 32;
/// Most parts of the images.
const MAX_PARTS: usize = 16;
/// Numbers of tiles that a chunk may have at most.
const CHUNK_TILES: [usize; 3] = [32, 64, 128];
/// Most bytes of the transformed tiles and sums of a workgroup, which should stay in the last cache of a processor. With
/// half as many, gradients of ResNet-18's layers of 64 to 256 channels take 1.3 to 1.4 times as long: blocks and chunks are
/// smaller, so that tiles are transformed more often, and sums are read and written more often.
const MAX_WORKGROUP_BYTES: usize = 3 << 20;
/// Iterations of a product besides those of its loop over K.
const EXTRA_ITERATIONS_PER_PRODUCT: usize = 4;

// Cycles for as many vectors of four numbers as the device has lanes, on vectors of sixteen numbers.
/// Cycles for each vector that a transform loads or stores.
const TRANSFORM_CYCLES_PER_VECTOR: usize = 145;
/// Cycles to store a vector of a sum.
const STORE_SUM_CYCLES: usize = 220;
/// Cycles to add a vector to a sum in memory.
const ADD_TO_SUM_CYCLES: usize = 350;
/// Cycles of a thread to write a number of a part, and to add it to those of the other parts.
const ADD_PART_CYCLES: usize = 3;

/// Number of parts of the images in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartCount {
    /// As many as the product has.
    Given,
    /// Any number.
    Any,
}

/// The share of the work that each workgroup gets.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientPartition {
    /// Size of a tile of the output.
    pub output_tile: OutputTile,
    /// Number of parts of the images.
    pub parts: usize,
    /// Number of blocks of input channels, each of which has a workgroup of its own, and of blocks of output channels, which
    /// a workgroup takes one after the other.
    pub blocks: [usize; 2],
    /// Channels of each block, including padding: multiples of the sizes of `tile_shape`.
    pub block_sizes: [usize; 2],
    /// Number of chunks of tiles, which a workgroup takes one after the other.
    pub chunks: usize,
    /// Tiles of a chunk, including padding: a multiple of four.
    pub chunk_tiles: usize,
    /// Shape of the tiles of the products.
    pub tile_shape: TileShape,
    /// Estimated cycles of one thread.
    pub cycles: u64,
}

impl GradientPartition {
    /// Chooses the partition that takes least time, with the gradient's number of parts or with any number. `None` if a device
    /// cannot compute the gradient by tiles: unknown sizes, channels that are not multiples of four, or images that are too
    /// large.
    pub fn best(
        capabilities: &Capabilities,
        gradient: &FilterGradient,
        output_tile: OutputTile,
        parts: PartCount,
    ) -> Option<GradientPartition> {
        let lanes = capabilities
            .simd_lanes()
            .filter(|_| capabilities.subgroup_barriers)?;
        let sizes = GradientSizes::of(gradient, output_tile, parts)?;
        sizes.best_partition(lanes, capabilities.max_binding_size)
    }

    /// Bytes of the transformed tiles of both images, and of the sums of a workgroup.
    fn scratch_bytes(&self) -> usize {
        let [rows, columns] = self.block_sizes;
        let numbers = (rows + columns) * self.chunk_tiles + rows * columns;
        numbers * self.output_tile.matrices() * size_of::<f32>()
    }

    /// Number of products of tiles in a chunk, for a block of output channels.
    fn products(&self, lanes: usize) -> usize {
        let [rows, columns] = self.block_sizes;
        let tiles = rows / self.tile_shape.height() * (columns / self.tile_shape.width(lanes));
        tiles * self.output_tile.matrices()
    }

    /// Trips of the lanes through the transformed tiles of a chunk in both images, and through the sums.
    fn trips(&self, lanes: usize) -> [usize; 3] {
        let [rows, columns] = self.block_sizes.map(|size| size / VEC4_LEN);
        let vectors = [
            rows * self.chunk_tiles,
            columns * self.chunk_tiles,
            rows * VEC4_LEN * columns,
        ];
        vectors.map(|count| count.div_ceil(lanes))
    }

    /// Times that a workgroup transforms the tiles of the input.
    pub fn input_transforms(&self) -> usize {
        match self.chunks {
            1 => 1,
            chunks => chunks * self.blocks[1],
        }
    }

    /// Iterations of all loops of an invocation.
    fn iterations(&self, lanes: usize) -> usize {
        let [inputs, outputs, sums] = self.trips(lanes);
        let k_iterations = self.chunk_tiles / VEC4_LEN + EXTRA_ITERATIONS_PER_PRODUCT;
        let chunk = self.products(lanes) * k_iterations + outputs;
        self.input_transforms() * inputs + self.blocks[1] * (self.chunks * chunk + sums)
    }

    /// Estimates the cycles of a workgroup, on vectors of sixteen numbers.
    fn workgroup_cycles(&self, lanes: usize) -> usize {
        let side = self.output_tile.input_size();
        let transform = |other: usize| (side * side + other * other) * TRANSFORM_CYCLES_PER_VECTOR;
        let [inputs, outputs, sums] = self.trips(lanes);
        let sum_cycles = match self.chunks {
            1 => STORE_SUM_CYCLES,
            _ => ADD_TO_SUM_CYCLES,
        };
        let TileShape {
            rows, column_vec4s, ..
        } = self.tile_shape;
        let k_cycles = self.tile_shape.k_cycles(lanes, LeftLayout::Contiguous);
        let product = self.chunk_tiles / VEC4_LEN * k_cycles + rows * column_vec4s * sum_cycles;
        let chunk = self.products(lanes) * product + outputs * transform(self.output_tile.size());
        self.input_transforms() * inputs * transform(side)
            + self.blocks[1] * (self.chunks * chunk + sums * transform(TAPS))
    }
}

/// Sizes of a gradient.
struct GradientSizes {
    output_tile: OutputTile,
    groups: usize,
    /// Number of parts; `None` if any number may be chosen.
    parts: Option<usize>,
    images: usize,
    tiles_per_image: usize,
    positions_per_image: usize,
    /// Input channels and output channels of a group.
    channels: [usize; 2],
}

impl GradientSizes {
    /// The sizes, if all are known, and the channels are multiples of four.
    fn of(
        gradient: &FilterGradient,
        output_tile: OutputTile,
        parts: PartCount,
    ) -> Option<GradientSizes> {
        let constant = |size: &Dim| {
            usize::try_from(size.as_const()?)
                .ok()
                .filter(|size| *size > 0)
        };
        let space = [constant(&gradient.space[0])?, constant(&gradient.space[1])?];
        let given_parts = constant(&gradient.parts)?;
        let channels = [constant(&gradient.channels)?, constant(&gradient.outputs)?];
        let tiles = space.map(|size| size.div_ceil(output_tile.size()));
        let are_multiples_of_4 = channels.iter().all(|size| size.is_multiple_of(VEC4_LEN));
        are_multiples_of_4.then_some(GradientSizes {
            output_tile,
            groups: constant(&gradient.groups)?,
            parts: (parts == PartCount::Given).then_some(given_parts),
            images: constant(&gradient.images)?,
            tiles_per_image: tiles.iter().product(),
            positions_per_image: space.iter().product(),
            channels,
        })
    }

    /// The partition that takes least time, with loops that stay within the iterations of a driver, and memory that fits a
    /// binding.
    fn best_partition(&self, lanes: usize, max_binding_size: u64) -> Option<GradientPartition> {
        let fits = |partition: &GradientPartition| {
            let bytes = partition.scratch_bytes() * self.workgroups(partition);
            partition.iterations(lanes) <= MAX_LOOP_ITERATIONS && bytes as u64 <= max_binding_size
        };
        let candidates = self.candidates(lanes).into_iter().filter(fits);
        let costed = candidates.map(|partition| GradientPartition {
            cycles: self.cycles(lanes, &partition),
            ..partition
        });
        costed.min_by_key(|partition| partition.cycles)
    }

    /// All partitions whose memory stays in the caches.
    fn candidates(&self, lanes: usize) -> Vec<GradientPartition> {
        let mut candidates = Vec::new();
        for tile_shape in TileShape::candidates(lanes).filter(is_shareable) {
            for parts in self.part_counts() {
                for blocks in block_counts(self.channels) {
                    candidates
                        .extend(CHUNK_TILES.map(|tiles| {
                            self.partition(lanes, parts, blocks, (tile_shape, tiles))
                        }));
                }
            }
        }
        candidates.retain(|partition| partition.scratch_bytes() <= MAX_WORKGROUP_BYTES);
        candidates
    }

    /// Numbers of parts that divide the images, with a K that is a multiple of four.
    fn part_counts(&self) -> Vec<usize> {
        let is_even = |parts: &usize| {
            let positions = self.images / parts * self.positions_per_image;
            let has_vec4s = *parts == 1 || positions.is_multiple_of(VEC4_LEN);
            self.images.is_multiple_of(*parts) && has_vec4s
        };
        let counts = match self.parts {
            Some(parts) => parts..=parts,
            None => 1..=MAX_PARTS,
        };
        counts.filter(is_even).collect()
    }

    /// The partition with these numbers of parts and blocks, for products in tiles of a shape and chunks of at most so many
    /// tiles.
    fn partition(
        &self,
        lanes: usize,
        parts: usize,
        blocks: [usize; 2],
        (tile_shape, max_tiles): (TileShape, usize),
    ) -> GradientPartition {
        let sizes = [tile_shape.height(), tile_shape.width(lanes)];
        let block_sizes = [0, 1].map(|side| {
            let size = self.channels[side].div_ceil(blocks[side]);
            size.next_multiple_of(sizes[side])
        });
        let tiles = self.images / parts * self.tiles_per_image;
        let chunks = tiles.div_ceil(max_tiles);
        GradientPartition {
            output_tile: self.output_tile,
            parts,
            blocks: [0, 1].map(|side| self.channels[side].div_ceil(block_sizes[side])),
            block_sizes,
            chunks,
            chunk_tiles: tiles.div_ceil(chunks).next_multiple_of(VEC4_LEN),
            tile_shape,
            cycles: 0,
        }
    }

    /// Estimates the cycles of one thread.
    fn cycles(&self, lanes: usize, partition: &GradientPartition) -> u64 {
        let workgroups = self.workgroups(partition).max(MIN_WORKGROUPS);
        let run = workgroups * partition.workgroup_cycles(lanes) * lanes / 16;
        (run + self.added_numbers(partition.parts) * ADD_PART_CYCLES) as u64
    }

    fn workgroups(&self, partition: &GradientPartition) -> usize {
        self.groups * partition.parts * partition.blocks[0]
    }

    /// Numbers of all parts, if there is more than one.
    fn added_numbers(&self, parts: usize) -> usize {
        let numbers = self.groups * TAPS * TAPS * self.channels.iter().product::<usize>();
        if parts > 1 { parts * numbers } else { 0 }
    }
}

/// True for shapes that fit layers of several sizes, so that these share a kernel. Four rows are loaded together.
fn is_shareable(tile_shape: &TileShape) -> bool {
    let TileShape {
        rows, column_vec4s, ..
    } = tile_shape;
    rows.is_multiple_of(VEC4_LEN) && rows.is_power_of_two() && column_vec4s.is_power_of_two()
}

/// Numbers of blocks of input channels and of output channels: powers of two.
fn block_counts(channels: [usize; 2]) -> Vec<[usize; 2]> {
    let counts = channels.map(|size| (size / MIN_BLOCK_SIZE).max(1).ilog2());
    let rows = (0..=counts[0]).map(|i| 1 << i);
    rows.flat_map(|rows| (0..=counts[1]).map(move |i| [rows, 1 << i]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BINDING_SIZE: u64 = 128 << 20;

    /// The partition of the gradient of a convolution whose input and output are square images of a size.
    fn partition(
        lanes: usize,
        images: usize,
        size: usize,
        channels: [usize; 2],
    ) -> Option<GradientPartition> {
        let sizes = GradientSizes {
            output_tile: OutputTile::Four,
            groups: 1,
            parts: None,
            images,
            tiles_per_image: size.div_ceil(4).pow(2),
            positions_per_image: size * size,
            channels,
        };
        sizes.best_partition(lanes, MAX_BINDING_SIZE)
    }

    #[test]
    fn partitions_cover_all_channels_and_tiles() {
        for lanes in [8, 16] {
            for (images, size, channels) in [
                (8, 56, [64, 64]),
                (8, 7, [512, 512]),
                (3, 9, [12, 100]),
                (1, 61, [4, 16]),
            ] {
                let partition = partition(lanes, images, size, channels).unwrap();
                for side in [0, 1] {
                    let covered = partition.blocks[side] * partition.block_sizes[side];
                    assert!(covered >= channels[side], "{partition:?}");
                    assert!(
                        covered - partition.block_sizes[side] < channels[side],
                        "{partition:?}"
                    );
                }
                let tiles = images / partition.parts * size.div_ceil(4).pow(2);
                assert!(
                    partition.chunks * partition.chunk_tiles >= tiles,
                    "{partition:?}"
                );
                assert_eq!(images % partition.parts, 0, "{partition:?}");
            }
        }
    }

    /// Large images have no partition: their loops would exceed the iterations that a driver allows.
    #[test]
    fn partitions_stay_within_limits() {
        for lanes in [8, 16] {
            for (images, size, channels) in [
                (32, 112, [64, 64]),
                (8, 224, [64, 64]),
                (64, 14, [1024, 1024]),
                (1, 2048, [8, 8]),
            ] {
                if let Some(partition) = partition(lanes, images, size, channels) {
                    assert!(
                        partition.iterations(lanes) <= MAX_LOOP_ITERATIONS,
                        "{partition:?}"
                    );
                    assert!(
                        partition.scratch_bytes() <= MAX_WORKGROUP_BYTES,
                        "{partition:?}"
                    );
                }
            }
            assert_eq!(partition(lanes, 1, 2048, [64, 64]), None);
        }
    }
}
