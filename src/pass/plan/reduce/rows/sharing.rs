//! Who goes through a row.

use crate::pass::plan::element::Scope;
use crate::pass::plan::group::Frame;

/// Rows that are no longer are left to one invocation.
const SHORT: i64 = 16;

/// Who goes through a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One invocation.
    Alone,
    /// The invocations of a subgroup, which are so many.
    Subgroup(usize),
    /// A workgroup.
    Workgroup,
}

impl Sharing {
    /// Of the rows of a frame: of short ones and of columns each is one invocation's.
    pub fn of(scope: &Scope, frame: &Frame) -> Sharing {
        let capabilities = scope.capabilities;
        let length = frame.length.eval(&scope.graph.hints).unwrap_or_default();
        if length <= SHORT || !frame.is_contiguous() {
            Sharing::Alone
        } else {
            let lanes = capabilities.lanes();
            lanes.map_or(Sharing::Workgroup, Sharing::Subgroup)
        }
    }

    /// Invocations that share a row.
    pub fn lanes(self) -> usize {
        match self {
            Sharing::Alone => 1,
            Sharing::Subgroup(lanes) => lanes,
            Sharing::Workgroup => 64,
        }
    }
}
