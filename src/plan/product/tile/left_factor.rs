//! Left factor of a tile: an invocation loads four K elements of a row and shuffles them to the other invocations of
//! its band.

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
    /// Returns the row that the invocation loads: the invocations of a band load neighbouring rows, starting with row
    /// `first` of the band. With one row per band, all of them load it.
    pub(super) fn loaded_row(&self, first: usize) -> Index {
        let loaded_row = if self.shape.rows == 1 {
            self.row.clone()
        } else {
            self.row.add(&self.lane)
        };
        loaded_row.add_size(&Dim::from(first))
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
    /// loads one row of as many as the band has invocations, and shuffles it to the others. `iteration` is the index of
    /// the iteration.
    pub(super) fn load_rows(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        taps: &[Index],
        iteration: &Index,
        from: usize,
    ) -> Result<Vec<ShuffledVector>> {
        let k_elements = Dim::from(product.right.k_block());
        let first = iteration.scale(&k_elements).add_size(&Dim::from(from));
        let steps = k_steps(scope, &first, &product.k_size, VEC4_LEN);
        let is_shared = self.shape.rows > 1;
        let mut rows = Vec::new();
        for first in (0..self.shape.rows).step_by(self.band_lanes()) {
            let vector = self.load_left(scope, product, (taps, &steps), &self.loaded_row(first))?;
            let row_count = self.band_lanes().min(self.shape.rows - first);
            rows.extend((0..row_count).map(|lane| ShuffledVector {
                vector,
                source_lane: is_shared.then(|| self.lane_of_own_band(lane)),
            }));
        }
        Ok(rows)
    }

    /// Loads four K elements of each row, starting with element `from` of a wide iteration. Each invocation loads four
    /// other K elements of every row, and the one that has the wanted elements shuffles them to its band. `iteration`
    /// is the index of the iteration.
    pub(super) fn load_rows_wide(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        taps: &[Index],
        iteration: &Index,
        from: usize,
    ) -> Result<Vec<ShuffledVector>> {
        let lane_offset = self.lane.scale(&Dim::from(VEC4_LEN));
        let k_elements = columns_per_vec4(self.lanes);
        let first = iteration.scale(&Dim::from(k_elements)).add(&lane_offset);
        let steps = k_steps(scope, &first, &product.k_size, k_elements);
        let mut rows = Vec::new();
        for i in 0..self.shape.rows {
            let row = self.row.add_size(&Dim::from(i));
            let vector = self.load_left(scope, product, (taps, &steps), &row)?;
            let source_lane = Some(self.lane_of_own_band(from / VEC4_LEN));
            rows.push(ShuffledVector {
                vector,
                source_lane,
            });
        }
        Ok(rows)
    }

    /// Loads four K elements of a row. `steps` are the coordinates of the tap and the K indices.
    pub(super) fn load_left(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        steps: (&[Index], &[KStep]),
        row: &Index,
    ) -> Result<Expr> {
        let row = self.clamped_coordinates(scope, product, row);
        let vector = (product.left)(scope, [&self.batch, &row], steps)?;
        scope.pool.set_label(vector, "rows");
        Ok(vector)
    }
}

/// Returns four K indices, starting with `from`, each with the condition that it is below K; absent if that always
/// holds. They belong to a block of `block_size` indices, of which the first is below K.
fn k_steps(scope: &mut KernelScope, from: &Index, k_size: &Dim, block_size: usize) -> Vec<KStep> {
    let has_whole_blocks = is_multiple(k_size, block_size);
    let mut steps = Vec::new();
    for k in 0..VEC4_LEN {
        let index = from.add_size(&Dim::from(k));
        let guard = match steps.first() {
            None => {
                (!has_whole_blocks && block_size > VEC4_LEN).then(|| scope.is_below(&index, k_size))
            }
            Some((_, first)) if is_multiple_of_4(k_size) => *first,
            Some(_) => Some(scope.is_below(&index, k_size)),
        };
        steps.push((index, guard));
    }
    steps
}
