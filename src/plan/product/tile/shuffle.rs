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

/// Shuffles vectors between lanes. `name` returns the label of the result of a vector by its index.
pub(super) fn shuffled(
    scope: &mut KernelScope,
    loaded: &[ShuffledVector],
    name: impl Fn(usize) -> String,
) -> Vec<Expr> {
    let pool = &mut scope.pool;
    let results = loaded.iter().enumerate().map(
        |(
            i,
            ShuffledVector {
                vector,
                source_lane,
            },
        )| {
            let Some(source_lane) = source_lane else {
                return *vector;
            };
            let source_lane = source_lane.emit(pool);
            let result = pool.call(
                "subgroupShuffle(x, y)",
                WgslType::F32x4,
                &[*vector, source_lane],
            );
            pool.set_label(result, &name(i));
            result
        },
    );
    results.collect()
}

// The driver knows the invocation indices at compile time. It emits one instruction for each component of a shuffle if
// the source lane depends on nothing else.
impl SubgroupTile {
    /// Returns the number of invocations of a band.
    pub(super) fn band_lanes(&self) -> usize {
        self.lanes / self.shape.bands
    }

    /// Returns the index in the subgroup of an invocation of the own band, by its index in the band.
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
