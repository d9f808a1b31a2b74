//! The arena: memory of temporaries. Temporaries with disjoint lifetimes share it.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

/// A value that needs memory.
#[derive(Clone, Debug)]
pub(super) struct ArenaItem {
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Steps during which no other value may use the memory.
    pub(super) live: RangeInclusive<usize>,
}

/// Location of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BufferLocation {
    /// Index of the buffer.
    pub(super) buffer: usize,
    /// Bytes from the start of the buffer.
    pub(super) offset: u64,
}

/// Locations of all values.
#[derive(Clone, Debug, Default)]
pub(super) struct ArenaLayout {
    /// Location of each item.
    pub(super) locations: Vec<BufferLocation>,
    /// Size of each buffer in bytes.
    pub(super) buffers: Vec<u64>,
}

impl ArenaLayout {
    /// Total bytes of all buffers.
    fn bytes(&self) -> u64 {
        self.buffers.iter().sum()
    }

    /// True if an item is at the end of the last buffer.
    fn ends_last_buffer(&self, items: &[ArenaItem], index: usize) -> bool {
        let BufferLocation { buffer, offset } = self.locations[index];
        buffer + 1 == self.buffers.len() && self.buffers[buffer] == offset + items[index].bytes
    }
}

/// A buffer during assignment.
#[derive(Default)]
struct ArenaBuffer {
    /// Offset and index of each item, sorted by offset.
    items: Vec<(u64, usize)>,
    bytes: u64,
}

/// Number of orders that are tried after the first one.
const MAX_REORDERINGS: usize = 16;
/// With more items only the first order is tried, because the time is quadratic in their number.
const MAX_REORDERED_ITEMS: usize = 256;

/// Assigns locations so that items with overlapping lifetimes share no memory. Greedy: takes the largest item first and
/// puts each at the lowest free offset. While the total exceeds the bytes that are live at once, moves the item that
/// ends the last buffer to the front of the order and tries again. Offsets are multiples of `alignment`. No buffer
/// exceeds `limit` unless a single item does.
pub(super) fn assign_locations(items: &[ArenaItem], alignment: u64, limit: u64) -> ArenaLayout {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| (Reverse(items[*index].bytes), *items[*index].live.start()));
    let mut best = first_fit(items, &order, alignment, limit);
    if items.len() > MAX_REORDERED_ITEMS {
        return best;
    }
    let lower_bound = peak_live_bytes(items);
    let mut latest = best.clone();
    for _ in 0..MAX_REORDERINGS {
        if best.bytes() <= lower_bound {
            break;
        }
        let last_item = order
            .iter()
            .rposition(|index| latest.ends_last_buffer(items, *index));
        order[..=last_item.unwrap_or_default()].rotate_right(1);
        latest = first_fit(items, &order, alignment, limit);
        if latest.bytes() < best.bytes() {
            best = latest.clone();
        }
    }
    best
}

/// Assigns locations in the given order, each at the lowest free offset.
fn first_fit(items: &[ArenaItem], order: &[usize], alignment: u64, limit: u64) -> ArenaLayout {
    let mut locations = vec![BufferLocation::default(); items.len()];
    let mut buffers: Vec<ArenaBuffer> = Vec::new();
    for index in order.iter().copied() {
        let fit = buffers
            .iter()
            .enumerate()
            .find_map(|(buffer_index, buffer)| {
                let offset = buffer.lowest_free_offset(items, index, alignment);
                (offset + items[index].bytes <= limit).then_some((buffer_index, offset))
            });
        let (buffer_index, offset) = fit.unwrap_or_else(|| {
            buffers.push(ArenaBuffer::default());
            (buffers.len() - 1, 0)
        });
        buffers[buffer_index].insert(offset, index, items[index].bytes);
        locations[index] = BufferLocation {
            buffer: buffer_index,
            offset,
        };
    }
    ArenaLayout {
        locations,
        buffers: buffers.iter().map(|buffer| buffer.bytes).collect(),
    }
}

/// Largest sum of bytes of items that are live at the same step.
pub(super) fn peak_live_bytes(items: &[ArenaItem]) -> u64 {
    let live_at = |step: usize| {
        let live = items.iter().filter(|item| item.live.contains(&step));
        live.map(|item| item.bytes).sum()
    };
    let starts = items.iter().map(|item| *item.live.start());
    starts.map(live_at).max().unwrap_or(0)
}

/// Gives every item its own buffer.
pub(super) fn one_buffer_each(items: &[u64]) -> ArenaLayout {
    let location = |buffer| BufferLocation { buffer, offset: 0 };
    ArenaLayout {
        locations: (0..items.len()).map(location).collect(),
        buffers: items.to_vec(),
    }
}

impl ArenaBuffer {
    /// The lowest offset at which an item overlaps no item with an overlapping lifetime.
    fn lowest_free_offset(&self, items: &[ArenaItem], index: usize, alignment: u64) -> u64 {
        let item = &items[index];
        let mut offset = 0;
        for (start, other) in &self.items {
            let other = &items[*other];
            if !overlap(&item.live, &other.live) {
                continue;
            }
            if offset + item.bytes <= *start {
                break;
            }
            offset = offset.max((start + other.bytes).next_multiple_of(alignment));
        }
        offset
    }

    /// Inserts an item and keeps the items sorted by offset.
    fn insert(&mut self, offset: u64, index: usize, bytes: u64) {
        let position = self.items.partition_point(|(start, _)| *start <= offset);
        self.items.insert(position, (offset, index));
        self.bytes = self.bytes.max(offset + bytes);
    }
}

/// True if two lifetimes have a step in common.
fn overlap(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small deterministic random number generator, so that failures are reproducible.
    struct TestRng(u64);

    impl TestRng {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    /// Tiles and images as in residual blocks: the lowest offset for each second buffer of tiles leaves no room for an
    /// image.
    #[test]
    fn residual_blocks_reach_the_live_minimum() {
        let item = |(bytes, first, last)| ArenaItem {
            bytes,
            live: first..=last,
        };
        let block = |at: usize| {
            let (image, tiles) = (800, 1800);
            [
                (image, at, at + 6),
                (tiles, at + 1, at + 2),
                (tiles, at + 2, at + 3),
                (image, at + 3, at + 4),
                (tiles, at + 4, at + 5),
                (tiles, at + 5, at + 6),
            ]
        };
        let blocks = [3, 9].into_iter().flat_map(block);
        let items: Vec<ArenaItem> = [(800, 1, 2), (3200, 2, 3)]
            .into_iter()
            .chain(blocks)
            .map(item)
            .collect();
        assert_eq!(
            assign_locations(&items, 4, u64::MAX).bytes(),
            peak_live_bytes(&items)
        );
    }

    fn items(random: &mut TestRng) -> Vec<ArenaItem> {
        let steps = 1 + random.below(40);
        (0..random.below(60))
            .map(|_| {
                let first = random.below(steps);
                let last = first + random.below(steps - first);
                ArenaItem {
                    bytes: 4 * (1 + random.below(1000)),
                    live: first as usize..=last as usize,
                }
            })
            .collect()
    }

    #[test]
    fn live_items_never_share_memory() {
        let mut random = TestRng(1);
        for round in 0..300 {
            let items = items(&mut random);
            let alignment = [4, 32, 256][round % 3];
            let limit = [5000, 20_000, u64::MAX][round / 3 % 3];
            let layout = assign_locations(&items, alignment, limit);
            for (a, first) in items.iter().enumerate() {
                let spot = layout.locations[a];
                assert_eq!(spot.offset % alignment, 0);
                assert!(spot.offset + first.bytes <= layout.buffers[spot.buffer]);
                assert!(layout.buffers[spot.buffer] <= limit);
                for (b, second) in items.iter().enumerate().skip(a + 1) {
                    let other = layout.locations[b];
                    let apart = spot.buffer != other.buffer
                        || spot.offset + first.bytes <= other.offset
                        || other.offset + second.bytes <= spot.offset;
                    assert!(apart || !overlap(&first.live, &second.live), "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn a_chain_takes_two_locations_and_two_items_live() {
        let items: Vec<ArenaItem> = (0..10)
            .map(|step| ArenaItem {
                bytes: 1024,
                live: step..=step + 1,
            })
            .collect();
        assert_eq!(peak_live_bytes(&items), 2048);
        assert_eq!(assign_locations(&items, 256, u64::MAX).buffers, [2048]);
        assert_eq!(assign_locations(&items, 256, 1024).buffers, [1024, 1024]);
    }
}
