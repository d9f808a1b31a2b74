//! What a kernel does at least, as formulas of the sizes: what measured times are held against.

use super::plan::SlotId;
use crate::dim::Dim;

/// What a dispatch computes and moves, counted from the graph and not from the kernel's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Arithmetic operations: 2 for each multiply-add of products and convolutions, 1 for each element that goes into a
    /// reduction or scan, 1 for each element that a pointwise primitive gives. Conversions, views and comparisons within
    /// sorts count nothing.
    pub operations: Dim,
    /// Bytes of every buffer that is read or written, each once; of a table that is gathered from or cut, what is read.
    pub bytes: Dim,
    /// The graph nodes that are computed where they are read, in front of those that the step is named by.
    pub through: Vec<String>,
    /// The slots that it writes; it reads the others that it binds.
    pub writes: Vec<SlotId>,
}

impl Default for Work {
    fn default() -> Work {
        Work {
            operations: Dim::ZERO,
            bytes: Dim::ZERO,
            through: Vec::new(),
            writes: Vec::new(),
        }
    }
}
