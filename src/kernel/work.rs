//! Lower bounds of a kernel's work as formulas of the sizes, to compare measured times with.

use super::slot::SlotId;
use crate::dim::Dim;

/// Arithmetic and memory traffic of a dispatch, derived from the graph and not from the kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Arithmetic operations: 2 for each multiply-add of products and convolutions, 1 for each operand element of a
    /// reduction or scan, 1 for each result element of a pointwise primitive. Conversions, views and comparisons within
    /// sorts do not count.
    pub operations: Dim,
    /// Bytes of every buffer that is read or written, counted once; for a gathered or sliced table, the bytes that are read.
    pub bytes: Dim,
    /// Graph nodes that are fused into the step as producers, before the nodes that the step is named after.
    pub fused_producers: Vec<String>,
    /// Slots that the step writes. It reads its other slots.
    pub writes: Vec<SlotId>,
}

impl Default for Work {
    fn default() -> Work {
        Work {
            operations: Dim::ZERO,
            bytes: Dim::ZERO,
            fused_producers: Vec::new(),
            writes: Vec::new(),
        }
    }
}
