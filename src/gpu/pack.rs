//! Packs a weight for a device: converts its elements to the storage type and arranges them in the slot's layout.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::kernel::capabilities::Storage;
use crate::kernel::layout::{Layout, Panels, Texel};
use crate::kernel::plan::Slot;
use crate::kernel::winograd::{Places, TAPS};
use crate::tensor::Tensor;

use super::convert;
use super::weights::WeightSource;

/// Receives bytes in consecutive chunks.
pub(super) type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Passes the bytes of a weight in its device form to `sink`, in order; for a texture, by whole rows.
pub(super) fn pack(
    name: &str,
    slot: &Slot,
    source: &dyn WeightSource,
    sink: &mut Sink,
) -> Result<()> {
    let storage = slot.storage;
    if let Some((tensor, panels)) = permuted(name, slot, source) {
        return pack_panels((&panels, slot), &stored(&tensor, storage)?, sink);
    }
    let tensor = source.tensor(name)?;
    let part = match &slot.layout {
        Layout::Panels(panels) => {
            return match panels.transformed {
                Some(places) => pack_filters((panels, slot), places, &tensor, sink),
                None => pack_panels((panels, slot), &stored(&tensor, storage)?, sink),
            };
        }
        Layout::Piece { start, count } => *start..start + count,
        Layout::Linear
        | Layout::Padded { .. }
        | Layout::Quads { .. }
        | Layout::Scratch { .. }
        | Layout::Runs(_) => 0..tensor.numel(),
    };
    convert::send_part(&tensor, part, storage, |_, bytes| sink(bytes))
}

/// The tensor that a weight is a permutation of, and panels that read that tensor. The weight is then not computed.
fn permuted(name: &str, slot: &Slot, source: &dyn WeightSource) -> Option<(Tensor, Panels)> {
    let Layout::Panels(panels) = &slot.layout else {
        return None;
    };
    let (tensor, axes) = source.permuted(name)?;
    let panels = panels.permuted(tensor.shape(), &axes)?;
    Some((tensor, panels))
}

/// Packs the transformed filters of Winograd convolutions. Computes them one matrix at a time, because all matrices together
/// are several times as large as the weight.
fn pack_filters(
    panels: (&Panels, &Slot),
    places: Places,
    filters: &Tensor,
    sink: &mut Sink,
) -> Result<()> {
    const FILTER: usize = TAPS * TAPS;
    let taps = stored(filters, Storage::F32)?;
    let filters: &[[[u8; 4]; FILTER]] = taps.as_chunks().0.as_chunks().0;
    let layers = panels.0.outer.count / places.matrices() * panels.0.panels();
    for matrix in 0..places.matrices() {
        let filters = filters.iter().map(|taps| taps.map(f32::from_le_bytes));
        let numbers: Vec<f32> = filters.map(|taps| places.number(matrix, &taps)).collect();
        let numbers = Tensor::from_vec([numbers.len()], numbers)?;
        let part = Part {
            layers: matrix * layers..(matrix + 1) * layers,
            first: matrix * numbers.numel(),
            elements: &stored(&numbers, panels.1.storage)?,
        };
        pack_part(panels, &part, sink)?;
    }
    Ok(())
}

fn pack_panels((panels, slot): (&Panels, &Slot), elements: &[u8], sink: &mut Sink) -> Result<()> {
    let layers = panels.extent(texel(slot)?)[2];
    let part = Part {
        layers: 0..layers,
        first: 0,
        elements,
    };
    pack_part((panels, slot), &part, sink)
}

/// A range of layers of panels, and the elements in it.
struct Part<'a> {
    layers: Range<usize>,
    /// Index of the first element among all.
    first: usize,
    elements: &'a [u8],
}

fn pack_part((panels, slot): (&Panels, &Slot), part: &Part, sink: &mut Sink) -> Result<()> {
    let panels = (panels, texel(slot)?);
    match slot.storage.size() {
        2 => pack_rows::<2>(panels, part, sink),
        _ => pack_rows::<4>(panels, part, sink),
    }
}

fn texel(slot: &Slot) -> Result<Texel> {
    let missing = || Error::internal("panels of a type that no texture holds");
    slot.texel().ok_or_else(missing)
}

/// All elements in the storage type, in row-major order.
fn stored(tensor: &Tensor, storage: Storage) -> Result<Cow<'_, [u8]>> {
    if convert::same_bytes(tensor.dtype(), storage) {
        return Ok(Cow::Borrowed(tensor.bytes()));
    }
    let mut elements = Vec::with_capacity(tensor.numel() * storage.size() as usize);
    convert::send(tensor, storage, |_, bytes| {
        elements.extend(bytes);
        Ok(())
    })?;
    Ok(Cow::Owned(elements))
}

/// Packs the rows of a texture, from elements of `N` bytes.
fn pack_rows<const N: usize>(
    (panels, texel): (&Panels, Texel),
    part: &Part,
    sink: &mut Sink,
) -> Result<()> {
    let elements: &[[u8; N]] = part.elements.as_chunks().0;
    let [_, height, _] = panels.extent(texel);
    let mut row = vec![[0; N]; panels.round * panels.width];
    let (steps, stride) = (texel.steps(), panels.columns.stride);
    let layers = part.layers.clone();
    for at in layers.flat_map(|layer| (0..height).map(move |y| [y, layer])) {
        for (number, texels) in row.chunks_exact_mut(panels.strip * steps).enumerate() {
            let of_strip = panels.round / steps;
            let (strip, first) = (number / of_strip, number % of_strip * steps);
            for step in 0..steps {
                let line = panels.line(at, [strip, first + step]);
                let (start, count) = line.unwrap_or((part.first, 0));
                let run = [start - part.first, count, stride];
                fill(texels, [step, steps], elements, run);
            }
        }
        sink(row.as_flattened())?;
    }
    Ok(())
}

/// Writes the columns of one of the K indices that texels hold together; zeros where there is no element.
fn fill<const N: usize>(
    texels: &mut [[u8; N]],
    [step, steps]: [usize; 2],
    elements: &[[u8; N]],
    [start, count, stride]: [usize; 3],
) {
    if let (1, 1, Some(together)) = (steps, stride, elements.get(start..start + count)) {
        let (filled, rest) = texels.split_at_mut(count);
        filled.copy_from_slice(together);
        rest.fill([0; N]);
        return;
    }
    for (column, target) in texels.iter_mut().skip(step).step_by(steps).enumerate() {
        let element = elements.get(start + column * stride);
        let element = element.filter(|_| column < count);
        *target = element.copied().unwrap_or([0; N]);
    }
}
