//! Mutations of what is inside of an archive.

use zip::CompressionMethod;

use crate::targets::records::{LARGEST_ARCHIVE, pack, unpack};

/// Mutations of the bytes of the whole file: one in so many.
const WHOLE: u32 = 8;

/// Unpacks the archive in `data[..size]`, mutates one record by `mutate`, and packs it again. Bytes that are no archive, and
/// some archives, are mutated as a whole. Returns the new size, which is at most `largest`.
pub fn mutate_record(
    data: &mut [u8],
    size: usize,
    largest: usize,
    seed: u32,
    mutate: fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mutated = match seed % WHOLE {
        0 => None,
        _ => mutated(data.get(..size).unwrap_or_default(), largest, seed, mutate),
    };
    let Some(mutated) = mutated.filter(|mutated| mutated.len() <= largest) else {
        return mutate(data, size, largest);
    };
    if let Some(place) = data.get_mut(..mutated.len()) {
        place.copy_from_slice(&mutated);
    }
    mutated.len()
}

fn mutated(
    archive: &[u8],
    largest: usize,
    seed: u32,
    mutate: fn(&mut [u8], usize, usize) -> usize,
) -> Option<Vec<u8>> {
    let mut records = unpack(archive, LARGEST_ARCHIVE)?;
    let others: usize = records.iter().map(|(_, bytes)| bytes.len()).sum();
    let index = usize::try_from(seed / WHOLE)
        .ok()?
        .checked_rem(records.len())?;
    let (_, bytes) = records.get_mut(index)?;
    let size = bytes.len();
    let room = largest.saturating_sub(others).max(1) + size;
    bytes.resize(room, 0);
    let new_size = mutate(bytes, size, room);
    bytes.truncate(new_size);
    Some(pack(&records, CompressionMethod::Stored))
}
