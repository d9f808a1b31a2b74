//! Panels: weights packed in textures for the products that read them.

use super::{TEXEL_WIDTH, Texel, non_power_of_two};
use crate::kernel::capabilities::StorageType;
use crate::kernel::winograd::OutputTile;
use crate::tensor;

/// Packed layout of a weight that is the right operand of matrix products. A panel holds neighbouring columns. The elements
/// of one block of K indices lie in one row of texels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Panels {
    /// Matrices of a batch.
    pub batch: StridedRange,
    /// K indices, outermost first. The last range is padded with zeros to whole blocks.
    pub k_ranges: Vec<StridedRange>,
    /// Columns, padded with zeros to whole panels.
    pub columns: StridedRange,
    /// K indices in a block.
    pub k_block: usize,
    /// Columns in a panel.
    pub width: usize,
    /// Contiguous columns of a panel: an invocation loads them at once. All K indices of a block come before the next strip.
    pub strip: usize,
    /// If set, the weight's elements are convolution filters, and the panels hold [transformed
    /// filters](OutputTile::filter_element) for tiles of this size, one matrix after the other.
    pub winograd_tile: Option<OutputTile>,
}

/// A range of elements with a constant stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StridedRange {
    /// Number of elements.
    pub count: usize,
    /// Distance between neighbours, in elements.
    pub stride: usize,
}

/// Minimum number of layers of a panel texture.
const MIN_LAYERS: usize = 2;

impl Panels {
    /// Number of panels of a matrix.
    pub fn panels(&self) -> usize {
        self.columns.count.div_ceil(self.width)
    }

    /// Number of blocks of the last K range.
    pub fn k_blocks(&self) -> usize {
        let last = self.k_ranges.last().map_or(1, |range| range.count);
        last.div_ceil(self.k_block)
    }

    /// The texel type of the texture for a storage type; none if textures cannot hold it. In blocks of several K indices, a
    /// pair holds two neighbouring indices: the first and second, the third and fourth, and so on.
    pub fn texel(&self, storage: StorageType) -> Option<Texel> {
        match storage {
            StorageType::F16x2 if self.k_block.is_multiple_of(2) => Some(Texel::F16x2),
            _ => storage.texel(),
        }
    }

    /// Width, height and layers of the texture. The last row and the second layer may be unused, see
    /// [`non_power_of_two`].
    pub fn extent(&self, texel: Texel) -> [usize; 3] {
        let outermost = self.k_ranges.iter().rev().skip(1);
        let k_block_rows = outermost.fold(self.k_blocks(), |rows, range| rows * range.count);
        let width = self.k_block / texel.k_per_texel() * self.width / TEXEL_WIDTH;
        let layers = self.batch.count * self.panels();
        // Depthwise weights, which are read channel by channel, have one layer each.
        let least = if self.k_block == 1 { 1 } else { MIN_LAYERS };
        [width, non_power_of_two(k_block_rows), layers.max(least)]
    }

    /// The columns of a strip in a row of texels for one K index of a block: row-major index of the first element, and the
    /// number of elements. The remaining columns of the strip are zeros. None for a K index, row or layer beyond the last,
    /// and for a strip without columns.
    pub fn strip_elements(
        &self,
        [y, layer]: [usize; 2],
        [strip, k_in_block]: [usize; 2],
    ) -> Option<(usize, usize)> {
        let (matrix, panel) = (layer / self.panels(), layer % self.panels());
        let column = panel * self.width + strip * self.strip;
        let (mut rest, k) = (
            y / self.k_blocks(),
            y % self.k_blocks() * self.k_block + k_in_block,
        );
        let (last, outer_ranges) = self.k_ranges.split_last()?;
        let mut place = matrix * self.batch.stride + column * self.columns.stride + k * last.stride;
        for range in outer_ranges.iter().rev() {
            place += rest % range.count * range.stride;
            rest /= range.count;
        }
        let columns = self.columns.count.saturating_sub(column);
        let is_inside = matrix < self.batch.count && rest == 0 && k < last.count;
        (is_inside && columns > 0).then(|| (place, columns.min(self.strip)))
    }

    /// The K range and the column range, if the panels hold exactly the elements of a contiguous matrix with `numel`
    /// elements. None if they hold something else, so that an element cannot be found by its index.
    pub fn as_matrix(&self, numel: usize) -> Option<[StridedRange; 2]> {
        let ([k_range], columns) = (self.k_ranges.as_slice(), self.columns) else {
            return None;
        };
        let holds_all = self.batch.count == 1 && k_range.count * columns.count == numel;
        let follows =
            |far: &StridedRange, near: &StridedRange| near.stride == 1 && far.stride == near.count;
        let is_plain = follows(k_range, &columns) || follows(&columns, k_range);
        let is_matrix = self.winograd_tile.is_none() && holds_all && is_plain;
        is_matrix.then_some([*k_range, columns])
    }

    /// The panels that read a tensor of which the weight is a permutation: axis `i` of the weight is axis `axes[i]` of the
    /// tensor, whose sizes are given. None if a range covers several axes of the weight, or if the panels hold transformed
    /// elements.
    pub fn permuted(&self, sizes: &[usize], axes: &[usize]) -> Option<Panels> {
        if self.winograd_tile.is_some() {
            return None;
        }
        let size = |axis: &usize| sizes.get(*axis).copied();
        let shape: Vec<usize> = axes.iter().map(size).collect::<Option<_>>()?;
        let (strides_of_weight, strides) = (tensor::strides(&shape), tensor::strides(sizes));
        let mut last_index = vec![0; shape.len()];
        let mut map_range = |range: &StridedRange| {
            if range.count <= 1 {
                return Some(*range);
            }
            let fits = |axis: &usize| {
                1 < shape[*axis] && range.stride.is_multiple_of(strides_of_weight[*axis])
            };
            let axis = (0..shape.len()).find(fits)?;
            let steps = range.stride / strides_of_weight[axis];
            last_index[axis] += steps * (range.count - 1);
            Some(StridedRange {
                count: range.count,
                stride: steps * strides.get(*axes.get(axis)?)?,
            })
        };
        let permuted = Panels {
            batch: map_range(&self.batch)?,
            k_ranges: self
                .k_ranges
                .iter()
                .map(&mut map_range)
                .collect::<Option<_>>()?,
            columns: map_range(&self.columns)?,
            ..*self
        };
        let mut pairs = last_index.iter().zip(&shape);
        pairs
            .all(|(farthest, size)| farthest < size)
            .then_some(permuted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pairs of a strip and a K index.
    fn strips_and_k(panels: &Panels) -> impl Iterator<Item = [usize; 2]> {
        let strips = 0..panels.width / panels.strip;
        let k_block = panels.k_block;
        strips.flat_map(move |strip| (0..k_block).map(move |k| [strip, k]))
    }

    #[test]
    fn every_element_is_in_panels_once() {
        // A filter with 10 outputs in 2 groups, 6 inputs per group, and several taps.
        let range = |count, stride| StridedRange { count, stride };
        let panels = |taps: usize| Panels {
            batch: range(2, 30 * taps),
            k_ranges: vec![range(taps, 1), range(6, taps)],
            columns: range(5, 6 * taps),
            k_block: 4,
            width: 32,
            strip: 16,
            winograd_tile: None,
        };
        // The texture for 2 taps has an unused row.
        for (taps, rows) in [(3, 6), (2, 5)] {
            let panels = panels(taps);
            let [_, height, layers] = panels.extent(Texel::F32);
            assert_eq!(height, rows);
            let mut elements = Vec::new();
            for (layer, y) in (0..layers).flat_map(|layer| (0..height).map(move |y| (layer, y))) {
                let strips = strips_and_k(&panels);
                let strips = strips.filter_map(|strip| panels.strip_elements([y, layer], strip));
                for (start, count) in strips {
                    elements
                        .extend((0..count).map(|column| start + column * panels.columns.stride));
                }
            }
            elements.sort_unstable();
            assert_eq!(elements, (0..60 * taps).collect::<Vec<usize>>());
        }
    }

    #[test]
    fn panels_of_a_permutation_read_the_same_elements() {
        let range = |count, stride| StridedRange { count, stride };
        let panels = |batch, k_ranges: &[StridedRange], columns| Panels {
            batch,
            k_ranges: k_ranges.to_vec(),
            columns,
            k_block: 4,
            width: 32,
            strip: 32,
            winograd_tile: None,
        };
        // Sizes of the tensor, axes of the weight, and panels of the weight.
        let alone = range(1, 0);
        for (sizes, axes, panels) in [
            (
                vec![7, 5],
                vec![1, 0],
                panels(alone, &[range(5, 7)], range(7, 1)),
            ),
            (
                vec![4, 2, 3],
                vec![1, 2, 0],
                panels(range(2, 12), &[range(3, 4)], range(4, 1)),
            ),
            (
                vec![6, 5, 3],
                vec![2, 0, 1],
                panels(alone, &[range(3, 30), range(5, 1)], range(6, 5)),
            ),
        ] {
            let shape: Vec<usize> = axes.iter().map(|axis| sizes[*axis]).collect();
            let strides = tensor::strides(&sizes);
            let in_tensor = |place: usize| {
                let own = tensor::strides(&shape);
                let at = own
                    .iter()
                    .zip(&shape)
                    .map(|(stride, size)| place / stride % size);
                let places = at.zip(&axes).map(|(at, axis)| at * strides[*axis]);
                places.sum::<usize>()
            };
            let permuted = panels.permuted(&sizes, &axes).unwrap();
            let [_, height, layers] = panels.extent(Texel::F32);
            assert_eq!(permuted.extent(Texel::F32), panels.extent(Texel::F32));
            for at in (0..layers).flat_map(|layer| (0..height).map(move |y| [y, layer])) {
                for strip in strips_and_k(&panels) {
                    let (before, after) = (
                        panels.strip_elements(at, strip),
                        permuted.strip_elements(at, strip),
                    );
                    let places = |panels: &Panels, (start, count): (usize, usize)| {
                        let stride = panels.columns.stride;
                        (0..count)
                            .map(|column| start + column * stride)
                            .collect::<Vec<_>>()
                    };
                    let before = before.map(|elements| places(&panels, elements));
                    let before = before.map(|all| all.into_iter().map(in_tensor).collect());
                    assert_eq!(after.map(|elements| places(&permuted, elements)), before);
                }
            }
        }
        // A range over two axes, which are not adjacent in the tensor.
        let both = panels(alone, &[range(35, 1)], alone);
        assert_eq!(both.permuted(&[7, 5], &[1, 0]), None);
    }
}
