//! Assigns memory to temporaries: those with disjoint lifetimes share it.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

/// A value that needs memory.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Steps during which no other value may use the memory.
    pub(super) live: RangeInclusive<usize>,
}

/// Location of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// Index of the buffer.
    pub(super) buffer: usize,
    /// Bytes from the start of the buffer.
    pub(super) offset: u64,
}

/// Locations of all values.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Location of each item.
    pub(super) spots: Vec<Spot>,
    /// Size of each buffer in bytes.
    pub(super) buffers: Vec<u64>,
}

impl Layout {
    /// Total bytes of all buffers.
    fn bytes(&self) -> u64 {
        self.buffers.iter().sum()
    }

    /// True if an item is at the end of the last buffer.
    fn reaches_end(&self, items: &[Item], index: usize) -> bool {
        let Spot { buffer, offset } = self.spots[index];
        buffer + 1 == self.buffers.len() && self.buffers[buffer] == offset + items[index].bytes
    }
}

/// A buffer during assignment.
#[derive(Default)]
struct Filled {
    items: Vec<(u64, usize)>,
    bytes: u64,
}

/// Number of orders that are tried after the first one.
const ROUNDS: usize = 16;
/// With more items only the first order is tried, because the time is quadratic in their number.
const MANY: usize = 256;

/// Assigns locations so that items with overlapping lifetimes share no memory. Greedy: takes the largest item first and puts
/// each at the lowest free offset. While the total exceeds the bytes that are live at once, moves the item that ends the
/// last buffer to the front of the order and tries again. Offsets are multiples of `alignment`. No buffer exceeds `limit`
/// unless a single item does.
pub(super) fn arrange(items: &[Item], alignment: u64, limit: u64) -> Layout {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| (Reverse(items[*index].bytes), *items[*index].live.start()));
    let mut best = place(items, &order, alignment, limit);
    if items.len() > MANY {
        return best;
    }
    let least = largest_live(items);
    let mut last = best.clone();
    for _ in 0..ROUNDS {
        if best.bytes() <= least {
            break;
        }
        let furthest = order
            .iter()
            .rposition(|index| last.reaches_end(items, *index));
        order[..=furthest.unwrap_or_default()].rotate_right(1);
        last = place(items, &order, alignment, limit);
        if last.bytes() < best.bytes() {
            best = last.clone();
        }
    }
    best
}

/// Assigns locations in the given order, each at the lowest free offset.
fn place(items: &[Item], order: &[usize], alignment: u64, limit: u64) -> Layout {
    let mut spots = vec![Spot::default(); items.len()];
    let mut buffers: Vec<Filled> = Vec::new();
    for index in order.iter().copied() {
        let fit = buffers.iter().enumerate().find_map(|(number, buffer)| {
            let offset = buffer.lowest(items, index, alignment);
            (offset + items[index].bytes <= limit).then_some((number, offset))
        });
        let (number, offset) = fit.unwrap_or_else(|| {
            buffers.push(Filled::default());
            (buffers.len() - 1, 0)
        });
        buffers[number].insert(offset, index, items[index].bytes);
        spots[index] = Spot {
            buffer: number,
            offset,
        };
    }
    Layout {
        spots,
        buffers: buffers.iter().map(|buffer| buffer.bytes).collect(),
    }
}

/// Largest sum of bytes of items that are live at the same step.
pub(super) fn largest_live(items: &[Item]) -> u64 {
    let live_at = |step: usize| {
        let live = items.iter().filter(|item| item.live.contains(&step));
        live.map(|item| item.bytes).sum()
    };
    let starts = items.iter().map(|item| *item.live.start());
    starts.map(live_at).max().unwrap_or(0)
}

/// Gives every item its own buffer.
pub(super) fn separate(items: &[u64]) -> Layout {
    let spot = |buffer| Spot { buffer, offset: 0 };
    Layout {
        spots: (0..items.len()).map(spot).collect(),
        buffers: items.to_vec(),
    }
}

impl Filled {
    /// The lowest offset at which an item overlaps no item with an overlapping lifetime.
    fn lowest(&self, items: &[Item], index: usize, alignment: u64) -> u64 {
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

fn overlap(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small deterministic random number generator, so that failures are reproducible.
    struct Random(u64);

    impl Random {
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
    fn blocks_of_tiles_take_what_lives_at_once() {
        let item = |(bytes, first, last)| Item {
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
        let items: Vec<Item> = [(800, 1, 2), (3200, 2, 3)]
            .into_iter()
            .chain(blocks)
            .map(item)
            .collect();
        assert_eq!(arrange(&items, 4, u64::MAX).bytes(), largest_live(&items));
    }

    fn items(random: &mut Random) -> Vec<Item> {
        let steps = 1 + random.below(40);
        (0..random.below(60))
            .map(|_| {
                let first = random.below(steps);
                let last = first + random.below(steps - first);
                Item {
                    bytes: 4 * (1 + random.below(1000)),
                    live: first as usize..=last as usize,
                }
            })
            .collect()
    }

    #[test]
    fn live_items_never_share_memory() {
        let mut random = Random(1);
        for round in 0..300 {
            let items = items(&mut random);
            let alignment = [4, 32, 256][round % 3];
            let limit = [5000, 20_000, u64::MAX][round / 3 % 3];
            let layout = arrange(&items, alignment, limit);
            for (a, first) in items.iter().enumerate() {
                let spot = layout.spots[a];
                assert_eq!(spot.offset % alignment, 0);
                assert!(spot.offset + first.bytes <= layout.buffers[spot.buffer]);
                assert!(layout.buffers[spot.buffer] <= limit);
                for (b, second) in items.iter().enumerate().skip(a + 1) {
                    let other = layout.spots[b];
                    let apart = spot.buffer != other.buffer
                        || spot.offset + first.bytes <= other.offset
                        || other.offset + second.bytes <= spot.offset;
                    assert!(apart || !overlap(&first.live, &second.live), "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn a_chain_takes_two_places_and_two_items_live() {
        let items: Vec<Item> = (0..10)
            .map(|step| Item {
                bytes: 1024,
                live: step..=step + 1,
            })
            .collect();
        assert_eq!(largest_live(&items), 2048);
        assert_eq!(arrange(&items, 256, u64::MAX).buffers, [2048]);
        assert_eq!(arrange(&items, 256, 1024).buffers, [1024, 1024]);
    }
}
