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
        let tensor = tensor.load()?;
        return pack_panels(&panels, slot, &stored_bytes(&tensor, storage)?, sink);
    }
    let tensor = source.tensor(name)?;
    let range = match &slot.layout {
        Layout::Panels(panels) => {
            return match panels.winograd_tile {
                Some(tile) => pack_filters(panels, slot, tile, &tensor, sink),
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
    convert::encode_range(&tensor, range, storage, |_, bytes| sink(bytes))
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

/// Packs the transformed filters of Winograd convolutions. Computes one matrix of filter elements at a time, because
/// all matrices together are several times as large as the weight.
fn pack_filters(
    panels: &Panels,
    slot: &Slot,
    tile: OutputTile,
    filters: &Tensor,
    sink: &mut Sink,
) -> Result<()> {
    const FILTER: usize = TAPS * TAPS;
    let taps = stored_bytes(filters, StorageType::F32)?;
    let filters: &[[[u8; 4]; FILTER]] = taps.as_chunks().0.as_chunks().0;
    let layers = panels.batch.count / tile.matrices() * panels.panels();
    for matrix in 0..tile.matrices() {
        let filters = filters.iter().map(|taps| taps.map(f32::from_le_bytes));
        let numbers: Vec<f32> = filters
            .map(|taps| tile.filter_element(matrix, &taps))
            .collect();
        let numbers = Tensor::from_vec([numbers.len()], numbers)?;
        let range = PanelRange {
            layers: matrix * layers..(matrix + 1) * layers,
            first_element: matrix * numbers.numel(),
            elements: &stored_bytes(&numbers, slot.storage)?,
        };
        pack_range(panels, slot, &range, sink)?;
    }
    Ok(())
}

/// Packs all panels of a weight from its elements in the storage type.
fn pack_panels(panels: &Panels, slot: &Slot, elements: &[u8], sink: &mut Sink) -> Result<()> {
    let layers = panels.extent(texel(slot)?)[2];
    let range = PanelRange {
        layers: 0..layers,
        first_element: 0,
        elements,
    };
    pack_range(panels, slot, &range, sink)
}

/// A range of layers of panels, and the elements in it.
struct PanelRange<'a> {
    layers: Range<usize>,
    /// Row-major index of the first element of `elements`.
    first_element: usize,
    /// Elements in the storage type, as bytes.
    elements: &'a [u8],
}

/// Packs a range of layers.
fn pack_range(panels: &Panels, slot: &Slot, range: &PanelRange, sink: &mut Sink) -> Result<()> {
    let texel = texel(slot)?;
    match slot.storage.size() {
        2 => pack_rows::<2>(panels, texel, range, sink),
        _ => pack_rows::<4>(panels, texel, range, sink),
    }
}

/// The texel type of a slot in panels.
fn texel(slot: &Slot) -> Result<Texel> {
    let missing = || Error::internal("no texel type fits the storage type of the panels");
    slot.texel().ok_or_else(missing)
}

/// All elements of a tensor in the storage type, in row-major order.
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

/// Packs the rows of a range of layers, from elements of `N` bytes.
fn pack_rows<const N: usize>(
    panels: &Panels,
    texel: Texel,
    range: &PanelRange,
    sink: &mut Sink,
) -> Result<()> {
    let elements: &[[u8; N]] = range.elements.as_chunks().0;
    let [_, height, _] = panels.extent(texel);
    let mut row = vec![[0; N]; panels.k_block * panels.width];
    let (k_per_texel, stride) = (texel.k_per_texel(), panels.columns.stride);
    let layers = range.layers.clone();
    for position in layers.flat_map(|layer| (0..height).map(move |y| [y, layer])) {
        for (group, texels) in row.chunks_exact_mut(panels.strip * k_per_texel).enumerate() {
            let texels_per_strip = panels.k_block / k_per_texel;
            let (strip, first_k) = (
                group / texels_per_strip,
                group % texels_per_strip * k_per_texel,
            );
            for k in 0..k_per_texel {
                let columns = panels.strip_elements(position, [strip, first_k + k]);
                let (start, count) = columns.unwrap_or((range.first_element, 0));
                let source = [start - range.first_element, count, stride];
                fill_texels(texels, [k, k_per_texel], elements, source);
            }
        }
        sink(row.as_flattened())?;
    }
    Ok(())
}

/// Writes the columns of K index `k` to texels that interleave the columns of `k_per_texel` K indices. The columns are
/// `count` elements from index `start` on, `stride` apart; the remaining columns are zeros.
fn fill_texels<const N: usize>(
    texels: &mut [[u8; N]],
    [k, k_per_texel]: [usize; 2],
    elements: &[[u8; N]],
    [start, count, stride]: [usize; 3],
) {
    if let (1, 1, Some(contiguous)) = (k_per_texel, stride, elements.get(start..start + count)) {
        let (filled, rest) = texels.split_at_mut(count);
        filled.copy_from_slice(contiguous);
        rest.fill([0; N]);
        return;
    }
    for (column, target) in texels.iter_mut().skip(k).step_by(k_per_texel).enumerate() {
        let element = elements.get(start + column * stride);
        let element = element.filter(|_| column < count);
        *target = element.copied().unwrap_or([0; N]);
    }
}
