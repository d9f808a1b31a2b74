//! What invocations of a subgroup read for each other.

use super::Tile;
use crate::dim::Dim;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;
use crate::pass::plan::element::Scope;

/// Four numbers that each invocation has read.
pub(super) struct Held {
    /// The numbers.
    pub(super) quad: Expr,
    /// The invocation whose numbers are wanted; none where each wants its own.
    pub(super) by: Option<Index>,
}

/// The numbers that are wanted, by names.
pub(super) fn handed(
    scope: &mut Scope,
    held: &[Held],
    name: impl Fn(usize) -> String,
) -> Vec<Expr> {
    let pool = &mut scope.pool;
    let handed = held.iter().enumerate().map(|(i, Held { quad, by })| {
        let Some(by) = by else {
            return *quad;
        };
        let by = by.emit(pool);
        let handed = pool.call("subgroupShuffle(x, y)", Type::F32x4, &[*quad, by]);
        pool.set_label(handed, &name(i));
        handed
    });
    handed.collect()
}

// The driver knows the numbers of the invocations while it compiles, and makes one instruction for each component of what is
// handed if those who have read it depend on nothing else.
impl Tile {
    /// Invocations of a band.
    pub(super) fn of_band(&self) -> usize {
        self.lanes / self.extent.bands
    }

    /// An invocation of one's own band.
    pub(super) fn of_own_band(&self, lane: usize) -> Index {
        let first = self.band.scale(&Dim::from(self.of_band()));
        first.add_size(&Dim::from(lane))
    }

    /// One's neighbour in a band; oneself where there are no others.
    pub(super) fn in_band(&self, band: usize) -> Option<Index> {
        let first = Dim::from(band * self.of_band());
        (self.extent.bands > 1).then(|| self.lane.add_size(&first))
    }
}
