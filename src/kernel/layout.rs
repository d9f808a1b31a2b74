//! Layouts: the arrangement of a slot's elements in device memory.
//!
//! On a software rasteriser a texture is cheaper to read than a buffer, because buffers need a bounds check per lane;
//! writing textures is slow. Access to a `vec4` is cheaper than to scalars. So weights that kernels read many times are
//! stored in textures. Images are stored in buffers with four channels per vector; kernels read these as textures too if the
//! two can share memory.

mod panels;

pub use panels::{Panels, StridedRange};

use std::fmt;

use crate::dim::Dim;
use crate::shape::Shape;

/// Components of a vector and of a texel.
pub const TEXEL_WIDTH: usize = 4;

/// Texels in a row of the textures that alias buffers, see [`Access::AliasedTexture`](super::plan::Access::AliasedTexture):
/// a power of two, and large enough that the largest binding does not exceed a texture's maximum number of rows.
pub const TEXELS_PER_ROW: usize = 1024;

/// Contents and format of a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Texel {
    /// `rg32uint`: four half precision numbers in two words; a kernel converts each to `f32`. With 512-bit vectors lavapipe
    /// needs twelve instructions for each number of `rgba16float`, and two or three for these words.
    F16,
    /// `rgba32uint`: four pairs of half precision numbers. Lavapipe reads it as fast as four numbers.
    F16x2,
    /// `rgba32float`: four numbers.
    F32,
}

impl Texel {
    /// Bytes of a texel.
    pub const fn bytes(self) -> u64 {
        match self {
            Texel::F16 => 8,
            Texel::F16x2 | Texel::F32 => 16,
        }
    }

    /// K indices of a matrix product for which a texel holds four columns each: see [`Panels`].
    pub fn k_per_texel(self) -> usize {
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

/// Arrangement of a slot's elements in device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Row-major order in a buffer.
    #[default]
    Linear,
    /// Row-major order in a buffer, with padding after each row, that is, after the end of the last axis.
    Padded {
        /// Elements of padding.
        padding: usize,
    },
    /// A buffer of vec4 in row-major order. Each vector holds four neighbours along an axis; the components beyond the end
    /// of the axis are undefined.
    Vec4 {
        /// The axis.
        axis: usize,
    },
    /// Workgroups' private `vec4` values between two stages of a kernel, in a buffer; no other kernel reads them.
    Scratch {
        /// Name of the data.
        name: &'static str,
        /// Number of vectors along each axis, in row-major order; equal to the slot's shape.
        sizes: Shape,
    },
    /// A weight in a texture, packed for the products that read it.
    Panels(Panels),
    /// Row-major order in a buffer, sorted in runs of this length along the axis.
    SortedRuns(usize),
    /// A chunk of a weight that is too large for a binding, in row-major order.
    Chunk {
        /// Index of its first element.
        start: usize,
        /// Number of elements.
        count: usize,
    },
}

/// Suffix of a type in messages: nothing for row-major order, else for example ` as vec4 along axis 1`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Linear => Ok(()),
            Layout::Padded { padding: spare } => write!(f, " in rows padded by {spare}"),
            Layout::Vec4 { axis } => write!(f, " as vec4 along axis {axis}"),
            Layout::Scratch { .. } => write!(f, " as vec4, between stages"),
            Layout::Panels(panels) => {
                write!(f, " in panels of {} columns (texture)", panels.width)
            }
            Layout::SortedRuns(length) => write!(f, " in sorted runs of {length}"),
            Layout::Chunk { start, count } => {
                write!(f, " from element {start} to {}", start + count)
            }
        }
    }
}

/// Limits of a device's textures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextureLimits {
    /// Texels along x and along y.
    pub size: u32,
    /// Layers.
    pub layers: u32,
    /// Textures that one kernel may bind; 0 if kernels do not use textures.
    pub bindings: u32,
}

impl TextureLimits {
    /// True if a texture of this extent fits the limits.
    pub fn fits(&self, [width, height, layers]: [usize; 3]) -> bool {
        let [size, most] = [self.size, self.layers].map(|limit| limit as usize);
        width <= size && height <= size && layers <= most
    }
}

impl Layout {
    /// The shape with padding, whose row-major order is the order in memory.
    pub fn padded_shape(&self, shape: &[Dim]) -> Shape {
        let mut sizes = shape.to_vec();
        if let (Layout::Padded { padding: spare }, Some(row)) = (self, sizes.last_mut()) {
            *row = &*row + Dim::from(*spare);
        }
        sizes
    }

    /// True if elements are in row-major order in a buffer and each row is contiguous.
    pub fn is_row_major(&self) -> bool {
        matches!(self, Layout::Linear | Layout::Padded { .. })
    }

    /// Sizes whose product is the number of elements of the memory; none if a shape does not allow the layout.
    pub fn allocated_shape(&self, shape: &[Dim]) -> Option<Vec<Dim>> {
        let texels = |sizes: &[Dim]| [sizes, &[Dim::from(TEXEL_WIDTH)]].concat();
        Some(match self {
            Layout::Linear | Layout::Padded { .. } | Layout::SortedRuns(_) => {
                self.padded_shape(shape)
            }
            Layout::Vec4 { axis } => texels(&vec4_shape(shape, *axis)),
            Layout::Scratch { .. } => texels(shape),
            Layout::Panels(panels) => texels(&panels.extent(Texel::F32).map(Dim::from)),
            Layout::Chunk { count, .. } => vec![Dim::from(*count)],
        })
    }

    /// Number of elements of the memory for a constant shape; none on overflow.
    pub fn allocated_elements(&self, shape: &[usize]) -> Option<usize> {
        let shape: Shape = shape.iter().map(|size| Dim::from(*size)).collect();
        let size = |size: &Dim| usize::try_from(size.as_const()?).ok();
        let mut sizes = self.allocated_shape(&shape)?.into_iter();
        sizes.try_fold(1, |product: usize, next| product.checked_mul(size(&next)?))
    }

    /// Row-major index of the element at an index in the buffer; none for padding.
    pub fn element_at(&self, shape: &[usize], place: usize) -> Option<usize> {
        let axis = match self {
            Layout::Vec4 { axis } => axis,
            Layout::Padded { padding: spare } => {
                let size = shape.last()?;
                let (row, at) = (place / (size + spare), place % (size + spare));
                return (at < *size).then_some(row * size + at);
            }
            Layout::Scratch { .. } | Layout::SortedRuns(_) => return None,
            Layout::Chunk { start, .. } => return Some(start + place),
            Layout::Linear | Layout::Panels(_) => return Some(place),
        };
        let (mut rest, part) = (place / TEXEL_WIDTH, place % TEXEL_WIDTH);
        let sizes = vec4_sizes(shape, *axis);
        let mut at = vec![0; shape.len()];
        for (other, size) in sizes.iter().enumerate().rev() {
            at[other] = rest % size;
            rest /= size;
        }
        at[*axis] = at[*axis] * TEXEL_WIDTH + part;
        let inside = at.iter().zip(shape).all(|(at, size)| at < size);
        let place = at.iter().zip(shape);
        inside.then(|| place.fold(0, |place, (at, size)| place * size + at))
    }
}

fn vec4_sizes(shape: &[usize], axis: usize) -> Vec<usize> {
    let mut quads = shape.to_vec();
    if let Some(size) = quads.get_mut(axis) {
        *size = size.div_ceil(TEXEL_WIDTH);
    }
    quads
}

/// Rounds the size of a texture up to one that is not a power of two.
///
/// Lavapipe compiles a kernel once for each combination of power-of-two sizes among its textures' sizes, and of one or
/// several layers. Its cache on disk returns only one of these per start of the process. So all textures are of one kind.
pub fn non_power_of_two(size: usize) -> usize {
    match size {
        1 => 3,
        _ => size + usize::from(size.is_power_of_two()),
    }
}

/// Shape of the vectors if an axis is packed in vec4.
pub fn vec4_shape(shape: &[Dim], axis: usize) -> Shape {
    let mut quads = shape.to_vec();
    if let Some(size) = quads.get_mut(axis) {
        *size = (&*size + 3).floor_div(&Dim::from(TEXEL_WIDTH));
    }
    quads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Bindings;

    #[test]
    fn every_element_has_one_location() {
        let quads = |axis| Layout::Vec4 { axis };
        for (shape, layout) in [
            (vec![2, 5, 3, 7], quads(1)),
            (vec![2, 5, 3, 7], quads(3)),
            (vec![3, 6, 5], quads(1)),
            (vec![9], quads(0)),
            (vec![2, 3, 8], Layout::Padded { padding: 4 }),
            (vec![9], Layout::Padded { padding: 1 }),
        ] {
            let places = 0..layout.allocated_elements(&shape).unwrap();
            let mut elements: Vec<usize> = places
                .filter_map(|place| layout.element_at(&shape, place))
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
        assert!(TEXELS_PER_ROW.is_power_of_two());
        let place = format!("vec2(index % {TEXELS_PER_ROW}u, index / {TEXELS_PER_ROW}u)");
        assert!(library.contains(&place));
    }

    #[test]
    fn symbolic_allocations_match_constant_ones() {
        let (shape, sizes) = (["B", "C", "H", "9"], [2, 10, 7, 9]);
        let symbols: Shape = shape.iter().map(|size| size.parse().unwrap()).collect();
        let hints = [("B", 2), ("C", 10), ("H", 7)];
        let hints: Bindings = hints.map(|(name, size)| (name.into(), size)).into();
        for layout in [
            Layout::Linear,
            Layout::Padded { padding: 16 },
            Layout::Vec4 { axis: 1 },
        ] {
            let room = Dim::product(&layout.allocated_shape(&symbols).unwrap());
            let room = usize::try_from(room.eval(&hints).unwrap()).unwrap();
            assert_eq!(Some(room), layout.allocated_elements(&sizes), "{layout:?}");
            assert!(room >= sizes.iter().product(), "{layout:?}");
        }
    }
}
