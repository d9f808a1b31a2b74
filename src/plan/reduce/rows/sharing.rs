//! Invocations that process a row.

use crate::plan::element::KernelScope;
use crate::plan::group::RowFrame;

/// Longest row that a single invocation processes.
const MAX_SINGLE_LENGTH: i64 = 16;

/// Invocations that process a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSharing {
    /// One invocation.
    Invocation,
    /// A subgroup of this size.
    Subgroup(usize),
    /// A workgroup.
    Workgroup,
}

impl RowSharing {
    /// Chooses the invocations for the rows of a frame. A short row or a column gets a single one.
    pub fn of(scope: &KernelScope, frame: &RowFrame) -> RowSharing {
        let capabilities = scope.capabilities;
        let length = frame.length.eval(&scope.graph.hints).unwrap_or_default();
        if length <= MAX_SINGLE_LENGTH || !frame.is_contiguous() {
            RowSharing::Invocation
        } else {
            let lanes = capabilities.simd_lanes();
            lanes.map_or(RowSharing::Workgroup, RowSharing::Subgroup)
        }
    }

    /// Number of invocations that share a row.
    pub fn lanes(self) -> usize {
        match self {
            RowSharing::Invocation => 1,
            RowSharing::Subgroup(lanes) => lanes,
            RowSharing::Workgroup => 64,
        }
    }
}
