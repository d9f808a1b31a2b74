//! Checks and uploads the inputs of a run: the host writes host tensors, and the device copies device tensors.

use std::ops::Range;

use wgpu::{CommandEncoder, MapMode};

use crate::error::{Error, ErrorContext, Result};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::Layout;
use crate::kernel::plan::{Slot, SlotId};
use crate::shape::TensorType;
use crate::tensor::Tensor;

use super::convert;
use super::device_tensor::RunInput;
use super::execute::distinct_buffers;
use super::program::ProgramInner;
use super::run_context::{HostAccess, RunBinding, RunContext};
use super::statistics::add;
use super::transfer::PendingMapping;

/// Checks inputs against the plan's input slots: their number, element types, sizes and storage types. The error lists
/// every mismatch.
pub(super) fn check_inputs(
    program: &ProgramInner,
    binding: &RunBinding,
    inputs: &[RunInput],
) -> Result<()> {
    if inputs.len() != program.plan.inputs.len() {
        return Err(Error::input(format!(
            "{} inputs given; the program expects {}",
            inputs.len(),
            program.plan.inputs.len()
        )));
    }
    let mut errors = Vec::new();
    for (input, slot) in inputs.iter().zip(&program.plan.inputs) {
        let Some(slot) = slot else { continue };
        let (info, shape) = (&program.plan.slots[slot.0], &binding.sizing.shapes[slot.0]);
        let has_same_storage = match input {
            RunInput::Host(_) => true,
            RunInput::Device(tensor) => tensor.storage == info.storage,
        };
        if input.dtype() != info.dtype || input.shape() != shape.as_slice() || !has_same_storage {
            let error = input_mismatch(input, info);
            errors.push(if info.shape.iter().all(|dim| dim.as_const().is_some()) {
                error
            } else {
                error.help(format!(
                    "the sizes of the inputs make it {}{shape:?}",
                    info.dtype
                ))
            });
        }
    }
    Error::all(errors).map_or(Ok(()), Err)
}

/// The error of an input that does not match its slot.
pub(super) fn input_mismatch(input: &RunInput, slot: &Slot) -> Error {
    let expected = TensorType {
        dtype: slot.dtype,
        shape: slot.shape.clone(),
    };
    let found = TensorType::new(input.dtype(), input.shape().iter().copied());
    let storage = |storage: StorageType| format!(" stored as {}", storage);
    let (found_as, expected_as) = match input {
        RunInput::Host(_) => (String::new(), String::new()),
        RunInput::Device(tensor) => (storage(tensor.storage), storage(slot.storage)),
    };
    Error::input(format!(
        "input {} is {found}{found_as}; the program expects {expected}{expected_as}",
        slot.name
    ))
}

/// Writes the inputs that are on the host to memory that the device reads.
pub(super) fn write_inputs(
    program: &ProgramInner,
    context: &RunContext,
    binding: &RunBinding,
    inputs: &[RunInput],
) -> Result<()> {
    let uploads = host_inputs(program, binding, inputs);
    if uploads.is_empty() {
        return Ok(());
    }
    let buffers = distinct_buffers(uploads.iter().map(|(_, _, access)| *access));
    let mapped = PendingMapping::begin(&program.device, buffers, MapMode::Write)?;
    mapped.wait(context.submission.as_ref())?;
    for (slot, tensor, access) in uploads {
        let info = &program.plan.slots[slot.0];
        let rows = RowPlacement::in_slot(info, tensor.shape());
        convert::encode(tensor, info.storage, |start, bytes| {
            let sent = bytes.len() as u64;
            for (part, offset) in rows.contiguous_parts(start..start + sent) {
                let part = (part.start - start) as usize..(part.end - start) as usize;
                let (start, part) = (access.offset + offset, &bytes[part]);
                access.memory.write(start, part)?;
                if let Ok(buffer) = access.memory.buffer() {
                    let device = &program.device;
                    device.record(|recorder| recorder.write_buffer(buffer, start, part));
                }
            }
            add(&program.counters.uploaded, sent);
            Ok(())
        })
        .at(|| format!("input {}", info.name))?;
    }
    Ok(())
}

/// The inputs that are on the host, that the plan uses and that are not empty: slot, tensor, and memory to write.
fn host_inputs<'a>(
    program: &ProgramInner,
    binding: &'a RunBinding,
    inputs: &[RunInput<'a>],
) -> Vec<(SlotId, &'a Tensor, &'a HostAccess)> {
    let mut uploads = Vec::new();
    for ((input, slot), access) in inputs
        .iter()
        .zip(&program.plan.inputs)
        .zip(&binding.uploads)
    {
        if let (RunInput::Host(tensor), Some(slot), Some(access)) = (input, slot, access)
            && binding.sizing.placements[slot.0].bytes > 0
        {
            uploads.push((*slot, *tensor, access));
        }
    }
    uploads
}

/// Records copies of inputs to the memory that kernels read: from staging memory, and from device tensors.
pub(super) fn record_uploads(
    program: &ProgramInner,
    encoder: &mut CommandEncoder,
    binding: &RunBinding,
    inputs: &[RunInput],
) {
    for ((input, slot), access) in inputs
        .iter()
        .zip(&program.plan.inputs)
        .zip(&binding.uploads)
    {
        let (Some(slot), Some(access)) = (slot, access) else {
            continue;
        };
        let placement = &binding.sizing.placements[slot.0];
        let (source, source_offset, rows) = match input {
            RunInput::Host(_) if !access.staged => continue,
            RunInput::Host(_) => (
                access.memory.buffer(),
                access.offset,
                RowPlacement::contiguous(placement.bytes),
            ),
            RunInput::Device(tensor) => {
                let rows = RowPlacement::in_slot(&program.plan.slots[slot.0], &tensor.shape);
                (Ok(&tensor.buffer), tensor.offset, rows)
            }
        };
        let (Ok(source), Ok(target)) = (source, binding.memory[slot.0].buffer()) else {
            continue;
        };
        for (part, offset) in rows.contiguous_parts(0..rows.bytes) {
            let (from, to) = (
                source_offset + part.start,
                placement.location.offset + offset,
            );
            let bytes = (part.end - part.start).next_multiple_of(4);
            encoder.copy_buffer_to_buffer(source, from, target, to, bytes);
            let device = &program.device;
            device.record(|recorder| recorder.copy_buffer((source, from), (target, to), bytes));
        }
    }
}

/// Placement of a tensor's rows in its slot, which may have padding after each row.
#[derive(Clone, Copy, Debug)]
struct RowPlacement {
    /// Bytes of all rows, without padding.
    bytes: u64,
    /// Bytes of a row, without padding.
    row_bytes: u64,
    /// Bytes from the start of one row to the start of the next in the slot.
    pitch: u64,
}

impl RowPlacement {
    /// Rows without padding.
    fn contiguous(bytes: u64) -> RowPlacement {
        RowPlacement {
            bytes,
            row_bytes: bytes,
            pitch: bytes,
        }
    }

    /// Rows as a slot stores them.
    fn in_slot(slot: &Slot, shape: &[usize]) -> RowPlacement {
        let size = |elements: usize| elements as u64 * slot.storage.size();
        let bytes = size(shape.iter().product());
        match (&slot.layout, shape.last()) {
            (Layout::Padded { padding }, Some(row)) => RowPlacement {
                bytes,
                row_bytes: size(*row),
                pitch: size(row + padding),
            },
            _ => RowPlacement::contiguous(bytes),
        }
    }

    /// Splits a range of the tensor's bytes into parts that are contiguous in the slot; returns each part with its
    /// offset in the slot.
    fn contiguous_parts(self, bytes: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let mut start = bytes.start;
        std::iter::from_fn(move || {
            if start >= bytes.end {
                return None;
            }
            let (row, row_offset) = (start / self.row_bytes, start % self.row_bytes);
            let part = start..bytes.end.min((row + 1) * self.row_bytes);
            start = part.end;
            Some((part, row * self.pitch + row_offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_rows_are_split() {
        let rows = RowPlacement {
            bytes: 24,
            row_bytes: 8,
            pitch: 12,
        };
        let pieces = |bytes| rows.contiguous_parts(bytes).collect::<Vec<_>>();
        assert_eq!(pieces(0..24), [(0..8, 0), (8..16, 12), (16..24, 24)]);
        assert_eq!(pieces(4..12), [(4..8, 4), (8..12, 12)]);
        assert_eq!(pieces(8..8), []);
        let whole = RowPlacement::contiguous(24)
            .contiguous_parts(0..24)
            .collect::<Vec<_>>();
        assert_eq!(whole, [(0..24, 0)]);
        assert_eq!(
            RowPlacement::contiguous(0).contiguous_parts(0..0).count(),
            0
        );
    }
}
