//! How the elements of a slot lie in device memory.
//!
//! A software rasteriser reads memory four numbers at a time, and a texture cheaper than a buffer, since a texture takes no
//! test per lane; it writes textures dearly. So weights that kernels read many times lie in textures, and images in buffers,
//! four channels together, which kernels read as textures too where these can share their memory.

mod panels;

pub use panels::{Panels, Run};

use std::fmt;

use crate::dim::Dim;
use crate::shape::Shape;

/// Numbers of a vector, and of a texel that holds no pairs.
pub const TEXEL: usize = 4;

/// Texels of a row of the textures as which buffers are read, see [`Access::Texels`](super::plan::Access::Texels): a power
/// of two, and so many that the largest binding has no more rows than textures may have.
pub const TEXEL_ROW: usize = 1024;

/// What a texel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Texel {
    /// `rg32uint`: four half precision numbers in two words, of which a kernel gets an `f32` each. Of `rgba16float` Mesa's
    /// rasteriser, in vectors of 512 bits, makes numbers by twelve instructions for each, of words by two or three.
    F16,
    /// `rgba32uint`: four pairs of half precision numbers. Mesa's rasteriser reads it as fast as four numbers.
    F16x2,
    /// `rgba32float`: four numbers.
    F32,
}

impl Texel {
    /// Bytes of one.
    pub const fn bytes(self) -> u64 {
        match self {
            Texel::F16 => 8,
            Texel::F16x2 | Texel::F32 => 16,
        }
    }

    /// Steps of a sum of which it holds four columns each: see [`Panels`].
    pub fn steps(self) -> usize {
        match self {
            Texel::F16 | Texel::F32 => 1,
            Texel::F16x2 => 2,
        }
    }

    /// Name of the format in WGSL.
    pub fn wgsl(self) -> &'static str {
        match self {
            Texel::F16 => "rg32uint",
            Texel::F16x2 => "rgba32uint",
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
    /// The same with so many elements to spare behind each row, that is, behind the end of the last axis.
    Padded {
        /// How many.
        spare: usize,
    },
    /// In a buffer of vectors: each is four neighbours along an axis, with any numbers beyond its end, and they lie in
    /// row-major order.
    Quads {
        /// The axis.
        axis: usize,
    },
    /// Nothing that other kernels read: vectors of four numbers that workgroups keep between their stages, in a buffer.
    Scratch {
        /// What they are.
        name: &'static str,
        /// How many, in row-major order. They are the shape of the slot.
        sizes: Shape,
    },
    /// A weight in a texture, put together for the products that read it.
    Panels(Panels),
    /// In row-major order in a buffer, as far as they are sorted: in runs of so many along the axis.
    Runs(usize),
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
            Layout::Padded { spare } => write!(f, " in rows padded by {spare}"),
            Layout::Quads { axis } => write!(f, " as vec4 along axis {axis}"),
            Layout::Scratch { .. } => write!(f, " as vec4, between stages"),
            Layout::Panels(panels) => {
                write!(f, " in panels of {} columns (texture)", panels.width)
            }
            Layout::Runs(length) => write!(f, " in sorted runs of {length}"),
            Layout::Piece { start, count } => {
                write!(f, " from element {start} to {}", start + count)
            }
        }
    }
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
    /// The sizes by which elements lie in row-major order.
    pub fn sizes(&self, shape: &[Dim]) -> Shape {
        let mut sizes = shape.to_vec();
        if let (Layout::Padded { spare }, Some(row)) = (self, sizes.last_mut()) {
            *row = &*row + Dim::from(*spare);
        }
        sizes
    }

    /// True if elements lie in row-major order in a buffer, side by side in each row.
    pub fn is_in_rows(&self) -> bool {
        matches!(self, Layout::Linear | Layout::Padded { .. })
    }

    /// Sizes whose product is the number of elements that memory has room for; none for what cannot lie so.
    pub fn extents(&self, shape: &[Dim]) -> Option<Vec<Dim>> {
        let texels = |sizes: &[Dim]| [sizes, &[Dim::from(TEXEL)]].concat();
        Some(match self {
            Layout::Linear | Layout::Padded { .. } | Layout::Runs(_) => self.sizes(shape),
            Layout::Quads { axis } => texels(&quads_of(shape, *axis)),
            Layout::Scratch { .. } => texels(shape),
            Layout::Panels(panels) => texels(&panels.extent(Texel::F32).map(Dim::from)),
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
            Layout::Padded { spare } => {
                let size = shape.last()?;
                let (row, at) = (place / (size + spare), place % (size + spare));
                return (at < *size).then_some(row * size + at);
            }
            Layout::Scratch { .. } | Layout::Runs(_) => return None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Bindings;

    #[test]
    fn every_element_lies_somewhere_once() {
        let quads = |axis| Layout::Quads { axis };
        for (shape, layout) in [
            (vec![2, 5, 3, 7], quads(1)),
            (vec![2, 5, 3, 7], quads(3)),
            (vec![3, 6, 5], quads(1)),
            (vec![9], quads(0)),
            (vec![2, 3, 8], Layout::Padded { spare: 4 }),
            (vec![9], Layout::Padded { spare: 1 }),
        ] {
            let places = 0..layout.room(&shape).unwrap();
            let mut elements: Vec<usize> = places
                .filter_map(|place| layout.element(&shape, place))
                .collect();
            elements.sort_unstable();
            let numel = shape.iter().product();
            assert_eq!(
                elements,
                (0..numel).collect::<Vec<usize>>(),
                "{shape:?} {layout:?}"
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
        let hints = [("B", 2), ("C", 10), ("H", 7)];
        let hints: Bindings = hints.map(|(name, size)| (name.into(), size)).into();
        for layout in [
            Layout::Linear,
            Layout::Padded { spare: 16 },
            Layout::Quads { axis: 1 },
        ] {
            let room = Dim::product(&layout.extents(&symbols).unwrap());
            let room = usize::try_from(room.eval(&hints).unwrap()).unwrap();
            assert_eq!(Some(room), layout.room(&sizes), "{layout:?}");
            assert!(room >= sizes.iter().product(), "{layout:?}");
        }
    }
}
