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
        let last = self.k_ranges.last().map_or(1, |run| run.count);
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
        let rounds = outermost.fold(self.k_blocks(), |rounds, run| rounds * run.count);
        let width = self.k_block / texel.k_per_texel() * self.width / TEXEL_WIDTH;
        let layers = self.batch.count * self.panels();
        // Depthwise weights, which are read channel by channel, have one layer each.
        let least = if self.k_block == 1 { 1 } else { MIN_LAYERS };
        [width, non_power_of_two(rounds), layers.max(least)]
    }

    /// The columns of a strip in a row of texels for one K index of a block: row-major index of the first element, and the
    /// number of elements. The remaining columns of the strip are zeros. None for a K index, row or layer beyond the last,
    /// and for a strip without columns.
    pub fn strip_elements(
        &self,
        [y, layer]: [usize; 2],
        [strip, step]: [usize; 2],
    ) -> Option<(usize, usize)> {
        let (outer, panel) = (layer / self.panels(), layer % self.panels());
        let column = panel * self.width + strip * self.strip;
        let (mut rest, step) = (
            y / self.k_blocks(),
            y % self.k_blocks() * self.k_block + step,
        );
        let (last, runs) = self.k_ranges.split_last()?;
        let mut place =
            outer * self.batch.stride + column * self.columns.stride + step * last.stride;
        for run in runs.iter().rev() {
            place += rest % run.count * run.stride;
            rest /= run.count;
        }
        let columns = self.columns.count.saturating_sub(column);
        let is_step = outer < self.batch.count && rest == 0 && step < last.count;
        (is_step && columns > 0).then(|| (place, columns.min(self.strip)))
    }

    /// The K range and the column range, if the panels hold exactly the elements of a contiguous matrix with `numel`
    /// elements. None if they hold something else, so that an element cannot be found by its index.
    pub fn as_matrix(&self, numel: usize) -> Option<[StridedRange; 2]> {
        let ([steps], columns) = (self.k_ranges.as_slice(), self.columns) else {
            return None;
        };
        let holds_all = self.batch.count == 1 && steps.count * columns.count == numel;
        let follows =
            |far: &StridedRange, near: &StridedRange| near.stride == 1 && far.stride == near.count;
        let is_plain = follows(steps, &columns) || follows(&columns, steps);
        let is_matrix = self.winograd_tile.is_none() && holds_all && is_plain;
        is_matrix.then_some([*steps, columns])
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
        let mut map_range = |run: &StridedRange| {
            if run.count <= 1 {
                return Some(*run);
            }
            let fits = |axis: &usize| {
                1 < shape[*axis] && run.stride.is_multiple_of(strides_of_weight[*axis])
            };
            let axis = (0..shape.len()).find(fits)?;
            let steps = run.stride / strides_of_weight[axis];
            last_index[axis] += steps * (run.count - 1);
            Some(StridedRange {
                count: run.count,
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
        let steps = panels.k_block;
        strips.flat_map(move |strip| (0..steps).map(move |step| [strip, step]))
    }

    #[test]
    fn every_element_is_in_panels_once() {
        // A filter with 10 outputs in 2 groups, 6 inputs per group, and several taps.
        let run = |count, stride| StridedRange { count, stride };
        let panels = |taps: usize| Panels {
            batch: run(2, 30 * taps),
            k_ranges: vec![run(taps, 1), run(6, taps)],
            columns: run(5, 6 * taps),
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
                let lines = strips_and_k(&panels);
                let lines = lines.filter_map(|line| panels.strip_elements([y, layer], line));
                for (start, count) in lines {
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
        let run = |count, stride| StridedRange { count, stride };
        let panels = |outer, depth: &[StridedRange], columns| Panels {
            batch: outer,
            k_ranges: depth.to_vec(),
            columns,
            k_block: 4,
            width: 32,
            strip: 32,
            winograd_tile: None,
        };
        // Sizes of the tensor, axes of the weight, and panels of the weight.
        let alone = run(1, 0);
        for (sizes, axes, panels) in [
            (
                vec![7, 5],
                vec![1, 0],
                panels(alone, &[run(5, 7)], run(7, 1)),
            ),
            (
                vec![4, 2, 3],
                vec![1, 2, 0],
                panels(run(2, 12), &[run(3, 4)], run(4, 1)),
            ),
            (
                vec![6, 5, 3],
                vec![2, 0, 1],
                panels(alone, &[run(3, 30), run(5, 1)], run(6, 5)),
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
                for line in strips_and_k(&panels) {
                    let (before, after) = (
                        panels.strip_elements(at, line),
                        permuted.strip_elements(at, line),
                    );
                    let places = |panels: &Panels, (start, count): (usize, usize)| {
                        let stride = panels.columns.stride;
                        (0..count)
                            .map(|column| start + column * stride)
                            .collect::<Vec<_>>()
                    };
                    let before = before.map(|line| places(&panels, line));
                    let before = before.map(|all| all.into_iter().map(in_tensor).collect());
                    assert_eq!(after.map(|line| places(&permuted, line)), before);
                }
            }
        }
        // A range over two axes, which are not adjacent in the tensor.
        let both = panels(alone, &[run(35, 1)], alone);
        assert_eq!(both.permuted(&[7, 5], &[1, 0]), None);
    }
}
