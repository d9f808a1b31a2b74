//! Which of several kernels computes something, and why that one.

use std::fmt;

/// The ways to compute a contraction or a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// One invocation computes some elements in registers: right on every device, and the reference of the others.
    Portable,
    /// A subgroup of eight invocations computes a tile, for rasterisers that run them as the lanes of a vector.
    Lanes,
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

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Portable => f.write_str("portable"),
            Variant::Lanes => f.write_str("lanes"),
        }
    }
}

/// `lanes, since the adapter is a software rasteriser`
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, since {}", self.variant, self.reason)
    }
}
