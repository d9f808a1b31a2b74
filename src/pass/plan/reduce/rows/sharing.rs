//! Invocations that process a row.

use crate::pass::plan::element::Scope;
use crate::pass::plan::group::Frame;

/// Longest row that a single invocation processes.
const SHORT: i64 = 16;

/// Invocations that process a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One invocation.
    Alone,
    /// A subgroup of this size.
    Subgroup(usize),
    /// A workgroup.
    Workgroup,
}

impl Sharing {
    /// Chooses the invocations for the rows of a frame. A short row or a column gets a single one.
    pub fn of(scope: &Scope, frame: &Frame) -> Sharing {
        let capabilities = scope.capabilities;
        let length = frame.length.eval(&scope.graph.hints).unwrap_or_default();
        if length <= SHORT || !frame.is_contiguous() {
            Sharing::Alone
        } else {
            let lanes = capabilities.simd_lanes();
            lanes.map_or(Sharing::Workgroup, Sharing::Subgroup)
        }
    }

    /// Number of invocations that share a row.
    pub fn lanes(self) -> usize {
        match self {
            Sharing::Alone => 1,
            Sharing::Subgroup(lanes) => lanes,
            Sharing::Workgroup => 64,
        }
    }
}
