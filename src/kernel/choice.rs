//! Kernel variants, and the reason for choosing one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::winograd::OutputTile;
use crate::error::Error;

/// Variants of kernels that compute a contraction or a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelVariant {
    /// One invocation computes some elements in registers. Runs on every device, and is the reference for the others.
    Portable,
    /// A subgroup computes a tile, on rasterisers that run its invocations as the lanes of a SIMD vector.
    SubgroupTile,
    /// As `SubgroupTile`, for a convolution as a product of filters and image patches, with no requirement on operand
    /// layouts.
    ImagePatches,
    /// One invocation computes four channels of a block of positions, for grouped convolutions with few channels per group.
    Grouped,
    /// Three stages: input tiles are transformed, matrix products for each transformed element are summed over channels, and
    /// the sums are transformed to output tiles. For convolutions with 3×3 taps.
    Winograd {
        /// Size of an output tile.
        tile: OutputTile,
    },
    /// A workgroup computes neighbouring columns of a few rows; its invocations split K between them.
    Gemv,
    /// An invocation computes four neighbouring positions of a depthwise convolution.
    DepthwiseDirect,
    /// Subgroups multiply cooperative matrices.
    CooperativeMatrix {
        /// Rows and columns of a matrix: 8 or 16.
        size: u32,
    },
    /// Split K: partial sums are products of their own and then added up.
    SplitK {
        /// Number of parts: 2, 4, 8 or 16.
        parts: u32,
    },
    /// A workgroup computes a square tile; blocks of both factors are staged in workgroup memory.
    WorkgroupTile {
        /// Rows and columns of the tile: 32, 64 or 128.
        side: u32,
    },
}

impl KernelVariant {
    /// All variants.
    pub const ALL: &[KernelVariant] = &[
        KernelVariant::Portable,
        KernelVariant::SubgroupTile,
        KernelVariant::ImagePatches,
        KernelVariant::Grouped,
        KernelVariant::Winograd {
            tile: OutputTile::Two,
        },
        KernelVariant::Winograd {
            tile: OutputTile::Four,
        },
        KernelVariant::Gemv,
        KernelVariant::DepthwiseDirect,
        KernelVariant::SplitK { parts: 2 },
        KernelVariant::SplitK { parts: 4 },
        KernelVariant::SplitK { parts: 8 },
        KernelVariant::SplitK { parts: 16 },
        KernelVariant::CooperativeMatrix { size: 8 },
        KernelVariant::CooperativeMatrix { size: 16 },
        KernelVariant::WorkgroupTile { side: 32 },
        KernelVariant::WorkgroupTile { side: 64 },
        KernelVariant::WorkgroupTile { side: 128 },
    ];
}

/// A variant that was chosen among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantChoice {
    /// Key of the computation in a table of measured variants: primitive, dtype and sizes.
    pub key: String,
    /// The chosen variant.
    pub variant: KernelVariant,
    /// Reason as a clause: `the adapter is a software rasteriser`.
    pub reason: String,
}

/// Variants by key that override the table: measured, or requested by a test.
pub type VariantOverrides = BTreeMap<String, KernelVariant>;

impl fmt::Display for KernelVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelVariant::Portable => f.write_str("portable"),
            KernelVariant::SubgroupTile => f.write_str("lanes"),
            KernelVariant::ImagePatches => f.write_str("patches"),
            KernelVariant::Grouped => f.write_str("grouped"),
            KernelVariant::Winograd { tile: places } => {
                let count = places.size();
                write!(f, "winograd {count}x{count}, 3x3")
            }
            KernelVariant::Gemv => f.write_str("rows by a matrix"),
            KernelVariant::DepthwiseDirect => f.write_str("direct"),
            KernelVariant::SplitK { parts } => write!(f, "split in {parts}"),
            KernelVariant::CooperativeMatrix { size } => {
                write!(f, "cooperative matrices {size}x{size}")
            }
            KernelVariant::WorkgroupTile { side } => write!(f, "workgroup tile {side}x{side}"),
        }
    }
}

/// Parses the displayed form.
impl FromStr for KernelVariant {
    type Err = Error;

    fn from_str(text: &str) -> Result<KernelVariant, Error> {
        let known = KernelVariant::ALL.iter();
        let found = known.copied().find(|variant| variant.to_string() == text);
        found.ok_or_else(|| Error::usage(format!("{text} is not a kernel variant")))
    }
}

/// `lanes: the adapter is a software rasteriser`
impl fmt::Display for VariantChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variant, self.reason)
    }
}
