//! Which of several kernels computes something, and why that one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::winograd::Places;
use crate::error::Error;

/// The ways to compute a contraction or a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// One invocation computes some elements in registers: right on every device, and the reference of the others.
    Portable,
    /// A subgroup computes a tile, for rasterisers that run its invocations as the lanes of a vector.
    Lanes,
    /// The same for a convolution, of filters by what positions see, where neither need lie in a certain way.
    Patches,
    /// One invocation computes four channels of a block of positions, for convolutions in groups of a single channel or few.
    Grouped,
    /// Three kernels: what tiles see becomes numbers, products of a matrix for each of these are summed over channels, and
    /// the sums become positions. For convolutions of 3×3 taps.
    Winograd {
        /// Positions of a tile along an axis.
        places: Places,
    },
    /// A workgroup computes neighbouring columns of a few rows, and its invocations share the steps of each sum.
    Vector,
    /// An invocation computes four neighbouring positions of a convolution whose output channels see one input channel each.
    Direct,
    /// Subgroups multiply small matrices as one.
    Matrix {
        /// Rows and columns of these: 8 or 16.
        size: u32,
    },
    /// Sums are split into parts, which are products of their own and then added up.
    Split {
        /// How many: 2, 4, 8 or 16.
        parts: u32,
    },
    /// A workgroup computes a square tile, out of pieces of both factors that lie in workgroup memory.
    Tile {
        /// Rows and columns of the tile: 32, 64 or 128.
        side: u32,
    },
}

impl Variant {
    /// All of them.
    pub const ALL: &[Variant] = &[
        Variant::Portable,
        Variant::Lanes,
        Variant::Patches,
        Variant::Grouped,
        Variant::Winograd {
            places: Places::Two,
        },
        Variant::Winograd {
            places: Places::Four,
        },
        Variant::Vector,
        Variant::Direct,
        Variant::Split { parts: 2 },
        Variant::Split { parts: 4 },
        Variant::Split { parts: 8 },
        Variant::Split { parts: 16 },
        Variant::Matrix { size: 8 },
        Variant::Matrix { size: 16 },
        Variant::Tile { side: 32 },
        Variant::Tile { side: 64 },
        Variant::Tile { side: 128 },
    ];
}

/// A variant that was taken where there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is computed, as a table of measured variants knows it: primitive, dtype and sizes.
    pub key: String,
    /// The variant that was taken.
    pub variant: Variant,
    /// Why, as a clause: `the adapter is a software rasteriser`.
    pub reason: String,
}

/// Variants that are taken whatever the table says, by key: measured, or asked for by a test.
pub type Choices = BTreeMap<String, Variant>;

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Portable => f.write_str("portable"),
            Variant::Lanes => f.write_str("lanes"),
            Variant::Patches => f.write_str("patches"),
            Variant::Grouped => f.write_str("grouped"),
            Variant::Winograd { places } => {
                let count = places.count();
                write!(f, "winograd {count}x{count}, 3x3")
            }
            Variant::Vector => f.write_str("rows by a matrix"),
            Variant::Direct => f.write_str("direct"),
            Variant::Split { parts } => write!(f, "split in {parts}"),
            Variant::Matrix { size } => write!(f, "cooperative matrices {size}x{size}"),
            Variant::Tile { side } => write!(f, "workgroup tile {side}x{side}"),
        }
    }
}

/// As it is displayed.
impl FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Variant, Error> {
        let known = Variant::ALL.iter();
        let found = known.copied().find(|variant| variant.to_string() == text);
        found.ok_or_else(|| Error::usage(format!("{text} is no variant of a kernel")))
    }
}

/// `lanes: the adapter is a software rasteriser`
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variant, self.reason)
    }
}
