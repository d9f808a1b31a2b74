//! Kernel variants, and the reason for choosing one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::winograd::Places;
use crate::error::Error;

/// Variants of kernels that compute a contraction or a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// One invocation computes some elements in registers. Runs on every device, and is the reference for the others.
    Portable,
    /// A subgroup computes a tile, on rasterisers that run its invocations as the lanes of a SIMD vector.
    Lanes,
    /// As `Lanes`, for a convolution as a product of filters and image patches, with no requirement on operand
    /// layouts.
    Patches,
    /// One invocation computes four channels of a block of positions, for grouped convolutions with few channels per group.
    Grouped,
    /// Three stages: input tiles are transformed, matrix products for each transformed element are summed over channels, and
    /// the sums are transformed to output tiles. For convolutions with 3×3 taps.
    Winograd {
        /// Size of an output tile.
        places: Places,
    },
    /// A workgroup computes neighbouring columns of a few rows; its invocations split K between them.
    Vector,
    /// An invocation computes four neighbouring positions of a depthwise convolution.
    Direct,
    /// Subgroups multiply cooperative matrices.
    Matrix {
        /// Rows and columns of a matrix: 8 or 16.
        size: u32,
    },
    /// Split K: partial sums are products of their own and then added up.
    Split {
        /// Number of parts: 2, 4, 8 or 16.
        parts: u32,
    },
    /// A workgroup computes a square tile; blocks of both factors are staged in workgroup memory.
    Tile {
        /// Rows and columns of the tile: 32, 64 or 128.
        side: u32,
    },
}

impl Variant {
    /// All variants.
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

/// A variant that was chosen among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Key of the computation in a table of measured variants: primitive, dtype and sizes.
    pub key: String,
    /// The chosen variant.
    pub variant: Variant,
    /// Reason as a clause: `the adapter is a software rasteriser`.
    pub reason: String,
}

/// Variants by key that override the table: measured, or requested by a test.
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

/// Parses the displayed form.
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
