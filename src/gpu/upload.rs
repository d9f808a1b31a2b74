//! Uploads the inputs of a run: the host writes them, or they are copied on the device.

use std::ops::Range;

use wgpu::{CommandEncoder, MapMode};

use crate::error::{ErrorContext, Result};
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Slot, SlotId};
use crate::tensor::Tensor;

use super::convert;
use super::execute::{Input, distinct};
use super::lane::{Binding, HostSide, Lane};
use super::program::Inner;
use super::statistics::add;
use super::transfer::Mapped;

/// Writes the inputs that are on the host to memory that the device reads.
pub(super) fn write_inputs(
    program: &Inner,
    lane: &Lane,
    binding: &Binding,
    inputs: &[Input],
) -> Result<()> {
    let uploads = host_inputs(program, binding, inputs);
    if uploads.is_empty() {
        return Ok(());
    }
    let buffers = distinct(uploads.iter().map(|(_, _, side)| *side));
    let mapped = Mapped::begin(&program.device, buffers, MapMode::Write)?;
    mapped.wait(lane.submission.as_ref())?;
    for (slot, tensor, side) in uploads {
        let info = &program.plan.slots[slot.0];
        let rows = Rows::of(info, tensor.shape());
        convert::send(tensor, info.storage, |start, bytes| {
            let sent = bytes.len() as u64;
            for (piece, to) in rows.pieces(start..start + sent) {
                let piece = (piece.start - start) as usize..(piece.end - start) as usize;
                side.memory.write(side.offset + to, &bytes[piece])?;
            }
            add(&program.counters.uploaded, sent);
            Ok(())
        })
        .at(|| format!("input {}", info.name))?;
    }
    Ok(())
}

/// The inputs that are on the host, are used and are not empty.
fn host_inputs<'a>(
    program: &Inner,
    binding: &'a Binding,
    inputs: &[Input<'a>],
) -> Vec<(SlotId, &'a Tensor, &'a HostSide)> {
    let mut uploads = Vec::new();
    for ((input, slot), side) in inputs
        .iter()
        .zip(&program.plan.inputs)
        .zip(&binding.uploads)
    {
        if let (Input::Host(tensor), Some(slot), Some(side)) = (input, slot, side)
            && binding.sizing.places[slot.0].bytes > 0
        {
            uploads.push((*slot, *tensor, side));
        }
    }
    uploads
}

/// Records copies of inputs that are not yet in the memory that kernels read.
pub(super) fn record_uploads(
    program: &Inner,
    encoder: &mut CommandEncoder,
    binding: &Binding,
    inputs: &[Input],
) {
    for ((input, slot), side) in inputs
        .iter()
        .zip(&program.plan.inputs)
        .zip(&binding.uploads)
    {
        let (Some(slot), Some(side)) = (slot, side) else {
            continue;
        };
        let place = &binding.sizing.places[slot.0];
        let (source, from, rows) = match input {
            Input::Host(_) if !side.staged => continue,
            Input::Host(_) => (side.memory.buffer(), side.offset, Rows::whole(place.bytes)),
            Input::Device(tensor) => {
                let rows = Rows::of(&program.plan.slots[slot.0], &tensor.shape);
                (Ok(&tensor.buffer), tensor.offset, rows)
            }
        };
        let (Ok(source), Ok(target)) = (source, binding.memory[slot.0].buffer()) else {
            continue;
        };
        for (piece, to) in rows.pieces(0..rows.bytes) {
            let (from, to) = (from + piece.start, place.spot.offset + to);
            let bytes = (piece.end - piece.start).next_multiple_of(4);
            encoder.copy_buffer_to_buffer(source, from, target, to, bytes);
        }
    }
}

/// Placement of a tensor's rows in its slot, which may have padding after each row.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Bytes of all rows.
    bytes: u64,
    /// Bytes of a row.
    row: u64,
    /// Bytes from the start of one row to the start of the next in the slot.
    pitch: u64,
}

impl Rows {
    /// Rows without padding.
    fn whole(bytes: u64) -> Rows {
        Rows {
            bytes,
            row: bytes,
            pitch: bytes,
        }
    }

    /// Rows as a slot stores them.
    fn of(slot: &Slot, shape: &[usize]) -> Rows {
        let size = |elements: usize| elements as u64 * slot.storage.size();
        let bytes = size(shape.iter().product());
        match (&slot.layout, shape.last()) {
            (Layout::Padded { spare }, Some(row)) => Rows {
                bytes,
                row: size(*row),
                pitch: size(row + spare),
            },
            _ => Rows::whole(bytes),
        }
    }

    /// Splits a range of bytes into parts that are contiguous in the slot; returns each with its offset there.
    fn pieces(self, bytes: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let mut start = bytes.start;
        std::iter::from_fn(move || {
            if start >= bytes.end {
                return None;
            }
            let (row, within) = (start / self.row, start % self.row);
            let piece = start..bytes.end.min((row + 1) * self.row);
            start = piece.end;
            Some((piece, row * self.pitch + within))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_apart() {
        let rows = Rows {
            bytes: 24,
            row: 8,
            pitch: 12,
        };
        let pieces = |bytes| rows.pieces(bytes).collect::<Vec<_>>();
        assert_eq!(pieces(0..24), [(0..8, 0), (8..16, 12), (16..24, 24)]);
        assert_eq!(pieces(4..12), [(4..8, 4), (8..12, 12)]);
        assert_eq!(pieces(8..8), []);
        let whole = Rows::whole(24).pieces(0..24).collect::<Vec<_>>();
        assert_eq!(whole, [(0..24, 0)]);
        assert_eq!(Rows::whole(0).pieces(0..0).count(), 0);
    }
}
