//! How the elements of a slot lie in device memory.
//!
//! A software rasteriser reads memory four numbers at a time, and a texture cheaper than a buffer, since a texture takes no
//! test per lane; it writes textures dearly. So weights that kernels read many times lie in textures, and images in buffers,
//! four channels together.

use std::fmt;

use super::winograd::{Places, TAPS};
use crate::dim::Dim;
use crate::shape::Shape;
use crate::tensor;

/// Numbers of a texel, or of a vector.
pub const TEXEL: usize = 4;

/// Texels of a row of the textures as which buffers are read, see [`Access::Texels`](super::plan::Access::Texels): a power
/// of two, and so many that the largest binding has no more rows than textures may have.
pub const TEXEL_ROW: usize = 1024;

/// What a texel holds: four numbers, of which a kernel gets an `f32` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Texel {
    /// `rgba16float`
    F16,
    /// `rgba32float`
    F32,
}

impl Texel {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Texel::F16 => 8,
            Texel::F32 => 16,
        }
    }

    /// Name of the format in WGSL.
    pub fn wgsl(self) -> &'static str {
        match self {
            Texel::F16 => "rgba16float",
            Texel::F32 => "rgba32float",
        }
    }
}

/// How the elements of a slot lie in device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// In row-major order in a buffer.
    #[default]
    Linear,
    /// In a buffer of vectors: each is four neighbours along an axis, with any numbers beyond its end, and they lie in
    /// row-major order.
    Quads {
        /// The axis.
        axis: usize,
    },
    /// Images as tiles, four channels together, in a buffer.
    Tiles(Tiles),
    /// A weight in a texture, put together for the products that read it.
    Panels(Panels),
    /// A part of a weight that is too large for a binding, in row-major order.
    Piece {
        /// The first of its elements.
        start: usize,
        /// How many.
        count: usize,
    },
}

/// What follows a type where a slot is told: nothing for row-major order, else ` by four along axis 1`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Linear => Ok(()),
            Layout::Quads { axis } => write!(f, " by four along axis {axis}"),
            Layout::Tiles(tiles) => write!(f, " in {} matrices of tiles", tiles.matrices()),
            Layout::Panels(panels) => {
                write!(f, " in panels of {} columns, a texture", panels.width)
            }
            Layout::Piece { start, count } => {
                write!(f, " from element {start} to {}", start + count)
            }
        }
    }
}

/// Images cut into tiles, of each of which there are numbers instead of positions, as many as there are matrices: see
/// [`winograd`](super::winograd).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tiles {
    /// What the tiles of a convolution see of its input, around which there are so many zeros.
    Seen {
        /// Positions of a tile.
        places: Places,
        /// In front of each spatial axis.
        low: [i64; 2],
        /// Behind it.
        high: [i64; 2],
    },
    /// What their products sum up to, of the convolution's result.
    Summed {
        /// Positions of a tile.
        places: Places,
    },
}

/// A weight as the right factor of products of matrices: panels of neighbouring columns, each with the steps of the sum
/// one after the other, so that what a round of a sum reads lies in one row of texels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Panels {
    /// The matrices.
    pub outer: Run,
    /// Steps of a sum, outermost first; the last run is filled up with zeros to whole rounds.
    pub depth: Vec<Run>,
    /// Columns, filled up with zeros to whole panels.
    pub columns: Run,
    /// Steps of a round.
    pub round: usize,
    /// Columns of a panel.
    pub width: usize,
    /// The elements are not those of the weight, which are filters, but the numbers that
    /// [`Places::filters`] makes of them, of tiles of this size.
    pub transformed: Option<Places>,
}

/// Elements at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// How many.
    pub count: usize,
    /// The distance.
    pub stride: usize,
}

/// The largest textures of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextureLimits {
    /// Texels along x and y.
    pub size: u32,
    /// Layers.
    pub layers: u32,
    /// Textures that one kernel may bind; 0 if textures are of no use.
    pub bindings: u32,
}

impl TextureLimits {
    /// True if a texture of this extent can be made.
    pub fn hold(&self, [width, height, layers]: [usize; 3]) -> bool {
        let [size, most] = [self.size, self.layers].map(|limit| limit as usize);
        width <= size && height <= size && layers <= most
    }
}

impl Layout {
    /// Sizes whose product is the number of elements that memory has room for; none for what cannot lie so.
    pub fn extents(&self, shape: &[Dim]) -> Option<Vec<Dim>> {
        let texels = |sizes: &[Dim]| [sizes, &[Dim::from(TEXEL)]].concat();
        Some(match self {
            Layout::Linear => shape.to_vec(),
            Layout::Quads { axis } => texels(&quads_of(shape, *axis)),
            Layout::Tiles(tiles) => texels(&tiles.shape(shape)?),
            Layout::Panels(panels) => texels(&panels.extent().map(Dim::from)),
            Layout::Piece { count, .. } => vec![Dim::from(*count)],
        })
    }

    /// The same number for a shape of numbers; none for one that is too large.
    pub fn room(&self, shape: &[usize]) -> Option<usize> {
        let shape: Shape = shape.iter().map(|size| Dim::from(*size)).collect();
        let size = |size: &Dim| usize::try_from(size.as_const()?).ok();
        let mut sizes = self.extents(&shape)?.into_iter();
        sizes.try_fold(1, |product: usize, next| product.checked_mul(size(&next)?))
    }

    /// What lies at a place in a buffer: an element by its place in row-major order; none beyond the end of an axis.
    pub fn element(&self, shape: &[usize], place: usize) -> Option<usize> {
        let axis = match self {
            Layout::Quads { axis } => axis,
            Layout::Tiles(_) => return None,
            Layout::Piece { start, .. } => return Some(start + place),
            Layout::Linear | Layout::Panels(_) => return Some(place),
        };
        let (mut rest, part) = (place / TEXEL, place % TEXEL);
        let sizes = quads(shape, *axis);
        let mut at = vec![0; shape.len()];
        for (other, size) in sizes.iter().enumerate().rev() {
            at[other] = rest % size;
            rest /= size;
        }
        at[*axis] = at[*axis] * TEXEL + part;
        let inside = at.iter().zip(shape).all(|(at, size)| at < size);
        let place = at.iter().zip(shape);
        inside.then(|| place.fold(0, |place, (at, size)| place * size + at))
    }
}

fn quads(shape: &[usize], axis: usize) -> Vec<usize> {
    let mut quads = shape.to_vec();
    if let Some(size) = quads.get_mut(axis) {
        *size = size.div_ceil(TEXEL);
    }
    quads
}

/// Layers that textures of panels have at least.
const LAYERS: usize = 2;

/// A size of a texture that is no power of two, and not much larger than is needed.
///
/// Mesa's rasteriser compiles a kernel once for each combination of sizes that are powers of two among its textures', and of
/// one layer or several; and of these its cache on disk finds one a start. So textures are of one kind.
pub fn uneven(size: usize) -> usize {
    match size {
        1 => 3,
        _ => size + usize::from(size.is_power_of_two()),
    }
}

/// A shape with an axis in quads.
pub fn quads_of(shape: &[Dim], axis: usize) -> Shape {
    let mut quads = shape.to_vec();
    if let Some(size) = quads.get_mut(axis) {
        *size = (&*size + 3).floor_div(&Dim::from(TEXEL));
    }
    quads
}

impl Tiles {
    /// Positions of a tile along an axis.
    pub fn places(&self) -> Places {
        match self {
            Tiles::Seen { places, .. } | Tiles::Summed { places } => *places,
        }
    }

    /// Numbers of a tile.
    pub fn matrices(&self) -> usize {
        self.places().matrices()
    }

    /// Matrices, quads of channels, images, and tiles along both spatial axes, in which order vectors of four channels
    /// lie; none for what are no images.
    pub fn shape(&self, images: &[Dim]) -> Option<[Dim; 5]> {
        let [batch, channels, height, width] = images else {
            return None;
        };
        let along = |axis: usize, size: &Dim| {
            let places = match self {
                Tiles::Seen { low, high, .. } => size + (low[axis] + high[axis] + 1 - TAPS as i64),
                Tiles::Summed { .. } => size.clone(),
            };
            let of_tile = self.places().count();
            (places + (of_tile as i64 - 1)).floor_div(&Dim::from(of_tile))
        };
        let quads = (channels + 3).floor_div(&Dim::from(TEXEL));
        let (down, across) = (along(0, height), along(1, width));
        Some([
            Dim::from(self.matrices()),
            quads,
            batch.clone(),
            down,
            across,
        ])
    }
}

impl Panels {
    /// Panels of a matrix.
    pub fn panels(&self) -> usize {
        self.columns.count.div_ceil(self.width)
    }

    /// Rounds of the last run of steps.
    pub fn rounds(&self) -> usize {
        let last = self.depth.last().map_or(1, |run| run.count);
        last.div_ceil(self.round)
    }

    /// Width, height and layers of the texture; a last row and a second layer may be empty, see [`uneven`].
    pub fn extent(&self) -> [usize; 3] {
        let outermost = self.depth.iter().rev().skip(1);
        let rounds = outermost.fold(self.rounds(), |rounds, run| rounds * run.count);
        let width = self.round * self.width / TEXEL;
        let layers = self.outer.count * self.panels();
        // Weights that are read channel by channel have one layer each.
        let least = if self.round == 1 { 1 } else { LAYERS };
        [width, uneven(rounds), layers.max(least)]
    }

    /// The columns that a row of texels has of one of its steps: the place of the first one's element in row-major order, and
    /// how many there are; those that are missing to a whole panel are zeros. None for a step, row or layer beyond the last.
    pub fn line(&self, [y, layer]: [usize; 2], step: usize) -> Option<(usize, usize)> {
        let (outer, panel) = (layer / self.panels(), layer % self.panels());
        let column = panel * self.width;
        let (mut rest, step) = (y / self.rounds(), y % self.rounds() * self.round + step);
        let (last, runs) = self.depth.split_last()?;
        let mut place =
            outer * self.outer.stride + column * self.columns.stride + step * last.stride;
        for run in runs.iter().rev() {
            place += rest % run.count * run.stride;
            rest /= run.count;
        }
        let columns = self.columns.count.saturating_sub(column);
        let is_step = outer < self.outer.count && rest == 0 && step < last.count;
        is_step.then(|| (place, columns.min(self.width)))
    }

    /// How the panels hold a matrix that is all of a weight of so many elements: the run of steps and that of columns, one of
    /// which lies row by row. None if they hold something else, so that an element cannot be found by its place.
    pub fn matrix(&self, numel: usize) -> Option<[Run; 2]> {
        let ([steps], columns) = (self.depth.as_slice(), self.columns) else {
            return None;
        };
        let holds_all = self.outer.count == 1 && steps.count * columns.count == numel;
        let follows = |far: &Run, near: &Run| near.stride == 1 && far.stride == near.count;
        let is_plain = follows(steps, &columns) || follows(&columns, steps);
        let is_matrix = self.transformed.is_none() && holds_all && is_plain;
        is_matrix.then_some([*steps, columns])
    }

    /// The same panels of a tensor of which the weight is a permutation: axis `i` of the weight is axis `axes[i]` of the
    /// tensor, whose sizes are given. None if a run goes along several axes of the weight, or what lies in the panels are
    /// not its elements.
    pub fn permuted(&self, sizes: &[usize], axes: &[usize]) -> Option<Panels> {
        if self.transformed.is_some() {
            return None;
        }
        let size = |axis: &usize| sizes.get(*axis).copied();
        let shape: Vec<usize> = axes.iter().map(size).collect::<Option<_>>()?;
        let (own, strides) = (tensor::strides(&shape), tensor::strides(sizes));
        let mut farthest = vec![0; shape.len()];
        let mut along = |run: &Run| {
            if run.count <= 1 {
                return Some(*run);
            }
            let fits = |axis: &usize| 1 < shape[*axis] && run.stride.is_multiple_of(own[*axis]);
            let axis = (0..shape.len()).find(fits)?;
            let steps = run.stride / own[axis];
            farthest[axis] += steps * (run.count - 1);
            Some(Run {
                count: run.count,
                stride: steps * strides.get(*axes.get(axis)?)?,
            })
        };
        let permuted = Panels {
            outer: along(&self.outer)?,
            depth: self.depth.iter().map(&mut along).collect::<Option<_>>()?,
            columns: along(&self.columns)?,
            ..*self
        };
        let mut pairs = farthest.iter().zip(&shape);
        pairs
            .all(|(farthest, size)| farthest < size)
            .then_some(permuted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Bindings;

    #[test]
    fn every_element_lies_in_quads_once() {
        for (shape, axis) in [
            (vec![2, 5, 3, 7], 1),
            (vec![2, 5, 3, 7], 3),
            (vec![3, 6, 5], 1),
            (vec![9], 0),
        ] {
            let layout = Layout::Quads { axis };
            let places = 0..layout.room(&shape).unwrap();
            let mut elements: Vec<usize> = places
                .filter_map(|place| layout.element(&shape, place))
                .collect();
            elements.sort_unstable();
            let numel = shape.iter().product();
            assert_eq!(
                elements,
                (0..numel).collect::<Vec<usize>>(),
                "{shape:?} by {axis}"
            );
        }
    }

    #[test]
    fn rows_of_texels_are_as_long_as_the_library_says() {
        let library = include_str!("../../shaders/lib/texel.wgsl");
        assert!(TEXEL_ROW.is_power_of_two());
        let place = format!("vec2(index % {TEXEL_ROW}u, index / {TEXEL_ROW}u)");
        assert!(library.contains(&place));
    }

    #[test]
    fn rooms_of_symbols_are_those_of_their_sizes() {
        let (shape, sizes) = (["B", "C", "H", "9"], [2, 10, 7, 9]);
        let symbols: Shape = shape.iter().map(|size| size.parse().unwrap()).collect();
        let places = Places::Four;
        let seen = Tiles::Seen {
            low: [1, 1],
            high: [1, 1],
            places,
        };
        let hints = [("B", 2), ("C", 10), ("H", 7)];
        let hints: Bindings = hints.map(|(name, size)| (name.into(), size)).into();
        for layout in [
            Layout::Linear,
            Layout::Quads { axis: 1 },
            Layout::Tiles(seen),
            Layout::Tiles(Tiles::Summed { places }),
        ] {
            let room = Dim::product(&layout.extents(&symbols).unwrap());
            let room = usize::try_from(room.eval(&hints).unwrap()).unwrap();
            assert_eq!(Some(room), layout.room(&sizes), "{layout:?}");
            assert!(room >= sizes.iter().product(), "{layout:?}");
        }
    }

    #[test]
    fn every_element_lies_in_panels_once() {
        // A filter of 10 outputs in 2 groups, 6 inputs of a group, 3 taps.
        let run = |count, stride| Run { count, stride };
        let panels = |taps: usize| Panels {
            outer: run(2, 30 * taps),
            depth: vec![run(taps, 1), run(6, taps)],
            columns: run(5, 6 * taps),
            round: 4,
            width: 32,
            transformed: None,
        };
        // Those of 2 taps have a row that is empty.
        for (taps, rows) in [(3, 6), (2, 5)] {
            let panels = panels(taps);
            let [_, height, layers] = panels.extent();
            assert_eq!(height, rows);
            let mut elements = Vec::new();
            for (layer, y) in (0..layers).flat_map(|layer| (0..height).map(move |y| (layer, y))) {
                let lines = (0..panels.round).filter_map(|step| panels.line([y, layer], step));
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
        let run = |count, stride| Run { count, stride };
        let panels = |outer, depth: &[Run], columns| Panels {
            outer,
            depth: depth.to_vec(),
            columns,
            round: 4,
            width: 32,
            transformed: None,
        };
        // Sizes of the tensor, axes of the weight, and what is read of the weight.
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
            let [_, height, layers] = panels.extent();
            assert_eq!(permuted.extent(), panels.extent());
            for at in (0..layers).flat_map(|layer| (0..height).map(move |y| [y, layer])) {
                for step in 0..panels.round {
                    let (before, after) = (panels.line(at, step), permuted.line(at, step));
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
        // A run over two axes at once, which lie apart in the tensor.
        let both = panels(alone, &[run(35, 1)], alone);
        assert_eq!(both.permuted(&[7, 5], &[1, 0]), None);
    }
}
