//! Left factor of a tile: an invocation loads four K elements of some row and shuffles them to its band.

use super::shuffle::ShuffledVector;
use super::{KStep, SubgroupTile, TiledProduct, columns_per_vec4};
use crate::dim::Dim;
use crate::error::Result;
use crate::kernel::expr::Expr;
use crate::kernel::index::{self, Index};
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{VEC4_LEN, is_multiple, is_multiple_of_4};
use crate::plan::kernel::clamped_index;

impl SubgroupTile {
    /// Returns the row that the invocation loads, of as many rows as its band has invocations.
    pub(super) fn loaded_row(&self, first: usize) -> Index {
        let mine = if self.shape.rows == 1 {
            self.row.clone()
        } else {
            self.row.add(&self.lane)
        };
        mine.add_size(&Dim::from(first))
    }

    /// Returns the coordinates of a row, clamped to the last one.
    pub(super) fn clamped_coordinates(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        row: &Index,
    ) -> Vec<Index> {
        let row = clamped_index(scope, row, &product.rows);
        index::delinearize(&row, &product.row_shape)
    }

    /// Loads four K elements of each row, starting with element `from` of the iteration. Each invocation of a band
    /// loads one of as many rows.
    pub(super) fn load_rows(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        taps: &[Index],
        round: &Index,
        from: usize,
    ) -> Result<Vec<ShuffledVector>> {
        let count = Dim::from(product.right.round());
        let first = round.scale(&count).add_size(&Dim::from(from));
        let steps = k_steps(scope, &first, &product.k_size, VEC4_LEN);
        let is_shared = self.shape.rows > 1;
        let mut held = Vec::new();
        for first in (0..self.shape.rows).step_by(self.band_lanes()) {
            let quad = self.load_left(scope, product, (taps, &steps), &self.loaded_row(first))?;
            let count = self.band_lanes().min(self.shape.rows - first);
            held.extend((0..count).map(|lane| ShuffledVector {
                vector: quad,
                source_lane: is_shared.then(|| self.lane_of_own_band(lane)),
            }));
        }
        Ok(held)
    }

    /// Loads four K elements of each row, starting with element `from` of the iteration. Each invocation loads four
    /// K elements of every row.
    pub(super) fn load_rows_wide(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        taps: &[Index],
        round: &Index,
        from: usize,
    ) -> Result<Vec<ShuffledVector>> {
        let mine = self.lane.scale(&Dim::from(VEC4_LEN));
        let round_size = columns_per_vec4(self.lanes);
        let first = round.scale(&Dim::from(round_size)).add(&mine);
        let steps = k_steps(scope, &first, &product.k_size, round_size);
        let mut held = Vec::new();
        for i in 0..self.shape.rows {
            let row = self.row.add_size(&Dim::from(i));
            let quad = self.load_left(scope, product, (taps, &steps), &row)?;
            let by = Some(self.lane_of_own_band(from / VEC4_LEN));
            held.push(ShuffledVector {
                vector: quad,
                source_lane: by,
            });
        }
        Ok(held)
    }

    /// Loads four K elements of a row.
    pub(super) fn load_left(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        steps: (&[Index], &[KStep]),
        row: &Index,
    ) -> Result<Expr> {
        let row = self.clamped_coordinates(scope, product, row);
        let quad = (product.left)(scope, [&self.batch, &row], steps)?;
        scope.pool.set_label(quad, "rows");
        Ok(quad)
    }
}

/// Returns four K indices, each with the condition that it is below K; absent if that always holds. They belong to a
/// block of `of` indices, of which the first is below K.
fn k_steps(scope: &mut KernelScope, from: &Index, depth: &Dim, of: usize) -> Vec<KStep> {
    let is_known = is_multiple(depth, of);
    let mut guards = Vec::new();
    for k in 0..VEC4_LEN {
        let step = from.add_size(&Dim::from(k));
        let guard = match guards.first() {
            None => (!is_known && of > VEC4_LEN).then(|| scope.is_below(&step, depth)),
            Some((_, first)) if is_multiple_of_4(depth) => *first,
            Some(_) => Some(scope.is_below(&step, depth)),
        };
        guards.push((step, guard));
    }
    guards
}
