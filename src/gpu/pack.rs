//! Packs a weight for a device: converts its elements to the storage type and arranges them in the slot's layout.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::kernel::capabilities::StorageType;
use crate::kernel::layout::{Layout, Panels, Texel};
use crate::kernel::plan::Slot;
use crate::kernel::winograd::{OutputTile, TAPS};
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
    if let Some((tensor, panels)) = permuted_panels(name, slot, source) {
        return pack_panels(&panels, slot, &stored_bytes(&tensor, storage)?, sink);
    }
    let tensor = source.tensor(name)?;
    let part = match &slot.layout {
        Layout::Panels(panels) => {
            return match panels.winograd_tile {
                Some(places) => pack_filters(panels, slot, places, &tensor, sink),
                None => pack_panels(panels, slot, &stored_bytes(&tensor, storage)?, sink),
            };
        }
        Layout::Chunk { start, count } => *start..start + count,
        Layout::Linear
        | Layout::Padded { .. }
        | Layout::Vec4 { .. }
        | Layout::Scratch { .. }
        | Layout::SortedRuns(_) => 0..tensor.numel(),
    };
    convert::encode_range(&tensor, part, storage, |_, bytes| sink(bytes))
}

/// The tensor that a weight is a permutation of, and panels that read that tensor. The weight is then not computed.
fn permuted_panels(name: &str, slot: &Slot, source: &dyn WeightSource) -> Option<(Tensor, Panels)> {
    let Layout::Panels(panels) = &slot.layout else {
        return None;
    };
    let (tensor, axes) = source.as_permutation(name)?;
    let panels = panels.permuted(tensor.shape(), &axes)?;
    Some((tensor, panels))
}

/// Packs the transformed filters of Winograd convolutions. Computes them one matrix at a time, because all matrices together
/// are several times as large as the weight.
fn pack_filters(
    panels: &Panels,
    slot: &Slot,
    places: OutputTile,
    filters: &Tensor,
    sink: &mut Sink,
) -> Result<()> {
    const FILTER: usize = TAPS * TAPS;
    let taps = stored_bytes(filters, StorageType::F32)?;
    let filters: &[[[u8; 4]; FILTER]] = taps.as_chunks().0.as_chunks().0;
    let layers = panels.batch.count / places.matrices() * panels.panels();
    for matrix in 0..places.matrices() {
        let filters = filters.iter().map(|taps| taps.map(f32::from_le_bytes));
        let numbers: Vec<f32> = filters
            .map(|taps| places.filter_element(matrix, &taps))
            .collect();
        let numbers = Tensor::from_vec([numbers.len()], numbers)?;
        let part = PanelRange {
            layers: matrix * layers..(matrix + 1) * layers,
            first_element: matrix * numbers.numel(),
            elements: &stored_bytes(&numbers, slot.storage)?,
        };
        pack_range(panels, slot, &part, sink)?;
    }
    Ok(())
}

fn pack_panels(panels: &Panels, slot: &Slot, elements: &[u8], sink: &mut Sink) -> Result<()> {
    let layers = panels.extent(texel(slot)?)[2];
    let part = PanelRange {
        layers: 0..layers,
        first_element: 0,
        elements,
    };
    pack_range(panels, slot, &part, sink)
}

/// A range of layers of panels, and the elements in it.
struct PanelRange<'a> {
    layers: Range<usize>,
    /// Index of the first element among all.
    first_element: usize,
    elements: &'a [u8],
}

fn pack_range(panels: &Panels, slot: &Slot, part: &PanelRange, sink: &mut Sink) -> Result<()> {
    let texel = texel(slot)?;
    match slot.storage.size() {
        2 => pack_rows::<2>(panels, texel, part, sink),
        _ => pack_rows::<4>(panels, texel, part, sink),
    }
}

fn texel(slot: &Slot) -> Result<Texel> {
    let missing = || Error::internal("no texel type fits the storage type of the panels");
    slot.texel().ok_or_else(missing)
}

/// All elements in the storage type, in row-major order.
fn stored_bytes(tensor: &Tensor, storage: StorageType) -> Result<Cow<'_, [u8]>> {
    if convert::is_bitwise_equal(tensor.dtype(), storage) {
        return Ok(Cow::Borrowed(tensor.bytes()));
    }
    let mut elements = Vec::with_capacity(tensor.numel() * storage.size() as usize);
    convert::encode(tensor, storage, |_, bytes| {
        elements.extend(bytes);
        Ok(())
    })?;
    Ok(Cow::Owned(elements))
}

/// Packs the rows of a texture, from elements of `N` bytes.
fn pack_rows<const N: usize>(
    panels: &Panels,
    texel: Texel,
    part: &PanelRange,
    sink: &mut Sink,
) -> Result<()> {
    let elements: &[[u8; N]] = part.elements.as_chunks().0;
    let [_, height, _] = panels.extent(texel);
    let mut row = vec![[0; N]; panels.k_block * panels.width];
    let (k_per_texel, stride) = (texel.k_per_texel(), panels.columns.stride);
    let layers = part.layers.clone();
    for at in layers.flat_map(|layer| (0..height).map(move |y| [y, layer])) {
        for (number, texels) in row.chunks_exact_mut(panels.strip * k_per_texel).enumerate() {
            let texels_per_strip = panels.k_block / k_per_texel;
            let (strip, first) = (
                number / texels_per_strip,
                number % texels_per_strip * k_per_texel,
            );
            for step in 0..k_per_texel {
                let line = panels.strip_elements(at, [strip, first + step]);
                let (start, count) = line.unwrap_or((part.first_element, 0));
                let run = [start - part.first_element, count, stride];
                fill_texels(texels, [step, k_per_texel], elements, run);
            }
        }
        sink(row.as_flattened())?;
    }
    Ok(())
}

/// Writes the columns of one of the K indices that texels hold together; zeros where there is no element.
fn fill_texels<const N: usize>(
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
