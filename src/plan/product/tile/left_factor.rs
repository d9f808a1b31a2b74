//! Left factor of a tile: an invocation loads four neighbours and shuffles them to the other invocations of its band.

use std::collections::BTreeSet;

use super::shuffle::ShuffledVector;
use super::{SubgroupTile, TiledProduct, columns_per_vec4};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{VEC4_LEN, component, is_multiple, is_multiple_of_4, load_vec4};
use crate::plan::kernel::clamped_index;
use crate::plan::product::Product;

/// An index along K, and the condition that it is below the size of K; absent if that always holds.
pub type KStep = (Index, Option<Expr>);

/// Loads four K elements of a row of the left factor. Takes the batch coordinates and the row's coordinates, then the
/// coordinates of the tap and the K indices.
type LeftLoader<'s> =
    &'s dyn Fn(&mut KernelScope, [&[Index]; 2], (&[Index], &[KStep])) -> Result<Expr>;

/// Loads a K element of four rows of the left factor. Takes the first row, a multiple of four, and the K index.
type RowsLoader<'s> = &'s dyn Fn(&mut KernelScope, &Index, &Index) -> Result<Expr>;

/// Source of the left factor.
pub enum LeftFactor<'s> {
    /// The left factor of this product, read from any layout. An invocation loads these neighbours together.
    Values(&'s Product, Neighbours),
    /// Four K elements of a row by a function.
    KElements(LeftLoader<'s>),
    /// A K element of four rows by a function. Rows and K are multiples of four.
    Rows(RowsLoader<'s>),
}

/// Neighbours of the left factor that an invocation loads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// Four K elements of a row.
    KElements,
    /// Four rows of a K element.
    Rows,
}

impl<'s> LeftFactor<'s> {
    /// Returns the left factor of a product, loaded by those neighbours of which more share a load. `shares_rows` tells
    /// whether a tile can load rows together.
    pub fn of_values(
        scope: &mut KernelScope,
        product: &'s Product,
        shares_rows: bool,
    ) -> Result<LeftFactor<'s>> {
        let shares_rows = shares_rows && is_multiple_of_4(&product.rows);
        let neighbours = if shares_rows && fewer_loads_by_rows(scope, product)? {
            Neighbours::Rows
        } else {
            Neighbours::KElements
        };
        Ok(LeftFactor::Values(product, neighbours))
    }

    /// Returns the neighbours that an invocation loads together.
    pub(super) fn neighbours(&self) -> Neighbours {
        match self {
            LeftFactor::Values(_, neighbours) => *neighbours,
            LeftFactor::KElements(_) => Neighbours::KElements,
            LeftFactor::Rows(_) => Neighbours::Rows,
        }
    }
}

/// True if four rows of a K element take fewer loads than four K elements of a row.
fn fewer_loads_by_rows(scope: &mut KernelScope, product: &Product) -> Result<bool> {
    let mut batch = Vec::new();
    for (axis, size) in product.batch.iter().enumerate() {
        batch.push(scope.counter(&format!("outer{axis}"), size).1);
    }
    let vec4_len = Dim::from(VEC4_LEN);
    let mut first = |name, size: &Dim| {
        let vec4s = size.ceil_div(&vec4_len);
        scope.counter(name, &vec4s).1.scale(&vec4_len)
    };
    let (row, k) = (first("row", &product.rows), first("k", &product.k_size));
    let by_rows = load_rows_of_values(scope, product, &batch, &row, &(k.clone(), None))?;
    let steps = [0, 1, 2, 3].map(|step| (k.add_size(&Dim::from(step)), None));
    let by_k = load_k_of_values(scope, product, &batch, &row, &steps)?;
    Ok(load_count(&scope.pool, by_rows) < load_count(&scope.pool, by_k))
}

/// Number of different loads that an expression contains.
fn load_count(pool: &ExprPool, expr: Expr) -> usize {
    let (mut seen, mut pending, mut count) = (BTreeSet::new(), vec![expr], 0);
    while let Some(expr) = pending.pop() {
        if !seen.insert(expr) {
            continue;
        }
        let node = pool.node(expr);
        count += usize::from(matches!(
            node,
            ExprNode::Load { .. } | ExprNode::TextureLoad { .. }
        ));
        pending.extend(pool.operands(expr));
    }
    count
}

/// Loads four K elements of a row of a product's left factor.
fn load_k_of_values(
    scope: &mut KernelScope,
    product: &Product,
    batch: &[Index],
    row: &Index,
    steps: &[KStep],
) -> Result<Expr> {
    let element = |(k, guard): &KStep| (product.left_element(batch, row, k), *guard);
    load_vec4(scope, &steps.iter().map(element).collect::<Vec<_>>())
}

/// Loads a K element of four rows of a product's left factor, the first of which is a multiple of four.
fn load_rows_of_values(
    scope: &mut KernelScope,
    product: &Product,
    batch: &[Index],
    first: &Index,
    (k, guard): &KStep,
) -> Result<Expr> {
    let element = |row| {
        let row = first.add_size(&Dim::from(row));
        (product.left_element(batch, &row, k), *guard)
    };
    load_vec4(scope, &(0..VEC4_LEN).map(element).collect::<Vec<_>>())
}

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
        if product.left.neighbours() == Neighbours::Rows {
            return self.load_neighbouring_rows(scope, product, &first);
        }
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

    /// Loads four K elements of each row, starting with `first`. Each invocation of a band loads one K element of four
    /// neighbouring rows, and shuffles them to the others. The vectors of four rows follow one another by K element.
    fn load_neighbouring_rows(
        &self,
        scope: &mut KernelScope,
        product: &TiledProduct,
        first: &Index,
    ) -> Result<Vec<ShuffledVector>> {
        let vec4_len = Dim::from(VEC4_LEN);
        let vec4_count = product.rows.floor_div(&vec4_len);
        let k = first.add(&self.lane);
        let guard =
            (!is_multiple_of_4(&product.k_size)).then(|| scope.is_below(&k, &product.k_size));
        let step = (k, guard);
        let mut vectors = Vec::new();
        for first_row in (0..self.shape.rows).step_by(VEC4_LEN) {
            let row = self.row.add_size(&Dim::from(first_row));
            let row = clamped_index(scope, &row.div(&vec4_len), &vec4_count).scale(&vec4_len);
            let vector = match product.left {
                LeftFactor::Values(values, _) => {
                    load_rows_of_values(scope, values, &self.batch, &row, &step)?
                }
                LeftFactor::Rows(load) => load(scope, &row, &step.0)?,
                LeftFactor::KElements(_) => return Err(mismatched_neighbours()),
            };
            scope.pool.set_label(vector, "rows");
            vectors.extend((0..VEC4_LEN).map(|lane| ShuffledVector {
                vector,
                source_lane: Some(self.lane_of_own_band(lane)),
            }));
        }
        Ok(vectors)
    }

    /// Returns the four K elements of row `i` of the band, out of the shuffled vectors.
    pub(super) fn k_elements_of_row(
        &self,
        pool: &mut ExprPool,
        neighbours: Neighbours,
        vectors: &[Expr],
        i: usize,
    ) -> [Expr; VEC4_LEN] {
        [0, 1, 2, 3].map(|k| {
            let (vector, part) = match neighbours {
                Neighbours::KElements => (i, k),
                Neighbours::Rows => (i - i % VEC4_LEN + k, i % VEC4_LEN),
            };
            component(pool, vectors[vector], part, WgslType::F32)
        })
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
        let vector = match product.left {
            LeftFactor::Values(values, _) => {
                load_k_of_values(scope, values, &self.batch, &row[0], steps.1)?
            }
            LeftFactor::KElements(load) => load(scope, [&self.batch, &row], steps)?,
            LeftFactor::Rows(_) => return Err(mismatched_neighbours()),
        };
        scope.pool.set_label(vector, "rows");
        Ok(vector)
    }
}

fn mismatched_neighbours() -> Error {
    Error::internal("a tile loads other neighbours than its left factor has")
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
