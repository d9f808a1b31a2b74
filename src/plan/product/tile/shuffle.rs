//! Vectors that the invocations of a subgroup load for each other and exchange by shuffles.

use super::SubgroupTile;
use crate::dim::Dim;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::plan::element::KernelScope;

/// A vec4 that each invocation has loaded.
pub(super) struct ShuffledVector {
    /// The loaded vector.
    pub(super) vector: Expr,
    /// Lane whose vector is needed. `None` if each lane needs its own.
    pub(super) source_lane: Option<Index>,
}

/// Shuffles vectors between lanes; `name` labels the results.
pub(super) fn shuffled(
    scope: &mut KernelScope,
    loaded: &[ShuffledVector],
    name: impl Fn(usize) -> String,
) -> Vec<Expr> {
    let pool = &mut scope.pool;
    let handed = loaded.iter().enumerate().map(
        |(
            i,
            ShuffledVector {
                vector: quad,
                source_lane: by,
            },
        )| {
            let Some(by) = by else {
                return *quad;
            };
            let by = by.emit(pool);
            let handed = pool.call("subgroupShuffle(x, y)", WgslType::F32x4, &[*quad, by]);
            pool.set_label(handed, &name(i));
            handed
        },
    );
    handed.collect()
}

// The driver knows the invocation indices at compile time. It emits one instruction for each component of a shuffle if
// the source lane depends on nothing else.
impl SubgroupTile {
    /// Returns the invocations of a band.
    pub(super) fn band_lanes(&self) -> usize {
        self.lanes / self.shape.bands
    }

    /// Returns the lane of an invocation of the own band.
    pub(super) fn lane_of_own_band(&self, lane: usize) -> Index {
        let first = self.band.scale(&Dim::from(self.band_lanes()));
        first.add_size(&Dim::from(lane))
    }

    /// Returns the lane in another band that corresponds to the own one. `None` if there is a single band.
    pub(super) fn lane_of_band(&self, band: usize) -> Option<Index> {
        let first = Dim::from(band * self.band_lanes());
        (self.shape.bands > 1).then(|| self.lane.add_size(&first))
    }
}
